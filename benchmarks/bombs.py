"""Bombs: files of a few hundred bytes, and calls, that speak of gigabytes or of years.

Each must be refused from its description alone, before anything is allocated.
"""

import json

import numpy as np
import scipy.sparse as sp
from forgery import join, make_counts, make_private, split

import sketchlearn as sl
from sketchlearn.features.activation import random_activations
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import Weights, encode_weights


def map_file(fields, tensors=None):
    """A map file that says of itself what it likes."""
    description = {"version": 2, "scaling": None, "stored": [], **fields}
    header, payload = {"__metadata__": {"format": "sketchlearn-map"}}, b""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    header["__metadata__"] |= {"version": str(description["version"])}
    header["__metadata__"] |= {"feature_map": "sha256:" + "0" * 64, "description": text}
    for name in sorted(tensors or {}):
        array, start = tensors[name], len(payload)
        payload += array.tobytes()
        kind = {"float32": "F32", "float64": "F64"}[str(array.dtype)]
        offsets = [start, len(payload)]
        shape = list(array.shape)
        header[name] = {"data_offsets": offsets, "dtype": kind, "shape": shape}
    return join(header, payload)


def bombs():
    """Small files that speak of huge maps, by name."""
    void = {"dtype": "<f8", "shape": [2**40, 0], "data": ""}
    fourier = {"kind": "fourier", "n_features": 2, "sketch_size": 4, "scale": 1.0}
    fourier |= {"law": "gaussian", "seed": 0}
    part = {**fourier, "version": 2, "scaling": None, "stored": []}
    wide = {**part, "n_features": 1000, "sketch_size": 60_000}
    quadratic = {"kind": "quadratic", "value_bound": 1024.0, "seed": 0, "law": "chi"}
    hashed = {"kind": "count-min", "seed": 0, "value_bound": 1.0}
    cross = {"kind": "cross-moments", "n_columns": 1, "targets": [1], "seed": 0}
    cross |= {"kept": None, "importance": None, "reach": 32.0}
    net = {"kind": "network", "inputs": "rows", "value_bound": None, "digest": ""}
    net |= {"origin": "declared", "model": None, "stored": ["x"]}
    sizes = {"n_inputs": 1, "n_outputs": 1, "kind": "resnet", "width": 1}
    one = {"x": np.zeros(1, np.float32)}
    marks = {"landmarks": np.zeros((5000, 1))}
    nested = part
    for _ in range(9):
        nested = {"kind": "concatenated", "version": 2, "parts": [nested]}
    return {
        "seed array": map_file({**fourier, "seed": void}),
        "scale array": map_file({**fourier, "scale": void}),
        "fourier": map_file({**fourier, "n_features": 10**6, "sketch_size": 10**6}),
        "fourier time": map_file({**fourier, "n_features": 10**8, "sketch_size": 2}),
        "huge size": map_file({**fourier, "n_features": 10**300}),
        "harmonics": map_file({**fourier, "kind": "harmonics", "octaves": 10**9}),
        "quadratic": map_file({**quadratic, "n_features": 10**9, "sketch_size": 1}),
        "gaussian": map_file(
            {**quadratic, "law": "gaussian", "n_features": 10**4, "sketch_size": 20}
        ),
        "count-min": map_file({**hashed, "n_features": 10**8, "width": 1, "depth": 10}),
        "count-min depth": map_file(
            {**hashed, "n_features": 1, "width": 1, "depth": 10**7}
        ),
        "covariance": map_file(
            {"kind": "moments", "n_features": 10**6, "order": "covariance"}
        ),
        "bits": map_file({"kind": "moments", "n_features": 2, "bits": 10**9}),
        "cross of version 1": map_file({**cross, "n_features": 10**9, "version": 1}),
        "groups": map_file({**cross, "n_features": 10**6, "n_columns": 10**6}),
        "concatenated": map_file({"kind": "concatenated", "parts": [wide] * 100}),
        "nested": map_file({"kind": "concatenated", "parts": [nested]}),
        "clipped": map_file(
            {"kind": "clipped", "norm_bound": 1.0, "inner": {**wide, "seed": void}}
        ),
        "network": map_file({**net, "network": {**sizes, "depth": 10**9}}, one),
        "network width": map_file(
            {**net, "network": {**sizes, "depth": 1, "width": 10**6}}, one
        ),
        "landmarks without root": map_file(
            {"kind": "nystrom", "shift": 1.0, "scale": 1.0, "stored": ["landmarks"]},
            marks,
        ),
        "void anchors": map_file(
            {"kind": "cells", "anchors": void, "basis": void, "centre": void}
        ),
        "wide basis": map_file(
            {"kind": "cells", "reach": 1.0, "origin": "declared", "n_crossed": 10**9}
        ),
    }


