r"""Iterative CKM as it is trained: through its descent, on batches of datasets.

This is the torch twin of
:class:`~sketchlearn.decoders.clusters.iterative_ckm.IterativeCKM`: the same formulas,
numbers and names. Datasets of fewer features than others of their batch are padded with
zeros, and gradients flow through the last steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, final

from sketchlearn.decoders.clusters.ckm_descent import CKMSpec, CKMTuning
from sketchlearn.decoders.clusters.iterative_ckm import IterativeCKM
from sketchlearn.files.weights import Weights
from sketchlearn.meta.backend import Tensor, nn, torch
from sketchlearn.meta.descent import descend
from sketchlearn.meta.differentiable import activate
from sketchlearn.meta.networks import export_tensors, import_tensors

__all__ = ["TensorFit", "TensorObjective", "TrainableCKM", "damp", "fit_frame"]

TUNING = CKMTuning()
"""What shipped weights are trained with."""

PRINTED = ("rate", "initial_std")
"""The learned numbers of the paper's form, beside W."""


@final
class TrainableCKM(nn.Module):
    """The law and the descent of an Iterative CKM, differentiable in its numbers.

    Parameters
    ----------
    spec : CKMSpec
        Activation, atoms, optimiser and number of steps.
    seed : int
        Seed of W, for the paper's form.

    Examples
    --------
    >>> TrainableCKM(CKMSpec()).freeze().feature_map(3, 20).sketch_size
    20
    """

    def __init__(self, spec: CKMSpec, *, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        first = IterativeCKM.initial(spec, seed)
        self.numbers = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(())) for name in first.learned}
        )
        if spec.sketch_size:
            self.weight = nn.Parameter(torch.zeros(first.tensors["weight"].shape))
        import_tensors(self, first.tensors)
        if spec.sketch_size and spec.atoms == "point" and not spec.is_pulled:
            for name, number in self.numbers.items():
                number.requires_grad_(name in PRINTED)

    @classmethod
    def thaw(cls, frozen: IterativeCKM) -> Self:
        """A module to train on from where a frozen model is, in evaluation mode."""
        model = cls(frozen.spec)
        import_tensors(model, frozen.tensors)
        return model.eval()

    def freeze(self) -> IterativeCKM:
        """The model as it is now, to sketch and decode with."""
        return IterativeCKM(self.spec, export_tensors(self))

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        return self.freeze().to_weights(card)

    def matrix(
        self, directions: Tensor, positions: Tensor, n_features: Tensor
    ) -> Tensor:
        """W, shape (..., width, n_units), from what ``draw_units`` drew.

        Directions have zeros beyond the ``n_features`` of a dataset.
        """
        if not self.spec.sketch_size:
            return self._law(directions, positions, n_features)
        width, n_units = directions.shape[-2:]
        row = torch.arange(width, device=directions.device)
        is_own = row < n_features[..., None]
        return self.weight[:width, :n_units] * is_own[..., None]

    def fit(
        self,
        target: Tensor,
        matrix: Tensor,
        start: Tensor,
        *,
        n_features: Tensor,
        backward_steps: int = 0,
    ) -> TensorFit:
        """Descend for sketches (..., size) from ``start``, unit noise (..., k, width).

        The fit of one Gaussian is taken as given by gradients.
        """
        spec, numbers = self.spec, self.numbers
        center, unit = fit_frame(spec, target, matrix)
        pull = target.new_zeros(())
        if spec.is_pulled:
            scatter = 1 - damp(unit.square(), matrix).square().mean(dim=-1)
            pull = scatter * self._by_sizes("pull", matrix.shape[-1], n_features)
            pull = pull / (start.shape[-2] * n_features)
        objective = TensorObjective(spec, target, matrix, center, unit, pull)
        spread = numbers["atom"].expand(*start.shape[:-2], 1, start.shape[-1])
        first = torch.cat([numbers["initial_std"].exp() * start, spread], dim=-2)
        point = descend(
            objective,
            first,
            rate=self._rate(start.shape[-2], target.shape[-1]),
            n_steps=spec.n_steps,
            optimiser=spec.optimiser,
            schedule=spec.schedule,
            backward_steps=backward_steps,
        )
        return objective.fit_at(point)

    def _rate(self, n_clusters: int, size: int) -> Tensor:
        """Of a plain step, for k times the mean over features of squared distances."""
        rate: Tensor = self.numbers["rate"].exp()
        if self.spec.optimiser == "sgd":
            return rate * n_clusters / size
        return rate.clamp_max(TUNING.max_rate)

    def _law(self, directions: Tensor, positions: Tensor, n_features: Tensor) -> Tensor:
        width, n_units = directions.shape[-2:]
        law = self.numbers
        common = self._by_sizes("radius", n_units, n_features)
        radii = common[..., None] * (law["spread"].exp() * positions).exp()
        n_axes = n_features.clamp_max(int(TUNING.axes_share * n_units))
        is_axis = torch.arange(n_units).to(n_axes) < n_axes[..., None]
        axes = law["axis"].exp() * torch.eye(width, n_units).to(directions)
        return torch.where(
            is_axis[..., None, :], axes, directions * radii[..., None, :]
        )

    def _by_sizes(self, name: str, n_units: int, n_features: Tensor) -> Tensor:
        """A positive number that depends on the sizes: the radius or the pull."""
        prefix = "" if name == "radius" else f"{name}_"
        law = self.numbers
        size = n_units * (2 if self.spec.activation == "fourier" else 1)
        by_size = law[f"{prefix}by_size"] * math.log(size / 512)
        by_features = law[f"{prefix}by_features"] * (n_features / 32).log()
        value: Tensor = (law[name] + by_size + by_features).exp()
        return value


