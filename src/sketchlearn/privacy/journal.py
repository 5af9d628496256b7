"""A journal: lines in a file that can be added and never changed or taken away.

Every line is an entry in canonical JSON and carries the SHA-256 of the entry before it
and of itself. Writers exclude one another by a lock on the file, and an entry is on the
disk when :func:`append` returns. A reader keeps how far it has read (:class:`Seen`)
and how that part hashes: later it reads all bytes again, but takes apart only what is
new. What the entries mean is not known here.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, final

from sketchlearn.errors import LedgerError
from sketchlearn.files.container import canonical_json
from sketchlearn.files.durable import retry, sync

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

__all__ = ["Seen", "append", "chain_hash", "locked", "read"]

_ATTEMPTS = 100
"""A file that is replaced so often while one waits for its lock is never locked."""

_HASH, _HEAD = b'"hash":"', b'{"delta":"'
"""How the hash of a line starts, and how the first line of a ledger does."""


@final
@dataclass(frozen=True)
class Seen:
    """How far a journal was read and found sound.

    Parameters
    ----------
    size : int
        Bytes.
    n_lines : int
        Entries in them.
    last : str
        Hash of the last entry, empty before the first.
    ended : bool
        Whether the last entry has its end of line.
    prefix : hash
        SHA-256 of the bytes; copied before it is updated.
    """

    size: int = 0
    n_lines: int = 0
    last: str = ""
    ended: bool = True
    prefix: Any = field(default_factory=hashlib.sha256, repr=False, compare=False)

    def after(self, data: bytes, n_lines: int, last: str, *, ended: bool) -> Seen:
        """The same with ``data`` behind it."""
        prefix = self.prefix.copy()
        prefix.update(data)
        return Seen(self.size + len(data), self.n_lines + n_lines, last, ended, prefix)


@contextmanager
def locked(path: Path, *, create: bool) -> Iterator[int]:
    """A descriptor of the file that has this name, locked for one writer.

    While waiting for the lock the file may be replaced or removed by another one:
    then the lock is worth nothing, and the file that has the name now is taken.
    """
    if fcntl is None:
        raise LedgerError(
            "a ledger in a file needs file locks (fcntl), which this system does not "
            "have: two programs could spend the same budget. Nothing was released. Use "
            "Ledger.ephemeral(epsilon=..., delta=...) in one program, or release on "
            "Linux, macOS or WSL."
        )
    for _ in range(_ATTEMPTS):
        descriptor = _open(path, create=create)
        try:
            retry(fcntl.flock, descriptor, fcntl.LOCK_EX)
            if _has_name(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)
    raise LedgerError(f"{str(path)!r} is replaced all the time. Nothing was released.")


def read(descriptor: int, path: Path, seen: Seen) -> tuple[list[dict[str, Any]], Seen]:
    """Entries behind what was seen, their chain checked; a torn end is left out.

    The last entry counts if it is whole, with or without its end of line: only what
    cannot have been acknowledged, since it is not a whole entry, does not, and the next
    writer writes over it.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    if not _starts_with(descriptor, seen):
        _read_tail(descriptor, path, Seen())  # may say which line was changed
        raise LedgerError(
            f"{str(path)!r} was replaced by another or an older file: entries that "
            "were in it are gone. Nothing was released. Put the right file back."
        )
    return _read_tail(descriptor, path, seen)


def append(descriptor: int, path: Path, body: Mapping[str, Any], seen: Seen) -> Seen:
    """Write one entry behind what was seen; it is on the disk on return."""
    last = chain_hash(seen.last, body)
    line = canonical_json({**body, "hash": last}).encode() + b"\n"
    data = line if seen.ended else b"\n" + line
    os.ftruncate(descriptor, seen.size)  # what a writer that died left behind
    os.lseek(descriptor, seen.size, os.SEEK_SET)
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[retry(os.write, descriptor, rest) :]
    except OSError:
        with suppress(OSError):  # else it is cut off by the next writer
            os.ftruncate(descriptor, seen.size)
        raise
    sync(descriptor)
    if not _has_name(descriptor, path):
        raise LedgerError(
            f"{str(path)!r} was replaced while it was written to. Nothing was "
            "released. Put the right file back."
        )
    return seen.after(data, 1, last, ended=True)


def chain_hash(previous: str, body: Mapping[str, Any]) -> str:
    """Hash of an entry that follows the one with hash ``previous``."""
    return hashlib.sha256((previous + canonical_json(body)).encode()).hexdigest()


