"""Maps of version 1: what older files describe, to be read and not to be computed.

Version 1 computed features in floating point. Its maps still tell a decoder what it
needs to know (frequencies, groups, bounds), and their fingerprints are those in the
files, so that sketches of them load, merge with one another and are decoded. Nothing
here evaluates a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import FEATURE_BITS, frac_bits_for
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.cross_moments import CrossMomentFeatures, with_units
from sketchlearn.features.description import decode_description
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.quadratic import QuadraticFeatures

__all__ = ["arguments", "as_written"]

_SLACK = 1 + 2.0**-20
"""float32 cos² + sin² could exceed 1 by a few units in the last place."""

_Facts = dict[str, Any]


def arguments(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments within today's limits, for what version 1 allowed beyond them.

    The values of the file come back in :func:`as_written`.
    """
    if kind in ("moments", "cross-moments"):
        return {"bits": 8}
    if kind == "cells":
        anchors = np.array(fields.get("anchors", 0.0), np.float64)
        reach = fields.get("reach", 32.0)
        return {"anchors": np.clip(anchors, -32.0, 32.0), "reach": min(reach, 1024.0)}
    return {}


def as_written(
    feature_map: AbstractFeatureMap, description: Mapping[str, Any]
) -> AbstractFeatureMap:
    """The map that version 1 wrote, from the one that its description builds today.

    Parameters
    ----------
    feature_map : AbstractFeatureMap
        Built with the same arguments.
    description : mapping
        As in the file.
    """
    bound = feature_map.value_bound
    facts: _Facts = {"frac_bits": frac_bits_for(bound), "value_bound": bound}
    facts["weights"] = feature_map.weights()
    if feature_map.kind in _RULES:
        facts |= _RULES[feature_map.kind](feature_map)
    elif isinstance(feature_map, CellFeatures):
        facts |= _cells(feature_map, decode_description(description))
    weights = facts.pop("weights")
    facts |= {"version": 1, "description": dict(description)}
    facts["weights"] = partial(dict, weights)  # a method that can be pickled
    old = copy(feature_map)
    for name in ("fingerprint", "spec"):
        old.__dict__.pop(name, None)
    old.__dict__.update(facts)
    return old


