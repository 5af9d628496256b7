r"""CL-AMP: clusters from a Fourier sketch by approximate message passing.

With :math:`\omega_j = g_j a_j`, :math:`|a_j| = 1`, a mixture of round clusters gives

.. math::
    y_j = \sum_l \alpha_l\, e^{-g_j^2 \tau_l / 2}\, e^{i g_j z_{jl}} + \text{noise},
    \qquad z_{jl} = a_j^\top c_l :

a sum of phasors of linear forms of the centres. Simplified hybrid GAMP alternates
between the posterior of each :math:`z_{jl}`, taken under a Gaussian for the other
phasors, and the linear estimate of the centres (Byrne, Chatalic, Gribonval and
Schniter, IEEE TSP 2019); weights and variances are refitted on the way.

The method is known to be unstable. What is done about it here: the noise is the current
misfit until only sampling noise is left, so that a wrong model is never trusted;
updates are damped and variances bounded; the first :math:`\tau` comes from the size of
the sketch; and the best centres of several starts are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.clusters.atoms import (
    AtomicSketch,
    Clusters,
    FourierAtoms,
    read_atomic,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.features.kernel_scale import estimate_spread
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CLAMPDecoder"]

_GRID = np.linspace(-4.0, 4.0, 48)
_WARM_UP, _TUNE_EVERY = 20, 5
_NOISE_MARGIN = 1.5
_MOST_UNEXPLAINED = 0.5
_STILL = 3e-4


@final
@dataclass(frozen=True, eq=False)
class CLAMPDecoder(AbstractDecoder[Clusters]):
    """Clusters by approximate message passing (CL-AMP).

    Only for Fourier features. A search that diverges, does not settle, or explains less
    than half of the energy of the sketch returns the best centres it met, always
    finite, with ``converged=False``.

    Parameters
    ----------
    n_clusters : int
        k.
    n_starts : int
        Random starts at most; the one of least residual is kept. None is added to one
        that explains the sketch up to its noise.
    max_iter : int
        Iterations of each start.
    damping : float
        Share of the new value in each update, in (0, 1].
    bounds : (low, high), optional
        Where the rows lie, in their units; by default the range declared by the
        scaling of the feature map. The prior of a centre is a Gaussian around its
        middle, with the box six standard deviations wide.
    seed : int
        Same seed, same result.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=2, sketch_size=100, seed=0)
    >>> rows = np.repeat([[-2.0, 1.0], [3.0, 0.0]], [3000, 1000], axis=0)
    >>> decoder = CLAMPDecoder(2, bounds=(-5, 5))
    >>> found = decoder.decode(sl.sketch_rows(rows, phi)).params
    >>> (abs(found.centres - [[-2.0, 1.0], [3.0, 0.0]]) < 0.1).all()
    np.True_
    """

    n_clusters: int
    n_starts: int = 5
    max_iter: int = 300
    damping: float = 0.5
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_starts", "max_iter"):
            require_positive_int(name, getattr(self, name))
        if not 0 < self.damping <= 1:
            raise FeatureMapError(
                f"damping must lie in (0, 1]; got {self.damping!r}. Smaller is slower "
                "and more stable."
            )

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Clusters]:
        part = read_atomic(sketch)
        model = _read_phasors(part, self.bounds, self.n_clusters)
        rng = np.random.default_rng(self.seed)
        found: list[_Found] = []
        while len(found) < self.n_starts:
            found.append(self._run(model, rng))
            if found[-1].misfit <= _NOISE_MARGIN * model.noise:
                break
        best = min(found, key=lambda one: one.misfit)
        state = best.state
        params = part.clusters(
            state.centres + model.middle,
            state.weights,
            np.repeat(state.taus[:, None], len(model.middle), axis=1),
        )
        residual = best.misfit / model.size
        return Decoding(
            params,
            residual,
            n_iter=sum(one.n_iter for one in found),
            converged=best.settled and residual**2 <= _MOST_UNEXPLAINED,
        )

    def _run(self, model: _Phasors, rng: np.random.Generator) -> _Found:
        state = model.start(self.n_clusters, rng)
        misfit, still = model.misfit(state), False
        best, least, done = state, misfit, 0
        # Overflow is an answer here: the loop ends, and the best state is finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for done in range(1, self.max_iter + 1):
                after = model.step(state, max(misfit, model.noise), self.damping)
                if done >= _WARM_UP and done % _TUNE_EVERY == 0:
                    after = model.tune(after)
                misfit = model.misfit(after)
                if not np.isfinite(misfit):
                    return _Found(best, least, done, settled=False)
                moved = np.abs(after.centres - state.centres).max()
                still = bool(moved <= _STILL * model.unit)
                state = after
                if misfit < least:
                    best, least = after, misfit
                if still and done > 2 * _WARM_UP:
                    break
        return _Found(best, least, done, settled=still)


@final
@dataclass(frozen=True, eq=False)
class _State:
    """Centres around the middle of the box, their variance, and the rest of GAMP."""

    centres: NDArray[np.float64]  # (k, d)
    variances: NDArray[np.float64]  # (k,)
    scores: NDArray[np.float64]  # (h, k)
    weights: NDArray[np.float64]
    taus: NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class _Found:
    """Outcome of one start."""

    state: _State
    misfit: float
    n_iter: int
    settled: bool


@final
@dataclass(frozen=True, eq=False)
class _Phasors:
    """The sketch as sums of phasors; misfits are root mean squares of one entry."""

    target: NDArray[np.complex128]  # (h,)
    lengths: NDArray[np.float64]  # (h,)
    directions: NDArray[np.float64]  # (h, d)
    middle: NDArray[np.float64]
    prior: float
    first_tau: float
    noise: float
    unit: float

    @property
    def size(self) -> float:
        """Root mean square of the sketch itself."""
        return max(_root_mean_square(self.target), 1e-300)

    def start(self, n_clusters: int, rng: np.random.Generator) -> _State:
        """Centres drawn from the prior."""
        shape = (n_clusters, len(self.middle))
        return _State(
            centres=self.prior**0.5 * rng.standard_normal(shape),
            variances=np.full(n_clusters, self.prior),
            scores=np.zeros((len(self.lengths), n_clusters)),
            weights=np.full(n_clusters, 1 / n_clusters),
            taus=np.full(n_clusters, self.first_tau),
        )

    def misfit(self, state: _State) -> float:
        """What these clusters leave of the sketch."""
        phases = self.lengths[:, None] * (self.directions @ state.centres.T)
        phasors = self._shrink(state.taus) * np.exp(1j * phases)
        return _root_mean_square(phasors @ state.weights - self.target)

    def step(self, state: _State, noise: float, damping: float) -> _State:
        """One iteration of GAMP, with one variance for each centre."""
        h, d = self.directions.shape
        v = np.maximum(state.variances, 1e-12 * self.prior)
        forms = self.directions @ state.centres.T - v * state.scores  # (h, k)
        means, variances = self._posterior(state, forms, v, noise)
        first = not state.scores.any()
        keep = 0.0 if first else 1 - damping
        scores = keep * state.scores + (1 - keep) * (means - forms) / v
        # The posterior may be wider than the prior when phasors are misread.
        precision = np.maximum(1 - variances.mean(axis=0) / v, 1e-6) / v
        wide = d / h / precision
        linear = state.centres + wide[:, None] * (self.directions.T @ scores).T
        shrink = self.prior / (self.prior + wide)
        return replace(
            state,
            centres=damping * shrink[:, None] * linear + (1 - damping) * state.centres,
            variances=damping * shrink * wide + (1 - damping) * state.variances,
            scores=scores,
        )

    def tune(self, state: _State) -> _State:
        """Refit weights and variances to the sketch, for these centres."""
        k, squares = len(state.weights), self.lengths[:, None] ** 2
        phases = self.lengths[:, None] * (self.directions @ state.centres.T)
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

        box = [(1e-3 / k, 1.0)] * k + [(0.0, max(self.prior, self.first_tau))] * k
        first = np.concatenate([state.weights, state.taus])
        options = {"maxiter": 30}
        found = minimize(
            loss, first, jac=True, method="L-BFGS-B", bounds=box, options=options
        )
        return replace(state, weights=found.x[:k], taus=found.x[k:])

    def _posterior(
        self,
        state: _State,
        forms: NDArray[np.float64],
        v: NDArray[np.float64],
        noise: float,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of each linear form, given the sketch.

        A grid over four standard deviations either way; where it is coarser than the
        waves, they carry no information about the form, and the prior is returned.
        """
        sizes = state.weights * self._shrink(state.taus)  # (h, k)
        phases, blur = self.lengths[:, None] * forms, self.lengths[:, None] ** 2 * v
        left, spread = _others(self.target, sizes, phases, np.minimum(blur, 700.0))
        cos_var, sin_var, cross = spread
        cos_var, sin_var = cos_var + noise**2, sin_var + noise**2
        area = np.maximum(cos_var * sin_var - cross**2, noise**4)[..., None]
        turn = phases[..., None] + np.sqrt(blur)[..., None] * _GRID  # (h, k, grid)
        x = left.real[..., None] - sizes[..., None] * np.cos(turn)
        y = left.imag[..., None] - sizes[..., None] * np.sin(turn)
        form = x**2 * sin_var[..., None] - 2 * x * y * cross[..., None]
        log_mass = -0.5 * ((form + y**2 * cos_var[..., None]) / area + _GRID**2)
        mass = np.exp(log_mass - log_mass.max(axis=-1, keepdims=True))
        mass /= mass.sum(axis=-1, keepdims=True)
        mean = mass @ _GRID
        variance = np.maximum(mass @ _GRID**2 - mean**2, 1e-6)
        seen = np.sqrt(blur) * (_GRID[1] - _GRID[0]) < np.pi / 2
        return forms + v**0.5 * np.where(seen, mean, 0), v * np.where(seen, variance, 1)

    def _shrink(self, taus: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-0.5 * self.lengths[:, None] ** 2 * taus))


def _read_phasors(
    part: AtomicSketch, bounds: tuple[ArrayLike, ArrayLike] | None, n_clusters: int
) -> _Phasors:
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
    return _Phasors(
        target=phasors,
        lengths=lengths,
        directions=(omega / lengths).T,
        middle=middle,
        prior=max(float(((high - low) ** 2).mean()) / 36, 1e-300),
        first_tau=spread.within,
        noise=part.noise,
        unit=part.atoms.unit,
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