def _open(path: Path, *, create: bool) -> int:
    what = "no regular file"
    try:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):  # some devices act on open
                raise LedgerError(_not_regular(path, what))
        # Non-blocking: should it become a pipe in between, opening must not wait.
        flags = os.O_RDWR | os.O_NONBLOCK | (os.O_CREAT if create else 0)
        descriptor = int(retry(os.open, str(path), flags, 0o600))
    except FileNotFoundError as error:
        if create:
            raise LedgerError(
                f"the folder of the ledger {str(path)!r} does not exist; create it "
                "first."
            ) from error
        raise LedgerError(
            f"there is no ledger {str(path)!r}. Create it once for each dataset: "
            "Ledger(path, epsilon=..., delta=...)."
        ) from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR):
            raise LedgerError(_not_regular(path, str(error.strerror))) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LedgerError(_not_regular(path, what))
    return descriptor


def _not_regular(path: Path, what: str) -> str:
    return f"{str(path)!r} is not a ledger but {what}. Nothing was released."


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _starts_with(descriptor: int, seen: Seen) -> bool:
    """Whether the file begins with what was seen; the position is behind it then."""
    found, missing = hashlib.sha256(), seen.size
    while missing:
        part = retry(os.read, descriptor, min(missing, 1 << 20))
        if not part:
            break
        found.update(part)
        missing -= len(part)
    return not missing and found.digest() == seen.prefix.digest()


def _read_tail(
    descriptor: int, path: Path, seen: Seen
) -> tuple[list[dict[str, Any]], Seen]:
    os.lseek(descriptor, seen.size, os.SEEK_SET)
    data = b""
    while part := retry(os.read, descriptor, 1 << 24):
        data += part
    if not seen.size:
        _require_ledger(data, path)
    start = 0
    if data and not seen.ended:  # the next writer has put the end of line there
        start = 1
        if data[:1] != b"\n" and b"\n" in data:
            raise LedgerError(_damaged(path, seen.n_lines))
        if data[:1] != b"\n":  # or nobody has, and this is what is left out
            return [], seen
    end = max(data.rfind(b"\n") + 1, start)
    entries: list[dict[str, Any]] = []
    last = seen.last
    texts = data[start:end].split(b"\n")[:-1]
    for entry, text in zip(_parse_lines(texts), texts, strict=True):
        number = seen.n_lines + len(entries)
        entries.append(_require_next(entry, text, last, path, number))
        last = entries[-1]["hash"]
    entry, length = _parse_first(data[end:])
    if entry is not None:
        number = seen.n_lines + len(entries)
        text = data[end : end + length]
        entries.append(_require_next(entry, text, last, path, number))
        last, end = entry["hash"], end + length
    ended = entry is None and (seen.ended or bool(data))
    found = seen.after(data[:end], len(entries), last, ended=ended)
    return entries, found


def _require_ledger(data: bytes, path: Path) -> None:
    """Refuse what was never a ledger before anything of it is cut off."""
    head = data.partition(b"\n")[0]
    torn = head == data and data.startswith(_HEAD[: len(data)])
    if data and not torn and not (head.startswith(b"{") and _HASH in head):
        raise LedgerError(
            f"{str(path)!r} is not a ledger; it was left as it is. Nothing was "
            "released."
        )


def _parse_lines(texts: list[bytes]) -> list[dict[str, Any] | None]:
    """The entry of each line; None where it is none."""
    with suppress(ValueError, RecursionError):
        # All at once takes half of the time; each is compared with its text later.
        entries = json.loads((b"[" + b",".join(texts) + b"]").decode("ascii"))
        if len(entries) == len(texts):
            return [entry if isinstance(entry, dict) else None for entry in entries]
    return [_parse(text) for text in texts]


def _parse(text: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _parse_first(data: bytes) -> tuple[dict[str, Any] | None, int]:
    """The entry that ``data`` starts with, whatever follows it, and its length."""
    try:
        entry, length = json.JSONDecoder().raw_decode(data.decode("latin-1"))
    except (ValueError, RecursionError):
        return None, 0
    return (entry, length) if isinstance(entry, dict) else (None, 0)


def _require_next(
    entry: dict[str, Any] | None, text: bytes, previous: str, path: Path, number: int
) -> dict[str, Any]:
    """The entry, or LedgerError if it does not follow from the one before."""
    if entry is None:
        raise LedgerError(
            f"line {number + 1} of {str(path)!r} is not JSON: not a ledger, or "
            "damaged. Nothing was released."
        )
    # Canonical JSON: the text without its hash is what was hashed.
    before, _, rest = text.partition(_HASH)
    claimed, rest = rest[:64], rest[64:]
    body = before + rest[2:] if rest[:2] == b'",' else before[:-1] + rest[1:]
    found = hashlib.sha256(previous.encode() + body).hexdigest()
    if found.encode() != claimed or found != entry.get("hash"):
        raise LedgerError(_damaged(path, number))
    return entry


def _damaged(path: Path, number: int) -> str:
    return (
        f"line {number + 1} of {str(path)!r} does not follow from the lines before it: "
        "the ledger was changed or damaged. Nothing was released."
    )
