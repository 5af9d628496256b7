"""Books: where the charges of a ledger are kept, in a file or in memory.

A book takes a charge if its terms have room for it. What is in the lines of a file is
known to :mod:`sketchlearn.privacy.entries`, how they reach the disk to
:mod:`sketchlearn.privacy.journal`.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from sketchlearn.errors import LedgerError, SessionError
from sketchlearn.files.durable import sync_folder
from sketchlearn.privacy.accountant import Terms
from sketchlearn.privacy.charge import Charge, require_unit
from sketchlearn.privacy.entries import (
    UNIT_VERSION,
    WITNESS_VERSION,
    Account,
    add_lines,
    charges_of,
    header_of,
    line_of,
    read_account,
    unit_of,
)
from sketchlearn.privacy.journal import (
    Seen,
    append,
    locked,
    read,
    require_witness,
    witness_path,
    write_witness,
)

__all__ = ["AbstractBook", "FileBook", "MemoryBook"]


class AbstractBook(ABC):
    """Terms, and charges that can be added and never taken away."""

    account: Account
    """The terms and sums, as they were when this book was last looked into."""

    @abstractmethod
    def now(self) -> Account:
        """The terms and sums as they are now."""

    @abstractmethod
    def add(self, charge: Charge, *, once: bool) -> None:
        """Keep a charge, or raise :class:`BudgetExceeded` and keep nothing.

        With ``once``, one whose ``release_id`` is kept already is refused.
        """

    @abstractmethod
    def charges(self) -> tuple[Charge, ...]:
        """Everything in it, in order."""


@final
class FileBook(AbstractBook):
    """A book that other processes may have open too.

    Whoever holds the lock of the file is alone with it, also among threads, and reads
    it anew before adding to it.
    """

    def __init__(self, path: Path, account: Account) -> None:
        self.path, self.account = path, account

    @classmethod
    def create(cls, path: Path, terms: Terms) -> FileBook:
        """A file with these terms: a new one, or one that has them already."""
        if witness_path(path).exists() and not path.exists():
            raise LedgerError(
                f"there is no ledger {str(path)!r}, and its witness is there. Put "
                "the file back from where it was moved, or choose another name."
            )
        with locked(path, create=True) as descriptor:
            lines, seen = read(descriptor, path, Seen())
            if lines:
                account = _witnessed(lines, seen, path)
                _require_same(account.terms, terms, path)
            else:
                write_witness(path, seen)  # from the start, whatever happens next
                seen = append(descriptor, path, header_of(terms), seen)
                account = Account(terms, seen=seen)
        sync_folder(str(path.resolve().parent))
        return cls(path, account)

    @classmethod
    def open(
        cls,
        path: Path,
        neighbours: Any,
        rows_per_unit: Any,
        *,
        without_witness: bool = False,
    ) -> FileBook:
        """A file with the terms it has; its unit is stated if it never was."""
        with locked(path, create=False) as descriptor:
            if without_witness:
                _take_as_whole(descriptor, path)
            lines, seen = read(descriptor, path, Seen())
            if not lines:
                raise LedgerError(f"{str(path)!r} is empty; it is not a ledger.")
            book = cls(path, _witnessed(lines, seen, path))
            if neighbours is not None or rows_per_unit is not None:
                book._state_unit(descriptor, neighbours, rows_per_unit)
        return book

    @override
    def now(self) -> Account:
        with locked(self.path, create=False) as descriptor:
            return self._refresh(descriptor)

    @override
    def add(self, charge: Charge, *, once: bool) -> None:
        with locked(self.path, create=False) as descriptor:
            account = self._refresh(descriptor)
            if account.terms.neighbours is None:
                raise LedgerError(
                    f"{str(self.path)!r} was made by version 1 and does not say what "
                    "one unit is. Nothing was released. If all that was released so "
                    "far is about single rows added or removed, state it once with "
                    'Ledger.open(path, neighbours="add_remove", rows_per_unit=1).'
                )
            if once:
                _require_new(charge, self._charges(descriptor), str(self.path))
            spent = account.terms.require_room(account.spent, charge, str(self.path))
            seen = append(descriptor, self.path, line_of(charge), account.seen)
            self.account = replace(account, spent=spent, seen=seen)

    @override
    def charges(self) -> tuple[Charge, ...]:
        with locked(self.path, create=False) as descriptor:
            self._refresh(descriptor)
            return self._charges(descriptor)

    def _charges(self, descriptor: int) -> tuple[Charge, ...]:
        lines, _ = read(descriptor, self.path, Seen())
        return charges_of(lines, self.path)

    def _refresh(self, descriptor: int) -> Account:
        """Take in what others have added."""
        lines, seen = read(descriptor, self.path, self.account.seen)
        self.account = add_lines(self.account, lines, seen, self.path)
        return self.account

    def _state_unit(self, descriptor: int, neighbours: Any, rows_per_unit: Any) -> None:
        account = self.account
        require_unit(neighbours, rows_per_unit)
        terms = replace(
            account.terms, neighbours=neighbours, rows_per_unit=rows_per_unit
        )
        if account.terms.neighbours is not None:
            _require_same(account.terms, terms, self.path)
            return
        seen = append(descriptor, self.path, unit_of(terms), account.seen)
        self.account = replace(account, terms=terms, version=UNIT_VERSION, seen=seen)


@final
class MemoryBook(AbstractBook):
    """A book that ends with the process it was made in."""

    def __init__(self, terms: Terms) -> None:
        self.account = Account(terms)
        self._charges: list[Charge] = []
        self._lock, self._process = threading.Lock(), os.getpid()

    @override
    def now(self) -> Account:
        self._require_own_process()
        return self.account

    @override
    def add(self, charge: Charge, *, once: bool) -> None:
        self._require_own_process()
        where = "this ledger in memory"
        with self._lock:
            if once:
                _require_new(charge, self._charges, where)
            account = self.account
            spent = account.terms.require_room(account.spent, charge, where)
            self._charges.append(charge)
            self.account = replace(account, spent=spent)

    @override
    def charges(self) -> tuple[Charge, ...]:
        return tuple(self._charges)

    def _require_own_process(self) -> None:
        if self._process != os.getpid():
            raise LedgerError(
                "this ledger in memory belongs to the process that made it; after a "
                "fork it would be a second budget. Nothing was released. Use a file: "
                "Ledger(path, epsilon=..., delta=...)."
            )


def _witnessed(lines: list[dict[str, Any]], seen: Seen, path: Path) -> Account:
    """What the lines of a whole file say, if its witness is where it should be."""
    account = read_account(lines, seen, path)
    if account.version >= WITNESS_VERSION:
        require_witness(path)
    return account


def _take_as_whole(descriptor: int, path: Path) -> None:
    """Make a new witness where there is none that could say something else."""
    with suppress(LedgerError):
        require_witness(path)
        return
    witness_path(path).unlink(missing_ok=True)
    lines, seen = read(descriptor, path, Seen())
    read_account(lines, seen, path)
    write_witness(path, seen)


def _require_new(charge: Charge, kept: Iterable[Charge], where: str) -> None:
    if any(one.release_id == charge.release_id for one in kept):
        raise SessionError(
            f"{where} has paid for {charge.release_id[:6]}.. before: a party "
            "contributes to a session once, since two shares under the same masks "
            "would show the difference of two sketches. Nothing was made or spent. "
            "Start a new one with session.renewed()."
        )


def _require_same(found: Terms, asked: Terms, path: Path) -> None:
    if found.neighbours is None:  # of version 1: it will say so when it is charged
        asked = replace(asked, neighbours=None, rows_per_unit=None)
    if found != asked:
        raise LedgerError(
            f"{str(path)!r} has other caps or another unit than asked for: a ledger is "
            "made once for each dataset and keeps its caps and its unit. Open it with "
            "Ledger.open(path)."
        )
