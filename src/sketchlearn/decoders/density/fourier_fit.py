r"""Gaussian mixtures fitted to the characteristic function of rows.

In coordinates of zero mean and unit variance, the mixture with weights
:math:`\alpha_j`, means :math:`\mu_j` and covariances :math:`\Sigma_j` that minimises

.. math::
    \sum_f \Big| \sum_j \alpha_j e^{-\frac12 \omega_f^\top \Sigma_j \omega_f
    + i\,\omega_f^\top \mu_j} - z_f \Big|^2
    + \Big\lVert \sum_j \alpha_j \mu_j \Big\rVert^2
    + \Big\lVert \sum_j \alpha_j (\mu_j\mu_j^\top + \Sigma_j) - C \Big\rVert_F^2 ,

by L-BFGS with exact gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from sketchlearn.decoders.density.mixture import Mixture

__all__ = [
    "CovarianceShape",
    "Fit",
    "FourierTarget",
    "fit_mixture",
    "mixture_loss",
]

CovarianceShape = Literal["tied", "diag", "full"]

_LEAST, _MOST = np.log(0.01), np.log(3.0)
"""Logarithms of the least and largest deviation of a component, where that of all rows
is one: a guard, as no larger one has their covariance and a smaller one no slope."""


@final
@dataclass(frozen=True, eq=False)
class FourierTarget:
    """What a mixture has to explain.

    Parameters
    ----------
    frequencies : array of shape (h, r)
    cosines, sines : arrays of shape (h,)
        Real and imaginary part of z.
    second : array of shape (r, r)
        Covariance C of the rows in these coordinates, of unit diagonal.
    """

    frequencies: NDArray[np.float64]
    cosines: NDArray[np.float64]
    sines: NDArray[np.float64]
    second: NDArray[np.float64]

    @property
    def power(self) -> float:
        """Summed squares of the sketch."""
        return float((self.cosines**2 + self.sines**2).sum())


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """A mixture and how well it explains its target.

    Parameters
    ----------
    mixture : Mixture
        With lower triangular roots.
    loss : float
        Summed squared error over frequencies and moments.
    n_iter : int
    converged : bool
    """

    mixture: Mixture
    loss: float
    n_iter: int = 0
    converged: bool = True


def fit_mixture(
    target: FourierTarget,
    start: Mixture,
    *,
    shape: CovarianceShape,
    max_iter: int = 300,
) -> Fit:
    """Descend from a starting mixture.

    Parameters
    ----------
    target : FourierTarget
    start : Mixture
        With ``shape="tied"`` its covariances are averaged, with ``"diag"`` their
        diagonals are kept.
    shape : {"tied", "diag", "full"}
        One diagonal covariance for all components, one for each, or any.
    max_iter : int

    Examples
    --------
    >>> w = np.array([[0.5], [1.0], [2.0]])
    >>> still = FourierTarget(w, np.exp(-(w[:, 0] ** 2) / 2), np.zeros(3), np.eye(1))
    >>> begin = Mixture(np.ones(1), np.ones((1, 1)), np.ones((1, 1)) / 2)
    >>> found = fit_mixture(still, begin, shape="diag").mixture
    >>> bool(abs(found.means[0, 0]) < 1e-3), round(float(found.factors[0, 0, 0]), 3)
    (True, 1.0)
    """
    problem = _Problem(target, shape, *start.means.shape)
    result = minimize(
        problem,
        problem.pack(start),
        jac=True,
        method="L-BFGS-B",
        bounds=problem.bounds(),
        options={"maxiter": max_iter, "maxcor": 20, "ftol": 1e-7},
    )
    found = Mixture(*problem.unpack(result.x))
    return Fit(found, float(result.fun), int(result.nit), bool(result.success))


def mixture_loss(target: FourierTarget, mixture: Mixture) -> float:
    """Summed squared error of a mixture as it is."""
    problem = _Problem(target, "full", *mixture.means.shape)
    return problem(problem.pack(mixture))[0]


@final
class _Problem:
    """Loss and gradient as a function of one flat vector."""

    def __init__(
        self, target: FourierTarget, shape: CovarianceShape, size: int, r: int
    ) -> None:
        self.target, self.shape, self.size, self.r = target, shape, size, r
        self.frequencies = np.ascontiguousarray(target.frequencies.T)  # (r, h)
        self.squares = self.frequencies**2
        self.rows, self.columns = np.tril_indices(r)
        self.on_diagonal = self.rows == self.columns
        per = {"tied": (1, r), "diag": (size, r), "full": (size, len(self.rows))}
        self.scale_shape = per[shape]
        self.cut = np.cumsum([size, size * r])

    def pack(self, start: Mixture) -> NDArray[np.float64]:
        variances = start.variances
        if self.shape == "tied":
            variances = start.weights[None] @ variances
        scales = np.log(np.maximum(variances, 1e-300)) / 2
        if self.shape == "full":
            scales = start.full_factors[:, self.rows, self.columns].copy()
            scales[:, self.on_diagonal] = np.log(
                np.maximum(scales[:, self.on_diagonal], 1e-300)
            )
        logits = np.log(np.maximum(start.weights, 1e-6))
        low, high = self._scale_bounds()
        scales = np.clip(scales, low, high)
        return np.concatenate([logits, start.means.ravel(), scales.ravel()])

    def _scale_bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        low, high = np.full(self.scale_shape, _LEAST), np.full(self.scale_shape, _MOST)
        if self.shape == "full":
            low[:, ~self.on_diagonal], high[:, ~self.on_diagonal] = -3.0, 3.0
        return low, high

    def bounds(self) -> NDArray[np.float64]:
        low, high = self._scale_bounds()
        free = np.full(self.cut[1], np.inf)
        return np.stack(
            [
                np.concatenate([-free, low.ravel()]),
                np.concatenate([free, high.ravel()]),
            ],
            axis=1,
        )

    def unpack(
        self, point: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        logits, means, scales = np.split(point, self.cut)
        weights = np.exp(logits - logits.max())
        scales = scales.reshape(self.scale_shape)
        factors = np.zeros((self.size, self.r, self.r))
        if self.shape == "full":
            entries = np.where(self.on_diagonal, np.exp(scales), scales)
            factors[:, self.rows, self.columns] = entries
        else:
            factors[:, np.arange(self.r), np.arange(self.r)] = np.exp(scales)
        return weights / weights.sum(), means.reshape(self.size, self.r), factors

    def __call__(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, means, factors = self.unpack(point)
        target, frequencies = self.target, self.frequencies
        phases = means @ frequencies  # (J, h)
        if self.shape == "full":
            seen = np.swapaxes(factors, 1, 2) @ frequencies  # (J, r, h)
            exponent = np.einsum("jrh,jrh->jh", seen, seen)
        else:
            variances = np.einsum("jaa->ja", factors) ** 2
            exponent = variances @ self.squares
        height = weights[:, None] * np.exp(-exponent / 2)
        real, imaginary = height * np.cos(phases), height * np.sin(phases)
        miss_c = real.sum(axis=0) - target.cosines
        miss_s = imaginary.sum(axis=0) - target.sines
        loss = miss_c @ miss_c + miss_s @ miss_s
        along = real * miss_c + imaginary * miss_s
        turn = real * miss_s - imaginary * miss_c
        by_weight = 2 * along.sum(axis=1)
        by_mean = 2 * turn @ frequencies.T
        if self.shape == "full":
            by_factor = -2 * np.einsum("rh,jh,jsh->jrs", frequencies, along, seen)
        else:
            by_factor = -2 * (along @ self.squares.T) * np.sqrt(variances)
        extra, slopes = self._moments(weights, means, factors)
        by_weight = by_weight + weights * slopes[0]
        by_weight -= weights * by_weight.sum()
        by_scale = self._by_scale(by_factor, slopes[2], factors)
        gradient = [by_weight, (by_mean + slopes[1]).ravel(), by_scale.ravel()]
        return float(loss + extra), np.concatenate(gradient)

    def _moments(
        self,
        weights: NDArray[np.float64],
        means: NDArray[np.float64],
        factors: NDArray[np.float64],
    ) -> tuple[float, tuple[NDArray[np.float64], ...]]:
        """Moment penalty; slopes by weight, mean and factor."""
        first = weights @ means
        heavy = weights[:, None] * means
        products = factors @ np.swapaxes(factors, 1, 2)
        within = np.einsum("j,jab->ab", weights, products)
        second = heavy.T @ means + within - self.target.second
        pull = means @ second
        by_weight = 2 * means @ first + 2 * (
            (pull * means).sum(axis=1) + np.einsum("jab,ab->j", products, second)
        )
        by_mean = weights[:, None] * (2 * first + 4 * pull)
        by_factor = 4 * weights[:, None, None] * (second @ factors)
        penalty = float(first @ first + (second**2).sum())
        return penalty, (by_weight, by_mean, by_factor)

    def _by_scale(
        self,
        by_factor: NDArray[np.float64],
        moment_slope: NDArray[np.float64],
        factors: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Gradient by the entries of the flat vector that set the covariances."""
        if self.shape == "full":
            slope = (by_factor + moment_slope)[:, self.rows, self.columns]
            entries = factors[:, self.rows, self.columns]
            return np.asarray(np.where(self.on_diagonal, slope * entries, slope))
        diagonal = np.einsum("jaa->ja", moment_slope)
        slope = (by_factor + diagonal) * np.einsum("jaa->ja", factors)
        return np.asarray(slope.sum(axis=0) if self.shape == "tied" else slope)
