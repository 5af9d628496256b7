"""Rows and their classes, sketched class by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.sketching.local_rows import LocalRows
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.sketching.sketch_rows import sketch_rows

__all__ = ["LabelledRows"]


@final
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows, each with a class.

    Parameters
    ----------
    batches : Batches
        Features, and the class in a last column unless ``classes`` are given.
    classes : array of shape (n,), optional
        The class of each row. Without them the last column holds whole numbers.
    left_out : frozenset
        Classes whose rows are passed over.
    """

    batches: Batches
    classes: NDArray[Any] | None = None
    left_out: frozenset[Any] = frozenset()

    def without(self, labels: Iterable[Any]) -> LabelledRows:
        """The rows of all other classes."""
        return replace(self, left_out=self.left_out | frozenset(labels))

    def extremes(self) -> NDArray[np.float64]:
        """What a plan may know of the features of all rows."""
        found = LocalRows(self.batches).extremes()
        return found[:, :-1] if self.classes is None else found

    def labels(self) -> set[Any]:
        """The classes that have rows."""
        return {label for label, _ in self._groups()}

    def sketches(
        self, maps: Mapping[Any, AbstractFeatureMap] | AbstractFeatureMap
    ) -> dict[Any, Sketch]:
        """One sketch for each class that has rows and a map, or one map for all."""
        found: dict[Any, Sketch] = {}
        for label, rows in self._groups():
            phi = maps.get(label) if isinstance(maps, Mapping) else maps
            if phi is not None:
                part = sketch_rows(rows, phi, progress=False)
                found[label] = found[label] + part if label in found else part
        return found

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
            f"classes must be whole numbers in files; got {code:g}. Number the "
            "classes, or pass arrays."
        )
    return int(code)
