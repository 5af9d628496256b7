"""Feature maps as functions that torch can differentiate, for learning.

A sketch is made by the map itself, in its own exact arithmetic; these are the same
formulas on tensors of any floating type and any number of leading axes. Decoders that
only need a slope have it without torch (:mod:`sketchlearn.decoders.clusters.pullback`).
"""

from __future__ import annotations

from collections.abc import Callable

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation, ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import ClippedFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.kernel import FourierFeatures, NystromFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.meta.backend import Tensor, torch

__all__ = ["TensorMap", "activate", "differentiable", "lower_products"]

TensorMap = Callable[[Tensor], Tensor]

_FUNCTIONS: dict[str, TensorMap] = {
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
}


def differentiable(feature_map: AbstractFeatureMap) -> TensorMap:
    r"""The map :math:`\varphi` on tensors, ``(..., n_features)`` to ``(..., size)``.

    Rows are in their own units; scaling and clipping are part of the function.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Fourier, Nyström or activation features, also clipped or concatenated.

    Examples
    --------
    >>> from sketchlearn import FourierFeatures
    >>> phi = differentiable(FourierFeatures(n_features=2, sketch_size=4))
    >>> phi(torch.zeros(3, 1, 2)).shape
    torch.Size([3, 1, 4])
    """
    if isinstance(feature_map, FourierFeatures):
        omega = torch.tensor(feature_map.frequencies)
        scaled = _scaled(feature_map.scaling)
        return lambda rows: activate(scaled(rows) @ omega.to(rows), "fourier")
    if isinstance(feature_map, ActivationFeatures):
        matrix, activation = (
            torch.tensor(feature_map.matrix),
            feature_map.activation,
        )
        scaled = _scaled(feature_map.scaling)
        return lambda rows: activate(scaled(rows) @ matrix.to(rows), activation)
    if isinstance(feature_map, NystromFeatures):
        return _nystrom(feature_map)
    if isinstance(feature_map, ClippedFeatures):
        return _clipped(differentiable(feature_map.inner), feature_map.value_bound)
    if isinstance(feature_map, ConcatenatedFeatures):
        parts = [differentiable(part) for part in feature_map.parts]
        return lambda rows: torch.cat([part(rows) for part in parts], dim=-1)
    raise FeatureMapError(
        f"a map of kind {feature_map.kind!r} has no differentiable form. Use Fourier, "
        "Nyström or activation features."
    )


def activate(phases: Tensor, activation: Activation) -> Tensor:
    """The non-linearity alone; ``"fourier"`` doubles the last axis.

    Examples
    --------
    >>> activate(torch.zeros(1, 2), "fourier")
    tensor([[1., 1., 0., 0.]])
    """
    if activation == "fourier":
        return torch.cat([torch.cos(phases), torch.sin(phases)], dim=-1)
    return _FUNCTIONS[activation](phases)


def lower_products(rows: Tensor) -> Tensor:
    r"""The products :math:`x_p x_q`, :math:`q \le p`: (..., d) → (..., d(d+1)/2)."""
    i, j = torch.tril_indices(rows.shape[-1], rows.shape[-1])
    return rows[..., i] * rows[..., j]


def _scaled(scaling: Scaling | None) -> TensorMap:
    if scaling is None:
        return lambda rows: rows
    shift, factor = torch.tensor(scaling.shift), torch.tensor(scaling.factor)
    return lambda rows: (rows - shift.to(rows)) * factor.to(rows)


def _nystrom(feature_map: NystromFeatures) -> TensorMap:
    scaled, scale = _scaled(feature_map.scaling), feature_map.scale
    marks = torch.tensor(feature_map.landmarks)
    root = torch.tensor(feature_map.root)

    def phi(rows: Tensor) -> Tensor:
        away = scaled(rows)[..., None, :] - scaled(marks.to(rows))
        kernel = torch.exp(-away.square().sum(dim=-1) / (2 * scale**2))
        return kernel @ root.to(rows)

    return phi


def _clipped(inner: TensorMap, bound: float) -> TensorMap:
    def phi(rows: Tensor) -> Tensor:
        features = inner(rows)
        squares = features.square().sum(dim=-1, keepdim=True)
        return features * (bound / squares.clamp_min(bound**2).sqrt())

    return phi
