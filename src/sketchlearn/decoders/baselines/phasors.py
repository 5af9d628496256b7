r"""A Fourier sketch as sums of phasors, and one iteration of message passing on it.

Each number of the sketch is a sum of phasors of linear forms of the centers; see
:mod:`sketchlearn.decoders.baselines.cl_amp`, which searches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from sketchlearn.decoders.clusters.atomic_sketch import AtomicSketch
from sketchlearn.decoders.clusters.atoms import FourierAtoms
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.kernel_scale import estimate_spread

__all__ = ["ClAmpTuning", "PhasorState", "Phasors", "read_phasors"]

_QUADRATURE = np.linspace(-4.0, 4.0, 48)
"""Standard deviations at which a posterior is summed: against adaptive quadrature, its
mean is right to 0.01 of them and its variance to two percent."""


@final
@dataclass(frozen=True)
class ClAmpTuning:
    """Hand-tuned numbers of CL-AMP.

    Checked by the inertia of synthetic mixtures and the length of the search, the cases
    of ``benchmarks/tuning.py``.
    """

    warm_up: int = 20
    """Iterations before weights and variances are first refitted; after twice as many
    a search may end."""

    tune_every: int = 5
    """Iterations from one such fit to the next."""

    noise_margin: float = 1.5
    """A search that leaves so many times the noise of the sketch has explained it."""

    most_unexplained: float = 0.5
    """Share of the energy of the sketch that a search may leave and be said to have
    converged."""

    still: float = 3e-4
    """A search ends where no center moves farther, in units of the atoms."""

    prior_deviations: float = 6.0
    """Width of the box in standard deviations of the prior of a center."""

    least_weight: float = 1e-3
    """Least weight of a cluster, of what it would be if all were equal: one of none
    would never move again."""

    tune_steps: int = 30
    """L-BFGS steps of a fit of weights and variances."""


_CL_AMP = ClAmpTuning()


@final
@dataclass(frozen=True, eq=False)
class PhasorState:
    """Centers around the middle of the box, their variance, and the rest of GAMP."""

    centers: NDArray[np.float64]  # (k, d)
    variances: NDArray[np.float64]  # (k,)
    scores: NDArray[np.float64]  # (h, k)
    weights: NDArray[np.float64]
    taus: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Phasors:
    """The sketch as sums of phasors; misfits are root mean squares of one entry."""

    target: NDArray[np.complex128]  # (h,)
    lengths: NDArray[np.float64]  # (h,)
    directions: NDArray[np.float64]  # (h, d)
    middle: NDArray[np.float64]
    prior: float
    first_tau: float
    noise: float
    unit: float
    tuning: ClAmpTuning

    @property
    def size(self) -> float:
        """Root mean square of the sketch itself."""
        return max(_root_mean_square(self.target), 1e-300)

    def start(self, n_clusters: int, rng: np.random.Generator) -> PhasorState:
        """Centers drawn from the prior."""
        shape = (n_clusters, len(self.middle))
        return PhasorState(
            centers=self.prior**0.5 * rng.standard_normal(shape),
            variances=np.full(n_clusters, self.prior),
            scores=np.zeros((len(self.lengths), n_clusters)),
            weights=np.full(n_clusters, 1 / n_clusters),
            taus=np.full(n_clusters, self.first_tau),
        )

    def misfit(self, state: PhasorState) -> float:
        """What these clusters leave of the sketch."""
        phases = self.lengths[:, None] * (self.directions @ state.centers.T)
        phasors = self._shrink(state.taus) * np.exp(1j * phases)
        return _root_mean_square(phasors @ state.weights - self.target)

    def step(self, state: PhasorState, noise: float, damping: float) -> PhasorState:
        """One iteration of GAMP, with one variance for each center."""
        h, d = self.directions.shape
        v = np.maximum(state.variances, 1e-12 * self.prior)
        forms = self.directions @ state.centers.T - v * state.scores  # (h, k)
        means, variances = self._posterior(state, forms, v, noise)
        first = not state.scores.any()
        keep = 0.0 if first else 1 - damping
        scores = keep * state.scores + (1 - keep) * (means - forms) / v
        # The posterior may be wider than the prior when phasors are misread.
        precision = np.maximum(1 - variances.mean(axis=0) / v, 1e-6) / v
        wide = d / h / precision
        linear = state.centers + wide[:, None] * (self.directions.T @ scores).T
        shrink = self.prior / (self.prior + wide)
        return replace(
            state,
            centers=damping * shrink[:, None] * linear + (1 - damping) * state.centers,
            variances=damping * shrink * wide + (1 - damping) * state.variances,
            scores=scores,
        )

    def tune(self, state: PhasorState) -> PhasorState:
        """Refit weights and variances to the sketch, for these centers."""
        k, squares = len(state.weights), self.lengths[:, None] ** 2
        phases = self.lengths[:, None] * (self.directions @ state.centers.T)
        blurred = np.exp(1j * phases - 0.5 * squares * state.variances)
        if not np.isfinite(blurred).all():
            return state

        def loss(vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            weights, taus = vector[:k], vector[k:]
            phasors = blurred * np.exp(-0.5 * squares * taus)
            error = phasors @ weights - self.target
            pull = (phasors.conj() * error[:, None]).real
            slope = [pull.sum(axis=0), -0.5 * weights * (squares * pull).sum(axis=0)]
            return 0.5 * float((np.abs(error) ** 2).sum()), np.concatenate(slope)

        box = [(self.tuning.least_weight / k, 1.0)] * k + [
            (0.0, max(self.prior, self.first_tau))
        ] * k
        first = np.concatenate([state.weights, state.taus])
        options = {"maxiter": self.tuning.tune_steps}
        found = minimize(
            loss, first, jac=True, method="L-BFGS-B", bounds=box, options=options
        )
        return replace(state, weights=found.x[:k], taus=found.x[k:])

    def _posterior(
        self,
        state: PhasorState,
        forms: NDArray[np.float64],
        v: NDArray[np.float64],
        noise: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of each linear form, given the sketch.

        A grid over four standard deviations either way; where it is coarser than a
        period of the phasors, these say nothing about the form, and the prior is
        returned.
        """
        sizes = state.weights * self._shrink(state.taus)  # (h, k)
        phases, blur = self.lengths[:, None] * forms, self.lengths[:, None] ** 2 * v
        left, spread = _others(self.target, sizes, phases, np.minimum(blur, 700.0))
        cos_var, sin_var, cross = spread
        cos_var, sin_var = cos_var + noise**2, sin_var + noise**2
        area = np.maximum(cos_var * sin_var - cross**2, noise**4)[..., None]
        turn = (
            phases[..., None] + np.sqrt(blur)[..., None] * _QUADRATURE
        )  # (h, k, grid)
        x = left.real[..., None] - sizes[..., None] * np.cos(turn)
        y = left.imag[..., None] - sizes[..., None] * np.sin(turn)
        form = x**2 * sin_var[..., None] - 2 * x * y * cross[..., None]
        log_mass = -0.5 * ((form + y**2 * cos_var[..., None]) / area + _QUADRATURE**2)
        mass = np.exp(log_mass - log_mass.max(axis=-1, keepdims=True))
        mass /= mass.sum(axis=-1, keepdims=True)
        mean = mass @ _QUADRATURE
        variance = np.maximum(mass @ _QUADRATURE**2 - mean**2, 1e-6)
        seen = np.sqrt(blur) * (_QUADRATURE[1] - _QUADRATURE[0]) < np.pi / 2
        return forms + v**0.5 * np.where(seen, mean, 0), v * np.where(seen, variance, 1)

    def _shrink(self, taus: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-0.5 * self.lengths[:, None] ** 2 * taus))


