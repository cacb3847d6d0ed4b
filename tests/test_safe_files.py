"""Files inside a folder that nobody vouches for."""

import contextlib
import os
import stat

import pytest

from trellis import safe_files
from trellis.safe_files import UnsafeFileError


def test_a_file_is_read_within_its_limit(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"12345")
    assert safe_files.read_file(tmp_path, "a/file", limit=5) == b"12345"
    with pytest.raises(UnsafeFileError, match=r"a/file has 5 bytes, more than the 4"):
        safe_files.read_file(tmp_path, "a/file", limit=4)
    with pytest.raises(FileNotFoundError, match=r"No such file.*a/other"):
        safe_files.read_file(tmp_path, "a/other", limit=4)


def test_links_are_followed_to_the_folder_and_not_inside(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(real)
    assert safe_files.read_file(tmp_path / "link", "file", limit=1) == b"1"
    with pytest.raises(UnsafeFileError, match="link is a symbolic link"):
        safe_files.read_file(tmp_path, "link/file", limit=1)
    (real / "inner").symlink_to(real / "file")
    for use in (
        lambda: safe_files.read_file(real, "inner", limit=1),
        lambda: safe_files.open_to_append(real, "inner"),
        lambda: safe_files.truncate(real, "inner", 0),
        lambda: safe_files.make_folder(real, "inner"),
    ):
        with pytest.raises(UnsafeFileError, match="inner is a symbolic link"):
            use()
    assert (real / "file").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("make", "what"),
    [(os.mkfifo, "a named pipe"), (os.mkdir, "a folder")],
)
def test_special_files_are_not_opened(tmp_path, make, what):
    make(tmp_path / "file")
    for use in (
        lambda: safe_files.read_file(tmp_path, "file", limit=1),
        lambda: safe_files.open_to_append(tmp_path, "file"),
    ):
        with pytest.raises(UnsafeFileError, match=f"file is {what}"):
            use()


def test_a_new_file_replaces_a_link_and_leaves_its_target(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "name").symlink_to(tmp_path / "target")
    safe_files.write_file(tmp_path, "name", b"new")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert (tmp_path / "name").read_bytes() == b"new"
    assert not (tmp_path / "name").is_symlink()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "name").stat().st_mode) == 0o666 & ~mask


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    safe_files.write_file(tmp_path, "name", b"old")
    with contextlib.suppress(KeyboardInterrupt), safe_files.new_file(tmp_path, "name") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "name").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["name"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    for name in (".name.12ab.tmp", ".other.12ab.tmp", "name"):
        (tmp_path / name).touch()
    (tmp_path / ".name.34cd.tmp").symlink_to(tmp_path / "name")
    safe_files.remove_temporaries(tmp_path, "name")
    assert sorted(os.listdir(tmp_path)) == [".other.12ab.tmp", "name"]


def test_a_file_with_two_names_is_read_and_not_changed(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    os.link(tmp_path / "file", tmp_path / "other")
    assert safe_files.read_file(tmp_path, "file", limit=1) == b"1"
    for use in (safe_files.open_to_append, lambda *place: safe_files.truncate(*place, 0)):
        with pytest.raises(UnsafeFileError, match="2 hard links"):
            use(tmp_path, "file")


def test_removing_a_link_leaves_its_target(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with safe_files.open_folder(tmp_path) as at:
        for name in ("link", "nothing"):
            safe_files.remove(name, dir_fd=at)
        assert os.listdir(tmp_path / "folder") == ["file"]
        safe_files.remove("folder", dir_fd=at)
    assert os.listdir(tmp_path) == []
