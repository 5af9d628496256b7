r"""One linear layer and a non-linearity, with weights of one's own (learned or not).

This is the sketch network of the paper's Iterative CKM,
:math:`\varphi(x) = \sigma(Wx)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, sqrt
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.arithmetic.draws import Draws
from sketchlearn.arithmetic.elementary import TURN, gelu, sigmoid, tanh
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.products import WholeMatrix
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.base import (
    AbstractFeatureMap,
    require_in_range,
    sum_features,
)
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.fields import WORD, Field
from sketchlearn.features.lattice import RowLattice
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import (
    VALUE_BITS,
    Sinusoids,
    sinusoid_norm,
    sum_sinusoids,
)

__all__ = [
    "LEAK",
    "UNBOUNDED",
    "Activation",
    "ActivationFeatures",
    "random_activations",
]
__public__ = ["ActivationFeatures"]

Activation = Literal[
    "fourier",
    "cos",
    "sin",
    "tanh",
    "sigmoid",
    "relu",
    "gelu",
    "leaky-relu",
    "identity",
]

LEAK = 0.01
"""Slope of the leaky ReLU below 0: torch's default, and as every sketch of one has it.
"""

_PERIODIC = ("fourier", "cos", "sin")
_NOT_PERIODIC: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "tanh": tanh,
    "sigmoid": sigmoid,
    "relu": lambda values: np.maximum(values, 0.0),
    "gelu": gelu,
    "leaky-relu": lambda values: np.where(values < 0, LEAK * values, values),
    "identity": lambda values: values,
}
UNBOUNDED: tuple[Activation, ...] = ("relu", "gelu", "leaky-relu", "identity")
"""Activations without a bound of value or norm."""

_LARGEST_SUM = 1024.0
_ACTIVATION_ROW_BITS, _UNIT_BITS = 18, 22
"""Rows and entries of W are rounded to so many bits."""


@final
class ActivationFeatures(AbstractFeatureMap):
    r"""Activations of linear forms.

    .. math:: \varphi(x) = \sigma(W^\top x)

    Parameters
    ----------
    matrix : array of shape (n_features, n_units)
        W, one column for each unit.
    activation : {"fourier", "cos", "sin", "tanh", "sigmoid", "relu", "gelu", \
"leaky-relu", "identity"}
        σ. ``"fourier"`` keeps both cosine and sine of each unit, so that the sketch has
        ``2 * n_units`` numbers, cosines first; otherwise there are ``n_units``.
        The last four are bounded neither in value (features beyond 1024 are refused)
        nor in norm: clip the map to release its sketches.
    scaling : Scaling, optional
        Applied to rows first.

    Notes
    -----
    Scaled rows are rounded to :math:`2^{-18}` and entries of W to :math:`2^{-22}` (of
    a turn, for cosines and sines); rows beyond 1024 are refused, except for cosines.

    References
    ----------
    Paper, section 4.2 (Iterative CKM).

    Examples
    --------
    >>> phi = ActivationFeatures([[1.0, -2.0]], activation="relu")
    >>> phi(np.array([[3.0], [-3.0]]))
    array([[3., 0.],
           [0., 6.]])
    """

    kind: ClassVar[str] = "activation"
    fields: ClassVar[Mapping[str, Field]] = {"activation": WORD}
    stored: ClassVar[tuple[str, ...]] = ("matrix",)

    def __init__(
        self,
        matrix: ArrayLike,
        *,
        activation: Activation = "fourier",
        scaling: Scaling | None = None,
    ) -> None:
        units = np.array(matrix, np.float32)
        if units.ndim != 2 or not units.size or not np.isfinite(units).all():
            raise FeatureMapError(
                "matrix must be a finite array of shape (n_features, n_units); got "
                f"shape {units.shape}."
            )
        if activation not in get_args(Activation):
            raise FeatureMapError(
                f"activation must be one of {', '.join(get_args(Activation))}; got "
                f"{activation!r}."
            )
        is_periodic, n_units = activation in _PERIODIC, units.shape[1]
        bounds: dict[str, float | None] = {"fourier": sinusoid_norm(n_units)}
        bounds |= dict.fromkeys(UNBOUNDED)
        super().__init__(
            n_features=units.shape[0],
            sketch_size=n_units * (2 if activation == "fourier" else 1),
            scaling=scaling,
            value_bound=_LARGEST_SUM if activation in UNBOUNDED else 1.0,
            norm_bound=bounds.get(activation, sqrt(n_units) * (1 + 2.0**-50)),
            frac_bits=VALUE_BITS if is_periodic else None,
        )
        self.matrix, self.activation = units, activation
        wide = units.astype(np.float64)
        if is_periodic:
            self._lattice = RowLattice(scaling, _ACTIVATION_ROW_BITS, 2.0**52)
            self._sinusoids = Sinusoids(
                wide / TURN,
                row_bits=_ACTIVATION_ROW_BITS,
                phase_bits=_ACTIVATION_ROW_BITS + _UNIT_BITS,
            )
        else:
            limit = _LARGEST_SUM * 2.0**_ACTIVATION_ROW_BITS
            self._lattice = RowLattice(scaling, _ACTIVATION_ROW_BITS, limit)
            self._units = WholeMatrix(np.rint(wide * 2.0**_UNIT_BITS))

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        d, units = given.stored_shape("matrix")
        both = given.fields.get("activation", "fourier") == "fourier"
        m = units * (2 if both else 1)
        return Cost(d or None, m or None, 10 * d * units + 8 * m, 100 * d * units)

    @override
    def describe(self) -> dict[str, Any]:
        return {"activation": self.activation}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"matrix": self.matrix}

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        x, largest = self._lattice.round(rows, first_row)
        if self.activation in _PERIODIC:
            both = self._sinusoids.features(x, largest)
            n_units = self.matrix.shape[1]
            kept = {"cos": slice(n_units), "sin": slice(n_units, None)}
            return both[:, kept.get(self.activation, slice(None))]
        sums = self._units.product(x, largest) * 2.0 ** -(
            _ACTIVATION_ROW_BITS + _UNIT_BITS
        )
        step = 2.0**self.frac_bits
        features: NDArray[np.float64] = (
            np.rint(_NOT_PERIODIC[self.activation](sums) * step) / step
        )
        require_in_range(features, self.value_bound, first_row)
        return features

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        if self.activation == "fourier":
            return sum_sinusoids(self._sinusoids, self._lattice, rows, first_row)
        return sum_features(self, rows, first_row)


def random_activations(
    n_features: int,
    sketch_size: int,
    *,
    activation: Activation = "gelu",
    variance: float = 1.0,
    seed: int = 0,
    scaling: Scaling | None = None,
) -> ActivationFeatures:
    r"""Random features :math:`\sigma(W^\top x)`, :math:`W_{ij} \sim N(0, variance)`.

    Parameters
    ----------
    n_features, sketch_size : int
        Width of a row and length of the feature vector, even for ``"fourier"``.
    activation : str
        As for :class:`ActivationFeatures`.
    variance : float
        Of the weights; the paper tries 0.005 to 1.
    seed : int
        Same seed, same features, on every machine.
    scaling : Scaling, optional
        Applied to rows first.

    References
    ----------
    Paper, RFQNet (hyperparameter search for frequency estimation).

    Examples
    --------
    >>> random_activations(3, 8, activation="fourier", variance=0.5).matrix.shape
    (3, 4)
    """
    is_double = activation == "fourier"
    if sketch_size < 1 or (is_double and sketch_size % 2) or not 0 < variance < inf:
        raise FeatureMapError(
            "random features need a positive sketch_size, even for 'fourier', and a "
            f"positive variance; got {sketch_size} and {variance!r}."
        )
    n_units = sketch_size // 2 if is_double else sketch_size
    shape = require_positive_int("n_features", n_features), n_units
    ActivationFeatures.require_affordable({"matrix": shape}, activation=activation)
    matrix = sqrt(variance) * Draws(seed).normal(n_features, n_units)
    return ActivationFeatures(matrix, activation=activation, scaling=scaling)
