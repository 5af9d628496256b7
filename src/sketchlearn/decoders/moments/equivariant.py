r"""A learned prior over the features, and the update that makes it fit the sketch.

A sketch of :math:`R\Omega` leaves most of the correlations P open. Plain Nyström fills
the gap with independence; here a small network that treats all features alike
(permuting them permutes its output, up to ties in the order and sign of the sketched
directions) predicts what is likely instead: a positive
definite prior :math:`P_0 = \mathrm{diag}(s) + HH^\top` from what the sketch says of
each feature. The block BFGS update then gives the sketch the last word,

.. math::
    \hat P = P_0 - P_0\Omega\,(\Omega^\top P_0\Omega)^{-1}\Omega^\top P_0
           + Y\,(\Omega^\top Y)^{-1} Y^\top, \qquad Y = P\Omega,

which is positive semi-definite and has :math:`\hat P\Omega = Y`; the known unit
diagonal is put back at the end. One set of weights serves any number of features and
any sketch size. How the weights are learned is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from typing_extensions import override

from sketchlearn.decoders.base import AbstractDecoder, Decoding
from sketchlearn.decoders.moments.covariance import AbstractCovariance, DenseCovariance
from sketchlearn.decoders.moments.low_rank import (
    Moments,
    NystromDecoder,
    decode_moments,
)
from sketchlearn.files.weights import Weights
from sketchlearn.networks.forward import frozen_tensors, spec_from_dict
from sketchlearn.networks.layers import Affine, Gelu, LayerNorm
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["EquivariantDecoder", "FrozenPrior", "PriorSpec", "complete_correlation"]

LEARNED_FEATURES = 1024
"""Of more features the prior is not asked."""

QUERY_ROWS = 256
"""Features whose attention is computed at once; bounds the memory for many."""

N_PAIRS = 4
"""Numbers that are said of a pair of features."""

N_SCALARS = 6
"""Numbers that are said of a feature, beside its loadings."""

UNSEEN = 0.02
"""Least share of a feature's variance that is taken to be unseen."""

Array: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True)
class PriorSpec:
    """Architecture of a :class:`FrozenPrior`."""

    n_loadings: int = 12
    """Strongest sketched directions that a feature's token tells of."""

    width: int = 96
    """Length of a token."""

    depth: int = 3
    """Attention blocks."""

    n_heads: int = 4
    """Heads of each block."""

    rank: int = 48
    """Columns of H."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from JSON or TOML values; unknown keys are refused."""
        return spec_from_dict(cls, fields)


@final
@dataclass(frozen=True, eq=False)
class FrozenPrior:
    r"""Correlations from :math:`Y = P\Omega`: tokens, attention, prior, BFGS.

    Feature i is a token of its Nyström loadings, its communality and the energy of
    its row of Y; attention also sees, for each pair, the sketched correlation and the
    angle between loadings. The output is :math:`h_i` and a scale :math:`t_i`,

    .. math::
        P_0 = T\,(I - \mathrm{diag}\lVert h_i\rVert^2 + hh^\top)\,T .

    Parameters
    ----------
    spec : PriorSpec
        Sizes.
    tensors : mapping of arrays
        Weights by name, as in a weights file. Kept as read-only float32 copies.
    """

    spec: PriorSpec
    tensors: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        kept = frozen_tensors(self.tensors, _shapes(self.spec))
        object.__setattr__(self, "tensors", kept)

    def __call__(self, omega: Array, seen: Array) -> Array:
        """Correlations (d, d) from Ω and P Ω, both (d, n_columns)."""
        omega, seen = _orthonormal(omega, seen)
        loadings = _nystrom(omega, seen)
        explained = np.square(loadings).sum(axis=1, keepdims=True)
        unseen = np.sqrt(np.maximum(1 - explained, UNSEEN))
        tokens = self._affine("inputs")(
            _tokens(self.spec.n_loadings, omega, seen, loadings)
        )
        pairs = _Pairs(loadings, explained, unseen)
        for block in self._blocks:
            tokens = block(tokens, pairs)
        output = self._affine("outputs")(self._norm("norm")(tokens))
        h, scale = output[:, :-1], 0.6 * unseen * np.exp(output[:, -1:].clip(-3, 3))
        h = h / np.sqrt(1 + np.square(h).sum(axis=1, keepdims=True))
        diagonal = scale[:, 0] ** 2 * (1 - np.square(h).sum(axis=1))
        return complete_correlation(omega, seen, diagonal, h * scale)

    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        """Spec, tensors and model card as one value, to be saved."""
        return Weights("equivariant", asdict(self.spec), self.tensors, card or {})

    @cached_property
    def _blocks(self) -> list[_Block]:
        return [self._block(f"blocks.{index}") for index in range(self.spec.depth)]

    def _block(self, name: str) -> _Block:
        feed = self._norm(f"{name}.feed.0"), self._affine(f"{name}.feed.1")
        return _Block(
            attend=(self._norm(f"{name}.norm"), self._affine(f"{name}.attend")),
            pair_bias=self.tensors[f"{name}.pair_bias"],
            mix=self._affine(f"{name}.mix"),
            feed=(*feed, Gelu(), self._affine(f"{name}.feed.3")),
        )

    def _affine(self, name: str) -> Affine:
        return Affine(self._array(f"{name}.weight"), self._array(f"{name}.bias"))

    def _norm(self, name: str) -> LayerNorm:
        return LayerNorm(self._array(f"{name}.weight"), self._array(f"{name}.bias"))

    def _array(self, name: str) -> Array:
        return self.tensors[name].astype(np.float64)


