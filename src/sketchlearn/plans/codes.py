"""What to sketch of rows of zeros and ones to encode them, and how to decode it.

Rows are known to be zeros and ones, so that nothing is read from them to plan: sketches
forget exactly, and can be released. Where classes have sketches of their own, their sum
is the sketch of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import add
from typing import Any, Literal

import numpy as np

from sketchlearn.decoders.autoencoders.base import NOT_BINARY, AbstractAutoencoder
from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.directions import ClassMeans, CodeDirections
from sketchlearn.decoders.autoencoders.linear import LinearAutoencoder
from sketchlearn.decoders.autoencoders.per_class import PerClassAutoencoder
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.moments import Moments
from sketchlearn.decoders.moments.verdicts import left_out_features, require_directions
from sketchlearn.errors import FeatureMapError, RowsError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.scaling import Scaling
from sketchlearn.plans.moments import moment_decoder, plan_second_moments
from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
from sketchlearn.registry import load_model
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "CODE_DECODERS",
    "decode_codes",
    "merged_classes",
    "plan_codes",
    "with_own_map",
]

CODE_DECODERS = ("learned", "pca", "network")

LEARNED_CODES = "autoencoder-codes"
"""Model behind ``decoder="learned"``."""

CONDITIONAL = "autoencoder-ms"
"""Model behind ``decoder="network"``: the paper's."""

_EXACT = 1e-13
"""A variance of zeros and ones is μ(1 - μ) up to so much: rounding of doubles."""


def plan_codes(
    decoder: str,
    n_features: int,
    *,
    sketch_size: int | Literal["auto"] = "auto",
    seed: int = 0,
) -> AbstractFeatureMap:
    """The map to sketch rows of zeros and ones with.

    Parameters
    ----------
    decoder : {"learned", "pca", "network"}
        What the sketch is for: the first two take the same sketches.
    n_features : int
        Entries of a row.
    sketch_size : int or "auto"
        Numbers beside means, as for PCA; "network" has a size of its own.
    seed : int
    """
    if decoder == "network":
        if sketch_size != "auto":
            raise FeatureMapError(
                f"decoder='network' has a sketch of its own size; got sketch_size="
                f"{sketch_size}. Leave it at 'auto'."
            )
        own: AbstractFeatureMap = _model(CONDITIONAL).feature_map(n_features)
        return own
    return plan_second_moments(
        n_features=n_features,
        sketch_size=sketch_size,
        scaling=Scaling.from_bounds(0.0, 1.0, n_features=n_features),
        reach=1.0,
        is_binary=True,
        seed=seed,
    )


def decode_codes(
    decoder: str,
    sketch: Sketch | PrivateSketch,
    n_components: int,
    classes: Mapping[Any, Sketch | PrivateSketch] | None = None,
) -> tuple[AbstractAutoencoder, str | None]:
    """The autoencoder of the rows of a sketch, and what is to be said of it.

    Parameters
    ----------
    decoder : {"learned", "pca", "network"}
        How.
    sketch : Sketch or PrivateSketch
        Made with a map of :func:`plan_codes`.
    n_components : int
        Numbers of a code.
    classes : mapping, optional
        Sketches of classes, of which ``sketch`` is the sum.
    """
    if decoder == "network":
        return _conditional(sketch, n_components, classes), None
    moments = _moments("learned" if decoder == "learned" else "nystrom", sketch)
    _require_binary(moments, sketch)
    require_directions(moments)
    means = None if classes is None else _class_means(classes)
    known = CodeDirections.of_moments(moments, n_components, means)
    part, _ = second_moment_part(sketch.feature_map)
    said = left_out_features(moments, part, standardize=False)
    if decoder == "pca":
        return LinearAutoencoder(known), said
    return _model(LEARNED_CODES).adapted(known), said


def with_own_map(
    decoder: str, sketch: Sketch | PrivateSketch
) -> Sketch | PrivateSketch:
    """A sketch with its map, where a file of it cannot hold the weights of the map."""
    if decoder != "network" or not 1 <= sketch.features.n_features <= _widest():
        return sketch
    own = plan_codes(decoder, sketch.features.n_features)
    return sketch.with_map(own) if sketch.features == own.spec else sketch


def merged_classes(
    sketches: Mapping[Any, Sketch | PrivateSketch],
) -> Sketch | PrivateSketch:
    """The sketch of the rows of all classes."""
    parts = list(sketches.values())
    if all(isinstance(part, PrivateSketch) for part in parts):
        return merge_disjoint(*parts)  # type: ignore[arg-type]
    if any(isinstance(part, PrivateSketch) for part in parts):
        raise RowsError(
            "sketches of some classes are exact and of others released. Release all "
            "of them, or none."
        )
    return reduce(add, parts)


def _conditional(
    sketch: Sketch | PrivateSketch,
    n_components: int,
    classes: Mapping[Any, Sketch | PrivateSketch] | None,
) -> AbstractAutoencoder:
    """The paper's networks, adapted to a dataset or to each of its classes."""
    network: ConditionalAutoencoder = _model(CONDITIONAL)
    d, wanted = sketch.feature_map.n_features, network.spec.n_components
    if n_components != min(wanted, d):
        raise FeatureMapError(
            f"decoder='network' has codes of {wanted} numbers; got n_components="
            f"{n_components}. Pass n_components={wanted}, or another decoder."
        )
    if classes is None:
        return network.adapt(sketch)
    members = [network.adapt(one) for one in classes.values()]
    return PerClassAutoencoder(members, [one.count for one in classes.values()])


def _moments(name: str, sketch: Sketch | PrivateSketch) -> Moments:
    decoder = moment_decoder(name, sketch, rounds_rows=False)
    return decoder.decode(sketch).params


def _class_means(classes: Mapping[Any, Sketch | PrivateSketch]) -> ClassMeans:
    """Means and shares of classes, in the order of the mapping."""
    found = [_moments("nystrom", one) for one in classes.values()]
    counts = np.array([max(one.count, 0.0) for one in found], np.float64)
    means = np.clip(np.stack([one.mean for one in found]), 0.0, 1.0)
    return ClassMeans(means, counts / max(counts.sum(), 1e-300))


def _require_binary(moments: Moments, sketch: Sketch | PrivateSketch) -> None:
    """Refuse a sketch of rows that are not all zeros and ones, where it can tell.

    Of numbers in 0..1, only zeros and ones have a variance of μ(1 - μ).
    """
    is_clipped = any(one.clips for one in sketch.feature_map.parts())
    if isinstance(sketch, PrivateSketch) or is_clipped:
        return
    mean, variances = moments.mean, moments.structure.variances
    other = np.abs(mean * (1 - mean) - variances) > _EXACT
    if not other.any():
        return
    place = int(other.argmax())
    names = sketch.columns
    column = f"feature {place}" if names is None else repr(names[place])
    raise RowsError(
        f"{int(other.sum())} of {len(mean)} features hold other numbers than 0 and 1 "
        f"(the first is {column}). Nothing was added. {NOT_BINARY}"
    )


def _widest() -> int:
    """Most entries of a row that the paper's networks take."""
    return int(_model(CONDITIONAL).spec.n_features)


@cache
def _model(name: str) -> Any:
    return load_model(name)
