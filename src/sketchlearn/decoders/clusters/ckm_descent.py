r"""The descent of Iterative CKM: which clusters have the sketch that was seen.

A cluster is a Gaussian or a point; its features are those of linear units,
:math:`\varphi(x) = \sigma(W^\top x)`. Where W comes from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.clusters.descent import (
    InnerOptimiser,
    InnerSchedule,
    descend,
)
from sketchlearn.decoders.clusters.pullback import activate
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import Activation
from sketchlearn.features.fields import (
    COUNT_OR_0,
    FLAG,
    Field,
    is_whole,
    one_of,
    require_fields,
)

__all__ = [
    "DAMPED",
    "Atoms",
    "CKMFit",
    "CKMObjective",
    "CKMSpec",
    "CKMTuning",
    "damp",
    "fit_frame",
]

Array: TypeAlias = NDArray[np.float64]
Atoms = Literal["gaussian", "point"]

DAMPED: tuple[Activation, ...] = ("fourier", "cos", "sin")
"""Activations whose mean over a Gaussian is a factor times the value at its center."""


@final
@dataclass(frozen=True)
class CKMTuning:
    """Hand-tuned numbers of Iterative CKM; shipped weights were trained with them.

    Checked by the inertia of synthetic clusters, the cases of ``benchmarks/tuning.py``.
    """

    frame_rate: float = 0.1
    """Size of a step in the fit of one Gaussian to all rows."""

    frame_spread: float = 0.4
    """Spread of that Gaussian at its first step, in units of half the range."""

    frame_blur: float = 0.5
    """Deviation of noise that rows are taken to have for it, or the fit could end at
    one of several clusters."""

    max_log: float = 5.0
    """Largest logarithm of a cluster's spread over that of all rows, either way: no
    cluster is that much wider, and nothing overflows."""

    max_rate: float = 0.5
    """Largest size of a step, whatever was learned."""

    axes_share: float = 0.8
    """Most units that are axes, as a share of all."""


_CKM = CKMTuning()


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
    does, for up to 196 features (fewer are padded with zeros) and up to that size:
    smaller sketches have the first of its units."""

    atoms: Atoms = "gaussian"
    """What a cluster is: a Gaussian, all with the same variances, found in the descent;
    or a point, as in the paper."""

    schedule: InnerSchedule = "cosine"
    """How the size of a step goes on; the paper's is constant."""

    is_pulled: bool = True
    """Whether centroids are pulled to where the descent begins; the paper's are not."""

    def __post_init__(self) -> None:
        require_fields(vars(self), _CKM_FIELDS, "the spec of Iterative CKM")
        if self.atoms == "gaussian" and self.activation not in DAMPED:
            raise FeatureMapError(
                f"Gaussian atoms need one of the activations {', '.join(DAMPED)}; got "
                f"{self.activation!r}. Set atoms='point'."
            )
        if self.activation == "fourier" and self.sketch_size % 2:
            raise FeatureMapError(
                "sketch_size must be even (cosine and sine pairs); got "
                f"{self.sketch_size}."
            )

    def n_units(self, sketch_size: int) -> int:
        """Columns of W for a sketch size."""
        return sketch_size // 2 if self.activation == "fourier" else sketch_size


_CKM_FIELDS = {
    "activation": one_of(*get_args(Activation)),
    "optimiser": one_of(*get_args(InnerOptimiser)),
    "n_steps": Field("a whole number from 0 to 2**16", is_whole(0, 2**16 + 1), False),
    "sketch_size": COUNT_OR_0,
    "atoms": one_of(*get_args(Atoms)),
    "schedule": one_of(*get_args(InnerSchedule)),
    "is_pulled": FLAG,
}


class CKMFit(NamedTuple):
    """Where a descent ended, in the scaled units of the rows."""

    centroids: Array
    """Shape (..., k, d), brought back into [-1, 1]."""

    variances: Array
    """Common to all clusters, shape (..., d); zero for points."""

    misfit: Array
    """Squared distance of the sketches, shape (...)."""

    objective: Array
    """What was lowered: the misfit and the pull, shape (...)."""


