r"""What makes two feature maps the same: description, weights and lattice.

A map is a value: its description and weights never change, and a 256-bit fingerprint
over both decides whether two sketches may meet. What a map does with rows is not known
here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from sketchlearn.features.arguments import require_column_names
from sketchlearn.features.description import (
    VERSION,
    description_digest,
    encode_description,
)
from sketchlearn.features.registry import AbstractRegistered
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import canonical_json

__all__ = ["AbstractIdentified"]

_SPEC_LIMIT = 16 * 2**20
"""Longer descriptions are left out of what sketches remember."""


class AbstractIdentified(AbstractRegistered):
    """A map as far as its identity goes."""

    n_features: int
    sketch_size: int
    scaling: Scaling | None
    value_bound: float
    norm_bound: float | None
    frac_bits: int
    version = VERSION
    columns: tuple[str, ...] | None = None
    """Names of the columns the map is planned for, if it says so."""

    has_learned_columns = False
    """Whether it is of rows whose columns were learned from rows."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Constructor arguments as plain values and arrays, without weights."""

    @abstractmethod
    def weights(self) -> dict[str, NDArray[Any]]:
        """Every array the evaluation uses, for the fingerprint."""

    @property
    def stored_weights(self) -> tuple[str, ...]:
        """Names of the weights that :meth:`describe` cannot give back."""
        return self.stored or ()

    def with_columns(self, columns: Sequence[str] | None) -> Self:
        """The same map, planned for columns of these names, in this order.

        Rows that have names are then taken by name, whatever their order, and rows of
        other names are refused; the names are part of the fingerprint. Rows without
        names are taken as they come.

        Parameters
        ----------
        columns : sequence of str, or None
            A name for each feature, all different; None for a map without names.

        Examples
        --------
        >>> from sketchlearn import MomentFeatures
        >>> MomentFeatures(2).with_columns(["age", "bmi"]).columns
        ('age', 'bmi')
        """
        if columns is None and self.columns is None:
            return self
        named = self._copied()
        named.columns = (
            None if columns is None else require_column_names(columns, self.n_features)
        )
        return named

    def of_learned_columns(self) -> Self:
        """The same map for rows whose columns were learned from rows.

        What their numbers mean, and how many there are, keeps a trace of those rows:
        the origin of the map is ``"data"``.

        Examples
        --------
        >>> from sketchlearn import MomentFeatures
        >>> MomentFeatures(2).of_learned_columns().origin
        'data'
        """
        if self.has_learned_columns:
            return self
        traced = self._copied()
        traced.has_learned_columns = True
        return traced

    def _copied(self) -> Self:
        """A copy whose description and fingerprint are computed anew."""
        other = copy(self)
        for cached in ("description", "fingerprint", "spec"):
            vars(other).pop(cached, None)
        return other

    @cached_property
    def description(self) -> dict[str, Any]:
        """JSON-ready description: kind, version, arguments, scaling."""
        scaling = None if self.scaling is None else self.scaling.describe()
        stored = list(self.stored_weights)
        fields = {"kind": self.kind, "version": self.version, **self.describe()}
        fields |= {} if self.columns is None else {"columns": list(self.columns)}
        fields |= {"columns_origin": "data"} if self.has_learned_columns else {}
        encoded = encode_description({**fields, "scaling": scaling, "stored": stored})
        return cast(dict[str, Any], encoded)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over description, weights and lattice, as 64 hex digits."""
        rule: list[Any] = [self.frac_bits, self.value_bound, self.norm_bound]
        rule += [64] if self.version == 1 else []
        return description_digest(self.description, rule, self.weights())

    @cached_property
    def spec(self) -> FeatureSpec:
        """What sketches of this map remember."""
        text = canonical_json(self.description)
        return FeatureSpec(
            text=text if len(text) <= _SPEC_LIMIT else "",
            fingerprint=self.fingerprint,
            n_features=self.n_features,
            sketch_size=self.sketch_size,
            frac_bits=self.frac_bits,
            value_bound=self.value_bound,
            norm_bound=self.norm_bound,
            rounding_bits=self.rounding_bits,
            version=self.version,
        )

    @property
    def rounding_bits(self) -> int:
        """The coarsest lattice a feature is rounded on."""
        return self.frac_bits

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractIdentified):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        shown = {k: v for k, v in self.describe().items() if np.ndim(v) == 0}
        inside = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({inside})"
