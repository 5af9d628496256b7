r"""SQNet: a Sketch Network and a Query Network, trained together.

.. math::
    \hat\theta = \psi_\omega\Big(\frac1N \sum_i \varphi_\omega(x_i)\Big)

:meth:`SQNet.feature_map` and :meth:`SQNet.decoder` are its two halves, for exact
sketches. How ω is learned is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.moments.query_network import QueryNetwork
from sketchlearn.decoders.moments.sketch_prior import SketchPrior
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import random_activations
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.clipping import ClippedFeatures, clipped
from sketchlearn.features.cost import allow_bytes
from sketchlearn.features.network import (
    FEATURE_PREFIX,
    ModelReference,
    NetworkFeatures,
    unchanged_model,
)
from sketchlearn.features.scaling import Origin, Scaling
from sketchlearn.features.table import TableFeatures
from sketchlearn.files.container import MAX_BYTES
from sketchlearn.files.weights import (
    AbstractLearned,
    Weights,
    load_weights,
    save_weights,
    tensors_digest,
)
from sketchlearn.networks.forward import (
    FrozenNetwork,
    NetworkSpec,
    initial_tensors,
    part_of_tensors,
)
from sketchlearn.networks.layers import Scale
from sketchlearn.networks.tables import network_table
from sketchlearn.sqnet_spec import SQNetSpec

__all__ = ["DECODER_PREFIX", "SQNet"]
__public__ = ["SQNet"]

DECODER_PREFIX = "decoder."
"""Names of the Query Network's tensors in a weights file begin like this."""

_CLIPPED_VALUE_BOUND = 2.0**20
"""Of features that are clipped afterwards: far beyond those of scaled rows."""


