r"""Privacy: an exact sketch becomes a noisy one, once, exactly as private as it says.

:func:`release` adds discrete Gaussian noise to the integer total of a sketch whose
rows are bounded in norm. The promise is calibrated with the analytic Gaussian, paid
for in a ledger before the noise is drawn, and written into the result's
:class:`PrivacyStatement`. A :class:`PrivateSketch` carries nothing exact; decoding it,
however often, costs nothing more.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, exp, isqrt, log2, sqrt
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import (
    PrivacyError,
    PrivacyWarning,
    TooNoisy,
)
from sketchlearn.exact import Int128Array
from sketchlearn.features.base import AbstractFeatureMap, FeatureSpec
from sketchlearn.ledger import Charge, Ledger
from sketchlearn.mechanisms import gaussian_mu, require_budget
from sketchlearn.noise import RandomBytes, discrete_gaussian, discrete_laplace
from sketchlearn.sketch import Sketch
from sketchlearn.statement import (
    CountMode,
    Neighbours,
    PrivacyStatement,
    require_modes,
)
from sketchlearn.version import __version__

__all__ = [
    "PrivateSketch",
    "count_weight",
    "merge_disjoint",
    "release",
    "release_by_label",
]

COUNT_WEIGHT = 0.5
"""r of the joint count: the best trade between the count and the other numbers."""

_MARGIN = Fraction(1) + Fraction(1, 2**30)


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
    """

    total: Int128Array
    features: FeatureSpec
    statement: PrivacyStatement
    noisy_count: int | None = None
    source_map: AbstractFeatureMap | None = None

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
        if not allow_noisy and self.count < 4 * self.count_noise_std:
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
        return self.with_map(self.features.build()).feature_map

    def with_map(self, feature_map: AbstractFeatureMap) -> PrivateSketch:
        """Attach the map this sketch was made with, after checking that it is."""
        self.features.require_same(feature_map.spec, "attach this feature map")
        return replace(self, source_map=feature_map)

    def __add__(self, other: object) -> PrivateSketch:
        if isinstance(other, PrivateSketch):
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
        names = ("total", "features", "statement", "noisy_count", "source_map")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        statement = self.statement
        seeded = ", SEEDED TEST DOUBLE" if statement.seeded else ""
        return (
            f"PrivateSketch({self.features.kind}, size={self.size}, "
            f"count~{self.count:.0f}, epsilon={statement.epsilon:g}, "
            f"delta={statement.delta:g}, {statement.neighbours}{seeded})"
        )


def release(
    sketch: Sketch,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str],
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
) -> PrivateSketch:
    r"""Add noise, once, so that the result is (ε, δ)-differentially private.

    The ledger is charged, on disk, before any noise is drawn; on refusal nothing is
    released or spent. Everything decoded from the result is private at no further
    cost.

    Parameters
    ----------
    sketch : Sketch
        Of a map with bounded norm (see :func:`sketchlearn.clipped`), pooled by mean,
        planned without looking at the data.
    epsilon, delta : float
        The promise; δ should be far below one over the number of rows.
    ledger : Ledger or path
        Where the price is recorded: ``Ledger(path, epsilon=..., delta=...)``, made
        once for each dataset, or the path of an existing one.
    neighbours : {"add_remove", "replace"}
        Which datasets must be hard to tell apart: those that differ by one more
        row, or those where one row has other values (the number of rows is public).
    count : {"joint", "laplace", "public"}
        The number of rows is one more coordinate of the Gaussian (default), gets
        Laplace noise as in the paper, or is public (``neighbours="replace"`` only).
    rows_per_unit : int
        Rows one person may have contributed; you vouch for it.
    count_share : float
        Share of ε spent on the count when ``count="laplace"``.

    Returns
    -------
    PrivateSketch

    References
    ----------
    Paper, §3 (Private Sketching) and its appendix.

    Examples
    --------
    >>> import numpy as np, sketchlearn as sl
    >>> phi = sl.clipped(sl.FourierFeatures(2, 16), norm_bound=2.0)
    >>> exact = sl.sketch_rows(np.zeros((10_000, 2)), phi)
    >>> book = sl.Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    >>> private = sl.release(exact, epsilon=1.0, delta=1e-6, ledger=book)
    >>> bool(abs(private.mean - exact.mean).max() < 0.1)
    True
    """
    plan = plan_release(
        sketch,
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours,
        count=count,
        rows_per_unit=rows_per_unit,
        count_share=count_share,
    )
    book = ledger if isinstance(ledger, Ledger) else _open_ledger(ledger)
    book.charge(charge_for(plan))
    return draw_release(sketch, plan, os.urandom)


