r"""Iterative CKM as one model: a learned law of linear units and its descent.

What is learned is how to draw the matrix W of :math:`\varphi(x) = \sigma(W^\top x)`
(or W itself, as the paper does) and how to descend; the steps themselves are those of
:mod:`sketchlearn.decoders.unrolled`. How it is learned is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from sketchlearn.decoders.unrolled import (
    InnerOptimiser,
    UnrolledDecoder,
    unrolled_centroids,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation, ActivationFeatures, activate
from sketchlearn.features.base import require_positive_int
from sketchlearn.networks import export_tensors, import_tensors, spec_from_dict
from sketchlearn.scaling import Scaling
from sketchlearn.weights import Weights

__all__ = ["MAX_PADDED", "CKMSpec", "IterativeCKM", "draw_units"]

MAX_PADDED = 196
"""Features that rows of the paper's form are padded to."""

_MAX_RATE = 0.5
_LOGS = {"rate": -2.3, "initial_std": -2.3, "radius": 0.7, "spread": -0.7}
_START = {**_LOGS, "by_features": 0.0, "by_size": 0.0}


@final
@dataclass(frozen=True)
class CKMSpec:
    """What is fixed when an :class:`IterativeCKM` is trained by gradients."""

    activation: Activation = "fourier"
    """σ."""

    optimiser: InnerOptimiser = "adam"
    """What a step is."""

    n_steps: int = 100
    """Number of steps."""

    sketch_size: int = 0
    """0 learns a law of W, for any sizes. Another size learns W itself, as the paper
    does, for that size and up to 196 features: fewer are padded with zeros."""

    def n_units(self, sketch_size: int) -> int:
        """Columns of W for a sketch size."""
        return sketch_size // 2 if self.activation == "fourier" else sketch_size


@final
class IterativeCKM(nn.Module):
    r"""A learned law of linear units with the descent that goes with it.

    A unit of :math:`\varphi(x) = \sigma(W^\top x)` is a random direction times

    .. math:: R = \exp\big(r + a \log\tfrac{d}{32} + b \log\tfrac{m}{512} + s\,q\big)

    with q standard normal, so that six learned numbers (r, a, b, s, the rate and the
    spread of the start) serve any number d of features, any sketch size m and any k.

    Parameters
    ----------
    spec : CKMSpec
        Activation, optimiser and number of steps.
    seed : int
        Seed of W, for the paper's form.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> model = IterativeCKM(CKMSpec())
    >>> phi = model.feature_map(2, 40, seed=0)
    >>> sketch = sl.sketch_rows([[0.2, 0.1], [0.8, 0.5]], phi)
    >>> found = model.decoder(2).decode(sketch).params.centres
    >>> sorted(found.round(1).tolist())
    [[0.2, 0.1], [0.8, 0.5]]
    """

    def __init__(self, spec: CKMSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.numbers = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(start)) for name, start in _START.items()}
        )
        if spec.sketch_size:
            rng, n_units = np.random.default_rng(seed), spec.n_units(spec.sketch_size)
            drawn = draw_units(MAX_PADDED, n_units, rng)
            start = self._law(*drawn, torch.tensor(float(MAX_PADDED)))
            self.weight = nn.Parameter(start.detach().clone())

    def pace(self) -> tuple[Tensor, Tensor]:
        """Rate, capped where descent in [-1, 1] is lost, and spread of the start."""
        rate, std = (self.numbers[name].exp() for name in ("rate", "initial_std"))
        return rate.clamp_max(_MAX_RATE), std

    def matrix(
        self, directions: Tensor, positions: Tensor, n_features: Tensor
    ) -> Tensor:
        """W, shape (..., width, n_units), from what :func:`draw_units` drew.

        Directions have zeros beyond the ``n_features`` of a dataset.
        """
        if not self.spec.sketch_size:
            return self._law(directions, positions, n_features)
        row = torch.arange(directions.shape[-2])
        return self.weight[row] * (row < n_features[..., None])[..., None]

    def decode(
        self, target: Tensor, matrix: Tensor, start: Tensor, *, backward_steps: int = 0
    ) -> Tensor:
        """Centroids (..., k, width) for sketches; ``start`` is unit noise."""
        spec, (rate, std) = self.spec, self.pace()
        return unrolled_centroids(
            target,
            lambda rows: activate(rows @ matrix, spec.activation),
            initial=std * start,
            rate=rate,
            n_steps=spec.n_steps,
            optimiser=spec.optimiser,
            backward_steps=backward_steps,
        )

    def feature_map(
        self,
        n_features: int,
        sketch_size: int,
        seed: int = 0,
        *,
        scaling: Scaling | None = None,
    ) -> ActivationFeatures:
        """The map to sketch with; same seed, same map.

        ``scaling`` brings rows into [-1, 1], by default from features in [0, 1].
        """
        self._require_sizes(n_features, sketch_size)
        scaling = scaling or Scaling.from_bounds(0.0, 1.0, n_features=n_features)
        rng, n_units = np.random.default_rng(seed), self.spec.n_units(sketch_size)
        drawn = draw_units(n_features, n_units, rng)
        matrix = self.matrix(*drawn, torch.tensor(float(n_features))).detach()
        return ActivationFeatures(
            matrix.numpy(), activation=self.spec.activation, scaling=scaling
        )

    def decoder(
        self, n_clusters: int, *, n_starts: int = 8, seed: int = 0
    ) -> UnrolledDecoder:
        """The decoder for sketches of :meth:`feature_map`."""
        rate, std = (value.item() for value in self.pace())
        return UnrolledDecoder(
            n_clusters,
            rate=rate,
            n_steps=self.spec.n_steps,
            optimiser=self.spec.optimiser,
            initial_std=std,
            n_starts=n_starts,
            seed=seed,
        )

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        tensors = export_tensors(self)
        return Weights("iterative-ckm", asdict(self.spec), tensors, card or {})

    @classmethod
    def from_weights(cls, weights: Weights) -> Self:
        """The model that weights of kind ``"iterative-ckm"`` belong to."""
        model = cls(spec_from_dict(CKMSpec, weights.spec))
        import_tensors(model, weights.tensors)
        return model.eval()

    def _law(self, directions: Tensor, positions: Tensor, n_features: Tensor) -> Tensor:
        law, n_units = self.numbers, directions.shape[-1]
        size = n_units * (2 if self.spec.activation == "fourier" else 1)
        common = law["radius"] + law["by_size"] * math.log(size / 512)
        common = common + law["by_features"] * (n_features / 32).log()
        logs = common[..., None] + law["spread"].exp() * positions
        matrix: Tensor = directions * logs.exp()[..., None, :]
        return matrix

    def _require_sizes(self, n_features: int, sketch_size: int) -> None:
        require_positive_int("n_features", n_features)
        size = self.spec.sketch_size
        if size and (n_features > MAX_PADDED or sketch_size != size):
            raise FeatureMapError(
                f"this model sketches up to {MAX_PADDED} features into {size} numbers; "
                f"got n_features={n_features} and sketch_size={sketch_size}."
            )
        if (
            require_positive_int("sketch_size", sketch_size) % 2
            and self.spec.activation == "fourier"
        ):
            raise FeatureMapError(
                f"sketch_size must be even (cosine and sine pairs); got {sketch_size}."
            )


def draw_units(
    n_features: int, n_units: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Unit vectors (n_features, n_units) and their normal places in a law (n_units)."""
    directions = rng.standard_normal((n_features, n_units), np.float32)
    directions /= np.linalg.norm(directions, axis=0)
    positions = rng.standard_normal(n_units, np.float32)
    return torch.from_numpy(directions), torch.from_numpy(positions)
