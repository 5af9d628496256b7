"""Which second moments to sketch for PCA and ridge, and how to decode them."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.elementary import ceil_log2
from sketchlearn.decoders.base import AbstractDecoder
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.equivariant import EquivariantDecoder
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.decoders.moments.verdicts import MANY_COLUMNS
from sketchlearn.errors import ConvergenceWarning, FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.cross_moments import CrossMomentFeatures, omega_bits
from sketchlearn.features.moments import FINE_BITS, ROW_BITS, MomentFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.files.models import is_file_name
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.registry import load_model, load_own_model
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "DECODERS",
    "LEARNED",
    "auto_size",
    "beside_scaling",
    "moment_decoder",
    "plan_second_moments",
    "require_moment_decoder",
]

LEARNED = "pca-ordered"
"""Model behind ``decoder="learned"``."""

DECODERS = ("learned", "nystrom")

AUTO_SIZE = 2**19
"""Second moments that ``sketch_size="auto"`` keeps: all of up to 1023 features."""

LEAST_IMPORTANCE = 2.0**-12
"""Smallest weight of a feature in Ω, which has so many bits for it."""


@final
@dataclass(frozen=True)
class MomentPlanTuning:
    """Hand-tuned numbers of a plan of second moments."""

    narrow: float = 2.0**-12
    """Quartiles closer than this part of the range need a finer rounding. Checked by
    the error of the variance of what one row far out leaves of the range; a larger one
    makes sketches of usual rows slower (``benchmarks/sketching.py``)."""

    spared: float = 0.31
    """Share of the features that a second column is worth; a third is worth half of
    it, a fourth a third of it, and so on. Measured on training sets, with the learned
    decoder; checked by the error of PCA in ``benchmarks/tuning.py``."""

    many_features: int = 16
    """From where on there are many, for plans with targets. Measured on training sets
    of 30 to 77 features, where 100 predicted worse from 100 to 400 numbers."""

    checked_columns: int = 8
    """Columns that a plan for targets has at least, where there are many features:
    fewer are too few to be checked against each other. Measured on training sets, where
    labels were predicted better than from more features and four columns; checked by
    the R² of ridge in ``benchmarks/tuning.py``."""


_PLAN = MomentPlanTuning()


def plan_second_moments(
    *,
    n_features: int,
    sketch_size: int | Literal["auto"],
    n_targets: int = 0,
    scaling: Scaling,
    reach: float,
    rows: NDArray[np.floating] | None = None,
    by_spread: bool = False,
    is_binary: bool = False,
    seed: int = 0,
    tuning: MomentPlanTuning = _PLAN,
) -> MomentFeatures | CrossMomentFeatures:
    r"""The map whose sketch holds as much of the second moment as there is room for.

    All of it when :math:`d(d+1)/2` numbers fit in ``sketch_size``, otherwise
    :math:`R\Omega` with as many columns as fit. Constant features get no room; where
    even one column for each active feature is too much, or leaving a few features out
    makes room for another column, the most important ones are kept.
    Means and variances come beside.

    Parameters
    ----------
    n_features : int
        Numbers in a row, targets included (they come last).
    sketch_size : int or "auto"
        Numbers the sketch may hold beside means and variances; "auto" takes all of
        up to ``AUTO_SIZE``, and beyond that at least ``MANY_COLUMNS`` columns if they
        do not take eight times as much.
    n_targets : int
        How many of the last features keep exact cross moments with the others.
    scaling : Scaling
        Part of the map.
    reach : float
        Largest magnitude of a scaled value.
    rows : array of shape (n, n_features), optional
        What the scaling was read from, if it was: features that do not vary in it get
        no room, and narrow ones a finer rounding.
    by_spread : bool
        Weigh features in Ω by their spread in the units of the rows, as components
        of a covariance do, rather than all alike.
    is_binary : bool
        Rows hold zeros and ones, which no rounding changes.
    seed : int
        Seed of Ω.
    tuning : MomentPlanTuning
        Hand-tuned numbers.
    """
    d, targets = n_features, np.arange(n_features - n_targets, n_features)
    importance = _spread(scaling) if by_spread else None
    asked = sketch_size
    if sketch_size == "auto":
        sketch_size = auto_size(d, n_targets)
    sketch_size = require_positive_int("sketch_size", sketch_size)
    active = _varying(rows) if scaling.origin == "data" else None
    seen = is_binary
    if active is not None:
        seen = _is_seen(rows, active, tuning.narrow)
    if d * (d + 1) // 2 <= sketch_size:
        return MomentFeatures(
            d,
            order="covariance",
            targets=targets.tolist(),
            reach=reach,
            bits=_row_bits(seen, reach),
            scaling=scaling,
        )
    chosen = np.arange(d) if active is None else np.flatnonzero(active)
    chosen = np.setdiff1d(chosen, targets)
    room = _room(len(chosen), sketch_size, n_targets, tuning)
    chosen = _most_important(chosen, room, importance)
    kept = np.union1d(chosen, targets) if len(chosen) + n_targets else np.array([0])
    n_columns = min(max(1, sketch_size // len(kept) - n_targets), len(kept))
    if asked == "auto" and n_columns < len(kept):
        _warn_of_compression(len(kept), n_columns)
    extra = omega_bits(len(kept), n_columns, is_weighted=importance is not None)
    return CrossMomentFeatures(
        d,
        n_columns,
        kept=kept,
        targets=targets.tolist(),
        importance=None if importance is None else importance[kept],
        reach=reach,
        bits=_row_bits(seen, reach, extra),
        seed=seed,
        scaling=scaling,
    )


def beside_scaling(features: Scaling, targets: Scaling) -> Scaling:
    """The scaling of rows of features with targets after them.

    Examples
    --------
    >>> both = beside_scaling(Scaling.identity(2), Scaling.identity(1))
    >>> both.factor
    array([1., 1., 1.])
    """
    return Scaling(
        np.concatenate([features.shift, targets.shift]),
        np.concatenate([features.factor, targets.factor]),
        features.origin,
    )


def auto_size(n_features: int, n_targets: int = 0) -> int:
    """Numbers of a sketch of second moments where nobody says how many.

    All of them up to about a thousand features, and as long as a tenth more would do;
    then as many, or as many as ``MANY_COLUMNS`` columns take, but no more than eight
    times as many unless even eight columns take more.

    Examples
    --------
    >>> [auto_size(d) for d in (10, 1000, 2000, 20_000, 100_000)]
    [55, 500500, 524000, 1280000, 4100000]
    """
    exact = n_features * (n_features + 1) // 2
    if exact <= 1.1 * AUTO_SIZE:
        return exact
    columns = max(MANY_COLUMNS, AUTO_SIZE // n_features)
    columns = max(8, min(columns, 8 * AUTO_SIZE // n_features))
    return (columns + n_targets) * n_features


def _warn_of_compression(n_features: int, n_columns: int) -> None:
    warnings.warn(
        f"{n_features} features have {n_features * (n_features + 1) // 2} second "
        f"moments; sketch_size='auto' keeps {n_columns} directions of them and every "
        "variance. Components and predictions that need more directions are only "
        f"approximate. sketch_size={n_features * (n_features + 1) // 2} is exact; a "
        "number of your own is taken without this warning.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _spread(scaling: Scaling) -> NDArray[np.float64]:
    """Spread of the features over that of the widest, or what Ω can hold of it."""
    spread = 1 / scaling.factor
    return np.asarray(np.maximum(spread / spread.max(), LEAST_IMPORTANCE))


def _varying(rows: NDArray[np.floating] | None) -> NDArray[np.bool_] | None:
    """Which features take more than one value in ``rows``."""
    return None if rows is None else rows.max(axis=0) > rows.min(axis=0)


def _is_seen(
    rows: NDArray[np.floating] | None, active: NDArray[np.bool_], narrow: float
) -> bool:
    """Whether few bits of the range of these rows resolve most of them.

    Not where a feature was constant so far, or where half of its rows lie within a
    tiny part of its range.
    """
    if rows is None or not active.all():
        return False
    low = np.quantile(rows, 0.25, axis=0, method="higher")
    high = np.quantile(rows, 0.75, axis=0, method="lower")
    width = (rows.max(axis=0) / 2 - rows.min(axis=0) / 2) * narrow
    return not ((high > low) & (high - low < width)).any()


def _row_bits(seen: bool, reach: float, extra: int = 0) -> int:
    """Bits of rounded rows: few where their range was seen, else as many as go.

    Declared bounds may be a million times wider than the rows; only a fine rounding
    keeps what is narrow within them. Ω takes ``extra`` bits of the room.
    """
    most = min(53 - extra, (2 * FINE_BITS - extra) // 2) - ceil_log2(reach)
    return min(ROW_BITS, most) if seen else most


def _room(
    n_active: int, sketch_size: int, n_targets: int, tuning: MomentPlanTuning
) -> int:
    """How many features to keep so that what is left fills the sketch best.

    Another column is worth some of the features; for targets, so many columns that
    they can be checked.
    """
    room = sketch_size // (1 + n_targets) - n_targets
    if room < 1:
        raise FeatureMapError(
            f"sketch_size={sketch_size} is too small for {n_targets} targets: use at "
            f"least {(1 + n_targets) ** 2}."
        )
    columns = room // max(n_active, 1)
    if n_targets and n_active > tuning.many_features:
        columns = min(tuning.checked_columns, max(room // 2, 1))
        return max(sketch_size // (columns + n_targets) - n_targets, 1)
    if n_targets or not columns:
        return room
    fewer = room // (columns + 1)
    return fewer if fewer >= (1 - tuning.spared / columns) * n_active else room


def _most_important(
    features: NDArray[np.int64], count: int, importance: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """So many of the features: the most important ones.

    Of those that are as important as the last, some everywhere: neighbours tell of the
    features between them.
    """
    if len(features) <= count:
        return features
    levels = np.ones(len(features)) if importance is None else importance[features]
    least = np.sort(levels)[-count]
    sure, alike = features[levels > least], features[levels == least]
    left = count - len(sure)
    some = (2 * np.arange(left) + 1) * len(alike) // (2 * left)
    return np.concatenate([sure, alike[some]])


def moment_decoder(
    name: str | os.PathLike[str], sketch: Sketch | PrivateSketch, **options: bool
) -> AbstractDecoder[Moments]:
    """The decoder an estimator's ``decoder`` names, for a sketch of second moments.

    A sketch that holds all of them needs no learned decoder. A path is that of weights
    like those of ``LEARNED``. Options as for
    :class:`~sketchlearn.decoders.moments.base.AbstractMomentDecoder`.
    """
    part, _ = second_moment_part(sketch.feature_map)
    if name == "nystrom" or not part.is_compressed:
        return NystromDecoder(**options)  # type: ignore[arg-type]
    own = is_file_name(name)
    model = _own_decoder(name) if own else _learned_decoder()
    learned: AbstractDecoder[Moments] = replace(model, **options)
    return learned


def require_moment_decoder(name: str | os.PathLike[str]) -> None:
    """Refuse a file that is no such decoder, before a row is read."""
    if is_file_name(name):
        _own_decoder(name)


def _own_decoder(path: str | os.PathLike[str]) -> Any:
    return load_own_model(path, [EquivariantDecoder.weights_kind])


@cache
def _learned_decoder() -> Any:
    return load_model(LEARNED)