@final
@dataclass(frozen=True, eq=False)
class _Block:
    """Attention over features with a bias for each pair, then a two-layer network.

    Attention is in float32: its time and memory grow with the square of d.
    """

    attend: tuple[LayerNorm, Affine]
    pair_bias: NDArray[np.float32]  # (n_heads, N_PAIRS)
    mix: Affine
    feed: tuple[LayerNorm, Affine, Gelu, Affine]

    def __call__(self, tokens: Array, pairs: _Pairs) -> Array:
        """(d, width) → (d, width)."""
        d, width = tokens.shape
        size = width // len(self.pair_bias)
        norm, split = self.attend
        parts = split(norm(tokens)).astype(np.float32).reshape(d, 3, -1, size)
        query, key, value = parts.transpose(1, 2, 0, 3)  # (n_heads, d, size)
        query = query * np.float32(size**-0.5)
        attended = np.empty((d, width))
        for start in range(0, d, QUERY_ROWS):
            rows = slice(start, start + QUERY_ROWS)
            bias = np.tensordot(self.pair_bias, pairs(rows), axes=1)
            scores = query[:, rows] @ key.mT + bias
            chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads = chances @ value / chances.sum(axis=-1, keepdims=True)
            attended[rows] = heads.transpose(1, 0, 2).reshape(-1, width)
        tokens = tokens + self.mix(attended)
        update = tokens
        for layer in self.feed:
            update = layer(update)
        return tokens + update


@final
class _Pairs:
    """What is said of each pair of features, for some rows of pairs at a time."""

    def __init__(self, loadings: Array, explained: Array, unseen: Array) -> None:
        directions = loadings / np.sqrt(np.maximum(explained, 1e-6))
        self._loadings = loadings.astype(np.float32)
        self._directions = directions.astype(np.float32)
        self._unseen = unseen.astype(np.float32)

    def __call__(self, rows: slice) -> NDArray[np.float32]:
        """(N_PAIRS, rows, d)."""
        product = self._loadings[rows] @ self._loadings.T
        cosine = self._directions[rows] @ self._directions.T
        both = self._unseen[rows] * self._unseen.T
        cube = cosine * cosine * cosine
        return np.stack([product, cosine, cube, np.float32(0.2) * product / both])


def complete_correlation(
    omega: Array, seen: Array, diagonal: Array, loadings: Array
) -> Array:
    r"""Correlations near a prior that agree with a sketch: block BFGS, unit diagonal.

    Before the diagonal is restored, :math:`\hat P\Omega = Y`.

    Parameters
    ----------
    omega, seen : arrays of shape (d, n_columns)
        Ω with orthonormal columns, and :math:`Y = P\Omega`.
    diagonal, loadings : arrays of shape (d,) and (d, rank)
        The prior :math:`\mathrm{diag}(s) + HH^\top`, with s > 0.

    Returns
    -------
    array of shape (d, d)
        With unit diagonal: what the sketch shows of a feature is kept, the prior
        fills at most the variance that is left, and the rest is independent.

    Examples
    --------
    >>> P, omega = np.array([[1.0, 0.6], [0.6, 1.0]]), np.array([[1.0], [0.0]])
    >>> prior = np.array([1.0, 0.64]), np.zeros((2, 1))
    >>> bool(np.allclose(complete_correlation(omega, P @ omega, *prior), P))
    True
    """
    prior_seen = diagonal[:, None] * omega + loadings @ (loadings.T @ omega)
    core = omega.T @ prior_seen
    root = cholesky((core + core.T) / 2 + 1e-5 * np.eye(len(core)), lower=True)
    taken = solve_triangular(root, prior_seen.T, lower=True)
    known = _nystrom(omega, seen)
    seen_part = known @ known.T
    rest = loadings @ loadings.T - taken.T @ taken
    room = 1 - np.diag(seen_part)
    wanted = np.diag(rest) + diagonal
    fit = np.sqrt(np.minimum(np.maximum(room, 0) / np.maximum(wanted, 1e-9), 1.0))
    shrink = 1 / np.sqrt(np.maximum(1 - room, 1.0))
    result: Array = rest * fit[:, None] * fit
    result += seen_part * shrink[:, None] * shrink
    np.fill_diagonal(result, 1.0)
    return result


