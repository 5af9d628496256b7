r"""Compressive PCA as the field does it: R from random quadratic measurements of it.

The mean of :class:`~sketchlearn.features.quadratic.QuadraticFeatures` is
:math:`z = A\,\mathrm{vec}_{LT}(R)` with :math:`R = E[xx^\top]` (paper, eq.
comp-pca-sketch). These are the baselines of the paper: the pseudo-inverse, and three
descents on a factor U of :math:`R = UU^\top`. All of them return the *uncentred* second
moment of the rows as the map's scaling leaves them; a quadratic sketch holds no mean,
so nothing can be centred here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.baselines.quadratic_operator import (
    AbstractMeasurements,
    least_norm_solution,
    measurements_of,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "AbstractFactorizedDecoder",
    "AcceleratedDecoder",
    "ExponentialDecoder",
    "PseudoInverseDecoder",
    "RobustDecoder",
]

Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
"""From residuals to the loss and its slope in each of them."""

_GROWTH = 1.1
_LEAST_SHARE = 1e-2


@final
@dataclass(frozen=True, eq=False)
class PseudoInverseDecoder(AbstractDecoder[NDArray[np.float64]]):
    r"""The smallest second moment that explains the sketch, in closed form.

    .. math:: \mathrm{vec}_{LT}(\hat R) = A^+ z

    Exact, up to rounding, from :math:`m \ge d(d+1)/2` on. Below that :math:`\hat R` is
    symmetric but often has negative eigenvalues.

    Parameters
    ----------
    known_diagonal : float or array of shape (d,), optional
        Mean squares of the features, if known (1 for standardised data): only the
        other entries are then solved for.
    positive : bool
        Replace the result by the nearest positive semi-definite matrix. The diagonal
        and the residual are then what that leaves of them.

    References
    ----------
    Paper, appendix PCA and Ridge Regression.

    Examples
    --------
    >>> from sketchlearn import sketch_rows
    >>> phi = QuadraticFeatures(n_features=2, sketch_size=3)
    >>> sketch = sketch_rows([[1.0, 2.0], [3.0, 0.0]], phi)
    >>> PseudoInverseDecoder().decode(sketch).params.round(4)
    array([[5., 1.],
           [1., 2.]])
    """

    known_diagonal: ArrayLike | None = None
    positive: bool = False

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[NDArray[np.float64]]:
        system = _System.of(sketch, self.known_diagonal)
        moment = least_norm_solution(system.measurements, system.values)
        moment += np.diag(system.diagonal)
        if self.positive:
            values, vectors = np.linalg.eigh(moment)
            moment = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return Decoding(moment, system.residual(moment))


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
    """

    rank: int | None = None
    known_diagonal: ArrayLike | None = None
    max_iter: int = 1000
    tol: float = 1e-4

    @abstractmethod
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        """What to minimise, given the residuals at the start and the sketch."""

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[NDArray[np.float64]]:
        system = _System.of(sketch, self.known_diagonal)
        factor = system.start(self._rank(system))
        if not factor.any():
            moment = np.diag(system.diagonal)
            return Decoding(moment, system.residual(moment))
        first = system.measurements.of_factor(factor) - system.values
        descent = _Descent(system, self._loss(first, system.values))
        factor, n_iter, converged = descent.run(factor, self.max_iter, self.tol)
        moment = factor @ factor.T
        if system.measurements.hollow:
            np.fill_diagonal(moment, system.diagonal)
        return Decoding(moment, system.residual(moment), n_iter, converged)

    def _rank(self, system: _System) -> int:
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
    >>> from sketchlearn import sketch_rows
    >>> sketch = sketch_rows([[3.0, 4.0]], QuadraticFeatures(2, 4))
    >>> RobustDecoder(rank=1).decode(sketch).params.round(2)
    array([[ 9., 12.],
           [12., 16.]])
    """

    @override
    def _loss(self, first: NDArray[np.float64], values: NDArray[np.float64]) -> Loss:
        delta = max(0.1 * float(np.median(np.abs(first))), 1e-12 * _size(values))

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
    >>> from sketchlearn import sketch_rows
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
    >>> from sketchlearn import sketch_rows
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


@final
@dataclass(frozen=True, eq=False)
class _System:
    """Measurements, what they should be, and the diagonal if it is known, else zero."""

    whole: AbstractMeasurements
    measurements: AbstractMeasurements
    sketched: NDArray[np.float64]
    values: NDArray[np.float64]
    diagonal: NDArray[np.float64]

    @staticmethod
    def of(sketch: Sketch | PrivateSketch, known: ArrayLike | None) -> _System:
        features = _quadratic_map(sketch)
        diagonal = _diagonal(known, features.n_features)
        whole = measurements_of(features)
        if known is None:
            return _System(whole, whole, sketch.mean, sketch.mean, diagonal)
        left = sketch.mean - whole.of_matrix(np.diag(diagonal))
        hollow = measurements_of(features, hollow=True)
        return _System(whole, hollow, sketch.mean, left, diagonal)

    def residual(self, moment: NDArray[np.float64]) -> float:
        missed = self.whole.of_matrix(moment) - self.sketched
        return _size(missed) / max(_size(self.sketched), 1e-300)

    def start(self, rank: int) -> NDArray[np.float64]:
        """Leading eigenvectors of the pseudo-inverse, scaled to explain the sketch."""
        values, vectors = np.linalg.eigh(
            least_norm_solution(self.measurements, self.values)
        )
        # A column of zeros would stay zero: its gradient vanishes.
        kept = np.maximum(values[-rank:], _LEAST_SHARE * max(values[-1], 0.0))
        factor = self.shortened(vectors[:, -rank:] * np.sqrt(kept))
        seen = self.measurements.of_factor(factor)
        scale = float(seen @ self.values) / max(float(seen @ seen), 1e-300)
        return self.shortened(factor * np.sqrt(max(scale, _LEAST_SHARE)))

    def shortened(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows no longer than the known diagonal allows."""
        if not self.measurements.hollow:
            return factor
        limit, length = np.sqrt(self.diagonal), np.linalg.norm(factor, axis=1)
        share = np.minimum(limit / np.maximum(length, 1e-300), 1.0)
        return np.asarray(factor * share[:, None])


