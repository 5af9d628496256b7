"""Released sketches: noisy, shareable, and merged only where people differ.

A :class:`PrivateSketch` is what :func:`sketchlearn.release` makes: noisy totals, what
the features are, and the statement of what was promised. Nothing in it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property, reduce
from math import isqrt, sqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import PrivacyError, TooNoisy
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import rebuild_map
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.sketching.lineage import MOST_LISTED
from sketchlearn.sketching.sketch import require_same_columns

__all__ = ["PrivateSketch", "merge_disjoint"]
__public__ = ["PrivateSketch", "merge_disjoint"]

_COUNT_STDS = 4
"""Standard deviations of its noise that a count needs, to be divided by."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class PrivateSketch:
    """A sketch with noise on it: shareable, and nothing in it is exact.

    Made by :func:`release`. It cannot be changed: rows are forgotten in the exact
    sketch, which is then released again.

    Parameters
    ----------
    total : Int128Array
        Noisy lattice total; in joint mode its last entry is the count's.
    features : FeatureSpec
        What the features are.
    statement : PrivacyStatement
        What was promised.
    noisy_count : int or None
        The count, where it is not part of ``total``.
    source_map : AbstractFeatureMap, optional
        The map itself, if it is at hand.
    columns : tuple of str, optional
        Names of the columns, which are taken to be public; others never merge.
    """

    total: Int128Array
    features: FeatureSpec
    statement: PrivacyStatement
    noisy_count: int | None = None
    source_map: AbstractFeatureMap | None = None
    columns: tuple[str, ...] | None = None

    @property
    def size(self) -> int:
        """How many numbers the sketch holds, without the count."""
        return self.features.sketch_size

    @property
    def pooling(self) -> str:
        """Always ``"mean"``."""
        return "mean"

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each entry of the *total*."""
        unit = Fraction(2) ** self.statement.frac_bits
        return float(Fraction(self.statement.sigma_int) / unit)

    @property
    def count_noise_std(self) -> float:
        """Standard deviation of the noise on the count."""
        statement = self.statement
        if statement.count_mode == "joint":
            return statement.sigma_int / statement.count_weight
        if statement.count_mode == "laplace":
            return statement.count_std
        return 0.0

    @cached_property
    def count(self) -> float:
        """Noisy number of rows, at least 1."""
        if self.noisy_count is not None:
            return float(max(self.noisy_count, 1))
        last = self.total.to_ints()[-1]
        return max(last / self.statement.count_weight, 1.0)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """Noisy mean feature vector.

        Raises
        ------
        TooNoisy
            If the count is below four standard deviations of its noise.
        """
        return self.read_mean()

    def read_mean(self, *, allow_noisy: bool = False) -> NDArray[np.float64]:
        """The noisy mean, even where its noise drowns it if ``allow_noisy``."""
        if not allow_noisy and self.count < _COUNT_STDS * self.count_noise_std:
            raise TooNoisy(
                f"the noise on the number of rows (standard deviation "
                f"{self.count_noise_std:.0f}) is too large for a mean. Release with "
                "more rows or a larger epsilon, or call read_mean(allow_noisy=True)."
            )
        sums = np.array(self.total.to_ints()[: self.size], object)
        unit = Fraction(2) ** self.statement.frac_bits
        values = [float(Fraction(int(value)) / unit) for value in sums]
        return np.array(values) / self.count

    @cached_property
    def feature_map(self) -> AbstractFeatureMap:
        """The map itself, rebuilt from the description if need be."""
        if self.source_map is not None:
            return self.source_map
        return self.with_map(rebuild_map(self.features)).feature_map

    def with_map(self, feature_map: AbstractFeatureMap) -> PrivateSketch:
        """Attach the map this sketch was made with, after checking that it is."""
        self.features.require_equal(feature_map.spec)
        return replace(self, source_map=feature_map)

    def __add__(self, other: object) -> PrivateSketch:
        if isinstance(other, PrivateSketch | int):  # sum() starts with 0
            raise PrivacyError(
                "released sketches are merged with merge_disjoint(a, b), which states "
                "that no person is in both."
            )
        raise PrivacyError(
            "cannot merge an exact sketch into a released one; release it first, or "
            "merge the exact sketches and release once."
        )

    __radd__ = __add__

    def __sub__(self, other: object) -> PrivateSketch:
        raise PrivacyError(
            "rows cannot be removed from a released sketch. Remove them from the exact "
            "sketch and release again (this costs budget)."
        )

    __rsub__ = __sub__

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        statement = self.statement
        seeded = ", SEEDED TEST DOUBLE" if statement.seeded else ""
        return (
            f"PrivateSketch({self.features.kind}, size={self.size}, "
            f"count~{self.count:.0f}, epsilon={statement.epsilon:g}, "
            f"delta={statement.delta:g}, {statement.neighbours}{seeded})"
        )


def merge_disjoint(*releases: PrivateSketch) -> PrivateSketch:
    """Merge releases of *different people*: the promise is the weakest of them.

    You state that no person is in two of them. That can be checked only as far as a
    release tells: the same one is never merged twice. Releases of sketches that share
    rows look different, on purpose, and so do people sketched twice.

    Parameters
    ----------
    *releases : PrivateSketch
        Any number of them, of the same feature map, columns, neighbours and count mode.
        Up to 4,096 remember which releases are inside; beyond, the result can be saved
        and decoded, but not merged any further, so merge them all at once.

    Returns
    -------
    PrivateSketch
    """
    if not releases or not all(isinstance(one, PrivateSketch) for one in releases):
        raise PrivacyError(
            "merge_disjoint takes released sketches, at least one. Exact sketches are "
            "merged with +, before they are released once."
        )
    columns = next((one.columns for one in releases if one.columns), None)
    for other in releases:
        _require_compatible(releases[0], other)
        require_same_columns(columns, other.columns, "merge")
    statement = _merged_statement([one.statement for one in releases])
    counts = [one.noisy_count for one in releases]
    known = [count for count in counts if count is not None]
    return PrivateSketch(
        total=reduce(Int128Array.__add__, [one.total for one in releases]),
        features=releases[0].features,
        statement=statement,
        noisy_count=sum(known) if len(known) == len(counts) else None,
        source_map=next((one.source_map for one in releases if one.source_map), None),
        columns=columns,
    )


def _require_compatible(left: PrivateSketch, right: PrivateSketch) -> None:
    left.features.require_same(right.features, "merge")
    a, b = left.statement, right.statement
    for name in ("neighbours", "count_mode", "count_weight", "rows_per_unit", "seeded"):
        if getattr(a, name) != getattr(b, name):
            raise PrivacyError(
                f"cannot merge releases that differ in {name}: {getattr(a, name)!r} "
                f"and {getattr(b, name)!r}."
            )


def _merged_statement(parts: list[PrivacyStatement]) -> PrivacyStatement:
    if len(parts) == 1:
        return parts[0]
    inside = [run for part in parts for run in part.lineage or ()]
    if any(not part.lineage for part in parts) or len(set(inside)) < len(inside):
        raise PrivacyError(
            "these releases share rows, or may: the same one is in them twice, or one "
            "was merged from too many to list. Merge all releases of different people "
            "in one call, each once."
        )
    return replace(
        parts[0],
        epsilon=max(part.epsilon for part in parts),
        delta=max(part.delta for part in parts),
        mu2=max(part.mu2 for part in parts),
        count_epsilon=max(part.count_epsilon for part in parts),
        count_std=sqrt(sum(part.count_std**2 for part in parts)),
        sensitivity=max(part.sensitivity for part in parts),
        sigma_int=isqrt(sum(part.sigma_int**2 for part in parts)) + 1,
        lineage=tuple(sorted(inside)) if len(inside) <= MOST_LISTED else None,
    )
