"""What to sketch of rows of zeros and ones to encode them, and how to decode it.

Rows are known to be zeros and ones, so that nothing is read from them to plan: sketches
forget exactly, and can be released. Where classes have sketches of their own, their sum
is the sketch of all rows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import cache, reduce
from operator import add
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.code_network import CodeNetwork
from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.directions import ClassMeans, CodeDirections
from sketchlearn.decoders.autoencoders.linear import LinearAutoencoder
from sketchlearn.decoders.autoencoders.per_class import PerClassAutoencoder
from sketchlearn.decoders.autoencoders.zeros_and_ones import require_binary
from sketchlearn.decoders.moments.centring import second_moment_part
from sketchlearn.decoders.moments.verdicts import left_out_features, require_directions
from sketchlearn.errors import ConvergenceWarning, FeatureMapError, RowsError, TooNoisy
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.scaling import Scaling
from sketchlearn.files.models import is_file_name
from sketchlearn.plans.moments import moment_decoder, plan_second_moments
from sketchlearn.privacy.released import PrivateSketch, merge_disjoint
from sketchlearn.registry import load_model, load_own_model
from sketchlearn.sketching.sketch import Sketch

__all__ = [
    "CODE_DECODERS",
    "code_method",
    "decode_codes",
    "merged_classes",
    "plan_codes",
    "with_own_map",
]

Array: TypeAlias = NDArray[np.float64]
Choice: TypeAlias = str | os.PathLike[str]

CODE_DECODERS = ("learned", "pca", "network")

LEARNED_CODES = "autoencoder-codes"
"""Model behind ``decoder="learned"``."""

CONDITIONAL = "autoencoder-ms"
"""Model behind ``decoder="network"``: the paper's."""


_OWN = {
    CodeNetwork.weights_kind: "learned",
    ConditionalAutoencoder.weights_kind: "network",
}
"""What weights of your own are used as, by their kind."""


def code_method(decoder: Choice) -> str:
    """One of ``CODE_DECODERS``: the one that is named, or that a file has weights of.

    Examples
    --------
    >>> code_method("pca")
    'pca'
    """
    if not is_file_name(decoder):
        return os.fspath(decoder)
    return _OWN[_model(decoder, "").weights_kind]


def plan_codes(
    decoder: Choice,
    n_features: int,
    *,
    sketch_size: int | Literal["auto"] = "auto",
    seed: int = 0,
) -> AbstractFeatureMap:
    """The map to sketch rows of zeros and ones with.

    Parameters
    ----------
    decoder : {"learned", "pca", "network"} or path
        What the sketch is for: the first two take the same sketches.
    n_features : int
        Entries of a row.
    sketch_size : int or "auto"
        Numbers beside means, as for PCA; "network" has a size of its own.
    seed : int
    """
    if code_method(decoder) == "network":
        if sketch_size != "auto":
            raise FeatureMapError(
                f"decoder={str(decoder)!r} has a sketch of its own size; got "
                f"sketch_size={sketch_size}. Leave it at 'auto'."
            )
        own: AbstractFeatureMap = _model(decoder, CONDITIONAL).feature_map(n_features)
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
    decoder: Choice,
    sketch: Sketch | PrivateSketch,
    n_components: int,
    classes: Mapping[Any, Sketch | PrivateSketch] | None = None,
) -> tuple[AbstractAutoencoder, str | None]:
    """The autoencoder of the rows of a sketch, and what is to be said of it.

    Parameters
    ----------
    decoder : {"learned", "pca", "network"} or path
        How.
    sketch : Sketch or PrivateSketch
        Made with a map of :func:`plan_codes`.
    n_components : int
        Numbers of a code.
    classes : mapping, optional
        Sketches of classes, of which ``sketch`` is the sum.
    """
    method = code_method(decoder)
    if method == "network":
        return _conditional(decoder, sketch, n_components, classes), None
    require_binary(sketch)
    name = "learned" if method == "learned" else "nystrom"
    moments = moment_decoder(name, sketch, rounds_rows=False).decode(sketch).params
    try:
        require_directions(moments)
    except TooNoisy as error:
        raise TooNoisy(
            "no direction of the rows stands out of the noise of this release. Release "
            "more rows, fewer columns, or with a larger epsilon."
        ) from error
    means = None
    if classes is not None:
        means = _class_means(classes, np.clip(moments.mean, 0.0, 1.0))
    known = CodeDirections.of_moments(moments, n_components, means)
    part, _ = second_moment_part(sketch.feature_map)
    said = left_out_features(moments, part, standardize=False)
    if method == "pca":
        seen = None if moments.noise else _unresolved(known)
        return LinearAutoencoder(known), said or seen
    return _model(decoder, LEARNED_CODES).adapted(known), said


