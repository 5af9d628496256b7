"""A journal: lines in a file that can be added and never changed or taken away.

Every line is an entry in canonical JSON and carries the SHA-256 of the entry before it
and of itself. Writers exclude one another by a lock on the file, and an entry is on the
disk when :func:`append` returns. A reader keeps how far it has read (:class:`Seen`)
and how that part hashes: later it reads all bytes again, but takes apart only what is
new. What the entries mean is not known here.

Beside the journal lies its *witness*, a file with the number of entries and the hash of
the last, written after each entry and before anybody is told of it. A crash can leave
the journal longer than its witness says, or with a torn line behind what it says; a
journal that is shorter was cut.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import LedgerError, MissingFileError, SketchFileError
from sketchlearn.files.container import canonical_json
from sketchlearn.files.durable import (
    has_name,
    lock_file,
    open_regular,
    retry,
    sync,
    write_file,
)

__all__ = [
    "Seen",
    "append",
    "chain_hash",
    "locked",
    "read",
    "require_witness",
    "witness_path",
    "write_witness",
]

_WITNESS = re.compile(
    rb'\{"format":"sketchlearn-witness","hash":"([0-9a-f]{64}|)",'
    rb'"n_lines":(0|[1-9][0-9]{0,17}),"version":1\}\n'
)
"""A whole witness."""

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
    """A descriptor of the file that has this name, locked for one writer."""
    try:
        descriptor = lock_file(str(path), create=create)
    except FileNotFoundError as error:
        raise LedgerError(
            f"the folder of the ledger {str(path)!r} does not exist; create it first."
            if create
            else f"there is no ledger {str(path)!r}. Create it once for each dataset: "
            "Ledger(path, epsilon=..., delta=...)."
        ) from error
    except SketchFileError as error:
        raise LedgerError(f"not a ledger: {error} Nothing was released.") from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EBUSY):
            raise
        raise LedgerError(
            f"{str(path)!r} cannot be locked ({error.strerror}): two programs could "
            "spend the same budget. Nothing was released. Keep the ledger on a local "
            "disk of Linux, macOS or WSL. Use Ledger.ephemeral(epsilon=..., "
            "delta=...) if one program releases and may forget."
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
    entries, found = _read_tail(descriptor, path, seen)
    _require_witnessed(path, seen, entries, found)
    return entries, found


def append(descriptor: int, path: Path, body: Mapping[str, Any], seen: Seen) -> Seen:
    """Write one entry behind what was seen; both files are on the disk on return.

    The entry comes first: should the witness fail, it stays and counts, though nobody
    was told of it.
    """
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
    if not has_name(descriptor, path):
        raise LedgerError(
            f"{str(path)!r} was replaced while it was written to. Nothing was "
            "released. Put the right file back."
        )
    found = seen.after(data, 1, last, ended=True)
    write_witness(path, found)
    return found


def witness_path(path: Path) -> Path:
    """Where the witness of a journal lies."""
    return path.with_name(f"{path.name}.witness")


def write_witness(path: Path, seen: Seen) -> None:
    """Put down how long the journal is, and how it ends."""
    words = {"format": "sketchlearn-witness", "version": 1}
    text = canonical_json({**words, "n_lines": seen.n_lines, "hash": seen.last})
    write_file(str(witness_path(path)), f"{text}\n".encode())


def require_witness(path: Path) -> None:
    """Refuse a journal whose witness is gone."""
    if _witness(path) is None:
        raise LedgerError(_unwitnessed(path, "is missing"))


def _witness(path: Path) -> tuple[int, str] | None:
    """Number of entries and last hash by the witness, if there is one."""
    try:
        with open_regular(str(witness_path(path))) as stream:
            found = _WITNESS.fullmatch(stream.read(1024))
    except MissingFileError:
        return None
    except SketchFileError:
        found = None
    if found is None:
        raise LedgerError(_unwitnessed(path, "is damaged"))
    return int(found[2]), found[1].decode()


def _require_witnessed(
    path: Path, seen: Seen, entries: list[dict[str, Any]], found: Seen
) -> None:
    """Refuse a chain that does not go on from what its witness says, if it has one."""
    witness = _witness(path)
    if witness is None:
        return
    n_lines, last = witness
    place = n_lines - seen.n_lines
    # What was seen before is known by its own hash.
    hashes = [seen.last, *(entry["hash"] for entry in entries[:place])]
    if n_lines > found.n_lines or (place >= 0 and hashes[place] != last):
        raise LedgerError(
            f"{str(path)!r} has {found.n_lines} lines, and its witness "
            f"{str(witness_path(path))!r} knows {n_lines}: entries that were in it are "
            "gone, or these files are not of one ledger. Nothing was released. Put "
            "the right files back, both of them. If entries are lost, make a ledger "
            "under another name, with caps lower by all that may have been spent."
        )


def _unwitnessed(path: Path, what: str) -> str:
    return (
        f"the witness {str(witness_path(path))!r} of this ledger {what}, so that "
        "nobody knows whether entries are gone. Nothing was released. Put it back: "
        "the two files are moved and copied together. If it is lost, and you know "
        "that the ledger is whole, say so once with Ledger.open(path, "
        "without_witness=True)."
    )


def chain_hash(previous: str, body: Mapping[str, Any]) -> str:
    """Hash of an entry that follows the one with hash ``previous``."""
    return hashlib.sha256((previous + canonical_json(body)).encode()).hexdigest()


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
