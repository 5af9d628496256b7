"""Rows and their classes, sketched class by class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.rows.kinds import learned
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.passes import new_lineage
from sketchlearn.sketching.sketch import Sketch

__all__ = ["AbstractLabelledRows", "ClassMaps", "LabelledRows"]

ClassMaps = Mapping[Any, AbstractFeatureMap] | AbstractFeatureMap
"""A map for each class, or one for all."""


class AbstractLabelledRows(ABC):
    """Rows, each with a class, wherever they are."""

    batches: Batches
    """Features, and the class in a last column unless there are ``classes``."""

    classes: NDArray[Any] | None
    """The class of each row, where they stand apart."""

    @abstractmethod
    def without(self, labels: Iterable[Any]) -> Self:
        """The rows of all other classes."""

    @abstractmethod
    def extremes(self) -> NDArray[np.float64]:
        """What a plan may know of the features of all rows."""

    @abstractmethod
    def labels(self) -> set[Any]:
        """The classes that have rows."""

    @abstractmethod
    def sketches(self, maps: ClassMaps) -> dict[Any, Sketch]:
        """One sketch for each class that has rows and a map."""


@final
@dataclass(frozen=True, eq=False)
class LabelledRows(AbstractLabelledRows):
    """Rows that this process reads, each with a class.

    Parameters
    ----------
    batches : Batches
        Features, and the class in a last column unless ``classes`` are given.
    classes : array of shape (n,), optional
        The class of each row. Without them the last column holds whole numbers.
    left_out : frozenset
        Classes whose rows are passed over.
    names : tuple of str, optional
        Of the features.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> rows = LabelledRows(sl.open_rows([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]]))
    >>> means = rows.sketches(sl.MomentFeatures(1, order="mean"))
    >>> {label: sketch.mean.tolist() for label, sketch in means.items()}
    {0: [2.5], 1: [2.0]}
    """

    batches: Batches
    classes: NDArray[Any] | None = None
    left_out: frozenset[Any] = frozenset()
    names: tuple[str, ...] | None = None

    @override
    def without(self, labels: Iterable[Any]) -> Self:
        return replace(self, left_out=self.left_out | frozenset(labels))

    @override
    def extremes(self) -> NDArray[np.float64]:
        found = LocalRows(self.batches).extremes()
        return found[:, :-1] if self.classes is None else found

    @override
    def labels(self) -> set[Any]:
        return {label for label, _ in self._groups()}

    @override
    def sketches(self, maps: ClassMaps) -> dict[Any, Sketch]:
        found: dict[Any, Sketch] = {}
        for label, rows in self._groups():
            phi = maps.get(label) if isinstance(maps, Mapping) else maps
            if phi is not None:
                part = LocalRows(self._opened(rows, phi)).sketch(phi)
                part = replace(part, columns=self.names or part.columns)
                found[label] = found[label] + part if label in found else part
        # A pass is one run of each class, however many batches it had.
        return {c: replace(part, lineage=new_lineage()) for c, part in found.items()}

    def _opened(
        self, rows: NDArray[np.floating], feature_map: AbstractFeatureMap
    ) -> Batches:
        return open_rows(
            learned(rows) if self.batches.is_learned else rows,
            progress=False,
            n_features=feature_map.n_features,
            n_jobs=self.batches.n_jobs,
        )

    def _groups(self) -> Iterator[tuple[Any, NDArray[np.floating]]]:
        """Rows of one class, batch by batch."""
        row = 0
        for batch in self.batches:
            features, classes = batch, batch[:, -1]
            if self.classes is None:
                features = batch[:, :-1]
            else:
                classes = self.classes[row : row + len(batch)]
                row += len(batch)
            for label in np.unique(classes).tolist():
                name = label if self.classes is not None else _whole(label)
                if name not in self.left_out:
                    yield name, features[classes == label]


def _whole(code: float) -> int:
    """A class that a file holds as a number."""
    if not code.is_integer():
        raise RowsError(
            "a column of classes holds whole numbers, and this one has others. Number "
            "the classes, or pass rows in memory and an array of classes."
        )
    return int(code)