def with_own_map(
    decoder: Choice, sketch: Sketch | PrivateSketch
) -> Sketch | PrivateSketch:
    """A sketch with its map, where a file of it cannot hold the weights of the map."""
    if code_method(decoder) != "network":
        return sketch
    widest = _model(decoder, CONDITIONAL).spec.n_features
    if not 1 <= sketch.features.n_features <= widest:
        return sketch
    own = plan_codes(decoder, sketch.features.n_features)
    if sketch.features.origin == "data":  # the weights are declared
        own = own.of_learned_columns()
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
    decoder: Choice,
    sketch: Sketch | PrivateSketch,
    n_components: int,
    classes: Mapping[Any, Sketch | PrivateSketch] | None,
) -> AbstractAutoencoder:
    """The paper's networks, adapted to a dataset or to each of its classes."""
    network: ConditionalAutoencoder = _model(decoder, CONDITIONAL)
    d, wanted = sketch.feature_map.n_features, network.spec.n_components
    if n_components != min(wanted, d):
        raise FeatureMapError(
            f"decoder={str(decoder)!r} has codes of {wanted} numbers; got n_components="
            f"{n_components}. Pass n_components={wanted}, or another decoder."
        )
    if classes is None:
        return network.adapt(sketch)
    members = [network.adapt(one) for one in classes.values()]
    return PerClassAutoencoder(members, [one.count for one in classes.values()])


def _unresolved(known: CodeDirections) -> str | None:
    """Said where codes are of more directions than the sketch saw."""
    d, k = known.directions.shape
    if k <= known.n_seen:
        return None
    return (
        f"the sketch saw {known.n_seen} directions of {d} features, and codes have {k} "
        "numbers: the others are single features, or noise. Use a larger sketch_size, "
        "a smaller n_components, or decoder='learned'."
    )


def _class_means(
    classes: Mapping[Any, Sketch | PrivateSketch], mean: Array
) -> ClassMeans:
    """Means and shares of classes, in the order of the mapping.

    A released class whose number of rows drowns in noise has the mean of all rows.
    """
    means, counts = [], []
    for label, sketch in classes.items():
        try:
            part, where = second_moment_part(sketch.feature_map)
            own = sketch.mean[where][: part.n_features]
            means.append(np.clip((own + 1) / 2, 0.0, 1.0))  # from -1..1
            counts.append(max(float(sketch.count), 1.0))
        except TooNoisy:
            warnings.warn(
                f"class {label!r} has too few rows to stand out of the noise of its "
                "release: it has the means of all rows.",
                ConvergenceWarning,
                stacklevel=4,
            )
            means.append(mean)
            counts.append(1.0)
    shares = np.array(counts)
    return ClassMeans(np.stack(means), shares / shares.sum())


def _model(decoder: Choice, packaged: str) -> Any:
    """The model of a file, or else one of the package."""
    if is_file_name(decoder):
        return load_own_model(decoder, _OWN)
    return _packaged_model(packaged)


@cache
def _packaged_model(name: str) -> Any:
    return load_model(name)
