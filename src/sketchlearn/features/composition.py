"""Several feature maps side by side, in one sketch and one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import sqrt
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.elementary import sequential_sum
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import build_member
from sketchlearn.features.cost import Cost, Declared
from sketchlearn.features.description import encode_description
from sketchlearn.features.fields import TABLES, Field
from sketchlearn.features.parts import Part

__all__ = ["ConcatenatedFeatures"]
__public__ = ["ConcatenatedFeatures"]


@final
class ConcatenatedFeatures(AbstractFeatureMap):
    r"""The feature vectors of several maps, one after the other.

    .. math::
        \varphi(x) = (\varphi_1(x), \dots, \varphi_n(x))

    Each part is rounded on its own lattice; totals are kept on the finest.

    Parameters
    ----------
    parts : sequence of feature maps
        All for rows of the same width.
    stored : mapping of arrays, optional
        Weights of parts that are given by their descriptions.

    Examples
    --------
    >>> from sketchlearn import FourierFeatures, MomentFeatures
    >>> phi = ConcatenatedFeatures(
    ...     [MomentFeatures(2, order="mean"), FourierFeatures(2, 4)]
    ... )
    >>> phi(np.zeros((1, 2)))
    array([[0., 0., 1., 1., 0., 0.]])
    """

    kind: ClassVar[str] = "concatenated"
    fields: ClassVar[Mapping[str, Field]] = {"parts": TABLES}
    stored: ClassVar[None] = None

    def __init__(
        self,
        parts: Sequence[AbstractFeatureMap | dict[str, Any]],
        *,
        stored: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        given = [build_member(part, i, stored) for i, part in enumerate(parts)]
        self.members = tuple(part.with_columns(None) for part in given)
        widths = {part.n_features for part in self.members}
        if len(widths) != 1:
            raise FeatureMapError(
                "concatenate at least one map, all for rows of the same width; got "
                f"widths {sorted(widths)}."
            )
        bits = [part.frac_bits for part in self.members]
        if max(bits) - min(bits) > 64:
            raise FeatureMapError(
                "the parts have lattices too far apart to share one sketch "
                f"({min(bits)} and {max(bits)} fractional bits). Scale their features "
                "to similar sizes (value_bound), or sketch them separately."
            )
        self.version = common_version(self.members)
        norms = [part.norm_bound for part in self.members]
        bounded = [norm for norm in norms if norm is not None]
        top = max(bounded, default=1.0)
        shares = np.array(bounded) / top
        total = top * sqrt(float(sequential_sum(shares * shares))) * (1 + 2.0**-40)
        super().__init__(
            n_features=widths.pop(),
            sketch_size=sum(part.sketch_size for part in self.members),
            scaling=None,
            value_bound=max(part.value_bound for part in self.members),
            norm_bound=total if len(bounded) == len(norms) else None,
            frac_bits=max(bits),
        )
        named = {part.columns for part in given if part.columns is not None}
        if len(named) > 1:
            raise FeatureMapError(
                "the parts are planned for different columns: plan them for the same, "
                "in the same order."
            )
        self.columns = named.pop() if named else None

    @classmethod
    @override
    def cost_of(cls, given: Declared) -> Cost:
        widths = {member.n_features for member in given.members}
        d = widths.pop() if len(widths) == 1 else None
        m = 0
        for member in given.members:
            if member.sketch_size is None:
                return Cost(d, None, 0, 0)
            m += member.sketch_size
        return Cost(d, m, 4 * m, 10 * m)

    @property
    @override
    def rounding_bits(self) -> int:
        return min(part.rounding_bits for part in self.members)

    @property
    @override
    def stored_weights(self) -> tuple[str, ...]:
        return tuple(
            f"{i}.{name}"
            for i, part in enumerate(self.members)
            for name in part.stored_weights
        )

    @property
    @override
    def widest(self) -> int:
        return self.sketch_size + max(part.widest for part in self.members)

    @override
    def parts(self) -> tuple[Part[AbstractFeatureMap], ...]:
        return tuple(
            part.moved(start)
            for member, start in zip(self.members, self._starts(), strict=True)
            for part in member.parts()
        )

    def _starts(self) -> list[int]:
        """Where the features of each member begin."""
        sizes = [member.sketch_size for member in self.members]
        return list(accumulate(sizes[:-1], initial=0))

    @override
    def describe(self) -> dict[str, Any]:
        return {
            "parts": [encode_description(part.description) for part in self.members]
        }

    @override
    def weights(self) -> dict[str, NDArray[Any]]:
        return {
            f"{i}.{name}": array
            for i, part in enumerate(self.members)
            for name, array in part.weights().items()
        }

    @override
    def evaluate(
        self, rows: NDArray[np.floating], first_row: int = 0
    ) -> NDArray[np.float64]:
        return np.concatenate(
            [part.evaluate(rows, first_row) for part in self.members], axis=1
        )

    @override
    def is_possible_total(self, total: Int128Array, count: int) -> bool:
        for part, start in zip(self.members, self._starts(), strict=True):
            step = 1 << (self.frac_bits - part.frac_bits)
            entries = total.take(start + np.arange(part.sketch_size)).to_ints()
            if any(value % step for value in entries):
                return False
            own = Int128Array.from_ints(value // step for value in entries)
            if not part.is_possible_total(own, count):
                return False
        return True

    @override
    def batch_sum(self, rows: NDArray[np.floating], first_row: int = 0) -> Int128Array:
        sums = (part.batch_sum(rows, first_row) for part in self.members)
        shifts = (self.frac_bits - part.frac_bits for part in self.members)
        return Int128Array.concatenate(
            [total.shifted(bits) for total, bits in zip(sums, shifts, strict=True)]
        )


def common_version(parts: Sequence[AbstractFeatureMap]) -> int:
    """The version of all parts; maps of different versions compute nothing together."""
    versions = {part.version for part in parts}
    if len(versions) > 1:
        raise FeatureMapError(
            "maps of version 1 and 2 cannot be parts of one map: version 1 computes no "
            "more features. Plan all parts anew."
        )
    return versions.pop()
