"""Rows that carry their class in a last column, sketched class by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.rows.batches import Batches
from sketchlearn.sketch import Sketch, sketch_rows

__all__ = ["LabelledRows"]


@final
@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows, with a class in their last column.

    Parameters
    ----------
    batches : Batches
        Features, and the position of the class in ``classes``, or the class.
    classes : list or None
        None if the last column holds the classes themselves, as whole numbers.
    left_out : frozenset
        Classes whose rows are passed over.
    """

    batches: Batches
    classes: list[Any] | None
    left_out: frozenset[Any] = frozenset()

    def without(self, labels: Iterable[Any]) -> LabelledRows:
        """The rows of all other classes."""
        return replace(self, left_out=self.left_out | frozenset(labels))

    def labels(self) -> set[Any]:
        """The classes that have rows."""
        return {label for batch in self.batches for label, _ in self._groups(batch)}

    def sketches(
        self, maps: Mapping[Any, AbstractFeatureMap] | AbstractFeatureMap
    ) -> dict[Any, Sketch]:
        """One sketch for each class that has rows and a map, or one map for all."""
        found: dict[Any, Sketch] = {}
        for batch in self.batches:
            for label, rows in self._groups(batch):
                phi = maps.get(label) if isinstance(maps, Mapping) else maps
                if phi is not None:
                    part = sketch_rows(rows, phi, progress=False)
                    found[label] = found[label] + part if label in found else part
        return found

    def _groups(
        self, batch: NDArray[np.floating]
    ) -> Iterator[tuple[Any, NDArray[np.floating]]]:
        codes = batch[:, -1]
        for code in np.unique(codes).tolist():
            if not float(code).is_integer():
                raise RowsError(
                    f"classes must be whole numbers in files; got {code:g}. Number the "
                    "classes, or pass arrays."
                )
            label: Any = int(code)
            if self.classes is not None:
                label = self.classes[label]
            if label not in self.left_out:
                yield label, batch[codes == code, :-1]
