r"""The descent of Iterative CKM: which clusters have the sketch that was seen.

A cluster is a Gaussian or a point; its features are those of linear units,
:math:`\varphi(x) = \sigma(W^\top x)`. Where W comes from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from sketchlearn.decoders.unrolled import InnerOptimiser, descend
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation, activate

__all__ = [
    "DAMPED",
    "Atoms",
    "CKMFit",
    "CKMObjective",
    "CKMSpec",
    "damp",
    "fit_frame",
]

Atoms = Literal["gaussian", "point"]

DAMPED: tuple[Activation, ...] = ("fourier", "cos", "sin")
"""Activations whose mean over a Gaussian is a factor times the value at its centre."""

_FRAME_RATE = 0.1
_FRAME_SPREAD = 0.4
_FRAME_BLUR = 0.5
_LEAST_SPREAD = 1e-3
_MAX_LOG = 5.0


@final
@dataclass(frozen=True)
class CKMSpec:
    """What is fixed when Iterative CKM is trained by gradients."""

    activation: Activation = "fourier"
    """σ."""

    optimiser: InnerOptimiser = "adam"
    """What a step is."""

    n_steps: int = 200
    """Number of steps."""

    sketch_size: int = 0
    """0 learns a law of W, for any sizes. Another size learns W itself, as the paper
    does, for that size and up to 196 features: fewer are padded with zeros."""

    atoms: Atoms = "gaussian"
    """What a cluster is: a Gaussian, all with the same variances, found in the descent;
    or a point, as in the paper."""

    def __post_init__(self) -> None:
        if self.atoms == "gaussian" and self.activation not in DAMPED:
            raise FeatureMapError(
                f"Gaussian atoms need one of the activations {', '.join(DAMPED)}; got "
                f"{self.activation!r}. Set atoms='point'."
            )

    def n_units(self, sketch_size: int) -> int:
        """Columns of W for a sketch size."""
        return sketch_size // 2 if self.activation == "fourier" else sketch_size


class CKMFit(NamedTuple):
    """Where a descent ended, in the scaled units of the rows."""

    centroids: Tensor
    """Shape (..., k, width), brought back into [-1, 1]."""

    variances: Tensor
    """Common to all clusters, shape (..., width); zero for points."""

    misfit: Tensor
    """Squared distance of the sketches, shape (...)."""

    objective: Tensor
    """What was lowered: the misfit and the pull, shape (...)."""


@final
@dataclass(frozen=True, eq=False)
class CKMObjective:
    """What is lowered, of one tensor: the rows u, then a row of log sqrt(v) / τ."""

    spec: CKMSpec
    target: Tensor  # (..., size)
    matrix: Tensor  # (..., width, n_units)
    centre: Tensor  # μ, (..., 1, width)
    unit: Tensor  # τ, (..., 1, width)
    pull: Tensor  # (...)
    blur: float = 0.0  # standard deviation of noise that all rows are taken to have

    def __call__(self, point: Tensor) -> Tensor:
        """Misfit and pull, shape (...)."""
        misfit = self._misfit(*self._clusters(point))
        return misfit + self._pull(point)

    def fit_at(self, point: Tensor) -> CKMFit:
        """The clusters of a point, and how well they fit."""
        centroids, variances = self._clusters(point)
        centroids = centroids.nan_to_num(0.0).clamp(-1, 1)
        misfit = self._misfit(centroids, variances)
        objective = misfit + self._pull(point)
        return CKMFit(centroids, variances.squeeze(-2), misfit, objective)

    def _clusters(self, point: Tensor) -> tuple[Tensor, Tensor]:
        centroids = self.centre + self.unit * point[..., :-1, :]
        if self.spec.atoms == "point":
            return centroids, torch.zeros_like(self.unit)
        # So far that nothing overflows; no cluster is that much wider than all rows.
        logs = point[..., -1:, :].clamp(-_MAX_LOG, _MAX_LOG)
        return centroids, (self.unit * logs.exp()).square()

    def _misfit(self, centroids: Tensor, variances: Tensor) -> Tensor:
        features = activate(centroids @ self.matrix, self.spec.activation).mean(dim=-2)
        if self.spec.atoms == "gaussian":
            features = features * self._by_unit(variances)
        away = features - self.target
        if self.blur:
            away = away * self._by_unit(torch.full_like(self.unit, self.blur**2))
        return away.square().sum(dim=-1)

    def _by_unit(self, variances: Tensor) -> Tensor:
        """Damping of every feature, (..., size)."""
        factors = damp(variances, self.matrix)
        n_copies = self.target.shape[-1] // factors.shape[-1]
        return torch.cat([factors] * n_copies, dim=-1)

    def _pull(self, point: Tensor) -> Tensor:
        return self.pull * point[..., :-1, :].square().sum(dim=(-2, -1))


def fit_frame(spec: CKMSpec, target: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and spread of all rows, (..., 1, width): one Gaussian fitted to them.

    Rows are blurred for it, or the fit could end at one of several clusters.
    """
    shape = (*target.shape[:-1], 1, matrix.shape[-2])
    nothing, one = target.new_zeros(shape), target.new_ones(shape)
    if spec.atoms == "point":
        return nothing, one
    given = target.detach(), matrix.detach()
    unit = _FRAME_SPREAD * one
    no_pull = target.new_zeros(())
    objective = CKMObjective(spec, *given, nothing, unit, no_pull, _FRAME_BLUR)
    point = descend(
        objective,
        torch.cat([nothing, nothing], dim=-2),
        rate=_FRAME_RATE,
        n_steps=spec.n_steps // 2,
        schedule="cosine",
        backward_steps=0,
    )
    centre, logs = (unit * point[..., :1, :]), point[..., 1:, :]
    return centre, (unit * logs.exp()).clamp(_LEAST_SPREAD, 1.0)


def damp(variances: Tensor, matrix: Tensor) -> Tensor:
    r"""How much variances (..., 1, width) shrink the means of units, (..., n_units).

    For a Gaussian, :math:`E \cos w^\top x = e^{-\frac12 w^\top \mathrm{diag}(v)\,w}
    \cos w^\top \mu`, and likewise for the sine.

    Examples
    --------
    >>> damp(torch.tensor([[2.0]]), torch.tensor([[1.0, 0.0]])).tolist()
    [0.3678794503211975, 1.0]
    """
    factors: Tensor = torch.exp(-0.5 * variances @ matrix.square()).squeeze(-2)
    return factors
