r"""Codes that are searched for, not projected.

Entries come back as ones where their logits are above 0,

.. math:: \ell(u) = a + W u,

and the code of a row is looked for: ``n_steps`` steps of ascent on its balanced
accuracy, made smooth by a temperature :math:`\tau_t` that falls. With
:math:`q = \sigma(\ell / \tau_t)` and the weights :math:`b` of ones and zeros,

.. math::
    m_t &= \beta_t m_{t-1} + (W^\top W + \epsilon)^{-1} W^\top b \odot
    \big(\alpha_t (x - q) + (1 - \alpha_t)\,(2x - 1)\, 4 q (1 - q)\big) \\
    u_t &= u_{t-1} + \eta_t \tau_t m_t,

the first term being the likelihood's gradient and the second that of the share of
entries that are right, which gives up hopeless ones. It starts at the least squares
code, which for the loadings of PCA is that of PCA, and keeps the best code on its way.
Where the numbers of the steps come from is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from typing_extensions import override

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.classes import ClassChoice
from sketchlearn.decoders.autoencoders.directions import ClassMeans
from sketchlearn.rows.values import Floats

__all__ = ["RIDGE", "SearchedCodes", "SearchSteps"]

RIDGE = 1e-3
"""Part of the mean of the diagonal of WᵀW that is added to it, so that it can be
inverted; the same in training."""

_ENTRIES_AT_ONCE = 2**17
"""Entries of rows that are encoded at once: half a megabyte each, which stay in
cache; four times as many take twice the time."""


@final
@dataclass(frozen=True, eq=False)
class SearchSteps:
    """Numbers of the steps, each of shape (n_steps,)."""

    temperature: NDArray[np.float64]
    rate: NDArray[np.float64]
    momentum: NDArray[np.float64]
    likelihood: NDArray[np.float64]
    """Weight α of the likelihood's gradient."""


@final
@dataclass(frozen=True, eq=False)
class SearchedCodes(AbstractAutoencoder):
    """Logits that are linear in the code, and codes that are searched for.

    Parameters
    ----------
    classes : ClassMeans
        Of the sketch; one class where rows have none.
    gain : array of shape (d,)
        Logits for a whole one, by feature: those of a linear reconstruction are
        ``gain`` times what is above the threshold.
    offset : array of shape (d,)
        Taken from the means before.
    loadings : array of shape (d, k)
        W.
    ones : float
        Share of ones among all entries.
    steps : SearchSteps
        Of the search.
    """

    classes: ClassMeans
    gain: NDArray[np.float64]
    offset: NDArray[np.float64]
    loadings: NDArray[np.float64]
    ones: float
    steps: SearchSteps

    @property
    @override
    def n_features(self) -> int:
        return len(self.gain)

    @property
    @override
    def mean(self) -> NDArray[np.floating]:
        return self.classes.mean

    @property
    @override
    def n_codes(self) -> int:
        return int(self.loadings.shape[1]) + self.n_weights

    @property
    @override
    def n_weights(self) -> int:
        return self._choice.n_weights

    @override
    def encode(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        size = max(_ENTRIES_AT_ONCE // self.n_features, 1)
        parts = [
            self._encode(np.asarray(rows[start : start + size], np.float32))
            for start in range(0, len(rows), size)
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.n_codes), "f4")

    @override
    def decode(self, codes: NDArray[np.floating]) -> NDArray[np.floating]:
        numbers, weights = self._choice.split(np.asarray(codes, np.float32))
        return self._logits(numbers, self._biases(weights))

    def _encode(self, rows: Floats) -> Floats:
        weights = self._choice.weights(rows)
        biases = self._biases(weights)
        centre = self._choice.blend(self.classes.means.astype(np.float32), weights)
        away: Floats = (rows - centre) * self.gain.astype(np.float32)
        start = self._solve(away)
        return self._choice.beside(self._search(rows, biases, start), weights)

    def _search(self, rows: Floats, biases: Floats, codes: Floats) -> Floats:
        """The best code of each row on the way from the first ones."""
        share = np.float32(self.ones)
        signs = np.where(rows > 0.5, 0.5 / share, -0.5 / (1 - share))
        signs = signs.astype(np.float32)  # weights, negative for zeros
        weights = np.abs(signs)
        logits = self._logits(codes, biases)
        best, score = codes, _score(signs, logits)
        momentum = np.zeros_like(codes)
        s = self.steps
        for t, rate, beta, alpha in zip(
            s.temperature, s.rate, s.momentum, s.likelihood, strict=True
        ):
            pull = _pull(logits, signs, weights, float(t), float(alpha))
            momentum = np.float32(beta) * momentum + self._solve(pull)
            codes = codes + np.float32(rate * t) * momentum
            logits = self._logits(codes, biases)
            found = _score(signs, logits)
            better = found > score
            best = np.where(better[:, None], codes, best)
            score = np.where(better, found, score)
        return best

    def _logits(self, codes: Floats, biases: Floats) -> Floats:
        found: Floats = codes @ self._loadings.T + biases
        return found

    def _solve(self, pull: Floats) -> Floats:
        """(WᵀW + ε)⁻¹ Wᵀ applied to each row."""
        found: Floats = pull @ self._inverse
        return found

    def _biases(self, weights: Floats) -> Floats:
        biases = (self.classes.means - self.offset) * self.gain
        return self._choice.blend(biases.astype(np.float32), weights)

    @cached_property
    def _loadings(self) -> Floats:
        return np.ascontiguousarray(self.loadings, np.float32)

    @cached_property
    def _inverse(self) -> Floats:
        core = self.loadings.T @ self.loadings
        core += RIDGE * max(np.trace(core) / len(core), 1e-12) * np.eye(len(core))
        found = cho_solve(cho_factor(core), self.loadings.T)
        return np.ascontiguousarray(found.T, np.float32)

    @property
    def _choice(self) -> ClassChoice:
        return ClassChoice(self.classes)


def _score(signs: Floats, logits: Floats) -> Floats:
    """Weighted share of right entries of each row, up to a constant."""
    found: Floats = np.einsum("ij,ij->i", signs, (logits > 0).astype(np.float32))
    return found


def _pull(
    logits: Floats, signs: Floats, weights: Floats, temperature: float, alpha: float
) -> Floats:
    r"""The direction in which logits are to go.

    With :math:`h = \tanh(\ell / 2\tau) = 2q - 1`, which is faster than q, and signs
    that are weights, negative for zeros.
    """
    h = np.tanh(logits * np.float32(0.5 / temperature))
    right: Floats = np.square(h)
    right *= np.float32(alpha - 1)
    right += np.float32(1 - alpha / 2)
    right *= signs
    h *= weights
    h *= np.float32(alpha / 2)
    right -= h
    return right
