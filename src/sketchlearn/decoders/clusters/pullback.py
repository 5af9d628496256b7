r"""Feature maps with the transpose of their Jacobian, for descent in their inputs.

A pullback takes numbers b, one for each output, and gives the gradient of
:math:`\langle b, f(x)\rangle`. A sketch is made by the map itself, in its own exact
arithmetic; these are the same formulas in float64, read off the map's attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from sketchlearn.decoders.clusters.atoms import nystrom_atoms
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import LEAK, Activation, ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.parts import Clip, all_clips
from sketchlearn.features.scaling import Scaling

__all__ = ["Linearised", "Pullback", "activate", "linearised"]

Array: TypeAlias = NDArray[np.float64]
Pullback = Callable[[Array], Array]
Linearised = Callable[[Array], tuple[Array, Pullback]]


def linearised(feature_map: AbstractFeatureMap) -> Linearised:
    r"""The map :math:`\varphi` as a function that also gives its pullback.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Fourier, Nyström or activation features, also clipped or concatenated.

    Returns
    -------
    callable
        Takes rows in their own units, ``(n, n_features)``, and returns the features,
        ``(n, size)``, with a function from such numbers to gradients by the rows.
        Scaling and clipping are part of the map.

    Examples
    --------
    >>> from sketchlearn import ActivationFeatures
    >>> phi = linearised(ActivationFeatures([[2.0]], activation="relu"))
    >>> values, pull = phi(np.array([[3.0], [-3.0]]))
    >>> values.ravel().tolist(), pull(np.ones((2, 1))).ravel().tolist()
    ([6.0, 0.0], [2.0, 0.0])
    """
    parts = feature_map.parts()
    whole = _beside([_plain(part.feature_map) for part in parts])
    for clip in all_clips(parts):
        whole = _clipped(whole, clip)
    return whole


def _plain(feature_map: AbstractFeatureMap) -> Linearised:
    """A map that is neither clipped nor concatenated."""
    match feature_map:
        case FourierFeatures():
            units = _units(feature_map.frequencies, "fourier")
            return _scaled(units, feature_map.scaling)
        case ActivationFeatures():
            units = _units(feature_map.matrix, feature_map.activation)
            return _scaled(units, feature_map.scaling)
        case NystromFeatures():
            return _scaled(_nystrom(feature_map), feature_map.scaling)
    raise FeatureMapError(
        f"a map of kind {feature_map.kind!r} has no differentiable form. Use Fourier, "
        "Nyström or activation features."
    )


def activate(phases: Array, activation: Activation) -> tuple[Array, Pullback]:
    """The non-linearity alone; ``"fourier"`` doubles the last axis.

    Examples
    --------
    >>> values, pull = activate(np.zeros((1, 2)), "fourier")
    >>> values.tolist(), pull(np.array([[5.0, 5.0, 1.0, 2.0]])).tolist()
    ([[1.0, 1.0, 0.0, 0.0]], [[1.0, 2.0]])
    """
    match activation:
        case "fourier":
            cosines, sines = np.cos(phases), np.sin(phases)
            half = phases.shape[-1]
            values = np.concatenate([cosines, sines], axis=-1)
            return values, lambda by: cosines * by[..., half:] - sines * by[..., :half]
        case "cos":
            return np.cos(phases), lambda by: -np.sin(phases) * by
        case "sin":
            return np.sin(phases), lambda by: np.cos(phases) * by
        case "tanh":
            values = np.tanh(phases)
            return values, lambda by: (1 - values**2) * by
        case "sigmoid":
            values = expit(phases)
            return values, lambda by: values * (1 - values) * by
        case "relu":
            return np.maximum(phases, 0.0), lambda by: (phases > 0) * by
        case "leaky-relu":
            slopes = np.where(phases > 0, 1.0, LEAK)
            return slopes * phases, lambda by: slopes * by
        case "gelu":
            share = ndtr(phases)
            density = np.exp(-0.5 * phases**2) / sqrt(2 * pi)
            return phases * share, lambda by: (share + phases * density) * by
        case "identity":
            return phases, lambda by: by


def _units(matrix: NDArray[np.floating], activation: Activation) -> Linearised:
    """Activations of linear forms."""
    weights = matrix.astype(np.float64)

    def phi(rows: Array) -> tuple[Array, Pullback]:
        values, pull = activate(rows @ weights, activation)
        return values, lambda by: pull(by) @ weights.T

    return phi


def _nystrom(feature_map: NystromFeatures) -> Linearised:
    """Atoms of no width."""
    atoms = nystrom_atoms(feature_map)

    def phi(rows: Array) -> tuple[Array, Pullback]:
        values, pull = atoms.linearise(rows, np.zeros_like(rows))
        return values, lambda by: pull(by)[0]

    return phi


def _scaled(inner: Linearised, scaling: Scaling | None) -> Linearised:
    if scaling is None:
        return inner

    def phi(rows: Array) -> tuple[Array, Pullback]:
        values, pull = inner(scaling(rows))
        return values, lambda by: pull(by) * scaling.factor

    return phi


def _clipped(inner: Linearised, clip: Clip) -> Linearised:
    where, bound = clip.where, clip.norm_bound

    def phi(rows: Array) -> tuple[Array, Pullback]:
        values, pull = inner(rows)
        own = values[:, where]
        squares = np.vecdot(own, own)[:, None]
        is_long = squares > bound**2
        share = bound / np.sqrt(np.where(is_long, squares, bound**2))

        def pull_short(by: Array) -> Array:
            mine = by[:, where]
            along = np.vecdot(own, mine)[:, None] / np.where(is_long, squares, np.inf)
            short = by.copy()
            short[:, where] = share * (mine - along * own)
            return pull(short)

        short = values.copy()
        short[:, where] = share * own
        return short, pull_short

    return phi


def _beside(parts: list[Linearised]) -> Linearised:
    def phi(rows: Array) -> tuple[Array, Pullback]:
        values, pulls = zip(*(part(rows) for part in parts), strict=True)
        ends = np.cumsum([value.shape[1] for value in values])[:-1]

        def pull(by: Array) -> Array:
            shares = np.split(by, ends, axis=1)
            slopes = [one(own) for one, own in zip(pulls, shares, strict=True)]
            total: Array = np.sum(slopes, axis=0)
            return total

        return np.concatenate(values, axis=1), pull

    return phi