def release_by_label(
    sketches: Mapping[Any, Sketch],
    *,
    labels: Iterable[Any],
    epsilon: float,
    delta: float,
    ledger: Ledger | str | os.PathLike[str],
    rows_per_unit: int = 1,
) -> dict[Any, PrivateSketch]:
    """Release one sketch for each class, for the price of one.

    A row has one label, so adding or removing it touches one class only.

    Parameters
    ----------
    sketches : mapping of label to Sketch
        Of one feature map.
    labels : iterable
        The *public* list of labels. Every one of them gets a release, also if no row
        has it (its absence would tell); a sketch of any other label is refused.
    epsilon, delta, ledger, rows_per_unit
        As for :func:`release`.

    Returns
    -------
    dict of label to PrivateSketch
    """
    public = list(labels)
    if not sketches or not public or len(set(public)) < len(public):
        raise PrivacyError("labels must be a public list of different labels.")
    stray = [label for label in sketches if label not in public]
    if stray:
        raise PrivacyError(
            f"{len(stray)} sketches have a label that is not in the public list; "
            "nothing was released. Declare every possible label beforehand."
        )
    runs = [run for part in sketches.values() for run in part.lineage or ()]
    if len(set(runs)) < len(runs):
        raise PrivacyError(
            "the same rows are in the sketches of several labels; a row has one label. "
            "Nothing was released."
        )
    any_sketch = next(iter(sketches.values()))
    empty = replace(any_sketch, total=Int128Array.zeros(any_sketch.size), count=0)
    chosen = {label: sketches.get(label, empty) for label in public}
    plans = {
        label: plan_release(
            part, epsilon=epsilon, delta=delta, rows_per_unit=rows_per_unit
        )
        for label, part in chosen.items()
    }
    for part in chosen.values():
        any_sketch.features.require_same(part.features, "release together")
    book = ledger if isinstance(ledger, Ledger) else _open_ledger(ledger)
    book.charge(charge_for(plans[public[0]]))
    return {
        label: draw_release(part, plans[label], os.urandom)
        for label, part in chosen.items()
    }


def merge_disjoint(left: PrivateSketch, right: PrivateSketch) -> PrivateSketch:
    """Merge releases of *different people*: the promise is the weaker of the two.

    You state that no person is in both; the lineage is checked as far as it goes
    (people that were sketched twice in separate runs cannot be found out).

    Parameters
    ----------
    left, right : PrivateSketch
        Of the same feature map, neighbours and count mode.
    """
    a, b = left.statement, right.statement
    left.features.require_same(right.features, "merge")
    for name in ("neighbours", "count_mode", "count_weight", "rows_per_unit", "seeded"):
        if getattr(a, name) != getattr(b, name):
            raise PrivacyError(
                f"cannot merge releases that differ in {name}: {getattr(a, name)!r} "
                f"and {getattr(b, name)!r}."
            )
    if a.lineage is None or b.lineage is None or set(a.lineage) & set(b.lineage):
        raise PrivacyError(
            "these releases share rows, or may: people in both would pay twice. Merge "
            "the exact sketches and release once."
        )
    statement = replace(
        a,
        epsilon=max(a.epsilon, b.epsilon),
        delta=max(a.delta, b.delta),
        mu2=max(a.mu2, b.mu2),
        count_epsilon=max(a.count_epsilon, b.count_epsilon),
        count_std=sqrt(a.count_std**2 + b.count_std**2),
        sensitivity=max(a.sensitivity, b.sensitivity),
        sigma_int=isqrt(a.sigma_int**2 + b.sigma_int**2) + 1,
        lineage=tuple(sorted({*a.lineage, *b.lineage})),
    )
    count = None
    if left.noisy_count is not None and right.noisy_count is not None:
        count = left.noisy_count + right.noisy_count
    total = left.total + right.total
    source = left.source_map or right.source_map
    return PrivateSketch(total, left.features, statement, count, source)


def plan_release(
    sketch: Sketch,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = "add_remove",
    count: CountMode = "joint",
    rows_per_unit: int = 1,
    count_share: float = 0.1,
) -> PrivacyStatement:
    """Check a release and compute its noise, without drawing or spending any."""
    require_budget(epsilon, delta)
    require_modes(neighbours, count, rows_per_unit)
    # Plain Python numbers: NumPy's would overflow or round in what follows.
    epsilon, delta, rows_per_unit = float(epsilon), float(delta), int(rows_per_unit)
    spec = _require_releasable(sketch)
    count_epsilon = 0.0
    if count == "laplace":
        if not 0 < count_share < 1:
            raise PrivacyError(f"count_share must be in (0, 1); got {count_share!r}.")
        count_epsilon = epsilon * count_share
    factor = rows_per_unit * (2 if neighbours == "replace" else 1)
    squared = (factor * spec.norm_steps) ** 2
    weight = 0
    if count == "joint":
        weight = count_weight(spec)
        squared += (rows_per_unit * weight) ** 2
    sensitivity = isqrt(squared) + 1  # in lattice steps, never too small
    shrink = 1 - 2.0**-30
    mu = gaussian_mu((epsilon - count_epsilon) * shrink, delta * shrink)
    sigma = ceil(Fraction(sensitivity) / Fraction(mu) * _MARGIN)
    if 67 * (spec.sketch_size + 1) * 2**31 > epsilon * sigma**2:
        raise PrivacyError("the lattice is too coarse for this promise.")
    _warn_of_large_delta(delta, sketch.count)
    return PrivacyStatement(
        epsilon=float(epsilon),
        delta=float(delta),
        mu2=float(Fraction(sensitivity, sigma) ** 2) * (1 + 2.0**-50),
        neighbours=neighbours,
        unit="record" if rows_per_unit == 1 else "group",
        rows_per_unit=int(rows_per_unit),
        mechanism="discrete Gaussian"
        + (", discrete Laplace count" if count == "laplace" else ""),
        sensitivity=float(Fraction(sensitivity) / Fraction(2) ** spec.frac_bits),
        sigma_int=sigma,
        frac_bits=spec.frac_bits,
        count_mode=count,
        count_weight=weight,
        count_epsilon=count_epsilon,
        count_std=_laplace_std(count_epsilon, rows_per_unit),
        feature_map=spec.fingerprint,
        lineage=None if sketch.lineage is None else tuple(sorted(sketch.lineage)),
        library_version=__version__,
    )


