"""Whether a sketch is of rows of zeros and ones: the sketch itself knows.

Rows are scaled from 0..1 to -1..1, so that the square of every entry is one, and of no
other rows: the mean squares of a sketch are one exactly, or up to the noise of a
release.
"""

from __future__ import annotations

import numpy as np

from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.scaling import Scaling
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["NOT_BINARY", "require_binary", "require_unclipped"]

NOT_BINARY = (
    "Rows must hold zeros and ones only. Pass binarize=0.5 to take numbers above 0.5 "
    "as ones, or encode the columns with BinaryEncoder."
)
"""What to do about other rows."""

_NOISES = 9.0
"""Standard deviations of noise by which a mean square of a release may be off: eight,
which no one of a million is, and that of the number of rows."""


def require_binary(sketch: Sketch | PrivateSketch) -> None:
    """Refuse a sketch of second moments of rows that are not all zeros and ones.

    Of a release that shows only where the noise is smaller than what other rows would
    change.

    Parameters
    ----------
    sketch : Sketch or PrivateSketch
        Of second moments of rows in 0..1.
    """
    require_unclipped(sketch)
    part, where = second_moment_part(sketch.feature_map)
    d = part.n_features
    expected = Scaling.from_bounds(0.0, 1.0, n_features=d)
    scaling = part.scaling or Scaling.identity(d)
    same = np.array_equal(scaling.shift, expected.shift)
    if not same or not np.array_equal(scaling.factor, expected.factor):
        raise FeatureMapError(
            "this sketch is of rows of another range than 0..1. Sketch rows of zeros "
            "and ones with the map of plan(n_features)."
        )
    places = np.arange(d)
    if not part.is_compressed:
        places = places * (places + 3) // 2  # of the diagonal in a lower triangle
    away = sketch.mean[where][d:][places] - 1.0
    if isinstance(sketch, PrivateSketch):
        away = np.where(np.abs(away) > _NOISES * mean_noise(sketch), away, 0.0)
    if not away.any():
        return
    first, names = int(np.flatnonzero(away)[0]), sketch.columns
    column = f"feature {first}" if names is None else repr(names[first])
    raise RowsError(
        f"{np.count_nonzero(away)} of {d} features hold other numbers than 0 and 1, "
        f"first of all {column}. Nothing was changed. {NOT_BINARY}"
    )


def require_unclipped(sketch: Sketch | PrivateSketch) -> None:
    """Refuse a sketch of rows that were clipped, whose means are wrong."""
    if any(part.clips for part in sketch.feature_map.parts()):
        raise FeatureMapError(
            "this sketch is of clipped rows, whose means are not those of the rows. "
            "Zeros and ones are bounded as they are: sketch and release them with the "
            "map of plan(n_features), without clipped(...)."
        )
