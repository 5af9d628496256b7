r"""A small network that tells likely correlations from what a sketch says of them.

It treats all features alike (permuting them permutes its output, up to ties in the
order and sign of the sketched directions) and gives a positive definite prior
:math:`P_0 = \mathrm{diag}(s) + HH^\top`. Its formula, with all its numbers, is that
which shipped weights were trained with; how is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.moments.covariance.base import Array
from sketchlearn.decoders.moments.cross_moments import Places
from sketchlearn.decoders.moments.prior_tokens import (
    KERNELS,
    N_PAIRS,
    N_PLACE_PAIRS,
    N_PLACE_SCALARS,
    N_SCALARS,
    QUERY_ROWS,
    SketchReading,
)
from sketchlearn.decoders.moments.prior_update import (
    complete_correlation,
    extend_correlation,
    nystrom_loadings,
    orthonormal,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.fields import COUNT, FLAG, require_fields
from sketchlearn.files.weights import Weights
from sketchlearn.networks.forward import frozen_tensors, spec_from_dict
from sketchlearn.networks.layers import Affine, Gelu, LayerNorm

__all__ = ["FIRST_OUTPUTS", "FrozenPrior", "PriorSpec", "shapes_of"]

FIRST_OUTPUTS = 0.05
"""Spread of the first weights of the last layer."""


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

    ordered: bool = False
    """Whether the order of features is looked at, features that were not seen are
    guessed from their neighbours, and noise is known."""

    def __post_init__(self) -> None:
        require_fields(vars(self), _PRIOR_FIELDS, "the spec of a prior of correlations")
        if self.width % self.n_heads:
            raise FeatureMapError(
                f"n_heads must divide width; got {self.n_heads} and {self.width}."
            )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Build from JSON or TOML values; unknown keys are refused."""
        return spec_from_dict(cls, fields)

    @property
    def n_kernels(self) -> int:
        """Kernels of the distance between features."""
        return self.ordered * (len(KERNELS) + 1)

    @property
    def n_inputs(self) -> int:
        """Numbers that a token begins with."""
        scalars = N_SCALARS + self.ordered * N_PLACE_SCALARS
        return 2 * self.n_loadings + scalars

    @property
    def n_pairs(self) -> int:
        """Numbers that attention sees of a pair."""
        return N_PAIRS + self.ordered * N_PLACE_PAIRS

    @property
    def n_outputs(self) -> int:
        """Numbers that a token ends with: h, a scale, and two weights a kernel."""
        return self.rank + 1 + 2 * self.n_kernels


_PRIOR_FIELDS = {
    **dict.fromkeys(("n_loadings", "width", "depth", "n_heads", "rank"), COUNT),
    "ordered": FLAG,
}


@final
@dataclass(frozen=True, eq=False)
class FrozenPrior:
    r"""Correlations from :math:`Y = P\Omega`: tokens, attention, prior, BFGS.

    Feature i is a token of its Nyström loadings, its communality and the energy of
    its row of Y; attention also sees, for each pair, the sketched correlation and the
    angle between loadings. The output is :math:`h_i` and a scale :math:`t_i`,

    .. math::
        P_0 = T\,(I - \mathrm{diag}\lVert h_i\rVert^2 + hh^\top)\,T .

    A network that looks at the order of features also sees how far apart they stand
    and what :func:`~sketchlearn.decoders.moments.lag_correlations.lag_correlations`
    reads off the sketch; it adds kernels of the distance,
    :math:`\sum_\tau a_{\tau i}\, a_{\tau j}\, k_\tau(|i - j|)`, to :math:`hh^\top`, and
    others of their kind are the guess that features without room are extended with.

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
        kept = frozen_tensors(self.tensors, shapes_of(self.spec))
        object.__setattr__(self, "tensors", kept)

    def __call__(
        self,
        omega: Array,
        seen: Array,
        *,
        places: Places | None = None,
        noise: float = 0.0,
    ) -> Array:
        """Correlations (d, d) from Ω and P Ω, both (p, n_columns).

        ``places`` are those of the p features among all d; the others are guessed from
        their neighbours. ``noise`` is the standard deviation of that on P Ω.
        """
        places = places or Places(np.arange(len(omega)), len(omega))
        noise /= max(float(np.linalg.norm(omega, axis=0).min()), 1e-30)
        omega, seen = orthonormal(omega, seen)
        reading = SketchReading(
            omega,
            seen,
            nystrom_loadings(omega, seen, noise),
            places=places,
            noise=noise,
            ordered=self.spec.ordered,
        )
        tokens = self._affine("inputs")(reading.tokens(self.spec.n_loadings))
        for block in self._blocks:
            tokens = block(tokens, reading)
        output = self._affine("outputs")(self._norm("norm")(tokens))
        inner = np.ix_(places.seen, places.seen)
        prior = self._prior(output, reading)[inner]
        if not np.isfinite(prior).all():
            raise FeatureMapError(
                "the numbers of this prior overflow: its weights are damaged or "
                "forged. Get the original file, or decode with decoder='nystrom'."
            )
        found = complete_correlation(omega, seen, prior, noise)
        if len(found) == places.count:
            return found
        between = _loadings(output[:, self.spec.rank + 1 + self.spec.n_kernels :])
        guess = reading.with_kernels(between, np.zeros((places.count, 1)))
        return extend_correlation(found, guess, places.seen)

    def _prior(self, output: Array, reading: SketchReading) -> Array:
        """P₀, up to what the sketch leaves room for: (d, d)."""
        rank, last = self.spec.rank, self.spec.rank + 1 + self.spec.n_kernels
        scale = 0.6 * reading.unseen * np.exp(output[:, rank : rank + 1].clip(-3, 3))
        own = _loadings(np.hstack([output[:, :rank], output[:, rank + 1 : last]]))
        correlation = reading.with_kernels(own[:, rank:], own[:, :rank])
        return np.asarray(correlation * scale * scale.T)

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
    pair_bias: NDArray[np.float32]  # (n_heads, n_pairs)
    mix: Affine
    feed: tuple[LayerNorm, Affine, Gelu, Affine]

    def __call__(self, tokens: Array, reading: SketchReading) -> Array:
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
            bias = np.tensordot(self.pair_bias, reading.pairs(rows), axes=1)
            scores = query[:, rows] @ key.mT + bias
            chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
            heads = chances @ value / chances.sum(axis=-1, keepdims=True)
            attended[rows] = heads.transpose(1, 0, 2).reshape(-1, width)
        tokens = tokens + self.mix(attended)
        update = tokens
        for layer in self.feed:
            update = layer(update)
        return tokens + update


def _loadings(numbers: Array) -> Array:
    """Loadings that explain less than all of a variance of one."""
    length = np.sqrt(1 + np.square(numbers).sum(axis=1, keepdims=True))
    return np.asarray(numbers / length)


def shapes_of(spec: PriorSpec) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the tensors of a prior."""
    width = spec.width
    yield from _layer("inputs", width, spec.n_inputs)
    for index in range(spec.depth):
        block = f"blocks.{index}"
        yield from _layer(f"{block}.norm", width)
        yield from _layer(f"{block}.attend", 3 * width, width)
        yield from _layer(f"{block}.mix", width, width)
        yield from _layer(f"{block}.feed.0", width)
        yield from _layer(f"{block}.feed.1", 2 * width, width)
        yield from _layer(f"{block}.feed.3", width, 2 * width)
        yield f"{block}.pair_bias", (spec.n_heads, spec.n_pairs)
    yield from _layer("norm", width)
    yield from _layer("outputs", spec.n_outputs, width)


def _layer(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]