def count_bombs():
    """Packed sketches that speak of more counts than they hold."""
    files = {}
    for bits in (1, 64):
        header, payload = split(sl.dumps(make_counts()[0]))
        fields = header["__metadata__"]
        described = json.loads(fields["description"]) | {"width": 2**22, "depth": 4}
        text = json.dumps(described, sort_keys=True, separators=(",", ":"))
        fields |= {"description": text, "dim": str(2**24), "bits": str(bits)}
        files[f"counts of {bits} bits"] = join(header, payload)
    return files


def statement_bombs():
    """Releases whose statements speak of powers of two that fill the memory."""
    files = {}
    for bits in (10**6, 10**9, -(10**9)):
        header, payload = split(sl.dumps(make_private()[-4]))
        fields = header["__metadata__"]
        statement = {**json.loads(fields["privacy"]), "frac_bits": bits}
        fields["privacy"] = json.dumps(statement, sort_keys=True, separators=(",", ":"))
        files[f"frac_bits {bits}"] = join(header, payload)
    return files


def weights_bombs():
    """Weights of every model of the package whose sizes are others, and few tensors."""
    files = {}
    for model in sl.list_models():
        weights = packaged_weights(model.name)
        few = {k: a[:0] for k, a in list(weights.tensors.items())[:1] if a.ndim}
        for field in weights.spec:
            for value in (2**24, 2**40, 2**63):
                spec = {**weights.spec, field: value}
                forged = encode_weights(Weights(weights.kind, spec, few))
                files[f"{model.name} {field} {value}"] = forged
    return files


def call_bombs():
    """Calls with sizes that no machine has, by name."""
    huge, unit = 2**47, {"bounds": (0, 1)}
    sizes = {"width": 10, "depth": 3}
    wide = sp.csr_array((np.ones(2), ([0, 1], [5, 10**9 - 1])), shape=(2, 10**9))
    marks = np.random.default_rng(0).normal(size=(20_000, 2))
    fitted = sl.CompressivePCA(1, **unit).fit(np.eye(2))
    plans = {
        "k-means": sl.CompressiveKMeans(2, **unit, sketch_size=10**9),
        "PCA": sl.CompressivePCA(2, **unit, sketch_size=10**10),
        "mixture": sl.CompressiveGaussianMixture(2, **unit, sketch_size=10**9),
    }
    return {
        "fourier": lambda: sl.FourierFeatures(10**6, 10**3),
        "harmonics": lambda: sl.HarmonicFeatures(10**6, 1200),
        "quadratic": lambda: sl.QuadraticFeatures(10**6, 10**3),
        "gaussian": lambda: sl.QuadraticFeatures(10**4, 10**3, law="gaussian"),
        "moments": lambda: sl.MomentFeatures(10**6),
        "cross moments": lambda: sl.CrossMomentFeatures(10**6, 10**4),
        "activations": lambda: random_activations(10**6, 10**4),
        "landmarks": lambda: sl.NystromFeatures(marks),
        "counters": lambda: sl.CounterFeatures(huge),
        "packed": lambda: sl.pack_counters(np.eye(9), sketch_size=10**9, max_rows=5),
        "Bloom": lambda: sl.BloomFeatures(10**9, width=10, depth=10**3),
        "ids": lambda: sl.sketch_items([1, 2, 3], sl.CountMinFeatures(huge, **sizes)),
        "counts": lambda: sl.FrequencyEstimator(huge, sketch_size=120).fit([1, 2, 3]),
        "members": lambda: sl.MembershipEstimator(huge, sketch_size=120).fit([1, 2]),
        "sparse rows": lambda: sl.sketch_rows(wide, sl.MomentFeatures(2)),
        "sparse fit": lambda: sl.CompressivePCA(1, **unit).fit(wide),
        "sparse transform": lambda: fitted.transform(wide),
        **{f"plan of {n}": lambda one=one: one.plan(10**5) for n, one in plans.items()},
    }