def _fourier(phi: FourierFeatures) -> _Facts:
    drawn = _frequencies(phi.n_features, phi.sketch_size // 2, phi)
    return {**_pairs(phi), "frequencies": drawn, "weights": {"frequencies": drawn}}


def _harmonics(phi: HarmonicFeatures) -> _Facts:
    first = _frequencies(phi.n_features, phi.sketch_size // (2 * phi.octaves), phi)
    drawn = np.concatenate(
        [first * np.float32(2**j) for j in range(phi.octaves)], axis=1
    )
    angles = np.arange(1024)[:, None] * 2.0 ** np.arange(phi.octaves)
    angles = 2 * np.pi / 1024 * (angles % 1024)
    table = np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
    weights = {"frequencies": drawn, "table": table}
    return {**_pairs(phi), "frequencies": drawn, "weights": weights}


def _pairs(phi: AbstractFeatureMap) -> _Facts:
    return {"norm_bound": (phi.sketch_size / 2) ** 0.5 * _SLACK}


def _frequencies(
    n_features: int, count: int, phi: FourierFeatures | HarmonicFeatures
) -> NDArray[np.float32]:
    rng = np.random.default_rng(phi.seed)
    drawn = rng.standard_normal((n_features, count))
    if phi.law != "gaussian":
        drawn /= np.linalg.norm(drawn, axis=0)
        folded = phi.law == "folded"
        radii = np.abs(rng.standard_normal(count)) if folded else np.empty(0)
        while len(radii) < count:
            gamma = rng.standard_gamma(1.5, 4 * count + 16)
            radii = np.concatenate([radii, 2 * np.sqrt(gamma[gamma >= 2] / 2 - 1)])
        drawn *= radii[:count]
    return (drawn / phi.scale).astype(np.float32)


def _nystrom(phi: NystromFeatures) -> _Facts:
    root = phi.root.astype(np.float32)
    return {"weights": {"landmarks": phi.landmarks, "root": root}}


def _quadratic(phi: QuadraticFeatures) -> _Facts:
    rng, d, m = np.random.default_rng(phi.seed), phi.n_features, phi.sketch_size
    if phi.law == "gaussian":
        pairs = rng.standard_normal((d * (d + 1) // 2, m), np.float32)
        drawn = pairs / np.float32(d**0.5)
    else:
        wide = rng.standard_normal((d, m))
        if phi.law == "unit":
            wide /= np.linalg.norm(wide, axis=0)
        drawn = wide.astype(np.float32)
    return {
        "directions": drawn.astype(np.float64),
        "weights": {"directions": drawn},
    }


def _moments(phi: MomentFeatures) -> _Facts:
    reach = phi.reach
    size, d = phi.sketch_size, phi.n_features
    bits = FEATURE_BITS - int(np.log2(reach))
    return {
        "bits": bits,
        "frac_bits": 2 * bits,
        "norm_bound": (d * reach**2 + (size - d) * reach**4) ** 0.5,
    }


def _cross_moments(phi: CrossMomentFeatures) -> _Facts:
    a, d, reach = len(phi.kept), phi.n_features, phi.reach
    columns = phi.n_columns + len(phi.targets)
    groups = np.zeros((a, phi.n_columns))
    order = np.random.default_rng(phi.seed).permutation(a)
    groups[np.arange(a), order % phi.n_columns] = 1.0
    groups *= phi.importance[:, None]
    shrink = 2.0 ** -int(np.ceil(np.log2(-(-a // phi.n_columns))))
    bits = FEATURE_BITS - int(np.log2(reach))
    return {
        "bits": bits,
        "frac_bits": 2 * bits,
        "norm_bound": (d * reach**2 + (d + a * columns) * reach**4) ** 0.5,
        "omega": with_units(groups * shrink, phi._positions),
        "weights": {"groups": groups},
    }


def _cells(phi: CellFeatures, given: Mapping[str, Any]) -> _Facts:
    anchors = np.array(given["anchors"], np.float32)
    basis = np.array(given["basis"], np.float32)
    centre = np.array(given["centre"], np.float64)
    (d, r), reach = basis.shape, float(given["reach"])
    farthest = np.abs(basis).T @ (reach + np.abs(centre))
    most = float(np.linalg.norm(reach + np.abs(centre)))
    length = min(np.linalg.norm(farthest), np.linalg.norm(basis, 2) * most)
    slack = 1 + max(2.0**-12, d * 2.0**-22)
    bound, square = float(farthest.max()) * slack, (float(length) * slack) ** 2
    norm, fine = 1 + square, 0
    if phi.n_crossed is not None:
        square = min(square, r * 32.0**2)
        bound, norm, fine = min(bound, 32.0) ** 2, 1 + square + square**2, 7
    bound = max(1.0, bound)
    return {
        "value_bound": bound,
        "norm_bound": norm**0.5,
        "frac_bits": frac_bits_for(bound) + fine,
        "reach": reach,
        "anchors": anchors,
        "basis": basis,
        "weights": {"anchors": anchors, "basis": basis, "centre": centre},
    }


def _activation(phi: ActivationFeatures) -> _Facts:
    if phi.norm_bound is None:
        return {}
    return {"norm_bound": phi.matrix.shape[1] ** 0.5 * _SLACK}


def _network(phi: NetworkFeatures) -> _Facts:
    head = phi.network.head is not None
    return {"norm_bound": sqrt(phi.network.n_outputs) if head else None}


def _concatenated(phi: Any) -> _Facts:  # composites are built on this module
    norms = [member.norm_bound for member in phi.members]
    bounded = [norm for norm in norms if norm is not None]
    total = sum(norm**2 for norm in bounded) ** 0.5
    return {
        "frac_bits": max(member.frac_bits for member in phi.members),
        "norm_bound": total if len(bounded) == len(norms) else None,
    }


_RULES: dict[str, Callable[[Any], _Facts]] = {
    "activation": _activation,
    "concatenated": _concatenated,
    "cross-moments": _cross_moments,
    "fourier": _fourier,
    "harmonics": _harmonics,
    "moments": _moments,
    "network": _network,
    "nystrom": _nystrom,
    "quadratic": _quadratic,
}
