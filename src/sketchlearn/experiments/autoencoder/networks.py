"""The paper's networks, with weights of the package: AE, +M, +MS and +MSK.

Rows of fewer columns than the networks have are taken as padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.per_class import PerClassAutoencoder
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.experiments.autoencoder.base import (
    AbstractMethod,
    AbstractSketchMethod,
    FittedMethod,
)
from sketchlearn.experiments.autoencoder.sets import Bits, Labels
from sketchlearn.files.weights import load_weights
from sketchlearn.registry import load_model
from sketchlearn.sketching.sketch import Sketch

__all__ = ["ClassNetworks", "PlainNetwork", "SketchNetwork"]


@final
@dataclass(frozen=True)
class PlainNetwork(AbstractMethod):
    """The paper's AE, trained once; the threshold is that of the marginals, as ever."""

    model: str

    @override
    def fit(self, rows: Bits, labels: Labels) -> FittedMethod:
        adapted = _network(self.model).adapted(rows.mean(axis=0))
        return FittedMethod(lambda some, _: adapted.reconstruct(some))


@final
@dataclass(frozen=True)
class SketchNetwork(AbstractSketchMethod):
    """The paper's +M or +MS."""

    model: str

    @override
    def sketch(self, rows: Bits) -> Sketch:
        feature_map = _network(self.model).feature_map(rows.shape[1])
        return sketch_rows(rows, feature_map, progress=False)

    @override
    def decode(self, sketch: Sketch, n_features: int) -> FittedMethod:
        adapted = _network(self.model).adapt(sketch)
        return FittedMethod(lambda some, _: adapted.reconstruct(some))


@final
@dataclass(frozen=True)
class ClassNetworks(AbstractMethod):
    """The paper's +MSK: +MS with a sketch for each class."""

    model: str

    @override
    def fit(self, rows: Bits, labels: Labels) -> FittedMethod:
        network, own = _network(self.model), SketchNetwork(self.model)
        found, counts = np.unique(labels, return_counts=True)
        members = [network.adapt(own.sketch(rows[labels == one])) for one in found]
        fitted = PerClassAutoencoder(members, counts)

        def reconstruct(some: Bits, told: Labels | None) -> NDArray[np.bool_]:
            places = None if told is None else np.searchsorted(found, told)
            codes = fitted.encode(some.astype(np.float64), places)
            return np.asarray(fitted.decode(codes) > 0)

        return FittedMethod(reconstruct)


@lru_cache(maxsize=2)
def _network(model: str) -> Any:
    """A model of the package or a file, kept for the next set."""
    if model.endswith(".safetensors"):
        return ConditionalAutoencoder.from_weights(load_weights(model))
    return load_model(model)
