"""Tables for decoding all items together: one of counts, the others with signs."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.features.hashed_items import AbstractHashFeatures

__all__ = ["JointCountFeatures"]
__public__ = ["JointCountFeatures"]


@final
class JointCountFeatures(AbstractHashFeatures):
    r"""A Count-Sketch whose first table has no signs.

    Signs make what collides with an item noise without a bias, but hide how many items
    there are in all. One table of plain counts adds up to that number exactly, and
    costs joint decoding a single one of its equations.

    Parameters are those of :class:`CountMinFeatures`, with at least two tables.

    Examples
    --------
    >>> phi = JointCountFeatures(n_features=5, width=3, depth=2)
    >>> phi(np.eye(5))[:, :3].sum(axis=1)
    array([1., 1., 1., 1., 1.])
    """

    kind: ClassVar[str] = "joint-counts"
    first_signed: ClassVar[int | None] = 1
    fewest_tables: ClassVar[int] = 2

    @property
    @override
    def counted(self) -> int:
        return self.width

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return self._counts(rows, first_row)
