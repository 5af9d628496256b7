r"""Second moments from quadratic measurements by descent on a factor of low rank.

The baselines of the paper that look for U with :math:`R = UU^\top`; see
:mod:`sketchlearn.decoders.baselines.pseudo_inverse` for the measurements.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.baselines.factor_descent import FactorDescent, Loss
from sketchlearn.decoders.baselines.quadratic_system import QuadraticSystem, frobenius
from sketchlearn.errors import FeatureMapError
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "AbstractFactorizedDecoder",
    "AcceleratedDecoder",
    "ExponentialDecoder",
    "FactorTuning",
    "RobustDecoder",
]


@final
@dataclass(frozen=True)
class FactorTuning:
    """Hand-tuned numbers of the descents on a factor.

    Checked by the distance to the truth of moments of low rank, the cases of
    ``benchmarks/tuning.py``.
    """

    growth: float = 1.1
    """How much longer a step is tried than the one before; too long ones are halved."""

    least_share: float = 1e-2
    """Least size of a column at the start, squared, of that of the largest: a column of
    zeros would stay zero."""

    robust_share: float = 0.1
    """Residuals beyond so much of the median one count by their size, not by their
    square."""


@dataclass(frozen=True, eq=False)
class AbstractFactorizedDecoder(AbstractDecoder[NDArray[np.float64]]):
    r"""Gradient descent on a factor of a low-rank second moment.

    .. math::
        \hat R = UU^\top, \qquad
        U = \arg\min_U \sum_j \ell\bigl(A\,\mathrm{vec}_{LT}(UU^\top)_j - z_j\bigr),
        \qquad U \in \mathbb{R}^{d \times r}.

    The descent starts from the leading eigenvectors of the pseudo-inverse, scaled to
    explain the sketch best. It finds its steps by backtracking and has Nesterov's
    momentum, which starts again whenever the loss would rise: whatever the loss, plain
    descent takes many times as long to the same end. Nothing is random.
    :math:`\hat R` is positive semi-definite. With a known diagonal D,
    :math:`\hat R = UU^\top + \mathrm{diag}(D_i - \lVert u_i\rVert^2)` and rows of U
    are kept no longer than :math:`\sqrt{D_i}`. ``converged`` says whether the gradient
    fell below ``tol`` times its part due to the sketch alone.

    Parameters
    ----------
    rank : int, optional
        r. By default two numbers of the sketch for each of U, :math:`m / 2d`.
    known_diagonal : float or array of shape (d,), optional
        Mean squares of the features, if known (1 for standardised data).
    max_iter : int
        Most steps.
    tol : float
        Relative size of the gradient at which the search ends.
    tuning : FactorTuning
        Hand-tuned numbers.
    """

    rank: int | None = None
    known_diagonal: ArrayLike | None = None
    max_iter: int = 1000
    tol: float = 1e-4
    tuning: FactorTuning = FactorTuning()

    @abstractmethod
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        """What to minimise, given the residuals at the start and the sketch."""

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[NDArray[np.float64]]:
        system = QuadraticSystem.of(sketch, self.known_diagonal)
        factor = system.start(self._rank(system), self.tuning.least_share)
        if not factor.any():
            moment = np.diag(system.diagonal)
            return Decoding(moment, system.residual(moment))
        first = system.measurements.of_factor(factor) - system.values
        descent = FactorDescent(
            system, self._loss(first, system.values), self.tuning.growth
        )
        factor, n_iter, converged = descent.run(factor, self.max_iter, self.tol)
        moment = factor @ factor.T
        if system.measurements.off_diagonal_only:
            np.fill_diagonal(moment, system.diagonal)
        return Decoding(moment, system.residual(moment), n_iter, converged)

    def _rank(self, system: QuadraticSystem) -> int:
        d = len(system.diagonal)
        if self.rank is None:
            return min(max(len(system.values) // (2 * d), 1), d)
        if not 1 <= self.rank <= d:
            raise FeatureMapError(
                f"rank must be from 1 to n_features={d}; got {self.rank!r}."
            )
        return int(self.rank)


@final
@dataclass(frozen=True, eq=False)
class RobustDecoder(AbstractFactorizedDecoder):
    r"""Factorised descent that bad measurements cannot mislead.

    The loss is nearly the absolute value,
    :math:`\ell(e) = \delta^2(\sqrt{1 + (e/\delta)^2} - 1)`, with :math:`\delta` a tenth
    of the median residual at the start. The paper's ROBUST, "robust factorized rank
    minimization", is not published as an iteration that we know of: this is our
    reading of it. Parameters as in :class:`AbstractFactorizedDecoder`.

    Examples
    --------
    >>> from sketchlearn import QuadraticFeatures, sketch_rows
    >>> sketch = sketch_rows([[3.0, 4.0]], QuadraticFeatures(2, 4))
    >>> RobustDecoder(rank=1).decode(sketch).params.round(2)
    array([[ 9., 12.],
           [12., 16.]])
    """

    @override
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        delta = max(
            self.tuning.robust_share * float(np.median(np.abs(first))),
            1e-12 * frobenius(values),
        )

        def loss(residuals: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            root = np.sqrt(1 + (residuals / delta) ** 2)
            return delta**2 * float((root - 1).sum()), residuals / root

        return loss


@final
@dataclass(frozen=True, eq=False)
class AcceleratedDecoder(AbstractFactorizedDecoder):
    r"""Factorised descent on plain squares, with Nesterov's momentum.

    :math:`\ell(e) = e^2/2`. The paper's AGD names no iteration: this is our reading of
    it. Parameters as in :class:`AbstractFactorizedDecoder`.

    Examples
    --------
    >>> from sketchlearn import QuadraticFeatures, sketch_rows
    >>> sketch = sketch_rows([[3.0, 4.0]], QuadraticFeatures(2, 4))
    >>> AcceleratedDecoder(rank=1).decode(sketch).params.round(2)
    array([[ 9., 12.],
           [12., 16.]])
    """

    @override
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        return _weighted_squares(np.ones(len(values)))


@final
@dataclass(frozen=True, eq=False)
class ExponentialDecoder(AbstractFactorizedDecoder):
    r"""Factorised descent on squares that large measurements do not dominate.

    .. math::
        \nabla_U = 2\sum_j w_j\,(\lVert U^\top a_j\rVert^2 - z_j)\, a_j a_j^\top U,
        \qquad w_j = \exp\bigl(-|z_j| / (c\,\overline{|z|})\bigr)

    The paper's HUANG, the exponential-type gradient descent of Huang and Xu (J. Comp.
    Math. 38, 2020, 638). Its objective is theirs; the damping, its constant c, and the
    start are our reading. Other parameters as in :class:`AbstractFactorizedDecoder`.

    Parameters
    ----------
    damping : float
        c: measurements beyond c times the mean hardly count.

    Examples
    --------
    >>> from sketchlearn import QuadraticFeatures, sketch_rows
    >>> sketch = sketch_rows([[3.0, 4.0]], QuadraticFeatures(2, 4))
    >>> ExponentialDecoder(rank=1).decode(sketch).params.round(2)
    array([[ 9., 12.],
           [12., 16.]])
    """

    damping: float = 1.0

    @override
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        size = np.abs(values)
        return _weighted_squares(np.exp(-size / (self.damping * size.mean())))


def _weighted_squares(weights: NDArray[np.float64]) -> Loss:
    def loss(residuals: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slope = weights * residuals
        return float(slope @ residuals) / 2, slope

    return loss
