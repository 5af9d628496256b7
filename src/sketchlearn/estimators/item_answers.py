"""What estimators of items answer: counts, and whether items are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.rows.vocabulary import Item

__all__ = ["ItemCounts", "ItemMembership"]
__public__ = ["ItemCounts", "ItemMembership"]


@final
@dataclass(frozen=True, eq=False)
class ItemCounts:
    """How often some items are there, with error bars.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> fitted = sl.FrequencyEstimator(vocabulary="fit").fit(["b", "a", "b"])
    >>> fitted.top(1)
    item  count  from  to (95%)
    b         2     2  2
    """

    items: list[Item]
    """Their ids."""

    counts: NDArray[np.float64]
    """In how many rows each is, or how often in all rows together."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    """The count is between these with probability ``confidence``."""

    confidence: float
    n_rows: float
    """Rows that were sketched."""

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """Counts over the number of rows."""
        return self.counts / self.n_rows

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        head = ("item", "count", "from", f"to ({100 * self.confidence:g}%)")
        rows = zip(self.items, self.counts, self.low, self.high, strict=True)
        lines: list[tuple[str, ...]] = [head]
        lines += [(str(i), *(f"{x:.4g}" for x in numbers)) for i, *numbers in rows]
        widths = [max(len(line[k]) for line in lines) for k in range(3)]
        return "\n".join(
            f"{item:<{widths[0]}}  {count:>{widths[1]}}  {low:>{widths[2]}}  {high}"
            for item, count, low, high in lines
        )


@final
@dataclass(frozen=True, eq=False)
class ItemMembership:
    """Whether some items are there at all."""

    items: list[Item]
    """Their ids."""

    probabilities: NDArray[np.float64]
    """That at least one row holds the item."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether it is more likely that the item is there."""
        return self.probabilities > 0.5

    def __len__(self) -> int:
        return len(self.items)
