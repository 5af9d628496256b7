"""Feature maps as functions that torch can differentiate, for learning.

A sketch is made by the map itself, in its own exact arithmetic; these are the same
formulas on tensors of any floating type and any number of leading axes. Decoders that
only need a slope have it without torch (:mod:`sketchlearn.decoders.clusters.pullback`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import LEAK, Activation, ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.parts import Clip, all_clips
from sketchlearn.features.scaling import Scaling
from sketchlearn.meta.backend import Tensor, torch

__all__ = ["TensorMap", "activate", "differentiable", "lower_products"]

TensorMap = Callable[[Tensor], Tensor]

_TENSOR_FUNCTIONS: dict[str, TensorMap] = {
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "leaky-relu": partial(torch.nn.functional.leaky_relu, negative_slope=LEAK),
    "identity": lambda phases: phases,
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
    parts = feature_map.parts()
    plain = [_plain(part.feature_map) for part in parts]
    clips = all_clips(parts)

    def phi(rows: Tensor) -> Tensor:
        features = torch.cat([own(rows) for own in plain], dim=-1)
        for clip in clips:
            features = _clipped(features, clip)
        return features

    return phi


def _plain(feature_map: AbstractFeatureMap) -> TensorMap:
    """A map that is neither clipped nor concatenated."""
    match feature_map:
        case FourierFeatures():
            omega = torch.tensor(feature_map.frequencies)
            return _units(omega, "fourier", feature_map.scaling)
        case ActivationFeatures():
            matrix = torch.tensor(feature_map.matrix)
            return _units(matrix, feature_map.activation, feature_map.scaling)
        case NystromFeatures():
            return _nystrom(feature_map)
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
    return _TENSOR_FUNCTIONS[activation](phases)


def lower_products(rows: Tensor) -> Tensor:
    r"""The products :math:`x_p x_q`, :math:`q \le p`: (..., d) → (..., d(d+1)/2)."""
    i, j = torch.tril_indices(rows.shape[-1], rows.shape[-1])
    return rows[..., i] * rows[..., j]


def _scaled(scaling: Scaling | None) -> TensorMap:
    if scaling is None:
        return lambda rows: rows
    shift, factor = torch.tensor(scaling.shift), torch.tensor(scaling.factor)
    return lambda rows: (rows - shift.to(rows)) * factor.to(rows)


def _units(
    matrix: Tensor, activation: Activation, scaling: Scaling | None
) -> TensorMap:
    scaled = _scaled(scaling)
    return lambda rows: activate(scaled(rows) @ matrix.to(rows), activation)


def _nystrom(feature_map: NystromFeatures) -> TensorMap:
    scaled, scale = _scaled(feature_map.scaling), feature_map.scale
    marks = torch.tensor(feature_map.landmarks)
    root = torch.tensor(feature_map.root)

    def phi(rows: Tensor) -> Tensor:
        away = scaled(rows)[..., None, :] - scaled(marks.to(rows))
        kernel = torch.exp(-away.square().sum(dim=-1) / (2 * scale**2))
        return kernel @ root.to(rows)

    return phi


def _clipped(features: Tensor, clip: Clip) -> Tensor:
    own, bound = features[..., clip.where], clip.norm_bound
    squares = own.square().sum(dim=-1, keepdim=True)
    short = own * (bound / squares.clamp_min(bound**2).sqrt())
    before, after = features[..., : clip.where.start], features[..., clip.where.stop :]
    return torch.cat([before, short, after], dim=-1)