@final
@dataclass(frozen=True, eq=False)
class CKMObjective:
    """What is lowered, of one array: the rows u, then a row of log sqrt(v) / τ."""

    spec: CKMSpec
    target: Array  # (size,)
    matrix: Array  # (d, n_units)
    center: Array  # μ, (1, d)
    unit: Array  # τ, (1, d)
    pull: float
    blur: float = 0.0  # standard deviation of noise that all rows are taken to have
    tuning: CKMTuning = CKMTuning()

    def fit_at(self, point: Array) -> CKMFit:
        """The clusters of a point (..., k + 1, d), and how well they fit."""
        centroids, variances = self._clusters(point)
        centroids = np.nan_to_num(centroids, nan=0.0).clip(-1, 1)
        values, _ = activate(centroids @ self.matrix, self.spec.activation)
        features = values.mean(axis=-2) * self._damping(variances)
        away = (features - self.target) * self._fog
        misfit: Array = np.vecdot(away, away)
        objective = misfit + self.pull * np.square(point[..., :-1, :]).sum((-2, -1))
        return CKMFit(centroids, variances[..., 0, :], misfit, objective)

    def slope(self, point: Array) -> Array:
        """Gradient of the objective, of the shape of the point."""
        rows, logs = point[..., :-1, :], point[..., -1:, :]
        centroids, variances = self._clusters(point)
        values, pull = activate(centroids @ self.matrix, self.spec.activation)
        means, damping = values.mean(axis=-2), self._damping(variances)
        by = 2 * (means * damping - self.target) * self._fog**2  # (..., size)
        share = (by * damping / rows.shape[-2])[..., None, :]
        result = np.zeros_like(point)
        result[..., :-1, :] = self.unit * (pull(share) @ self.matrix.T)
        result[..., :-1, :] += 2 * self.pull * rows
        if self.spec.atoms == "gaussian":
            n_units = self.matrix.shape[1]
            by_unit = (by * means * damping).reshape(*by.shape[:-1], -1, n_units)
            by_variance = -0.5 * by_unit.sum(axis=-2, keepdims=True) @ self._squares.T
            inside = np.abs(logs) <= self.tuning.max_log
            result[..., -1:, :] = 2 * variances * by_variance * inside
        return result

    def _clusters(self, point: Array) -> tuple[Array, Array]:
        centroids = self.center + self.unit * point[..., :-1, :]
        logs = point[..., -1:, :]
        if self.spec.atoms == "point":
            return centroids, np.zeros_like(logs)
        most = self.tuning.max_log
        return centroids, np.square(self.unit * np.exp(logs.clip(-most, most)))

    def _damping(self, variances: Array) -> Array:
        """What clusters of some width do to every feature, (..., size)."""
        is_point = self.spec.atoms == "point"
        return np.ones_like(self.target) if is_point else self._by_unit(variances)

    def _by_unit(self, variances: Array) -> Array:
        """Damping of every feature, (..., size)."""
        factors = damp(variances[..., 0, :], self._squares)
        n_copies = self.target.shape[-1] // factors.shape[-1]
        return np.concatenate([factors] * n_copies, axis=-1)

    @cached_property
    def _squares(self) -> Array:
        return np.square(self.matrix)

    @cached_property
    def _fog(self) -> Array | float:
        """How much the blur damps every feature."""
        noise = np.full_like(self.unit, self.blur**2)
        return self._by_unit(noise) if self.blur else 1.0


def fit_frame(
    spec: CKMSpec, target: Array, matrix: Array, tuning: CKMTuning = _CKM
) -> tuple[Array, Array]:
    """Center and spread of all rows, both (1, d): one Gaussian fitted to them.

    Rows are blurred for it, or the fit could end at one of several clusters.
    """
    nothing, one = np.zeros((1, len(matrix))), np.ones((1, len(matrix)))
    if spec.atoms == "point":
        return nothing, one
    unit = tuning.frame_spread * one
    objective = CKMObjective(
        spec, target, matrix, nothing, unit, pull=0.0, blur=tuning.frame_blur
    )
    point = descend(
        objective.slope,
        np.concatenate([nothing, nothing]),
        rate=tuning.frame_rate,
        n_steps=spec.n_steps // 2,
        schedule="cosine",
    )
    center, logs = unit * point[:1], point[1:]
    return center, (unit * np.exp(logs)).clip(max=1.0)


def damp(variances: Array, squares: Array) -> Array:
    r"""How much variances (..., d) shrink the means of units, (..., n_units).

    ``squares`` are those of W, of shape (d, n_units).

    For a Gaussian, :math:`E \cos w^\top x = e^{-\frac12 w^\top \mathrm{diag}(v)\,w}
    \cos w^\top \mu`, and likewise for the sine.

    Examples
    --------
    >>> damp(np.array([2.0]), np.array([[1.0, 0.0]])).round(6).tolist()
    [0.367879, 1.0]
    """
    factors: Array = np.exp(-0.5 * variances @ squares)
    return factors