class TensorFit(NamedTuple):
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
class TensorObjective:
    """What is lowered, of one tensor: the rows u, then a row of log sqrt(v) / τ."""

    spec: CKMSpec
    target: Tensor  # (..., size)
    matrix: Tensor  # (..., width, n_units)
    center: Tensor  # μ, (..., 1, width)
    unit: Tensor  # τ, (..., 1, width)
    pull: Tensor  # (...)
    blur: float = 0.0  # standard deviation of noise that all rows are taken to have

    def __call__(self, point: Tensor) -> Tensor:
        """Misfit and pull, shape (...)."""
        misfit = self._misfit(*self._clusters(point))
        return misfit + self._pull(point)

    def fit_at(self, point: Tensor) -> TensorFit:
        """The clusters of a point, and how well they fit."""
        centroids, variances = self._clusters(point)
        centroids = centroids.nan_to_num(0.0).clamp(-1, 1)
        misfit = self._misfit(centroids, variances)
        objective = misfit + self._pull(point)
        return TensorFit(centroids, variances.squeeze(-2), misfit, objective)

    def _clusters(self, point: Tensor) -> tuple[Tensor, Tensor]:
        centroids = self.center + self.unit * point[..., :-1, :]
        if self.spec.atoms == "point":
            return centroids, torch.zeros_like(self.unit)
        # So far that nothing overflows; no cluster is that much wider than all rows.
        logs = point[..., -1:, :].clamp(-TUNING.max_log, TUNING.max_log)
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
    """Center and spread of all rows, (..., 1, width): one Gaussian fitted to them.

    Rows are blurred for it, or the fit could end at one of several clusters.
    """
    shape = (*target.shape[:-1], 1, matrix.shape[-2])
    nothing, one = target.new_zeros(shape), target.new_ones(shape)
    if spec.atoms == "point":
        return nothing, one
    given = target.detach(), matrix.detach()
    unit = TUNING.frame_spread * one
    no_pull = target.new_zeros(())
    objective = TensorObjective(spec, *given, nothing, unit, no_pull, TUNING.frame_blur)
    point = descend(
        objective,
        torch.cat([nothing, nothing], dim=-2),
        rate=TUNING.frame_rate,
        n_steps=spec.n_steps // 2,
        schedule="cosine",
        backward_steps=0,
    )
    center, logs = (unit * point[..., :1, :]), point[..., 1:, :]
    return center, (unit * logs.exp()).clamp_max(1.0)


def damp(variances: Tensor, matrix: Tensor) -> Tensor:
    """How much variances (..., 1, width) shrink the means of units, (..., n_units).

    Examples
    --------
    >>> damp(torch.tensor([[2.0]]), torch.tensor([[1.0, 0.0]])).tolist()
    [0.3678794503211975, 1.0]
    """
    factors: Tensor = torch.exp(-0.5 * variances @ matrix.square()).squeeze(-2)
    return factors
