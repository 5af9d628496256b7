"""Bytes on disk that survive a crash, and that one program at a time writes.

A file is written whole or not at all: the bytes go to a temporary file in the same
folder, reach the disk, and only then take the name. Whoever changes a file by what is
in it locks it first. What the bytes mean is not known here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, BinaryIO, TypeVar

from sketchlearn.errors import (
    FileAccessError,
    ForbiddenFileError,
    MissingFileError,
    SketchFileError,
    quote,
)

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

__all__ = [
    "has_name",
    "lock_file",
    "open_regular",
    "path_text",
    "retry",
    "sync",
    "sync_folder",
    "write_file",
]

STALE_SECONDS = 3600
"""Temporary files of killed writers are removed when they are older than this: no save
takes an hour."""

_ATTEMPTS = 100
"""A file that is replaced so often while one waits for its lock is never locked."""
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""As most file systems have it."""

_T = TypeVar("_T")


def path_text(path: Any) -> str:
    """The text of a path; what cannot name a file is refused.

    Examples
    --------
    >>> path_text("a.sketch")
    'a.sketch'
    """
    try:
        name = os.fsdecode(path)
        os.fsencode(name)
    except (TypeError, UnicodeError) as error:
        raise SketchFileError(
            f"a path is text that the file system can write, or a path object; got "
            f"{quote(path)} of type {type(path).__name__}."
        ) from error
    longest = max(map(len, os.fsencode(name).replace(b"\\", b"/").split(b"/")))
    if "\0" in name or longest > _LONGEST_NAME or len(name) > _LONGEST_PATH:
        raise SketchFileError(
            f"a path has no NUL character, at most {_LONGEST_PATH} characters, and in "
            f"each name at most {_LONGEST_NAME} bytes; got {quote(name)}."
        )
    return name


def open_regular(path: Any) -> BinaryIO:
    """Open a regular file for reading; refuse folders, pipes and devices."""
    path = path_text(path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)  # non-blocking: a FIFO would wait forever
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"there is no file {path!r}; check the path.") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise SketchFileError(
                f"{path!r} is not a file ({error.strerror}). Load a file made by save."
            ) from error
        raise _refused(error, str(error.strerror), path) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a directory" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise SketchFileError(f"{path!r} is {what}. Load a file made by save.")
    return open(descriptor, "rb")


def write_file(path: Any, data: bytes) -> None:
    """Replace a file by ``data``, all of it or nothing; mode 0600; follow links."""
    path = os.path.realpath(path_text(path))
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SketchFileError(f"cannot save to {path!r}: it is not a regular file.")
    _remove_stale(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with _descriptor(temporary, flags) as descriptor:
            rest = memoryview(data)
            while rest:
                rest = rest[retry(os.write, descriptor, rest) :]
            sync(descriptor)
        retry(os.replace, temporary, path)
        sync_folder(folder)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise MissingFileError(
                    f"cannot save to {path!r}: there is no folder {folder!r}. Make it "
                    "first."
                ) from error
            text = f"{error.strerror}; what was there before is unchanged"
            raise _refused(error, text, path) from error
        raise


def _refused(error: OSError, text: str, path: str) -> FileAccessError:
    is_forbidden = isinstance(error, PermissionError)
    kind = ForbiddenFileError if is_forbidden else FileAccessError
    return kind(error.errno, text, path)


@contextmanager
def _descriptor(path: str, flags: int) -> Iterator[int]:
    descriptor = retry(os.open, path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Wait until what was written is on the disk itself."""
    if sys.platform == "darwin" and fcntl is not None:
        with suppress(OSError):  # not on every file system
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    retry(os.fsync, descriptor)


def sync_folder(folder: str) -> None:
    """Wait until the names of new files are on the disk."""
    if os.name != "nt":  # where folders cannot be opened
        with _descriptor(folder, os.O_RDONLY) as descriptor:
            sync(descriptor)


def lock_file(path: str, *, create: bool = False) -> int:
    """A descriptor of the regular file that has this name, locked for one writer.

    Closing it ends the lock. While waiting for the lock the file may be replaced or
    removed: then the lock is worth nothing, and the file that has the name now is
    taken. Where locks do not work an OSError says ENOLCK.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no file locks (fcntl)", path)
    for _ in range(_ATTEMPTS):
        descriptor = _open_to_write(path, create=create)
        try:
            retry(fcntl.flock, descriptor, fcntl.LOCK_EX)
            if has_name(descriptor, path) and _is_alone(descriptor, path):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if getattr(error, "errno", None) in (errno.ENOTSUP, errno.ENOSYS):
                raise OSError(errno.ENOLCK, "there are no file locks", path) from error
            raise
        os.close(descriptor)
    raise OSError(errno.EBUSY, "it is replaced all the time", path)


def has_name(descriptor: int, path: str | os.PathLike[str]) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _is_alone(descriptor: int, path: str) -> bool:
    """Whether the lock keeps others out; False if the file was replaced meanwhile.

    Some network file systems grant every lock: there a second opening of the same
    file, which is as good as another program, gets the lock as well.
    """
    assert fcntl is not None
    try:
        second = retry(os.open, path, os.O_RDWR | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    else:
        if os.path.samestat(os.fstat(second), os.fstat(descriptor)):
            what = "file locks keep nobody out on this file system"
            raise OSError(errno.ENOLCK, what, path)
        return False
    finally:
        os.close(second)


def _open_to_write(path: str, *, create: bool) -> int:
    what = f"{path!r} is no regular file"
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):  # some devices act on open
                raise SketchFileError(f"{what}.")
        # Non-blocking: should it become a pipe in between, opening must not wait.
        flags = os.O_RDWR | os.O_NONBLOCK | (os.O_CREAT if create else 0)
        descriptor = int(retry(os.open, path, flags, 0o600))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR):
            raise SketchFileError(f"{what} ({error.strerror}).") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SketchFileError(f"{what}.")
    return descriptor


def _remove_stale(folder: str, name: str) -> None:
    """Remove what earlier saves of this file left when they were killed."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.tmp")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > STALE_SECONDS:
                    os.unlink(entry.path)


def retry(call: Callable[..., _T], *arguments: Any) -> _T:
    """Call again for as long as a signal interrupts."""
    while True:
        with suppress(InterruptedError):
            return call(*arguments)
