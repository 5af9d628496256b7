"""The ledger: what has been spent of a dataset's privacy, on disk before the noise.

A ledger is a :mod:`journal <sketchlearn.privacy.journal>` of JSON lines. The first
holds the terms (the caps, and the unit and relation of which they speak), each further
one a charge. A charge holds an exclusive lock, reads the file anew, and is on the disk
when it returns: two processes can never spend the same budget, and a crash loses
budget, never privacy. The number of lines is kept a second time, in a *witness* beside
the file (``study.ledger.witness``): a ledger that has become shorter is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

from sketchlearn.errors import LedgerError, PrivacyError
from sketchlearn.files.durable import path_text
from sketchlearn.privacy.accountant import Terms
from sketchlearn.privacy.books import AbstractBook, FileBook, MemoryBook
from sketchlearn.privacy.charge import Charge, Neighbours

__all__ = ["Ledger", "LedgerSummary", "open_ledger"]
__public__ = ["Ledger"]


@final
@dataclass(frozen=True)
class LedgerSummary:
    """What a ledger allows, and what of it is left.

    Parameters
    ----------
    path : Path or None
        The file; None in memory.
    epsilon, delta, pure_epsilon : float
        The caps.
    neighbours : str or None
        The relation of which they speak; None where it was never stated.
    rows_per_unit : int or None
        The unit of which they speak; None where it was never stated.
    n_charges : int
        How often something was spent.
    spent_epsilon : float
        The ε that everything released so far keeps together at ``delta``.
    left_epsilon : float
        Largest ε of one more release at ``delta`` that would be granted.
    """

    path: Path | None
    epsilon: float
    delta: float
    pure_epsilon: float
    neighbours: Neighbours | None
    rows_per_unit: int | None
    n_charges: int
    spent_epsilon: float
    left_epsilon: float


@final
class Ledger:
    r"""What may be spent on one dataset, and what has been.

    Gaussian releases cost :math:`\mu^2 = (\Delta/\sigma)^2`, and these costs add
    up; the cap is the μ² that (ε, δ) allows. With ``pure_epsilon`` everything is
    added up as zCDP, which has room for Laplace counts and for somewhat fewer
    releases. Both are valid filters even when later releases depend on earlier ones.

    Parameters
    ----------
    path : path
        The file. It is created if it does not exist; if it does, the terms must agree.
        A relative name is made absolute at once. The file and its witness, beside it,
        are moved and copied together.
    epsilon, delta : float
        Cap on everything ever released from the dataset.
    pure_epsilon : float
        How much of ``epsilon`` Laplace counts may take; 0 refuses them.
    neighbours : {"add_remove", "replace"}
        The relation of which the cap speaks.
    rows_per_unit : int
        The unit of which the cap speaks: the rows that one person may have. Releases
        for other units or relations are converted upwards, or refused.

    Examples
    --------
    >>> ledger = Ledger.ephemeral(epsilon=2.0, delta=1e-5)
    >>> ledger.charge(Charge("first", mu2=0.07))
    >>> round(ledger.spent_epsilon(1e-5), 2)
    0.99
    >>> round(ledger.left_epsilon(), 2)
    1.67
    """

    path: Path | None
    _book: AbstractBook

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        pure_epsilon: float = 0.0,
        neighbours: Neighbours = "add_remove",
        rows_per_unit: int = 1,
    ) -> None:
        terms = Terms(epsilon, delta, pure_epsilon, neighbours, rows_per_unit)
        self.path = _absolute(path)
        self._book = FileBook.create(self.path, terms)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        neighbours: Neighbours | None = None,
        rows_per_unit: int | None = None,
        without_witness: bool = False,
    ) -> Ledger:
        """Open an existing ledger with the terms it has.

        Parameters
        ----------
        path : path
            The file.
        neighbours, rows_per_unit
            Only for ledgers made by version 1, which do not say what one unit is:
            state it, once. You vouch that all that was released so far is covered.
        without_witness : bool
            Only for a ledger whose witness is lost or damaged: a new one is made. You
            vouch that no line of the ledger is missing.
        """
        ledger = cls.__new__(cls)
        ledger.path = _absolute(path)
        ledger._book = FileBook.open(
            ledger.path, neighbours, rows_per_unit, without_witness=without_witness
        )
        return ledger

    @classmethod
    def ephemeral(
        cls,
        *,
        epsilon: float,
        delta: float,
        pure_epsilon: float = 0.0,
        neighbours: Neighbours = "add_remove",
        rows_per_unit: int = 1,
    ) -> Self:
        """A ledger in memory: it forgets when the program ends.

        It belongs to the process that made it. A copy would be a second budget, so
        that it cannot be copied, pickled or used after a fork.
        """
        ledger = cls.__new__(cls)
        ledger.path = None
        ledger._book = MemoryBook(
            Terms(epsilon, delta, pure_epsilon, neighbours, rows_per_unit)
        )
        return ledger

    @property
    def epsilon(self) -> float:
        """Cap on everything ever released."""
        return self._book.account.terms.epsilon

    @property
    def delta(self) -> float:
        """The δ of that cap."""
        return self._book.account.terms.delta

    @property
    def pure_epsilon(self) -> float:
        """How much of ``epsilon`` Laplace counts may take."""
        return self._book.account.terms.pure_epsilon

    @property
    def neighbours(self) -> Neighbours | None:
        """The relation of which the cap speaks; None where it was never stated."""
        return self._book.account.terms.neighbours

    @property
    def rows_per_unit(self) -> int | None:
        """The unit of which the cap speaks; None where it was never stated."""
        return self._book.account.terms.rows_per_unit

    def charge(self, charge: Charge, *, once: bool = False) -> None:
        """Spend, or raise :class:`BudgetExceeded` and spend nothing.

        On return the charge is on the disk. With ``once`` a charge whose
        ``release_id`` is in the ledger already is refused, whichever process put it
        there; it is looked for under the lock that the charge itself holds.
        """
        if not isinstance(charge, Charge):
            raise PrivacyError(f"a ledger takes a Charge; got {type(charge).__name__}.")
        self._book.add(charge, once=once)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything spent so far, in order."""
        return self._book.charges()

    def spent_epsilon(self, delta: float) -> float:
        """The ε that everything released so far keeps together, at this δ.

        Of the unit and relation of the ledger, and rounded up.
        """
        return self._book.now().spent.epsilon(delta)

    def left_epsilon(self) -> float:
        """Largest ε of one more release that would be granted; 0 if none.

        For a release without a Laplace count, at the ledger's δ, unit and relation.
        """
        account = self._book.now()
        return account.terms.left_epsilon(account.spent)

    def summary(self) -> LedgerSummary:
        """The caps, what is spent and what is left, read at one moment."""
        account = self._book.now()
        terms, spent = account.terms, account.spent
        return LedgerSummary(
            path=self.path,
            epsilon=terms.epsilon,
            delta=terms.delta,
            pure_epsilon=terms.pure_epsilon,
            neighbours=terms.neighbours,
            rows_per_unit=terms.rows_per_unit,
            n_charges=spent.n_charges,
            spent_epsilon=spent.epsilon(terms.delta),
            left_epsilon=terms.left_epsilon(spent),
        )

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        now = self.summary()
        return (
            f"Ledger({where}, epsilon={now.epsilon}, delta={now.delta}, spent="
            f"{now.spent_epsilon:.4g} in {now.n_charges} charges)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise LedgerError(
                "a ledger in memory cannot be copied or pickled: the copy would be a "
                "second budget. Use a file: Ledger(path, epsilon=..., delta=...)."
            )
        return Ledger.open, (str(self.path),)


def _absolute(path: str | os.PathLike[str]) -> Path:
    """The file itself: the same one from every folder and by every link."""
    return Path(os.path.realpath(path_text(path)))


def open_ledger(path: Any) -> Ledger:
    """The ledger that a release is to be paid from: as given, or by its path."""
    if isinstance(path, Ledger):
        return path
    if path is None or not isinstance(path, str | os.PathLike):
        raise PrivacyError(
            "ledger must be a Ledger or the path of one; ask for "
            "Ledger.ephemeral(epsilon=..., delta=...) if it may be forgotten."
        )
    return Ledger.open(path)
