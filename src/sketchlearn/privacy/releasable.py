"""Which sketches may be released: those whose every row is sure to be bounded.

A release is as private as its norm bound is true, so that nothing here is taken on
trust: not what a header says of a map, nor a bound that the library did not compute,
nor a total that no rows within the bound can have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import lattice_round
from sketchlearn.errors import FeatureMapError, PrivacyError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import rebuild_map
from sketchlearn.features.clipping import clipped
from sketchlearn.features.parts import Part
from sketchlearn.features.registry import is_built_in
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.sketching.sketch import Sketch

__all__ = ["require_releasable"]

_WIDEST_PROBE = 2**16
"""Maps of wider rows are compared on the rows that are sketched only."""


def require_releasable(sketch: Sketch) -> Sketch:
    """A sketch that may be released, with its map, all that it says verified."""
    _require_bounded(sketch)
    feature_map = _rebuilt_map(sketch)
    if any(one.has_learned_columns for one in _maps_in(feature_map)):
        raise PrivacyError(
            "the columns of this sketch were learned from rows, by a BinaryEncoder or "
            "another fitted transformer: which columns there are, and what they mean, "
            "reveals those rows. Nothing was released. Declare the thresholds= and "
            "categories= of all columns, or fit the transformer to a release. Where it "
            "was fitted to public rows, say so: fit(np.asarray(rows))."
        )
    if feature_map.origin != "declared":
        raise PrivacyError(
            "the map of this sketch was planned from rows (scales, landmarks, items or "
            "tables read from data); that reveals them. Declare bounds, or build the "
            "map from public data."
        )
    verified = replace(sketch, source_map=feature_map)
    if not verified.is_possible:
        raise PrivacyError(
            f"{sketch.count} rows within the norm bound cannot have this total: it was "
            "forged or made with a bug. Nothing was released; sketch the rows again."
        )
    if sketch.count and not sketch.lineage:
        raise PrivacyError(
            "the passes over rows inside this sketch are not known (it was made by "
            "hand, or by an older library from thousands of them), so that rows may "
            "have been added twice. "
            "If each was added once, say so: release(sketch.with_new_lineage(), ...)."
        )
    return verified


def _require_bounded(sketch: Any) -> None:
    """Refuse what is no sketch, or one that does not even claim a bound."""
    if isinstance(sketch, PrivateSketch):
        raise PrivacyError("this sketch is released already; decode it as it is.")
    if not isinstance(sketch, Sketch):
        raise PrivacyError(
            f"release takes a sketch, as sketch_rows makes it; got a "
            f"{type(sketch).__name__}."
        )
    spec = sketch.features
    if sketch.pooling != "mean":
        raise PrivacyError(
            f"only sketches pooled by mean are released; this one is pooled by "
            f"{sketch.pooling!r}. Sketch the rows with pooling='mean'."
        )
    if spec.norm_bound is None:
        raise PrivacyError(
            "this sketch has no per-row bound (clip=None). Build it with "
            "clipped(feature_map, norm_bound=S), S fixed before looking at this data; "
            "a bound cannot be added afterwards."
        )
    if spec.version == 1:
        raise PrivacyError(
            "this sketch is of version 1, whose floating-point features could exceed "
            "their norm bound by rounding. Sketch the rows again and release that."
        )


def _rebuilt_map(sketch: Sketch) -> AbstractFeatureMap:
    """The map of a sketch; a header must say the same as the map."""
    spec, at_hand = sketch.features, sketch.source_map
    if at_hand is None and not spec.text:
        raise PrivacyError(
            "where the constants of this map come from is not known: attach the map "
            "with sketch.with_map(feature_map) before releasing."
        )
    built = rebuild_map(spec) if at_hand is None else at_hand
    foreign = [part for part in built.parts() if not _is_ours(part.feature_map)]
    if not _is_ours(built) or any(not part.clips for part in foreign):
        raise PrivacyError(
            "the norm bound of a feature map of your own is your word only. Clip it: "
            "clipped(feature_map, norm_bound=S), and sketch the rows with that."
        )
    if at_hand is not None and spec.text and not built.stored_weights and not foreign:
        built = rebuild_map(spec)
    spec.require_equal(built.spec)
    for part in foreign:
        _require_function_of_a_row(part)
    return built


def _require_function_of_a_row(part: Part[AbstractFeatureMap]) -> None:
    """Refuse a map of a user whose features of a row depend on other rows.

    The rows of the sketch were compared when they were sketched, by this version of
    the library at least; here are others, as far as the map takes them.
    """
    own = part.feature_map
    bounded = clipped(own, norm_bound=part.clips[0].norm_bound)
    for rows in _probes(own):
        try:
            bounded.evaluate(rows.copy())
            features = own.evaluate(rows.copy())
            total = own.batch_sum(rows.copy()).to_ints()
        except FeatureMapError as error:
            raise PrivacyError(f"nothing was released: {error}") from error
        except Exception:  # noqa: S112 # a map may refuse rows that it is not for
            continue
        if total != lattice_round(features, own.frac_bits).sum(axis=0).tolist():
            raise PrivacyError(
                f"{type(own).__name__}.batch_sum gives another total than the features "
                "of evaluate add up to. Nothing was released. Let batch_sum return "
                "sketchlearn.features.base.sum_features(self, rows, first_row)."
            )


def _probes(feature_map: AbstractFeatureMap) -> list[NDArray[np.float64]]:
    """Small batches of rows that have little in common, in the units of the map."""
    d, rng = feature_map.n_features, np.random.default_rng(0)
    if d > _WIDEST_PROBE:
        return []
    spread, bits = rng.random((6, d)), rng.integers(0, 2, (6, d))
    constants = np.outer([0.0, 1.0, 0.5, 1.0], np.ones(d))
    scaled = [constants, spread, bits * 1.0, 2 * spread - 1, -constants, 1e3 * spread]
    scaling = feature_map.scaling
    if scaling is None:
        return scaled
    return [scaling.shift + rows / scaling.factor for rows in scaled]


def _maps_in(feature_map: AbstractFeatureMap) -> list[AbstractFeatureMap]:
    """A map and the plain maps inside of it."""
    return [feature_map, *(part.feature_map for part in feature_map.parts())]


def _is_ours(feature_map: AbstractFeatureMap) -> bool:
    """Whether the library computes these features, and so knows their bounds."""
    return is_built_in(type(feature_map))