@final
@dataclass(frozen=True, eq=False)
class SQNet(AbstractLearned):
    """A Sketch Network and a Query Network, with their weights.

    Parameters
    ----------
    spec : SQNetSpec
        Sizes and architectures.
    tensors : mapping of arrays
        Weights of both, as in a weights file: names of the Sketch Network begin with
        ``feature.``, those of the Query Network with ``decoder.``. Kept as read-only
        float32 copies.
    model : ModelReference, optional
        The weights of the package these are, or were before they were trained on.
    prior : SketchPrior, optional
        What its training knows of sketches, for private ones.

    Examples
    --------
    >>> from sketchlearn import sketch_rows
    >>> net = SQNet.initial(SQNetSpec(3, 8, feature={"head": "tanh"}), seed=0)
    >>> sketch = sketch_rows(np.zeros((50, 3)), net.feature_map())
    >>> net.decoder().decode(sketch).params.shape
    (3,)
    """

    weights_kind: ClassVar = "sqnet"

    spec: SQNetSpec
    tensors: Mapping[str, NDArray[np.float32]]
    model: ModelReference | None = None
    prior: SketchPrior | None = None

    def __post_init__(self) -> None:
        kept = {
            prefix + name: array
            for prefix, network in self._networks.items()
            for name, array in network.tensors.items()
        }
        if len(kept) != len(self.tensors):
            raise FeatureMapError(
                "these weights hold tensors that belong to no part of an SQNet."
            )
        object.__setattr__(self, "tensors", kept)
        size = self.spec.sketch_size
        if self.prior is not None and len(self.prior.low) != size:
            raise FeatureMapError(
                f"this prior is one of {len(self.prior.low)} numbers, and the sketch "
                f"has {size}."
            )

    @classmethod
    def initial(cls, spec: SQNetSpec, seed: int = 0) -> SQNet:
        """Fresh weights to train from; same seed, same weights."""
        tensors = {}
        for prefix, network in _specs(spec).items():
            own = 2 * seed + (prefix == DECODER_PREFIX)
            for name, array in initial_tensors(network, own).items():
                tensors[prefix + name] = array
        return cls(spec, tensors)

    @property
    def feature_network(self) -> FrozenNetwork:
        """The Sketch Network."""
        return self._networks[FEATURE_PREFIX]

    @property
    def decoder_network(self) -> FrozenNetwork:
        """The Query Network."""
        return self._networks[DECODER_PREFIX]

    def feature_map(
        self,
        *,
        scaling: Scaling | None = None,
        value_bound: float | None = None,
        origin: Origin = "declared",
    ) -> AbstractFeatureMap:
        """The Sketch Network as a feature map, for exact sketches.

        Sketches of it are pooled with ``sketch_rows(rows, map, pooling=spec.pooling)``.
        That of an RFQNet is its random features, and that of a ternary or binary net a
        table of whole numbers, for rows of at most ``value_bound`` items.

        Parameters
        ----------
        scaling : Scaling, optional
            Applied to rows first.
        value_bound : float, optional
            Largest magnitude of a feature, for networks without a head.
        origin : {"declared", "data"}
            ``"data"`` if it was trained on rows that must stay private.
        """
        if self.spec.random:
            if value_bound is not None:
                raise FeatureMapError(
                    "random features have bounds of their own: leave value_bound out."
                )
            return random_activations(
                self.spec.n_features,
                self.spec.sketch_size,
                scaling=scaling,
                **self.spec.random,
            )
        if self.spec.is_table:
            return self._table(scaling, value_bound, origin)
        return NetworkFeatures(
            self.spec.feature_network,
            self.feature_network.tensors,
            inputs=self.spec.inputs,
            value_bound=value_bound,
            origin=origin,
            model=unchanged_model(self.model, self.feature_network.tensors),
            scaling=scaling,
        )

    def releasable_map(
        self, *, scaling: Scaling | None = None, value_bound: float | None = None
    ) -> ClippedFeatures:
        """The Sketch Network clipped to the S of its training, for private sketches.

        Parameters
        ----------
        scaling, value_bound
            As for :meth:`feature_map`, but with room for far-out rows: these are
            clipped, and refused only beyond 2²⁰ by default.
        """
        if self.prior is None:
            raise FeatureMapError(
                "this SQNet was trained without a norm bound S. Give one of your own: "
                "clipped(net.feature_map(), norm_bound=S)."
            )
        learned = not (self.spec.random or self.spec.is_table)
        if value_bound is None and learned and self.spec.feature_network.head is None:
            value_bound = _CLIPPED_VALUE_BOUND
        plain = self.feature_map(scaling=scaling, value_bound=value_bound)
        return clipped(plain, norm_bound=self.prior.norm_bound)

    def _table(
        self, scaling: Scaling | None, value_bound: float | None, origin: Origin
    ) -> TableFeatures:
        if scaling is not None:
            raise FeatureMapError("a table counts items: leave scaling out.")
        most = self.spec.n_features if value_bound is None else int(value_bound)
        table = network_table(self.feature_network).table
        return TableFeatures(table, row_items=most, origin=origin)

    def decoder(self, *, shrink: bool = True) -> QueryNetwork:
        """The Query Network as a decoder; it refuses sketches of other maps.

        Parameters
        ----------
        shrink : bool
            Whether numbers of a private sketch are shrunk as its noise demands, or only
            clamped to the range of training as in the paper.
        """
        side = self.spec.n_outputs
        symmetric = self.spec.output == "symmetric"
        return QueryNetwork(
            self.decoder_network,
            shape=(side, side) if symmetric else (side,),
            symmetric=symmetric,
            pooling=self.spec.pooling,
            digest=self._digest,
            units=self._units,
            prior=self.prior,
            shrink=shrink,
        )

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        prior = self.prior.to_tensors() if self.prior else {}
        tensors = {**self.tensors, **prior}
        return Weights(self.weights_kind, self.spec.to_dict(), tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> SQNet:
        model = ModelReference(weights.model, weights.digest) if weights.model else None
        tensors, prior = SketchPrior.split(weights.tensors)
        with allow_bytes(MAX_BYTES):  # random features are not in the file
            return cls(SQNetSpec.from_dict(weights.spec), tensors, model, prior)

    def save(
        self, path: str | os.PathLike[str], *, card: Mapping[str, Any] | None = None
    ) -> None:
        """Write spec, tensors and model card to a file, all of it or nothing."""
        save_weights(self.to_weights(card), path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, checksum: str | None = None
    ) -> SQNet:
        """Read what :meth:`save` wrote; no code of the file is ever run."""
        return cls.from_weights(load_weights(path, checksum=checksum))

    @property
    def _digest(self) -> str:
        """What tells sketches of the feature map from others."""
        if self.spec.random or self.spec.is_table:
            return tensors_digest(self.feature_map().weights())
        return tensors_digest(self.feature_network.tensors)

    @property
    def _units(self) -> Scale | None:
        """From the whole numbers of a table to what the Query Network has learned."""
        if not self.spec.is_table:
            return None
        found = network_table(self.feature_network)
        return Scale(found.scales, found.bias)

    @cached_property
    def _networks(self) -> dict[str, FrozenNetwork]:
        found = {}
        for prefix, spec in _specs(self.spec).items():
            part = part_of_tensors(self.tensors, prefix)
            found[prefix] = FrozenNetwork(spec, part)
        return found


def _specs(spec: SQNetSpec) -> dict[str, NetworkSpec]:
    """The networks that are learned by the prefix of their tensors."""
    feature = {} if spec.random else {FEATURE_PREFIX: spec.feature_network}
    return {**feature, DECODER_PREFIX: spec.decoder_network}