def read_phasors(
    part: AtomicSketch,
    bounds: tuple[ArrayLike, ArrayLike] | None,
    n_clusters: int,
    tuning: ClAmpTuning = _CL_AMP,
) -> Phasors:
    """The phasors of a Fourier sketch, with a prior for centers within bounds."""
    if not isinstance(part.atoms, FourierAtoms):
        raise FeatureMapError(
            "CL-AMP decodes Fourier features only. Sketch with FourierFeatures, or use "
            "CLOMPRDecoder."
        )
    low, high = part.box(bounds)
    omega, target = part.atoms.frequencies, part.target
    half, middle = omega.shape[1], (low + high) / 2
    lengths = np.maximum(np.linalg.norm(omega, axis=0), 1e-12)
    spread = estimate_spread(omega, target, noise=part.noise, n_clusters=n_clusters)
    phasors = (target[:half] + 1j * target[half:]) * np.exp(-1j * (middle @ omega))
    return Phasors(
        target=phasors,
        lengths=lengths,
        directions=(omega / lengths).T,
        middle=middle,
        prior=max(
            float(((high - low) ** 2).mean()) / tuning.prior_deviations**2, 1e-300
        ),
        first_tau=spread.within,
        noise=part.noise,
        unit=part.atoms.unit,
        tuning=tuning,
    )


def _others(
    target: NDArray[np.complex128],
    sizes: NDArray[np.float64],
    phases: NDArray[np.float64],
    blur: NDArray[np.float64],
) -> tuple[NDArray[np.complex128], tuple[NDArray[np.float64], ...]]:
    r"""What all phasors but one leave of the sketch, and the covariance of their sum.

    A phasor of Gaussian phase (mean p, variance q) has mean :math:`e^{ip - q/2}`, and
    its cosine and sine have variances :math:`(1 - e^{-q})(1 \mp e^{-q}\cos 2p)/2`.
    """
    means = sizes * np.exp(1j * phases - 0.5 * blur)
    fade = np.exp(-blur)
    half, even = 0.5 * sizes**2 * (1 - fade), fade * np.cos(2 * phases)
    spread = (half * (1 - even), half * (1 + even), -half * fade * np.sin(2 * phases))
    left = target[:, None] - means.sum(axis=1, keepdims=True) + means
    return left, tuple(each.sum(axis=1, keepdims=True) - each for each in spread)


def _root_mean_square(values: NDArray[np.complex128]) -> float:
    """Of real and imaginary parts together."""
    return float(np.sqrt((np.abs(values) ** 2).mean() / 2))
