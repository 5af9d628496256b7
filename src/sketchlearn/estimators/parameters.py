"""Parameters of estimators: what they may be, checked before a row is read.

Estimators declare them as scikit-learn's own do, in ``_parameter_constraints``, and
scikit-learn checks them. What a constraint cannot say (bounds, or how parameters fit
together) estimators check themselves.
"""

from __future__ import annotations

from copy import deepcopy
from numbers import Integral, Real
from typing import Any, final

import numpy as np
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    RealNotInt,
    StrOptions,
    validate_parameter_constraints,
)

from sketchlearn.errors import FeatureMapError
from sketchlearn.files.models import SUFFIX, is_file_name

__all__ = [
    "AT_LEAST_ONE",
    "BOUNDS",
    "NOT_NEGATIVE",
    "RANDOM_STATE",
    "ANY_NUMBER",
    "ROUNDS",
    "SHARE",
    "SKETCH_SIZE",
    "Constraints",
    "one_of",
    "one_of_or_file",
    "require_parameters",
    "seed_of",
]

Constraints = dict[str, Any]
"""From the name of each parameter to what it may be."""


@final
class _Number(Interval):
    """An interval of numbers, of which True and False are none."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))


AT_LEAST_ONE = _Number(Integral, 1, None, closed="left")
ANY_NUMBER = _Number(Real, None, None, closed="neither")
NOT_NEGATIVE = _Number(Real, 0, None, closed="left")
SHARE = _Number(RealNotInt, 0, 1, closed="neither")


def one_of(*names: str) -> list[Any]:
    """One of these words."""
    return [StrOptions(dict.fromkeys(names).keys())]  # a set that keeps its order


@final
class _WordsOrFile(StrOptions):
    """One of some words, or the path of a file of weights."""

    def is_satisfied_by(self, val: Any) -> bool:
        return is_file_name(val) or bool(super().is_satisfied_by(val))

    def __str__(self) -> str:
        return f"{super().__str__()} or the path of a {SUFFIX} file"


def one_of_or_file(*names: str) -> list[Any]:
    """One of these words, or the path of a file of weights."""
    return [_WordsOrFile(dict.fromkeys(names).keys())]


SKETCH_SIZE = [AT_LEAST_ONE, *one_of("auto")]
ROUNDS = [_Number(Integral, 1, 2, closed="both"), None]
RANDOM_STATE = [
    _Number(Integral, 0, None, closed="left"),
    np.random.RandomState,
    None,
]
BOUNDS = "no_validation"
"""Two numbers or vectors: see :func:`sketchlearn.plans.scaling.check_bounds`."""


def require_parameters(estimator: Any) -> None:
    """Refuse parameters that are not what their estimator declares.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> require_parameters(sl.CompressiveRidge(alpha=2.0))
    """
    try:
        validate_parameter_constraints(
            estimator._parameter_constraints,
            estimator.get_params(deep=False),
            caller_name=type(estimator).__name__,
        )
    except InvalidParameterError as error:
        raise FeatureMapError(str(error)) from error


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn calls ``random_state``; None is 0.

    A generator is not advanced: the same estimator plans the same map every time.
    """
    if isinstance(random_state, np.random.RandomState):
        return int(deepcopy(random_state).randint(2**31))
    return 0 if random_state is None else int(random_state)