def charge_for(plan: PrivacyStatement) -> Charge:
    """The price of a planned release."""
    return Charge(
        release_id=os.urandom(16).hex(),
        mu2=plan.mu2,
        pure_epsilon=plan.count_epsilon,
        feature_map=plan.feature_map,
        lineage=plan.lineage or (),
    )


def draw_release(
    sketch: Sketch, plan: PrivacyStatement, random_bytes: RandomBytes
) -> PrivateSketch:
    """Draw the noise of a planned release. Who calls this has paid for it."""
    values = sketch.total.to_ints()
    if plan.count_mode == "joint":
        values.append(sketch.count * plan.count_weight)
    noise = discrete_gaussian(plan.sigma_int, len(values), random_bytes=random_bytes)
    total = Int128Array.from_ints(v + n for v, n in zip(values, noise, strict=True))
    count = None
    if plan.count_mode == "public":
        count = sketch.count
    elif plan.count_mode == "laplace":
        rate = Fraction(plan.count_epsilon) / plan.rows_per_unit
        shift = discrete_laplace(
            rate.numerator, rate.denominator, random_bytes=random_bytes
        )
        count = sketch.count + shift
    return PrivateSketch(total, sketch.features, plan, count, sketch.source_map)


def _require_releasable(sketch: Sketch) -> FeatureSpec:
    if isinstance(sketch, PrivateSketch):
        raise PrivacyError("this sketch is released already; decode it as it is.")
    spec = sketch.features
    if sketch.pooling != "mean":
        raise PrivacyError(
            f"a sketch pooled by {sketch.pooling!r} has no known sensitivity; only "
            "pooling='mean' can be released."
        )
    if spec.norm_bound is None:
        raise PrivacyError(
            "this sketch has no per-row bound (clip=None). Build it with "
            "clipped(feature_map, norm_bound=S), S fixed before looking at this data; "
            "a bound cannot be added afterwards."
        )
    if spec.version == 1:
        raise PrivacyError(
            "this sketch is of version 1, whose floating-point features could exceed "
            "their norm bound by rounding. Sketch the rows again and release that."
        )
    known = sketch.source_map is not None or bool(spec.text)
    if not known:
        raise PrivacyError(
            "where the constants of this map come from is not known: attach the map "
            "with sketch.with_map(feature_map) before releasing."
        )
    # What the header says of the map is believed only if the map says so too.
    spec = sketch.feature_map.spec
    if sketch.feature_map.origin != "declared":
        raise PrivacyError(
            "the map of this sketch was planned from rows (scales or landmarks read "
            "from data); that reveals them. Declare bounds, or build the map from "
            "public data."
        )
    return spec


def count_weight(spec: FeatureSpec) -> int:
    """Lattice steps one row is worth in the count coordinate, ceil(alpha S 2^k)."""
    alpha = sqrt(COUNT_WEIGHT / sqrt(spec.sketch_size))
    bound = Fraction(spec.norm_bound or 0)
    return ceil(Fraction(alpha) * bound * Fraction(2) ** spec.frac_bits)


def _laplace_std(epsilon: float, rows_per_unit: int) -> float:
    """Standard deviation of the discrete Laplace noise of a count."""
    if not epsilon:
        return 0.0
    decay = exp(-epsilon / rows_per_unit)
    return sqrt(2 * decay) / (1 - decay)


def _warn_of_large_delta(delta: float, count: int) -> None:
    # The exact count must not decide whether a warning is shown: a coarse power of
    # two of it is what the data holder, who alone sees this, gets to know.
    coarse = 2.0 ** ceil(log2(max(count, 1)))
    if delta > 1e-4 or delta > 1 / (10 * coarse):
        warnings.warn(
            f"delta={delta:g} is the chance that somebody is fully exposed; it should "
            "be far below one over the number of rows.",
            PrivacyWarning,
            stacklevel=4,
        )


def _open_ledger(path: Any) -> Ledger:
    if path is None or not isinstance(path, str | os.PathLike):
        raise PrivacyError(
            "ledger must be a Ledger or the path of one; ask for "
            "Ledger.ephemeral(epsilon=..., delta=...) if it may be forgotten."
        )
    return Ledger.open(path)
