"""Read and write files inside a folder that nobody vouches for, such as a run from the internet.

The path to the folder is the user's own and may contain links. Below the folder no link is
followed, only regular files are opened, and sizes are checked before anything is read. A new file
gets an unpredictable temporary name, which is created exclusively, and is renamed when it is whole.
A file with several hard links is read, but never changed in place: its other names may lie outside
of the folder.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
"""Ending of the name of a file that is being written."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class UnsafeFileError(OSError):
    """A file inside a folder is a link, a device, or too large; the message says what to do."""

    exit_code = 2
    """Exit code of a command that fails for this reason."""


@contextlib.contextmanager
def open_folder(folder: Path | str, *below: str) -> Iterator[int]:
    """Yield a descriptor of a folder, for the `dir_fd` of functions in `os`.

    Args:
        folder: Path that may contain links.
        *below: Names of the folders below it, none of which may be a link.
    """
    path, descriptor = Path(folder), os.open(folder, _FOLDER)
    try:
        for name in below:
            path = path / name
            _require_kind(path, name, descriptor, stat.S_ISDIR)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def is_there(folder: Path | str, name: str) -> bool:
    """Return whether `folder` has an entry `name` (a path below it) of any kind."""
    return os.path.lexists(Path(folder) / name)


def open_file(folder: Path | str, name: str, *, limit: int) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        folder: Path that may contain links.
        name: Path of the file below it, in which no part may be a link.
        limit: Largest allowed size in bytes.

    Raises:
        UnsafeFileError: It is not a regular file, or it is too large.
    """
    descriptor = _open(folder, name, os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    if size > limit:
        os.close(descriptor)
        raise UnsafeFileError(
            f"{Path(folder) / name} has {size:,} bytes, more than the {limit:,} that Trellis reads"
            " there: it is damaged or was not written by Trellis"
        )
    return os.fdopen(descriptor, "rb")


def read_file(folder: Path | str, name: str, *, limit: int) -> bytes:
    """Return the content of a regular file; arguments and errors as in `open_file`."""
    with open_file(folder, name, limit=limit) as file:
        return file.read(limit)


def open_to_append(folder: Path | str, name: str) -> BinaryIO:
    """Open a regular file that has no other name for appending, unbuffered; create it if missing.

    Raises:
        UnsafeFileError: It is not a regular file, or it has several hard links.
    """
    descriptor = _open(folder, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, only_name=True)
    return os.fdopen(descriptor, "ab", buffering=0)


def truncate(folder: Path | str, name: str, size: int) -> None:
    """Shorten a regular file that has no other name, and wait until the disk has it."""
    descriptor = _open(folder, name, os.O_WRONLY, only_name=True)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_file(folder: Path | str, name: str) -> Iterator[BinaryIO]:
    """Yield a new file that takes its name when it is whole and on the disk.

    What has the name is replaced, whatever it is: a link itself, not the file it leads to.
    """
    *below, last = Path(name).parts
    with open_folder(folder, *below) as at:
        temporary = f".{last}.{secrets.token_hex(8)}{TEMPORARY}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666, dir_fd=at)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, last, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=at)
            raise
        os.fsync(at)


def write_file(folder: Path | str, name: str, data: bytes) -> None:
    """Write a file, which has either all of `data` or its old content."""
    with new_file(folder, name) as file:
        file.write(data)


def make_folder(folder: Path | str, name: str) -> None:
    """Create the folder `name` in `folder`, if there is none; a link is not one."""
    with open_folder(folder) as at:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=at)
        _require_kind(Path(folder) / name, name, at, stat.S_ISDIR)


def remove(name: str, *, dir_fd: int) -> None:
    """Remove an entry of an open folder with all that is in it; of a link, the link alone."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=dir_fd)
        else:
            os.unlink(name, dir_fd=dir_fd)


def remove_temporaries(folder: Path | str, name: str) -> None:
    """Remove what processes that were killed while they wrote the file `name` have left."""
    with open_folder(folder) as at:
        for entry in os.listdir(at):
            if is_temporary(entry, name):
                remove(entry, dir_fd=at)


def is_temporary(entry: str, name: str) -> bool:
    """Return whether an entry is a temporary file for the file `name`."""
    return entry.startswith(f".{name}.") and entry.endswith(TEMPORARY)


def _open(folder: Path | str, name: str, flags: int, *, only_name: bool = False) -> int:
    """Return a descriptor of the regular file `name` below `folder`."""
    *below, last = Path(name).parts
    path = Path(folder) / name
    with open_folder(folder, *below) as at:
        # First by its name: opening a device can have an effect.
        with contextlib.suppress(FileNotFoundError):
            _require_kind(path, last, at, stat.S_ISREG)
        try:
            descriptor = os.open(last, flags | _FILE, 0o666, dir_fd=at)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _wrong_kind(path, stat.S_IFLNK) from None
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (found.st_nlink == 1 or not only_name):
        return descriptor
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise _wrong_kind(path, found.st_mode)
    raise UnsafeFileError(
        f"{path} has {found.st_nlink} hard links, so writing to it would change other files:"
        " replace it by a copy"
    )


def _require_kind(path: Path, name: str, dir_fd: int, is_kind: Callable[[int], bool]) -> None:
    try:
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
    if not is_kind(mode):
        raise _wrong_kind(path, mode)


def _wrong_kind(path: Path, mode: int) -> UnsafeFileError:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
    )
    what = next((words for is_kind, words in kinds if is_kind(mode)), "a device")
    return UnsafeFileError(
        f"{path} is {what}. Trellis follows no links and opens no special files inside a run"
        " folder: replace it by what it should be, or delete it"
    )
