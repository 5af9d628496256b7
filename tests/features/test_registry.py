"""What a description may hold and what its map takes is known before it is built."""

import base64
import copy
import gc
import inspect
import json
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portable.maps import NAMES, built_in_kinds, feature_map
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.activation import ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import build_map
from sketchlearn.features.clipping import clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.cost import MAX_WORK, require_affordable
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.description import encode_description
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.registry import declare, map_class
from sketchlearn.features.table import TableFeatures
from sketchlearn.networks.forward import NetworkSpec, initial_tensors

SPARE = 4 * 2**20
"""Tables and code that every map shares are not counted."""


def described(phi):
    """Description and stored weights of a map."""
    return phi.description, {name: phi.weights()[name] for name in phi.stored_weights}


def drawn(kind, version=2, **fields):
    return {"kind": kind, "version": version, "scaling": None, "stored": [], **fields}


def array(*shape):
    return encode_description(np.random.default_rng(0).uniform(-1, 1, shape))


def waves(kind="fourier", **fields):
    sizes = {"n_features": 300, "sketch_size": 1200, "scale": 1.0, "law": "adapted"}
    return drawn(kind, **{**sizes, "seed": 0, **fields})


def moments(kind="moments", version=2, **fields):
    bits = {"bits": 22} if version == 2 else {}
    return drawn(kind, version, targets=[], reach=32.0, **bits, **fields)


def large(version):
    """Maps of about a million numbers, of every kind that draws or holds some."""
    cross = {"kept": None, "importance": None, "seed": 0}
    quadratic = {"value_bound": 1024.0, "seed": 0, "version": version}
    hashed = {"seed": 0, "value_bound": 1024.0, "version": version}
    planned = {"origin": "declared", "version": version}
    return {
        "fourier": waves(version=version),
        "fourier-wide": waves(version=version, n_features=1, sketch_size=200_000),
        "harmonics": waves("harmonics", version=version, octaves=4),
        "quadratic": drawn(
            "quadratic", n_features=300, sketch_size=600, law="unit", **quadratic
        ),
        "quadratic-gaussian": drawn(
            "quadratic", n_features=50, sketch_size=200, law="gaussian", **quadratic
        ),
        "moments": moments(version=version, n_features=500, order="covariance"),
        "cross-moments": moments(
            "cross-moments", version, n_features=400, n_columns=400, **cross
        ),
        "cross-moments-tall": moments(
            "cross-moments", version, n_features=50_000, n_columns=1, **cross
        ),
        "count-min": drawn("count-min", n_features=20_000, width=9, depth=9, **hashed),
        "count-sketch": drawn(
            "count-sketch", n_features=20_000, width=9, depth=9, **hashed
        ),
        "joint-counts": drawn(
            "joint-counts", n_features=20_000, width=9, depth=9, **hashed
        ),
        "bloom-wide": drawn("bloom", n_features=9, width=90_000, depth=9, **hashed),
        "cells": drawn(
            "cells",
            anchors=array(900, 9),
            basis=array(900, 9),
            centre=array(900),
            reach=32.0,
            **planned,
        ),
        "cells-crossed": drawn(
            "cells",
            anchors=array(9, 300),
            basis=array(9, 300),
            centre=array(9),
            reach=32.0,
            n_crossed=300,
            **planned,
        ),
    }


def test_every_map_of_the_library_is_registered_and_has_an_example():
    registered = {map_class(kind) for kind in built_in_kinds()}
    assert registered == set(concrete_maps())
    assert {type(feature_map(name)) for name in NAMES} == registered


def concrete_maps(cls=AbstractFeatureMap):
    """Classes of the library that can be built, registered or not."""
    for child in cls.__subclasses__():
        inside = child.__module__.startswith("sketchlearn.")
        if inside and not inspect.isabstract(child):
            yield child
        yield from concrete_maps(child)


