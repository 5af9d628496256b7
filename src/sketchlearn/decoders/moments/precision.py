"""What rounding and the range of a float leave of decoded variances."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import ConvergenceWarning, RowRangeError
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.scaling import Scaling

__all__ = ["require_representable", "warn_of_coarse_rounding"]

_LARGEST_EXPONENT = 960
"""Variances beyond this power of two are refused: floats end at 1024, and sums of
2**48 variances and their products with unit scales must be finite."""

_FEWEST_STEPS = 4.0
"""Rounding steps that the rows of a feature should differ by: rounding to steps of one
has a variance of 1/12, half a percent of that of such rows."""


def require_representable(variances: NDArray[np.float64], scaling: Scaling) -> None:
    """Refuse moments that float64 cannot hold in the units of the rows."""
    exponents = np.frexp(np.maximum(variances, 2.0**-200))[1]
    exponents = exponents - 2 * np.frexp(scaling.factor)[1]
    worst = int(np.argmax(exponents))
    varies = bool((variances > 0).any())
    if exponents[worst] > _LARGEST_EXPONENT:
        reason = "so large that its square is more than"
    elif varies and exponents[variances > 0].max() < -_LARGEST_EXPONENT:
        reason = "like the others, so small that its square is less than"
    else:
        return
    raise RowRangeError(
        f"feature {worst} is of size {1 / scaling.factor[worst]:.1g}, {reason} a float "
        "can hold. Nothing was fitted. Change the units of the rows."
    )


def warn_of_coarse_rounding(
    variances: NDArray[np.float64],
    part: MomentFeatures | CrossMomentFeatures,
    count: float,
) -> None:
    """Say so where the rows differ by hardly more than they were rounded by."""
    few = (_FEWEST_STEPS * 2.0**-part.bits) ** 2
    lost = (variances > 0) & (variances < few)
    if not lost.any() and (variances.any() or part.origin == "data" or count < 2):
        return
    which = f"feature {int(np.argmax(lost))}" if lost.any() else "no feature"
    varies = "varies by little more" if lost.any() else "varies by more"
    warnings.warn(
        f"{which} {varies} than the rounding of the rows, {2.0**-part.bits:.1g} of the "
        "planned range: variances and models of it mean little. Declare bounds close "
        "to the rows, or let the plan see them.",
        ConvergenceWarning,
        stacklevel=3,
    )
