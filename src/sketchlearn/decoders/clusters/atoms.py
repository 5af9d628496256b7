r"""Atoms: the sketch one cluster would have, and how it moves with the cluster.

A mixture of clusters with weights :math:`\alpha_l` has the sketch
:math:`\sum_l \alpha_l\, a(\mu_l, S_l)`, where the atom :math:`a(\mu, S)` is the mean of
the features under :math:`\mathcal{N}(\mu, \mathrm{diag}\,S)`; with :math:`S = 0` it is
:math:`\varphi(\mu)`, a Dirac. Classical decoders look for the clusters whose atoms
explain a sketch; they need values and gradients, and both are closed forms here.
Everything is in the units of the scaled rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.features.nystrom import NystromFeatures

__all__ = ["AbstractAtoms", "FourierAtoms", "NystromAtoms", "nystrom_atoms"]

Pull = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]


class AbstractAtoms(ABC):
    """The atoms of one feature map."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers in a center."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """Length over which an atom changes: the scale of the kernel."""

    @abstractmethod
    def linearise(
        self, centers: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        r"""Atoms of several clusters, and the transpose of their Jacobian.

        Parameters
        ----------
        centers, variances : arrays of shape (n, n_features)

        Returns
        -------
        atoms : array of shape (n, size)
        pull : callable
            Takes ``(n, size)`` numbers :math:`b` and returns the gradients of
            :math:`\sum_l \langle b_l, a_l\rangle` by centers and by variances.
        """


@final
@dataclass(frozen=True, eq=False)
class FourierAtoms(AbstractAtoms):
    r"""Gaussians seen through cosines and sines.

    .. math::
        a(\mu, S)_j = e^{-\frac12 \omega_j^\top \mathrm{diag}(S)\,\omega_j}
        \,(\cos \omega_j^\top\mu,\; \sin \omega_j^\top\mu)

    Parameters
    ----------
    frequencies : array of shape (n_features, h)
        Columns :math:`\omega_j`; atoms have 2h numbers, cosines first.

    Examples
    --------
    >>> atoms = FourierAtoms(np.array([[1.0]]))
    >>> value, _ = atoms.linearise(np.array([[0.0]]), np.array([[2.0]]))
    >>> value.round(4)
    array([[0.3679, 0.    ]])
    """

    frequencies: NDArray[np.float64]

    @property
    @override
    def n_features(self) -> int:
        return len(self.frequencies)

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """Squared frequencies, shape (n_features, h)."""
        return self.frequencies**2

    @property
    @override
    def unit(self) -> float:
        return float(np.sqrt(1 / max(self.squares.mean(), 1e-300)))

    @override
    def linearise(
        self, centers: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        phases = centers @ self.frequencies  # (n, h)
        spread = np.exp(-0.5 * (variances @ self.squares))
        cosines, sines = spread * np.cos(phases), spread * np.sin(phases)
        half = phases.shape[1]

        def pull(
            by: NDArray[np.float64],
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            turn = cosines * by[:, half:] - sines * by[:, :half]
            shrink = cosines * by[:, :half] + sines * by[:, half:]
            return turn @ self.frequencies.T, -0.5 * (shrink @ self.squares.T)

        return np.concatenate([cosines, sines], axis=1), pull


@final
@dataclass(frozen=True, eq=False)
class NystromAtoms(AbstractAtoms):
    r"""Gaussians seen through a Gaussian kernel at landmarks.

    .. math::
        a(\mu, S) = K^{-1/2} \Big(\prod_i
        \sqrt{\tfrac{s^2}{s^2 + S_i}}\; e^{-(\mu_i - l_i)^2 / 2 (s^2 + S_i)}\Big)_{l}

    Parameters
    ----------
    landmarks : array of shape (size, n_features)
    root : array of shape (size, size)
        :math:`K^{-1/2}`, symmetric.
    scale : float
        s, the length scale of the kernel.
    """

    landmarks: NDArray[np.float64]
    root: NDArray[np.float64]
    scale: float

    @property
    @override
    def n_features(self) -> int:
        return int(self.landmarks.shape[1])

    @property
    @override
    def unit(self) -> float:
        return self.scale

    @override
    def linearise(
        self, centers: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        widths = variances + self.scale**2
        marks, precision = self.landmarks, 1 / widths
        squared = (
            (centers**2 * precision).sum(axis=1, keepdims=True)
            - 2 * (centers * precision) @ marks.T
            + precision @ (marks**2).T
        )  # (n, size)
        volume = np.log(widths / self.scale**2).sum(axis=1, keepdims=True)
        kernel = np.exp(-0.5 * (np.maximum(squared, 0.0) + volume))

        def pull(
            by: NDArray[np.float64],
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            share = kernel * (by @ self.root)
            total, first = share.sum(axis=1, keepdims=True), share @ marks
            away = (total * centers - first) * precision
            second = total * centers**2 - 2 * centers * first + share @ marks**2
            return -away, 0.5 * precision * (second * precision - total)

        return kernel @ self.root, pull


def nystrom_atoms(features: NystromFeatures) -> NystromAtoms:
    """The atoms of a Nyström map."""
    marks = np.asarray(features.landmarks, np.float64)
    if features.scaling is not None:
        marks = features.scaling(marks)
    return NystromAtoms(marks, features.root.astype(np.float64), features.scale)
