"""Descent on a factor of a second moment, with momentum and steps of its own length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.baselines.quadratic_system import QuadraticSystem, frobenius

__all__ = ["FactorDescent", "Loss"]

Loss = Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]
"""From residuals to the loss and its slope in each of them."""


@final
@dataclass(frozen=True, eq=False)
class FactorDescent:
    """Projected gradient steps with momentum, their lengths found by backtracking."""

    system: QuadraticSystem
    loss: Loss
    growth: float

    def run(
        self, factor: NDArray[np.float64], max_iter: int, tol: float
    ) -> tuple[NDArray[np.float64], int, bool]:
        """Where a descent ends, after how many steps, and whether it came to rest."""
        previous, value, age = factor, self._at(factor)[0], 0
        slope = self.loss(self.system.values)[1]
        small = tol * frobenius(self._pulled(slope, factor))
        step = 0.0
        for n_iter in range(1, max_iter + 1):
            ahead = factor + age / (age + 3) * (factor - previous)
            found, at_found, step = self._step(ahead, step)
            if frobenius(found - ahead) <= step * small:
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
        step = self.growth * step or frobenius(ahead) / max(frobenius(gradient), 1e-300)
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
