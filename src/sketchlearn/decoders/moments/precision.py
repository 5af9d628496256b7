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

_LEAST_EXPONENT = -1021
"""Variances below this power of two lose digits, and soon all of them."""

_FINEST = 2.0**1000
"""No plan scales features by more: values that are smaller still are zeros to it."""

_FEWEST_STEPS = 4.0
"""Rounding steps that the rows of a feature should differ by: rounding to steps of one
has a variance of 1/12, half a percent of that of such rows."""


def require_representable(
    variances: NDArray[np.float64],
    scaling: Scaling,
    columns: tuple[str, ...] | None = None,
) -> None:
    """Refuse moments that float64 cannot hold in the units of the rows.

    Where that is so for some features only, because they are small, warn of these.
    """
    exponents = np.frexp(np.maximum(variances, 2.0**-200))[1]
    exponents = exponents - 2 * np.frexp(scaling.factor)[1]
    worst = int(np.argmax(exponents))
    varies = bool((variances > 0).any())
    if exponents[worst] > _LARGEST_EXPONENT:
        reason = "so large that its square is more than"
    elif varies and exponents[variances > 0].max() < -_LARGEST_EXPONENT:
        reason = "like the others, so small that its square is less than"
    else:
        lost = (exponents < _LEAST_EXPONENT) & (variances > 0)
        lost |= scaling.factor >= _FINEST
        if lost.any():
            _warn_of_small(np.flatnonzero(lost), scaling, columns)
        return
    raise RowRangeError(
        f"feature {worst} is of size {1 / scaling.factor[worst]:.1g}, {reason} a float "
        "can hold. Nothing was fitted. Change the units of the rows."
    )


def _warn_of_small(
    which: NDArray[np.int64], scaling: Scaling, columns: tuple[str, ...] | None
) -> None:
    names = columns or tuple(f"feature {j}" for j in range(scaling.n_features))
    shown = ", ".join(names[j] for j in which[:5]) + (", .." if len(which) > 5 else "")
    warnings.warn(
        f"{shown}: of size {1 / scaling.factor[which].max():.0e}, so small that its "
        "square is less than a float can hold. What varies is taken for constant. "
        "Multiply these columns by a power of ten, or leave them out.",
        ConvergenceWarning,
        stacklevel=4,
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