@final
@dataclass(frozen=True, eq=False)
class EquivariantDecoder(AbstractDecoder[Moments]):
    """Mean and covariance from a sketch of cross moments, by a learned prior.

    A noisy (private) sketch is decoded by plain Nyström, and so is one of more than
    ``LEARNED_FEATURES`` features: the weights have been trained neither on noise nor
    on so many, and attention takes time and memory by the square of their number.

    Parameters
    ----------
    network : FrozenPrior
        With trained weights, in evaluation mode.
    clamp, with_doubt : bool
        As in :class:`~sketchlearn.decoders.moments.low_rank.NystromDecoder`.
    """

    network: FrozenPrior
    clamp: bool = True
    with_doubt: bool = False

    @override
    def decode(self, sketch: Sketch | PrivateSketch) -> Decoding[Moments]:
        return decode_moments(
            sketch, self.complete, clamp=self.clamp, with_doubt=self.with_doubt
        )

    def complete(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> AbstractCovariance:
        """Correlations P from P Ω and Ω, both (d, n_columns)."""
        if noise or len(omega) > LEARNED_FEATURES:
            return NystromDecoder().complete(seen, omega, noise)
        return DenseCovariance(self.network(omega, seen))

    def correlate(
        self, seen: NDArray[np.float64], omega: NDArray[np.float64], noise: float
    ) -> NDArray[np.float64]:
        """Correlations P of shape (d, d) from P Ω and Ω, both (d, n_columns)."""
        return self.complete(seen, omega, noise).dense

    @classmethod
    def from_weights(cls, weights: Weights) -> Self:
        """The decoder that weights of kind ``"equivariant"`` belong to."""
        return cls(FrozenPrior(PriorSpec.from_dict(weights.spec), weights.tensors))


def _tokens(n_loadings: int, omega: Array, seen: Array, loadings: Array) -> Array:
    """What is said of each feature: (d, 2 n_loadings + N_SCALARS)."""
    d, columns = omega.shape
    u, s, _ = np.linalg.svd(loadings, full_matrices=False)
    signs = np.where((u**3).sum(axis=0) < 0, -1.0, 1.0)
    keep = min(len(s), n_loadings)
    strongest, spectrum = np.zeros((d, n_loadings)), np.zeros(n_loadings)
    strongest[:, :keep] = (u * signs * s)[:, :keep]
    spectrum[:keep] = s[:keep] / math.sqrt(d)
    explained = np.square(loadings).sum(axis=1)
    energy = np.log1p(np.square(seen).mean(axis=1) * d)
    leverage = np.log(np.square(omega).sum(axis=1) * d / columns + 1e-6)
    share = np.full(d, 5 * columns / d)
    own = np.stack([explained, 0.3 * energy, 0.3 * leverage, share], axis=1)
    shared = [*spectrum, math.log(d) / 5, math.log(columns) / 3]
    return np.hstack([strongest, own, np.tile(shared, (d, 1))])


def _orthonormal(omega: Array, seen: Array) -> tuple[Array, Array]:
    """Columns of Ω made orthonormal, and P Ω along with them."""
    values, vectors = np.linalg.eigh(omega.T @ omega)
    floor = 1e-9 * max(values[-1], 1e-30)
    basis = vectors / np.sqrt(np.maximum(values, floor))
    return omega @ basis, seen @ basis


def _nystrom(omega: Array, seen: Array) -> Array:
    """Loadings L with L Lᵀ = Y (ΩᵀY)⁺ Yᵀ, for orthonormal Ω."""
    core = omega.T @ seen
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    loadings: Array = seen @ (vectors / np.sqrt(np.maximum(values, 1e-4)))
    return loadings


def _shapes(spec: PriorSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a prior by name."""
    width = spec.width
    layers = {
        "inputs": (width, 2 * spec.n_loadings + N_SCALARS),
        "norm": (width,),
        "outputs": (spec.rank + 1, width),
    }
    for index in range(spec.depth):
        block = {
            "norm": (width,),
            "attend": (3 * width, width),
            "mix": (width, width),
            "feed.0": (width,),
            "feed.1": (2 * width, width),
            "feed.3": (width, 2 * width),
        }
        layers |= {f"blocks.{index}.{name}": shape for name, shape in block.items()}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for index in range(spec.depth):
        shapes[f"blocks.{index}.pair_bias"] = (spec.n_heads, N_PAIRS)
    return shapes
