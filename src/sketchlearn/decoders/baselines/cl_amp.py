r"""CL-AMP: clusters from a Fourier sketch by approximate message passing.

With :math:`\omega_j = g_j a_j`, :math:`|a_j| = 1`, a mixture of round clusters gives

.. math::
    y_j = \sum_l \alpha_l\, e^{-g_j^2 \tau_l / 2}\, e^{i g_j z_{jl}} + \text{noise},
    \qquad z_{jl} = a_j^\top c_l :

a sum of phasors of linear forms of the centers. Simplified hybrid GAMP alternates
between the posterior of each :math:`z_{jl}`, taken under a Gaussian for the other
phasors, and the linear estimate of the centers (Byrne, Chatalic, Gribonval and
Schniter, IEEE TSP 2019); weights and variances are refitted on the way.

The method is known to be unstable. What is done about it here: the noise is the current
misfit until only sampling noise is left, so that a wrong model is never trusted;
updates are damped and variances bounded; the first :math:`\tau` comes from the size of
the sketch; and the best centers of several starts are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.baselines.phasors import (
    ClAmpTuning,
    Phasors,
    PhasorState,
    read_phasors,
)
from sketchlearn.decoders.clusters.atomic_sketch import FittedAtoms, read_atomic
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.arguments import require_positive_int
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["CLAMPDecoder"]


@final
@dataclass(frozen=True, eq=False)
class CLAMPDecoder(AbstractDecoder[FittedAtoms]):
    """Clusters by approximate message passing (CL-AMP).

    Only for Fourier features. A search that diverges, does not settle, or explains less
    than half of the energy of the sketch returns the best centers it met, always
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
        scaling of the feature map. The prior of a center is a Gaussian around its
        middle, with the box six standard deviations wide.
    seed : int
        Same seed, same result.
    tuning : ClAmpTuning
        Hand-tuned numbers.

    Examples
    --------
    >>> import sketchlearn as sl
    >>> phi = sl.FourierFeatures(n_features=2, sketch_size=100, seed=0)
    >>> rows = np.repeat([[-2.0, 1.0], [3.0, 0.0]], [3000, 1000], axis=0)
    >>> decoder = CLAMPDecoder(2, bounds=(-5, 5))
    >>> found = decoder.decode(sl.sketch_rows(rows, phi)).params
    >>> (abs(found.centers - [[-2.0, 1.0], [3.0, 0.0]]) < 0.1).all()
    np.True_
    """

    n_clusters: int
    n_starts: int = 5
    max_iter: int = 300
    damping: float = 0.5
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    seed: int = 0
    tuning: ClAmpTuning = ClAmpTuning()

    def __post_init__(self) -> None:
        for name in ("n_clusters", "n_starts", "max_iter"):
            require_positive_int(name, getattr(self, name))
        if not 0 < self.damping <= 1:
            raise FeatureMapError(
                f"damping must lie in (0, 1]; got {self.damping!r}. Smaller is slower "
                "and more stable."
            )

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[FittedAtoms]:
        part = read_atomic(sketch)
        model = read_phasors(part, self.bounds, self.n_clusters, self.tuning)
        rng = np.random.default_rng(self.seed)
        found: list[_Found] = []
        while len(found) < self.n_starts:
            found.append(self._run(model, rng))
            if found[-1].misfit <= self.tuning.noise_margin * model.noise:
                break
        best = min(found, key=lambda one: one.misfit)
        state = best.state
        params = part.fitted(
            state.centers + model.middle,
            state.weights,
            np.repeat(state.taus[:, None], len(model.middle), axis=1),
        )
        residual = best.misfit / model.size
        return Decoding(
            params,
            residual,
            n_iter=sum(one.n_iter for one in found),
            converged=best.settled and residual**2 <= self.tuning.most_unexplained,
        )

    def _run(self, model: Phasors, rng: np.random.Generator) -> _Found:
        state, tuning = model.start(self.n_clusters, rng), self.tuning
        misfit, still = model.misfit(state), False
        best, least, done = state, misfit, 0
        # Overflow is an answer here: the loop ends, and the best state is finite.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for done in range(1, self.max_iter + 1):
                after = model.step(state, max(misfit, model.noise), self.damping)
                if done >= tuning.warm_up and done % tuning.tune_every == 0:
                    after = model.tune(after)
                misfit = model.misfit(after)
                if not np.isfinite(misfit):
                    return _Found(best, least, done, settled=False)
                moved = np.abs(after.centers - state.centers).max()
                still = bool(moved <= tuning.still * model.unit)
                state = after
                if misfit < least:
                    best, least = after, misfit
                if still and done > 2 * tuning.warm_up:
                    break
        return _Found(best, least, done, settled=still)


@final
@dataclass(frozen=True, eq=False)
class _Found:
    """Outcome of one start."""

    state: PhasorState
    misfit: float
    n_iter: int
    settled: bool
