r"""Sketch-conditional autoencoders: trained once, adapted to a dataset by its sketch.

The weights are learned on other datasets and stay; a new dataset changes the biases of
two layers, which are affine functions of its sketch (paper, section Autoencoders). How
the weights are learned is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from sketchlearn.decoders.autoencoders.adapted import AdaptedAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.decoders.autoencoders.dynamic_bias import DynamicNetwork
from sketchlearn.decoders.autoencoders.zeros_and_ones import NOT_BINARY
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.network import (
    FEATURE_PREFIX,
    ModelReference,
    NetworkFeatures,
    unchanged_model,
)
from sketchlearn.files.weights import AbstractLearned, Weights
from sketchlearn.networks.forward import (
    FrozenNetwork,
    NetworkSpec,
    initial_tensors,
    part_of_tensors,
)
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "ENCODER_PREFIX",
    "RECONSTRUCTION_PREFIX",
    "ConditionalAutoencoder",
]

ENCODER_PREFIX = "encoder."
"""Names of the encoder's tensors in a weights file begin like this."""

FIRST_WEIGHT = "layers.first.weight"
"""Name of the weights of a network that see its inputs."""

RECONSTRUCTION_PREFIX = "decoder."
"""Names of the decoder's tensors in a weights file begin like this."""


@final
@dataclass(frozen=True, eq=False)
class ConditionalAutoencoder(AbstractLearned):
    """Encoder, decoder and Sketch Network with their weights, for any dataset.

    Parameters
    ----------
    spec : ConditionalSpec
        Sizes, and what the condition is.
    tensors : mapping of arrays
        Weights as in a weights file: names of the encoder begin with ``encoder.``,
        those of the decoder with ``decoder.``, those of the Sketch Network with
        ``feature.``. Kept as read-only float32 copies.
    model : ModelReference, optional
        The weights of the package these are.

    Examples
    --------
    >>> from sketchlearn import sketch_rows
    >>> spec = ConditionalSpec(8, 2, "sketch", 1, 16, 4, 1, 16)
    >>> family = ConditionalAutoencoder.initial(spec, seed=0)
    >>> rows = np.eye(6)
    >>> sketch = sketch_rows(family.padded(rows), family.feature_map())
    >>> adapted = family.adapt(sketch, n_features=6)
    >>> adapted.encode(rows).shape, adapted.reconstruct(rows).shape
    ((6, 2), (6, 6))
    """

    weights_kind: ClassVar = "conditional-autoencoder"

    spec: ConditionalSpec
    tensors: Mapping[str, NDArray[np.float32]]
    model: ModelReference | None = None

    def __post_init__(self) -> None:
        kept = {
            prefix + name: array
            for prefix, network in self.networks.items()
            for name, array in network.tensors.items()
        }
        if len(kept) != len(self.tensors):
            raise FeatureMapError(
                "these weights hold tensors that belong to no part of a conditional "
                "autoencoder. Use the tensors and the spec of one weights file."
            )
        object.__setattr__(self, "tensors", kept)

    @classmethod
    def initial(cls, spec: ConditionalSpec, seed: int = 0) -> Self:
        """Fresh weights to train from; same seed, same weights."""
        tensors = {}
        for place, (prefix, network) in enumerate(_specs(spec).items()):
            own = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
            for name, array in initial_tensors(network, own).items():
                tensors[prefix + name] = array
        return cls(spec, tensors)

    @cached_property
    def networks(self) -> dict[str, FrozenNetwork]:
        """The networks by the prefix of their tensors."""
        found = {}
        for prefix, spec in _specs(self.spec).items():
            part = part_of_tensors(self.tensors, prefix)
            found[prefix] = FrozenNetwork(spec, part)
        return found

    @cached_property
    def encoder(self) -> DynamicNetwork:
        """From rows to codes."""
        return DynamicNetwork(self.networks[ENCODER_PREFIX], self.spec.n_condition)

    @cached_property
    def decoder(self) -> DynamicNetwork:
        """From codes to logits."""
        network = self.networks[RECONSTRUCTION_PREFIX]
        return DynamicNetwork(network, self.spec.n_condition)

    def feature_map(self, n_features: int | None = None) -> AbstractFeatureMap:
        """What to sketch rows with: their mean, and the Sketch Network.

        Squares come beside the mean: they are equal for zeros and ones, and for no
        other rows.

        Parameters
        ----------
        n_features : int, optional
            Entries of a row; as many as the weights have by default. Fewer are taken as
            padded with zeros, which no weight sees.
        """
        d = self._require_features(n_features or self.spec.n_features)
        mean = MomentFeatures(d, order="variance", reach=1.0)
        if self.spec.sketch is None:
            return mean
        tensors = self.networks[FEATURE_PREFIX].tensors
        if d == self.spec.n_features:
            model = unchanged_model(self.model, tensors)
            learned = NetworkFeatures(self.spec.sketch, tensors, model=model)
            return ConcatenatedFeatures([mean, learned])
        network = replace(self.spec.sketch, n_inputs=d)
        own = {**tensors, FIRST_WEIGHT: tensors[FIRST_WEIGHT][:, :d]}
        return ConcatenatedFeatures([mean, NetworkFeatures(network, own)])

    def padded(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Rows with zeros for the entries they do not have; wider ones are refused."""
        given = np.asarray(rows)
        if given.ndim != 2:
            raise RowsError(f"rows must be a table; got shape {given.shape}.")
        missing = self.spec.n_features - self._require_features(given.shape[1])
        return np.pad(given.astype(np.float64), ((0, 0), (0, missing)))

    def adapt(
        self, sketch: Sketch | PrivateSketch, *, n_features: int | None = None
    ) -> AdaptedAutoencoder:
        """The autoencoder of a dataset, from the sketch of its rows.

        Parameters
        ----------
        sketch : Sketch or PrivateSketch
            Made with :meth:`feature_map`, clipped or not.
        n_features : int, optional
            Entries that the rows had before they were padded; all by default.
        """
        width = self._require_features(sketch.feature_map.n_features)
        own = self.feature_map(width)
        if _fingerprints(sketch.feature_map) != _fingerprints(own):
            raise FeatureMapMismatch(
                f"this sketch ({sketch.features.kind}, {sketch.size} numbers) is not "
                "of the map of this autoencoder. Sketch rows with the feature_map() of "
                "the same model."
            )
        pooled = np.clip(sketch.mean, -own.value_bound, own.value_bound)
        mean, squares, learned = np.split(pooled, [width, 2 * width])
        is_clipped = any(part.clips for part in sketch.feature_map.parts())
        if isinstance(sketch, Sketch) and not is_clipped and (mean != squares).any():
            raise RowsError(NOT_BINARY)
        actual = width if n_features is None else self._require_features(n_features)
        return self.adapted(mean[:actual], learned)

    def adapted(self, mean: ArrayLike, sketch: ArrayLike = ()) -> AdaptedAutoencoder:
        """The autoencoder of a dataset, from the numbers of its sketch.

        Parameters
        ----------
        mean : array of shape (at most n_features,)
            Share of ones of each column; brought into [0, 1] where there is noise.
        sketch : array of shape (sketch_size,)
            Mean of what the Sketch Network gives for the padded rows.
        """
        marginals, learned = (np.array(a, np.float64) for a in (mean, sketch))
        if marginals.ndim != 1 or not len(marginals):
            raise RowsError(
                "mean must be a share of ones for each column; got shape "
                f"{marginals.shape}."
            )
        missing = self.spec.n_features - self._require_features(len(marginals))
        if learned.shape != (self.spec.sketch_size,):
            raise RowsError(
                f"sketch must have shape {(self.spec.sketch_size,)}; got "
                f"{learned.shape}."
            )
        marginals = np.clip(marginals, 0.0, 1.0)
        padded = np.pad(marginals, (0, missing))
        told = [] if self.spec.condition == "none" else [padded, learned]
        condition = np.concatenate([np.zeros(0), *told])
        return AdaptedAutoencoder(self.encoder, self.decoder, marginals, condition)

    def plain(
        self, n_features: int | None = None, *, share: float = 0.5
    ) -> AdaptedAutoencoder:
        """The autoencoder of any dataset, for weights that take no condition.

        Parameters
        ----------
        n_features : int, optional
            Entries of a row; as many as the weights have by default.
        share : float
            Entries with a larger probability are ones.
        """
        if self.spec.condition != "none":
            raise FeatureMapError(
                f"these weights take a condition ({self.spec.condition!r}): give them "
                "one with adapt or adapted."
            )
        width = self.spec.n_features if n_features is None else n_features
        return self.adapted(np.full(width, share))

    @override
    def to_weights(self, card: Mapping[str, Any] | None = None) -> Weights:
        return Weights(self.weights_kind, self.spec.to_dict(), self.tensors, card or {})

    @classmethod
    @override
    def _build(cls, weights: Weights) -> Self:
        model = ModelReference(weights.model, weights.digest) if weights.model else None
        return cls(ConditionalSpec.from_dict(weights.spec), weights.tensors, model)

    def _require_features(self, n_features: int) -> int:
        if not 1 <= n_features <= self.spec.n_features:
            raise RowsError(
                f"rows have {n_features} entries, and this autoencoder takes 1 to "
                f"{self.spec.n_features}. Keep fewer columns."
            )
        return n_features


def _specs(spec: ConditionalSpec) -> dict[str, NetworkSpec]:
    """The networks by the prefix of their tensors."""
    found = {ENCODER_PREFIX: spec.encoder, RECONSTRUCTION_PREFIX: spec.decoder}
    return found if spec.sketch is None else {**found, FEATURE_PREFIX: spec.sketch}


def _fingerprints(feature_map: AbstractFeatureMap) -> list[str]:
    """Of the plain maps inside a map."""
    return [part.feature_map.spec.fingerprint for part in feature_map.parts()]
