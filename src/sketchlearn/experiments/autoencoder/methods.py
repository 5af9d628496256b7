"""Every way to code rows by what a sketch knows: the paper's networks, PCA, and ours.

All of them see the training rows only through a sketch: the mean, the mean beside what
a Sketch Network learned to keep (+MS), or second moments. The autoencoder without a
condition sees nothing of them. Dataset-specific autoencoders, which see all rows, are
not here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from typing_extensions import override

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import ConvergenceWarning
from sketchlearn.estimators.autoencoder import CompressiveAutoencoder
from sketchlearn.experiments.autoencoder.base import (
    AbstractMethod,
    AbstractSketchMethod,
    FittedMethod,
)
from sketchlearn.experiments.autoencoder.networks import (
    ClassNetworks,
    PlainNetwork,
    SketchNetwork,
)
from sketchlearn.experiments.autoencoder.sets import CODE_NUMBERS, Bits, Labels
from sketchlearn.registry import list_models
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "AUTOENCODER_METHODS",
    "DRIFTING",
    "OUR_AUTOENCODER",
    "OWN_CODES",
    "PCA_BASELINE",
    "SPECIFIC",
    "TOLD_CLASSES",
    "SketchSize",
    "autoencoder_method",
    "missing_weights",
]

SPECIFIC, PCA_BASELINE, OUR_AUTOENCODER = "specific", "pca", "ours"

AUTOENCODER_METHODS: dict[str, str] = {
    SPECIFIC: "AE",
    "ae": "AE (train: RM)",
    "m": "+M (train: RM)",
    "ms": "+MS (train: RM)",
    "msk": "+MSK (train: RM)",
    "msk-guessed": "+MSK, class not told",
    PCA_BASELINE: "PCA of the sketch",
    OUR_AUTOENCODER: "ours",
    "ours-classes": "ours, per class",
}
"""Labels of all methods by name; those of the paper as its table has them."""

OWN_CODES = ("ae", "m", "ms", "msk", "msk-guessed")
"""Methods whose codes always have the paper's 50 numbers."""

TOLD_CLASSES = ("msk",)
"""Methods that are told the class of each row that they code, as in the paper."""

DRIFTING = ("m", "ms", PCA_BASELINE, OUR_AUTOENCODER)
"""Methods whose sketches are drawn in figures."""

_MODELS = {
    "ae": "autoencoder-ae",
    "m": "autoencoder-m",
    "ms": "autoencoder-ms",
    "msk": "autoencoder-ms",
    "msk-guessed": "autoencoder-ms",
}
"""Weights of the package."""

SketchSize = int | Literal["auto"]


def autoencoder_method(
    name: str,
    *,
    n_components: int = CODE_NUMBERS,
    sketch_size: SketchSize = "auto",
    seed: int = 0,
    weights: str | None = None,
) -> AbstractMethod:
    """A method by its name.

    Parameters
    ----------
    name : str
        One of :data:`AUTOENCODER_METHODS` but the dataset-specific one.
    n_components : int
        Numbers of a code; the paper's networks have their own.
    sketch_size : int or "auto"
        Numbers in the sketch, beside the mean; the paper's networks have their own.
    seed : int
        Of the sketch.
    weights : path, optional
        Folder of weights that the package does not have.
    """
    if name in _MODELS:
        place = _place(name, weights)
        if name == "ae":
            return PlainNetwork(place)
        return ClassNetworks(place) if "k" in name else SketchNetwork(place)
    if name == "ours-classes":
        return _Estimated("learned", n_components, sketch_size, seed)
    decoder: Literal["learned", "pca"] = "pca" if name == PCA_BASELINE else "learned"
    return _EstimatedSketch(decoder, n_components, sketch_size, seed)


def missing_weights(name: str, weights: str | None = None) -> str | None:
    """Why a method cannot run with this package and folder, if it cannot."""
    place = _place(name, weights) if name in _MODELS else None
    at_hand = [None, *(model.name for model in list_models())]
    if place in at_hand or Path(str(place)).is_file():
        return None
    return (
        f"no weights {_MODELS[name]!r} in the package; train them with "
        "sketchlearn train autoencoder-sqnet and pass their folder (--weights)"
    )


def _place(name: str, weights: str | None) -> str:
    """A file of the folder, if it is there, or the name of a model."""
    file = Path(weights or "", f"{_MODELS[name]}.safetensors")
    return str(file) if weights and file.is_file() else _MODELS[name]


@final
@dataclass(frozen=True)
class _Estimated(AbstractMethod):
    """Our estimator with a sketch that knows classes."""

    decoder: Literal["learned", "pca"]
    n_components: int
    sketch_size: SketchSize
    seed: int

    @override
    def fit(self, rows: Bits, labels: Labels) -> FittedMethod:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = _estimator(self).fit(rows, labels)
        return FittedMethod(lambda some, told: fitted.reconstruct(some))


@final
@dataclass(frozen=True)
class _EstimatedSketch(AbstractSketchMethod):
    """Our estimator, or PCA, with one sketch of all rows."""

    decoder: Literal["learned", "pca"]
    n_components: int
    sketch_size: SketchSize
    seed: int

    @override
    def sketch(self, rows: Bits) -> Sketch:
        feature_map = _estimator(self).plan(rows.shape[1])
        return sketch_rows(rows, feature_map, progress=False)

    @override
    def decode(self, sketch: Sketch, n_features: int) -> FittedMethod:
        with warnings.catch_warnings():
            # How bad a sketch that is too small makes it is what is measured here.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = _estimator(self).fit_sketch(sketch)
        return FittedMethod(lambda some, _: fitted.reconstruct(some))


def _estimator(method: _Estimated | _EstimatedSketch) -> CompressiveAutoencoder:
    return CompressiveAutoencoder(
        n_components=method.n_components,
        sketch_size=method.sketch_size,
        decoder=method.decoder,
        random_state=method.seed,
    )