@pytest.mark.parametrize("name", NAMES)
def test_the_declared_sizes_are_those_of_the_map(name):
    phi = feature_map(name)
    description, weights = described(phi)
    cost = declare(description, {name: a.shape for name, a in weights.items()})
    alone = declare(description)

    assert (cost.n_features, cost.sketch_size) == (phi.n_features, phi.sketch_size)
    assert alone.n_features in (None, phi.n_features)
    assert alone.sketch_size in (None, phi.sketch_size)
    assert cost.numbers > phi.sketch_size


def peak_of(call):
    gc.collect()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", large(2))
def test_a_map_takes_no_more_memory_than_it_declares(name, version):
    description = large(version)[name]
    build_map(drawn("fourier", n_features=1, sketch_size=2))  # fills the tables

    def use():
        phi = build_map(description)
        assert len(phi.fingerprint) == 64
        if version == 2:
            phi(np.zeros((1, phi.n_features)))

    assert peak_of(use) <= 8 * declare(description).numbers + SPARE


def stored():
    """Maps of stored weights, and maps that hold others."""
    normal = np.random.default_rng(0).normal
    linear = NetworkSpec(300, 400)
    deep = NetworkSpec(20, 30, kind="resnet", depth=3, width=120, head="tanh")
    units = ActivationFeatures(normal(size=(200, 500)), activation="tanh")
    return {
        "nystrom": NystromFeatures(normal(size=(400, 50))),
        "table": TableFeatures(np.arange(40_000).reshape(400, 100)),
        "counters": CounterFeatures(20_000),
        "clipped": clipped(NystromFeatures(normal(size=(400, 50))), norm_bound=1.0),
        "activation": units,
        "concatenated": ConcatenatedFeatures([units, FourierFeatures(200, 900)]),
        "network-linear": NetworkFeatures(linear, initial_tensors(linear)),
        "network-deep": NetworkFeatures(deep, initial_tensors(deep)),
    }


@pytest.mark.parametrize("name", stored())
def test_a_map_of_stored_weights_takes_no_more_memory_than_it_declares(name):
    phi = stored()[name]
    description, weights = described(phi)
    cost = declare(description, {name: a.shape for name, a in weights.items()})

    def use():
        build_map(description, weights)(np.zeros((1, phi.n_features)))

    assert peak_of(use) <= 8 * cost.numbers + SPARE


def test_the_memory_of_every_registered_map_is_measured():
    measured = {description["kind"] for description in large(2).values()}
    measured |= {phi.kind for phi in stored().values()}
    assert measured == set(built_in_kinds())


def test_the_parts_of_a_map_are_added_up():
    phi = FourierFeatures(30, 40)
    one = declare(phi.description)
    both = declare(ConcatenatedFeatures([phi, phi]).description)
    room = 8 * one.numbers

    assert both.numbers >= 2 * one.numbers
    assert both.work >= 2 * one.work
    assert build_map(phi.description, max_bytes=room) == phi
    with pytest.raises(FeatureMapError, match="max_bytes= larger than"):
        build_map(ConcatenatedFeatures([phi, phi]).description, max_bytes=room)


def test_a_part_of_a_map_may_be_as_large_as_was_asked_for():
    part = {"kind": "moments", "version": 2, "n_features": 3, "order": "mean"}
    whole = {"kind": "concatenated", "version": 2, "parts": [part]}
    assert build_map(whole, max_bytes=2**34).sketch_size == 3


def test_who_allows_more_memory_allows_the_time_it_takes():
    cost = declare(waves(n_features=10**5, sketch_size=10**5))
    assert cost.work > MAX_WORK
    for max_bytes in (2**20, 2**30, 2**34):
        with pytest.raises(FeatureMapError, match="max_bytes= larger than"):
            require_affordable(cost, max_bytes)
    require_affordable(cost, 2**40)


def void(*shape):
    return {"dtype": "<f8", "shape": list(shape), "data": ""}


def deep(levels):
    inner = drawn("fourier", n_features=2, sketch_size=4)
    for _ in range(levels):
        inner = drawn("concatenated", parts=[inner])
    return inner


