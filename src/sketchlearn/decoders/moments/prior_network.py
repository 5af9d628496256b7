r"""A small network that tells likely correlations from what a sketch says of them.

It treats all features alike (permuting them permutes its output, up to ties in the
order and sign of the sketched directions) and gives a positive definite prior
:math:`P_0 = \mathrm{diag}(s) + HH^\top`. Its formula, with all its numbers, is that
which shipped weights were trained with; how is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.covariance.base import Array
from sketchlearn.decoders.moments.prior_update import (
    complete_correlation,
    nystrom_loadings,
    orthonormal,
)
from sketchlearn.files.weights import Weights
from sketchlearn.networks.forward import frozen_tensors, spec_from_dict
from sketchlearn.networks.layers import Affine, Gelu, LayerNorm

__all__ = ["FrozenPrior", "PriorSpec"]

QUERY_ROWS = 256
"""Features whose attention is computed at once; bounds the memory for many."""

N_PAIRS = 4
"""Numbers that are said of a pair of features."""

N_SCALARS = 6
"""Numbers that are said of a feature, beside its loadings."""

UNSEEN = 0.02
"""Least share of a feature's variance that is taken to be unseen."""


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
        omega, seen = orthonormal(omega, seen)
        loadings = nystrom_loadings(omega, seen)
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
