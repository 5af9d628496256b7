"""The sketch: one vector and one count that stand for a whole dataset.

Rows come in through :mod:`sketchlearn.rows`, already numbers; decoders only ever read
``mean`` and ``count``. The total is an exact integer vector (fixed point), so
merging, subtracting, order and partition never change a bit of it.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.packing import bits_of, packed_bytes
from sketchlearn.errors import (
    FeatureMapMismatch,
    PoolingError,
    RemovalError,
    RowsError,
    SketchlearnError,
)
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import rebuild_map
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import canonical_json
from sketchlearn.sketching.counts import counts_of
from sketchlearn.sketching.lineage import (
    Lineage,
    gathered_lineage,
    merged_lineage,
    remaining_lineage,
)
from sketchlearn.sketching.passes import new_lineage
from sketchlearn.sketching.pooling.by_name import get_pooling

__all__ = ["Sketch", "add_sketches", "require_same_columns"]
__public__ = ["Sketch"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """Exact total of the feature vectors of ``count`` rows.

    Made by :func:`sketch_rows`, :func:`sketchlearn.load` or arithmetic on other
    sketches; all operations return new sketches.

    Parameters
    ----------
    total : Int128Array
        Summed (or otherwise pooled) integer features.
    count : int
        Number of rows.
    features : FeatureSpec
        What the features are; only sketches of equal fingerprint can meet.
    pooling : str
        Name of the pooling.
    lineage : Lineage, set of str, or None
        Passes over rows (:mod:`sketchlearn.sketching.lineage`), each added once; None
        when they are not known.
    source_map : AbstractFeatureMap, optional
        The map itself, if it is at hand.
    columns : tuple of str, optional
        Names of the columns, if the rows had names; other names never merge.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=2, sketch_size=8, seed=0)
    >>> a = sl.sketch_rows([[0.0, 1.0], [2.0, 3.0]], phi)
    >>> b = sl.sketch_rows([[4.0, 5.0]], phi)
    >>> (a + b).count, (a + b) - b == a
    (3, True)
    """

    total: Int128Array
    count: int
    features: FeatureSpec
    pooling: str = "mean"
    lineage: Lineage | None = Lineage()
    source_map: AbstractFeatureMap | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.lineage, set | frozenset):
            object.__setattr__(self, "lineage", Lineage.of(self.lineage))

    @property
    def size(self) -> int:
        """How many numbers the sketch holds."""
        return len(self.total)

    @cached_property
    def packed_bytes(self) -> int:
        """How many bytes the numbers take when packed, as in files.

        16 each, but for counts of items: these take as many bits as the largest needs
        above the least.

        Examples
        --------
        >>> import sketchlearn as sl
        >>> phi = sl.CountMinFeatures(n_features=3, width=4, depth=2)
        >>> a = sl.sketch_rows([[1.0, 0.0, 0.0], [1.0, 2.0, 3.0]], phi)
        >>> a.size, a.packed_bytes
        (8, 3)
        """
        counts = counts_of(self.total, self.features, self.pooling)
        if counts is None:
            return 16 * self.size
        return packed_bytes(self.size, bits_of(counts))

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """Mean feature vector z, float64, each entry correctly rounded."""
        if self.pooling != "mean":
            raise PoolingError(
                f"a sketch pooled by {self.pooling!r} has no mean; read .pooled."
            )
        return self.pooled

    @cached_property
    def pooled(self) -> NDArray[np.float64]:
        """The pooled vector: mean, maximum, p-norm... by the sketch's pooling."""
        if self.count == 0:
            raise RowsError("an empty sketch (0 rows) has no value; add rows to it.")
        value = get_pooling(self.pooling).read(self.total, self.count, self.features)
        value.flags.writeable = False
        return value

    @cached_property
    def digest(self) -> str:
        """SHA-256 of feature map, pooling, count and total: equal iff equal."""
        head = [self.features.fingerprint, self.pooling, self.count, self.size]
        digest = hashlib.sha256(canonical_json(head).encode())
        digest.update(self.total.tobytes())
        return digest.hexdigest()

    @cached_property
    def feature_map(self) -> AbstractFeatureMap:
        """The map itself, rebuilt from the description if need be."""
        if self.source_map is not None:
            return self.source_map
        return self.with_map(rebuild_map(self.features)).feature_map

    def with_map(self, feature_map: AbstractFeatureMap) -> Sketch:
        """Attach the map this sketch was made with, after checking that it is."""
        self.features.require_equal(feature_map.spec)
        found = self._replace(self.total, self.count, source_map=feature_map)
        if not found.is_possible:
            raise FeatureMapMismatch(
                "cannot attach this feature map: no rows add up to the total of this "
                "sketch, so its file was forged or made with a bug."
            )
        return found

    def with_new_lineage(self) -> Sketch:
        """The same totals, and your word that no other sketch has these rows.

        Sketches that share a pass are not merged: the same rows would count twice.

        Examples
        --------
        >>> import sketchlearn as sl
        >>> a = sl.sketch_rows([[1.0], [2.0]], sl.MomentFeatures(1, order="mean"))
        >>> (a + a.with_new_lineage()).count
        4
        """
        return self._replace(self.total, self.count, new_lineage())

    def __add__(self, other: Sketch) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        self._require_compatible(other, "merge")
        lineage = merged_lineage(self._known_lineage, other._known_lineage)
        return self._plus(other, lineage)

    def _plus(self, other: Sketch, lineage: Lineage | None) -> Sketch:
        """The sum with a sketch that fits, of which the lineage is known."""
        source = self.source_map or other.source_map
        named = self if self.columns else other
        if self.count == 0 or other.count == 0:
            kept = other if self.count == 0 else self
            return named._replace(kept.total, kept.count, lineage, source)
        total = get_pooling(self.pooling).combine(self.total, other.total)
        return named._replace(total, self.count + other.count, lineage, source)

    def __radd__(self, other: object) -> Sketch:
        return self if other == 0 else NotImplemented  # so that sum(sketches) works

    def __sub__(self, other: Sketch) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        self._require_compatible(other, "subtract")
        if not get_pooling(self.pooling).removable:
            raise PoolingError(
                f"a sketch pooled by {self.pooling!r} cannot forget: the extreme of "
                "what remains is not known. Sketch the remaining rows again, or use "
                "pooling='mean'."
            )
        if other.count > self.count:
            raise RemovalError(
                f"removing {other.count} rows from a sketch of {self.count} rows."
            )
        source = self._map_at_hand() or other._map_at_hand()
        total, count = self.total - other.total, self.count - other.count
        lineage = remaining_lineage(self._known_lineage, other._known_lineage)
        rest = self._replace(total, count, lineage, source)
        if not rest.is_possible:
            raise RemovalError(
                f"removing these {other.count} rows: these rows cannot all have been "
                f"in this sketch of {self.count} rows (no {rest.count} rows add up to "
                "the remainder). Nothing was removed."
            )
        return rest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def is_possible(self) -> bool:
        """Whether some ``count`` rows could have this total.

        By its bounds and, where the map is at hand, by what its sums must obey.
        """
        pooling = get_pooling(self.pooling)
        unit = Fraction(2) ** pooling.frac_bits(self.features)
        if pooling.removable and not pooling.is_linear:  # each term is in [0, 1]
            return self.total.within(0, int(self.count * unit))
        spec = self.features
        # Features of version 1 were rounded after their bounds were taken.
        step = ceil(unit / Fraction(2) ** spec.rounding_bits)
        slack = max(step, 1) if spec.version == 1 or not pooling.removable else 0
        rows = self.count if pooling.removable else min(self.count, 1)
        limit = rows * (ceil(Fraction(spec.value_bound) * unit) + slack)
        if not self.total.within(-limit, limit):
            return False
        if not pooling.is_linear:
            return True
        bound = None if spec.norm_bound is None else self.count * spec.norm_steps
        if bound is not None and not self.total.norm_at_most(bound):
            return False
        # Features of version 1 were rounded one by one: their sums obey nothing more.
        known = self.source_map if spec.version > 1 else None
        return known is None or known.is_possible_total(self.total, self.count)

    @property
    def _known_lineage(self) -> Lineage | None:
        """The lineage; rows without any come from nobody knows where."""
        return None if self.count and not self.lineage else self.lineage

    def _map_at_hand(self) -> AbstractFeatureMap | None:
        """The map, if it is here or its description suffices."""
        try:
            return self.feature_map
        except SketchlearnError:
            return None

    def _require_compatible(self, other: Sketch, verb: str) -> None:
        self.features.require_same(other.features, verb)
        if self.pooling != other.pooling:
            raise FeatureMapMismatch(
                f"cannot {verb}: left is pooled by {self.pooling!r}, right by "
                f"{other.pooling!r}. Sketch both with the same pooling."
            )
        require_same_columns(self.columns, other.columns, verb)

    def _replace(
        self,
        total: Int128Array,
        count: int,
        lineage: Lineage | Literal["same"] | None = "same",
        source_map: AbstractFeatureMap | None = None,
    ) -> Sketch:
        return replace(
            self,
            total=total,
            count=count,
            lineage=self.lineage if isinstance(lineage, str) else lineage,
            source_map=source_map or self.source_map,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        return (
            f"Sketch({self.features.kind}, count={self.count}, size={self.size}, "
            f"pooling={self.pooling!r}, digest={self.digest[:12]}..)"
        )

    def _repr_html_(self) -> str:
        cells = {
            "rows": f"{self.count:,}",
            "numbers": f"{self.size:,} ({self.packed_bytes:,} bytes, exact)",
            "features": f"{self.features.kind}, {self.features.n_features} per row",
            "map": f"{self.features.fingerprint[:12]}..",
            "pooling": self.pooling,
            "digest": f"{self.digest[:12]}..",
        }
        lines = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in cells.items()
        )
        return f"<table><caption>Sketch</caption>{lines}</table>"


def add_sketches(parts: Iterable[Sketch], *, are_all: bool = True) -> Sketch | None:
    """The sum of many sketches, which may be all parts of their jobs; None of none."""
    total, lineages = None, []
    for part in parts:
        lineages.append(part._known_lineage)
        if total is not None:
            total._require_compatible(part, "merge")
            part = total._plus(part, None)
        total = part
    if total is None:
        return None
    return replace(total, lineage=gathered_lineage(lineages, are_all=are_all))


def require_same_columns(
    left: tuple[str, ...] | None, right: tuple[str, ...] | None, verb: str
) -> None:
    """Refuse ``verb`` where both sides name their columns, and not alike."""
    if not left or not right or left == right:
        return
    pairs = zip(left, right, strict=True)
    a, b = next(pair for pair in pairs if pair[0] != pair[1])
    raise FeatureMapMismatch(
        f"cannot {verb}: left has a column {a!r} where right has {b!r}. Sketch both "
        "with the same columns in the same order (columns=[...])."
    )
