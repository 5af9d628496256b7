r"""One linear layer and a non-linearity, with weights of one's own (learned or not).

This is the sketch network of the paper's Iterative CKM,
:math:`\varphi(x) = \sigma(Wx)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, final, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import require_in_range
from sketchlearn.features.tensor import (
    AbstractTensorFeatures,
    scaled_float32,
    stable_columns,
)
from sketchlearn.scaling import Scaling

__all__ = ["Activation", "ActivationFeatures", "activate"]

Activation = Literal["fourier", "cos", "sin", "tanh", "sigmoid", "relu"]

_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
}
_LARGEST = 1024.0


def activate(phases: torch.Tensor, activation: Activation) -> torch.Tensor:
    """The non-linearity alone; differentiable. ``"fourier"`` doubles the last axis.

    Examples
    --------
    >>> activate(torch.zeros(1, 2), "fourier")
    tensor([[1., 1., 0., 0.]])
    """
    if activation == "fourier":
        return torch.cat([torch.cos(phases), torch.sin(phases)], dim=-1)
    return _FUNCTIONS[activation](phases)


@final
class ActivationFeatures(AbstractTensorFeatures):
    r"""Activations of linear forms.

    .. math:: \varphi(x) = \sigma(W^\top x)

    Parameters
    ----------
    matrix : array of shape (n_features, n_units)
        W, one column for each unit.
    activation : {"fourier", "cos", "sin", "tanh", "sigmoid", "relu"}
        σ. ``"fourier"`` keeps both cosine and sine of each unit, so that the sketch has
        ``2 * n_units`` numbers, cosines first; otherwise there are ``n_units``.
        ``"relu"`` is bounded neither in value (rows beyond 1024 are refused) nor in
        norm: clip the map to release its sketches.
    scaling : Scaling, optional
        Applied to rows first.

    References
    ----------
    Paper, section 4.2 (Iterative CKM).

    Examples
    --------
    >>> phi = ActivationFeatures([[1.0, -2.0]], activation="relu")
    >>> phi(np.array([[3.0], [-3.0]]))
    array([[3., 0.],
           [0., 6.]], dtype=float32)
    """

    kind: ClassVar[str] = "activation"

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
        # float32 cos^2 + sin^2 may exceed 1 by a few units in the last place.
        norm_bound = units.shape[1] ** 0.5 * (1 + 2.0**-20)
        super().__init__(
            n_features=units.shape[0],
            sketch_size=units.shape[1] * (2 if activation == "fourier" else 1),
            scaling=scaling,
            value_bound=_LARGEST if activation == "relu" else 1.0,
            norm_bound=None if activation == "relu" else norm_bound,
        )
        self.matrix, self.activation = units, activation
        self._padded = stable_columns(units)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return ("matrix",)

    @override
    def describe(self) -> dict[str, Any]:
        return {"activation": self.activation}

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {"matrix": self.matrix}

    @override
    def evaluate_tensor(
        self, rows: NDArray[np.floating], first_row: int
    ) -> torch.Tensor:
        n_units = self.matrix.shape[1]
        phases = scaled_float32(rows, self.scaling, first_row) @ self._padded
        if self.activation == "fourier":
            parts = torch.cos(phases)[:, :n_units], torch.sin(phases)[:, :n_units]
            return torch.cat(parts, dim=1)
        features = activate(phases, self.activation)[:, :n_units].contiguous()
        if self.activation == "relu":
            require_in_range(features.numpy(), self.value_bound, first_row)
        return features
