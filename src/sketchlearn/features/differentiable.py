"""Feature maps as functions that torch can differentiate, for learning and descent.

A sketch is made by the map itself, in its own exact arithmetic; these are the same
formulas on tensors of any floating type and any number of leading axes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures, activate
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import ClippedFeatures
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.kernel import FourierFeatures, NystromFeatures
from sketchlearn.scaling import Scaling

__all__ = ["TensorMap", "differentiable"]

TensorMap = Callable[[torch.Tensor], torch.Tensor]


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
        omega = torch.from_numpy(feature_map.frequencies)
        scaled = _scaled(feature_map.scaling)
        return lambda rows: activate(scaled(rows) @ omega.to(rows), "fourier")
    if isinstance(feature_map, ActivationFeatures):
        matrix, activation = (
            torch.from_numpy(feature_map.matrix),
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


def _scaled(scaling: Scaling | None) -> TensorMap:
    if scaling is None:
        return lambda rows: rows
    shift, factor = scaling.shift.copy(), scaling.factor.copy()
    first, second = torch.from_numpy(shift), torch.from_numpy(factor)
    return lambda rows: (rows - first.to(rows)) * second.to(rows)


def _nystrom(feature_map: NystromFeatures) -> TensorMap:
    scaled, scale = _scaled(feature_map.scaling), feature_map.scale
    marks = torch.from_numpy(feature_map.landmarks)
    root = torch.from_numpy(feature_map.weights()["root"])

    def phi(rows: torch.Tensor) -> torch.Tensor:
        away = scaled(rows)[..., None, :] - scaled(marks.to(rows))
        kernel = torch.exp(-away.square().sum(dim=-1) / (2 * scale**2))
        return kernel @ root.to(rows)

    return phi


def _clipped(inner: TensorMap, bound: float) -> TensorMap:
    def phi(rows: torch.Tensor) -> torch.Tensor:
        features = inner(rows)
        squares = features.square().sum(dim=-1, keepdim=True)
        return features * (bound / squares.clamp_min(bound**2).sqrt())

    return phi
