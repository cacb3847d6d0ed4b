"""The commit as git itself has it, from its files."""

import subprocess

import pytest

from trellis.runs.provenance import UNKNOWN, commit


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    shown = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return shown.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / "src" / "trellis").mkdir(parents=True)
    (folder / "src" / "trellis" / "a.py").write_text("")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.mark.parametrize("state", ["branch", "packed", "detached"])
def test_it_is_the_head(checkout, state):
    if state == "packed":
        git(checkout, "pack-refs", "--all")
    if state == "detached":
        git(checkout, "checkout", "-q", "--detach")
    assert commit(checkout) == git(checkout, "rev-parse", "HEAD")[:7]


def test_a_further_work_tree_has_its_own(checkout, tmp_path):
    git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "second")
    assert commit(tmp_path / "tree") == git(tmp_path / "tree", "rev-parse", "HEAD")[:7]
    assert commit(tmp_path / "tree") != commit(checkout)


def test_outside_of_a_checkout(checkout, tmp_path):
    assert commit(tmp_path) == UNKNOWN
    subprocess.run(["rm", "-rf", str(checkout / ".git")], check=True)
    assert commit(checkout) == UNKNOWN
