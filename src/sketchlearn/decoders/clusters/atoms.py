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
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.noise_floor import mean_noise
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.parts import Part
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.sinusoids import VALUE_BITS
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "AbstractAtoms",
    "AtomicSketch",
    "Clusters",
    "FourierAtoms",
    "NystromAtoms",
    "nystrom_atoms",
    "read_atomic",
]


Pull = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]


@final
@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters found in a sketch, in the units of the rows.

    Parameters
    ----------
    centres : array of shape (n_clusters, n_features)
    weights : array of shape (n_clusters,)
        Shares of the rows; they sum to one.
    variances : array of shape (n_clusters, n_features)
        Variance of each cluster along each feature; zero where points were fitted.
    """

    centres: NDArray[np.float64]
    weights: NDArray[np.float64]
    variances: NDArray[np.float64]


class AbstractAtoms(ABC):
    """The atoms of one feature map."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers in a centre."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """Length over which an atom changes: the scale of the kernel."""

    @abstractmethod
    def linearise(
        self, centres: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        r"""Atoms of several clusters, and the transpose of their Jacobian.

        Parameters
        ----------
        centres, variances : arrays of shape (n, n_features)

        Returns
        -------
        atoms : array of shape (n, size)
        pull : callable
            Takes ``(n, size)`` numbers :math:`b` and returns the gradients of
            :math:`\sum_l \langle b_l, a_l\rangle` by centres and by variances.
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
        self, centres: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        phases = centres @ self.frequencies  # (n, h)
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
        self, centres: NDArray[np.float64], variances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Pull]:
        widths = variances + self.scale**2
        marks, precision = self.landmarks, 1 / widths
        squared = (
            (centres**2 * precision).sum(axis=1, keepdims=True)
            - 2 * (centres * precision) @ marks.T
            + precision @ (marks**2).T
        )  # (n, size)
        volume = np.log(widths / self.scale**2).sum(axis=1, keepdims=True)
        kernel = np.exp(-0.5 * (np.maximum(squared, 0.0) + volume))

        def pull(
            by: NDArray[np.float64],
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            share = kernel * (by @ self.root)
            total, first = share.sum(axis=1, keepdims=True), share @ marks
            away = (total * centres - first) * precision
            second = total * centres**2 - 2 * centres * first + share @ marks**2
            return -away, 0.5 * precision * (second * precision - total)

        return kernel @ self.root, pull


@final
@dataclass(frozen=True, eq=False)
class AtomicSketch:
    """The part of a sketch that atoms can explain.

    Parameters
    ----------
    target : array of shape (size,)
        Mean features, freed from clipping.
    atoms : AbstractAtoms
        What single clusters would give.
    scaling : Scaling
        From the units of the rows to those of the atoms.
    noise : float
        Standard deviation of an entry of ``target``: sampling, privacy, rounding.
    is_bounded : bool
        Whether the map declares a range, ``[-1, 1]`` in scaled units.
    """

    target: NDArray[np.float64]
    atoms: AbstractAtoms
    scaling: Scaling
    noise: float
    is_bounded: bool

    def box(
        self, bounds: tuple[ArrayLike, ArrayLike] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Where centres may lie, in scaled units: as declared, or [-1, 1]."""
        if bounds is None:
            if not self.is_bounded:
                raise FeatureMapError(
                    "bounds are needed: the sketch does not say where its rows lie. "
                    "Pass bounds=(low, high), or sketch with a map that has "
                    "scaling=Scaling.from_bounds(low, high)."
                )
            return -np.ones(self.atoms.n_features), np.ones(self.atoms.n_features)
        low, high = (_as_vector(side, self.atoms.n_features) for side in bounds)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise FeatureMapError("bounds must be finite numbers, low and high.")
        if not (low <= high).all():
            raise FeatureMapError(
                "bounds are reversed: each low must be at most its high."
            )
        return self.scaling(low[None])[0], self.scaling(high[None])[0]

    def clusters(
        self,
        centres: NDArray[np.float64],
        weights: NDArray[np.float64],
        variances: NDArray[np.float64],
    ) -> Clusters:
        """Found clusters in the units of the rows, the heaviest first."""
        total = weights.sum()
        even = np.full(len(weights), 1 / len(weights))
        shares = weights / total if total > 0 else even
        order = np.argsort(-shares, kind="stable")
        factor, shift = self.scaling.factor, self.scaling.shift
        return Clusters(
            centres=centres[order] / factor + shift,
            weights=shares[order],
            variances=variances[order] / factor**2,
        )


def read_atomic(sketch: Sketch | PrivateSketch) -> AtomicSketch:
    """The Fourier or Nyström part of a sketch, with the atoms that belong to it."""
    part = _find(sketch.feature_map)
    features, atoms, norm = part.feature_map, *_atoms(part.feature_map)
    shrink = 1.0
    if features.norm_bound is not None:
        # Fourier features all have the same norm, so clipping only shortens them.
        alone = [clip.norm_bound for clip in part.clips if clip.where == part.where]
        shrink = min([1.0, *(bound / norm**0.5 for bound in alone)])
    target = sketch.mean[part.where] / shrink
    scatter = max(norm - float(target @ target), 0.0) / len(target)
    variance = scatter / sketch.count + 2.0 ** (-2 * VALUE_BITS)
    variance += (mean_noise(sketch) / shrink) ** 2
    return AtomicSketch(
        target=target,
        atoms=atoms,
        scaling=features.scaling or Scaling.identity(features.n_features),
        noise=float(np.sqrt(variance)),
        is_bounded=features.scaling is not None,
    )


def _atoms(
    features: FourierFeatures | NystromFeatures,
) -> tuple[AbstractAtoms, float]:
    """Atoms, and the squared norm of a row's features: about 1 at most for Nyström."""
    match features:
        case FourierFeatures():
            waves = features.frequencies.astype(np.float64)
            return FourierAtoms(waves), features.sketch_size / 2
        case NystromFeatures():
            return nystrom_atoms(features), 1.0


def nystrom_atoms(features: NystromFeatures) -> NystromAtoms:
    """The atoms of a Nyström map."""
    marks = np.asarray(features.landmarks, np.float64)
    if features.scaling is not None:
        marks = features.scaling(marks)
    return NystromAtoms(marks, features.root.astype(np.float64), features.scale)


def _find(feature_map: AbstractFeatureMap) -> Part[FourierFeatures | NystromFeatures]:
    """The first part that has atoms."""
    found = feature_map.find(FourierFeatures, NystromFeatures)
    if found:
        return found[0]
    kinds = ", ".join(part.feature_map.kind for part in feature_map.parts())
    raise FeatureMapError(
        f"a sketch of {kinds!r} features has no atoms to decode. Sketch "
        "with FourierFeatures or NystromFeatures."
    )


def _as_vector(side: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """A bound for each feature, from one number or one for each."""
    values = np.asarray(side, np.float64)
    if values.shape not in ((), (n_features,)):
        raise FeatureMapError(
            f"bounds must be two numbers or two vectors of length {n_features}; got "
            f"shape {values.shape}."
        )
    return np.array(np.broadcast_to(values, (n_features,)))
