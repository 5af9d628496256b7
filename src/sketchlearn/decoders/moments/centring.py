r"""Moments about the mean, from the totals of a sketch.

:math:`\frac1N\sum xy - \bar x\bar y` is a small difference of large numbers where the
mean is far from the origin. Totals are integers, so :math:`N\sum xy - \sum x\sum y`
is exact, and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["centred_moments", "second_moment_part"]

_INTEGERS_AT_ONCE = 2**16
"""Bounds the memory of Python integers: ten times that of the totals."""


def centred_moments(
    sketch: Sketch | PrivateSketch,
    part: MomentFeatures | CrossMomentFeatures,
    where: slice,
    *,
    clamp: bool = True,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and centred second moments of scaled rows, in the order of the features.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of a map with this part.
    part, where
        As :func:`second_moment_part` finds them.
    clamp : bool
        Bring the numbers of a private sketch back into their public bounds first.
    """
    d = part.n_features
    if isinstance(sketch, Sketch):
        return _exact(sketch, part, where)
    means, seconds = sketch.mean[where][:d], sketch.mean[where][d:]
    if clamp:
        means = np.clip(means, -part.reach, part.reach)
        seconds = np.clip(seconds, -(part.reach**2), part.reach**2)
    left, right, shift = _factors_of_means(part, means)
    i, j = _places(part)
    return means, seconds - left[i] * right[j] * 2.0**-shift


def second_moment_part(
    feature_map: AbstractFeatureMap,
) -> tuple[MomentFeatures | CrossMomentFeatures, slice]:
    """The part of a map that holds second moments, and where it stands."""
    for part in feature_map.find(MomentFeatures, CrossMomentFeatures):
        found = part.feature_map
        if found.has_second_moments:
            return found, part.where
    kinds = ", ".join(part.feature_map.kind for part in feature_map.parts())
    raise FeatureMapError(
        f"a sketch of {kinds!r} features holds no second moments. Sketch "
        "with the map that plan(n_features) of the estimator gives."
    )


def _exact(
    sketch: Sketch, part: MomentFeatures | CrossMomentFeatures, where: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if sketch.count == 0:
        raise RowsError("an empty sketch (0 rows) has nothing to decode.")
    places = np.arange(where.start, where.stop)
    own, products = np.split(places, [part.n_features])
    totals = np.array(sketch.total.take(own).to_ints(), object)
    left, right, shift = _factors_of_means(part, totals)
    i, j = _places(part)
    unit = sketch.count << sketch.features.frac_bits
    seconds = np.empty(len(products))
    for start in range(0, len(products), _INTEGERS_AT_ONCE):
        block = slice(start, start + _INTEGERS_AT_ONCE)
        sums = np.array(sketch.total.take(products[block]).to_ints(), object)
        centred = sums * (unit << shift) - left[i[block]] * right[j[block]]
        seconds[block] = centred / (unit * unit << shift)
    return (totals / unit).astype(np.float64), seconds


def _factors_of_means(
    part: MomentFeatures | CrossMomentFeatures, means: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Factors of the second moments of a constant row at the mean, and a shift.

    Ω has entries that are whole multiples of ``2**-shift``; products of factors are
    larger by that, so that integers stay whole.
    """
    if not part.is_compressed:
        return means, means, 0
    omega = part.omega
    rows, columns = np.nonzero(omega)
    weights: NDArray[Any] = omega[rows, columns]
    shift = 1 - int(np.frexp(weights)[1].min(initial=1))
    weights = weights * 2.0**shift
    if means.dtype == object:
        weights = np.array([int(weight) for weight in weights], object)
    tests = np.zeros(omega.shape[1], means.dtype)
    np.add.at(tests, columns, means[part.kept][rows] * weights)
    return means, np.concatenate([means * 2**shift, tests]), shift


def _places(
    part: MomentFeatures | CrossMomentFeatures,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which factors each second moment has."""
    d = part.n_features
    if not part.is_compressed:
        return np.tril_indices(d)
    kept, columns = part.kept, part.omega.shape[1]
    left = np.concatenate([np.arange(d), np.repeat(kept, columns)])
    tests = np.tile(np.arange(d, d + columns), len(kept))
    return left, np.concatenate([np.arange(d), tests])
