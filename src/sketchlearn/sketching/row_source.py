"""Row sources: all that is ever asked of rows, wherever they are.

Estimators plan from the range of the rows and sketch them; what else rows can do is
not their business. Rows on this machine are one source
(:mod:`sketchlearn.sketching.local_rows`); those of an engine are another, which
sketches where the rows are and adds up the parts. The interface stands here and not
beside the readers because its answer is a sketch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapMismatch
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import require_width
from sketchlearn.rows.kinds import OpenedRows
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractRowSource"]


class AbstractRowSource(OpenedRows):
    """Rows that can be looked at and sketched."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Short description of the input, for messages."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers in a row."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if the input has names."""

    @property
    @abstractmethod
    def is_repeatable(self) -> bool:
        """Whether the rows can be sketched more than once."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> Self:
        """The same rows with these features only, in this order."""

    @abstractmethod
    def extremes(self) -> NDArray[np.float64]:
        """What a plan may know of the rows, shape (4, n_features).

        Least and largest value of each feature, and its quartiles, the same for the
        same rows in the same order. Rows that can be read once are still all there
        afterwards.

        Raises
        ------
        RowRangeError
            If a magnitude is beyond :data:`sketchlearn.rows.survey.LARGEST`.
        """

    @abstractmethod
    def sketch(
        self, feature_map: AbstractFeatureMap, *, pooling: str = "mean"
    ) -> Sketch:
        """The sketch of all rows, which have as many features as the map takes."""

    @final
    def of_width(self, n_features: int) -> Self:
        """These rows, after checking that they have so many features."""
        require_width(self.n_features, n_features, self.source)
        return self

    @final
    def aligned(self, planned: tuple[str, ...] | None) -> Self:
        """These rows with the columns of a plan, by name where both have names."""
        if planned is None or self.names is None:
            return self
        if not set(planned) <= set(self.names):
            missing = next(name for name in planned if name not in self.names)
            raise FeatureMapMismatch(
                f"the plan has columns {', '.join(planned)[:200]}; these rows have "
                f"{', '.join(self.names)[:200]}, and no {missing!r}. Nothing was added."
            )
        return self.select(planned)