@final
@dataclass(frozen=True, eq=False)
class _Descent:
    """Projected gradient steps with momentum, their lengths found by backtracking."""

    system: _System
    loss: Loss

    def run(
        self, factor: NDArray[np.float64], max_iter: int, tol: float
    ) -> tuple[NDArray[np.float64], int, bool]:
        previous, value, age = factor, self._at(factor)[0], 0
        slope = self.loss(self.system.values)[1]
        small = tol * _size(self._pulled(slope, factor))
        step = 0.0
        for n_iter in range(1, max_iter + 1):
            ahead = factor + age / (age + 3) * (factor - previous)
            found, at_found, step = self._step(ahead, step)
            if _size(found - ahead) <= step * small:
                return found, n_iter, True
            if at_found > value:  # momentum overshot: stay, and start it again
                previous, age = factor, 0
                continue
            previous, factor, value, age = factor, found, at_found, age + 1
        return factor, max_iter, False

    def _step(
        self, ahead: NDArray[np.float64], step: float
    ) -> tuple[NDArray[np.float64], float, float]:
        """One step that falls at least as much as its quadratic model says."""
        value, slope = self._at(ahead)
        gradient = self._pulled(slope, ahead)
        step = _GROWTH * step or _size(ahead) / max(_size(gradient), 1e-300)
        while True:
            found = self.system.shortened(ahead - step * gradient)
            move = found - ahead
            model = float(np.sum(gradient * move)) + float(np.sum(move**2)) / step / 2
            at_found = self._at(found)[0]
            if at_found <= value + model + 1e-12 * abs(value):
                return found, at_found, step
            step /= 2

    def _at(self, factor: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        return self.loss(
            self.system.measurements.of_factor(factor) - self.system.values
        )

    def _pulled(
        self, slope: NDArray[np.float64], factor: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return 2 * self.system.measurements.adjoint_times(slope, factor)


def _quadratic_map(sketch: Sketch | PrivateSketch) -> QuadraticFeatures:
    found = sketch.feature_map.find(QuadraticFeatures)
    parts = sketch.feature_map.parts()
    if len(found) == len(parts) == 1:
        return found[0].feature_map
    kinds = ", ".join(part.feature_map.kind for part in parts)
    raise FeatureMapError(
        f"a sketch of {kinds!r} features holds no random quadratic "
        "measurements. Sketch with QuadraticFeatures(n_features, sketch_size)."
    )


def _diagonal(known: ArrayLike | None, n_features: int) -> NDArray[np.float64]:
    if known is None:
        return np.zeros(n_features)
    diagonal = np.asarray(known, np.float64)
    fits = diagonal.shape in ((), (n_features,))
    if not fits or not np.isfinite(diagonal).all() or (diagonal < 0).any():
        raise FeatureMapError(
            f"known_diagonal must be one number or {n_features} numbers, finite and "
            f"not negative; got {known!r}."
        )
    return np.broadcast_to(diagonal, (n_features,)).copy()


def _size(array: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(array))