BOMBS = {
    "seed": waves(seed=void(2**40, 0)),
    "long seed": waves(seed=10**50),
    "scale": waves(scale=void(2**40, 0)),
    "text": waves(n_features="9" * 10_000),
    "true": waves(n_features=True),
    "float": waves(n_features=3.0),
    "negative": waves(n_features=-3),
    "infinite": waves(scale=float("inf")),
    "rows": waves(n_features=10**8),
    "columns": waves(sketch_size=10**10),
    "octaves": waves("harmonics", octaves=10**9),
    "quadratic": drawn("quadratic", n_features=10**9, sketch_size=1, law="chi"),
    "gaussian": drawn("quadratic", n_features=10**4, sketch_size=20, law="gaussian"),
    "count-min": drawn("count-min", n_features=10**8, width=1, depth=10),
    "tables": drawn("count-min", n_features=1, width=1, depth=10**8),
    "buckets": drawn("bloom", n_features=1, width=10**10, depth=1),
    "covariance": moments(n_features=10**6, order="covariance"),
    "unknown order": moments(n_features=10**6, order="kurtosis"),
    "groups": moments("cross-moments", n_features=10**6, n_columns=10**6),
    "bits": {**moments(n_features=2), "bits": 10**9},
    "parts": drawn(
        "concatenated", parts=[waves(n_features=10**3, sketch_size=30_000)] * 40
    ),
    "nested": deep(9),
    "endless": deep(400),
    "no map": drawn("concatenated", parts=[[], 3]),
    "inner": drawn("clipped", norm_bound=1.0, inner=waves(n_features=10**9)),
    "anchors": drawn(
        "cells", anchors=void(2**40, 0), basis=array(1, 1), centre=array(1)
    ),
    "shape": drawn(
        "cells",
        anchors={**array(1, 1), "shape": [2**30, 2**30]},
        basis=array(1, 1),
        centre=array(1),
    ),
    "type": waves(
        scaling={"shift": {**array(2), "dtype": "O"}, "factor": array(2), "origin": "x"}
    ),
    "crossed": drawn(
        "cells",
        anchors=array(1, 1),
        basis=array(1, 1),
        centre=array(1),
        n_crossed=2**40,
    ),
    "depth": drawn(
        "network",
        network={
            "n_inputs": 1,
            "n_outputs": 1,
            "kind": "resnet",
            "depth": 10**9,
            "width": 1,
        },
        model={"name": "no", "checksum": ""},
    ),
    "landmarks": {**drawn("nystrom", scale=1.0), "stored": ["landmarks"]},
    "stored": {**waves(), "stored": ["n_features"]},
    "kind": drawn(["fourier"]),
    "version": {**waves(), "version": True},
    "nothing": [],
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_anything_is_allocated(name):
    weights = {"landmarks": np.zeros((5000, 1)), "n_features": np.zeros(5000)}

    def build():
        with pytest.raises(FeatureMapError) as caught:
            build_map(BOMBS[name], weights)
        assert len(str(caught.value)) < 800

    build()
    assert peak_of(build) < 2**20


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**53, 2**63, 10**40, -(2**63)])
    | st.floats()
    | st.text(max_size=5)
    | st.builds(
        lambda dtype, shape, size: {
            "dtype": dtype,
            "shape": shape,
            "data": base64.b64encode(bytes(size)).decode(),
        },
        st.sampled_from(["<f8", "<f4", "<i8", "|b1", "O"]),
        st.lists(st.integers(-1, 3), max_size=3),
        st.integers(0, 40),
    ),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "seed", "x"]), inside, max_size=3)
    ),
    max_leaves=5,
)


def leaves(value, path=()):
    found = [path] if path else []
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            found += leaves(child, (*path, key))
    return found


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_value_in_any_place_builds_a_map_or_is_refused(draw):
    phi = feature_map(draw.draw(st.sampled_from(NAMES)))
    description, weights = described(phi)
    description = copy.deepcopy(json.loads(json.dumps(description)))
    path = draw.draw(st.sampled_from(leaves(description)))
    parent = description
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = draw.draw(JSON)
    with suppress(FeatureMapError):
        assert build_map(description, weights, max_bytes=2**20).n_features >= 1
