"""Named feature maps and their rows, made of whole numbers and powers of two.

Nothing here comes from a generator of NumPy: rows, landmarks and weights are hashes of
their position divided by powers of two, so that they are the same for ever.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import get_args

import numpy as np

from portable.reference import word
from sketchlearn.features.activation import Activation, ActivationFeatures
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.cells import CellFeatures
from sketchlearn.features.clipping import clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.counters import CounterFeatures
from sketchlearn.features.cross_moments import CrossMomentFeatures
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.harmonics import HarmonicFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.joint_counts import JointCountFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.network import NetworkFeatures
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.features.registry import is_built_in, known_kinds, map_class
from sketchlearn.features.scaling import Scaling
from sketchlearn.features.table import TableFeatures
from sketchlearn.networks.forward import NetworkSpec

__all__ = [
    "CROWDED",
    "MAPS",
    "NAMES",
    "Case",
    "built_in_kinds",
    "crowded_rows",
    "exact_rows",
    "feature_map",
    "golden_rows",
    "unscaled",
]


@dataclass(frozen=True)
class Case:
    """A map and what its rows look like.

    ``bits`` and ``limit`` are those of the rounding of scaled rows: a value is refused
    beyond ``limit`` steps of ``2**-bits``. Golden rows have scaled values of magnitude
    up to ``span`` and fit a float32; there are ``count`` of them.
    """

    build: Callable[[], AbstractFeatureMap]
    bits: int
    limit: int
    span: float = 1.0
    count: int = 600


def exact_values(count: int, seed: int, span: float = 1.0, bits: int = 22):
    """Multiples of ``span * 2**-bits`` in [-span, span), hashes of their position."""
    whole = [(word(seed, i) >> (63 - bits)) - 2**bits for i in range(count)]
    return [value / 2**bits * span for value in whole]


def exact_rows(count: int, width: int, seed: int, span: float = 1.0, bits: int = 22):
    """The same as an array of rows."""
    values = exact_values(count * width, seed, span, bits)
    return np.array(values, np.float64).reshape(count, width)


@cache
def golden_rows(name: str) -> np.ndarray:
    """The rows of a map, in its own units."""
    case, phi = MAPS[name], feature_map(name)
    scaled = exact_rows(case.count, phi.n_features, len(name), case.span, bits=14)
    rows = unscaled(phi, scaled)
    rows.flags.writeable = False
    return rows


def unscaled(phi: AbstractFeatureMap, scaled: np.ndarray) -> np.ndarray:
    """Rows whose scaled values these are."""
    if not phi.scalings:
        return scaled
    return phi.scalings[0].shift + scaled / phi.scalings[0].factor


def built_in_kinds() -> list[str]:
    """The kinds of maps that come with the library: each has a case here."""
    return [kind for kind in known_kinds() if is_built_in(map_class(kind))]


@cache
def feature_map(name: str) -> AbstractFeatureMap:
    """The map of this name."""
    return MAPS[name].build()


def _tensors(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Float32 weights in [-1/2, 1/2), positive where they are variances."""
    tensors = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        values = exact_values(int(np.prod(shape)), 100 + seed, 0.5, bits=20)
        array = np.array(values, np.float32).reshape(shape)
        tensors[name.replace("__", ".")] = array
        if name.endswith("running_var"):
            tensors[name.replace("__", ".")] = np.abs(array) + np.float32(0.25)
    return tensors


def _network(
    kind: str, n_in: int, n_out: int, *, width=0, depth=0, head=None, windows=1, **given
):
    spec = NetworkSpec(n_in, n_out, kind, depth, width, head, windows)
    n_in, n_out = n_in // windows, n_out // windows
    parts = ["weight", "bias"]
    if kind == "resnet":
        parts += ["running_mean", "running_var"]

    def affine(name: str, fan_in: int, fan_out: int) -> dict[str, tuple[int, ...]]:
        shapes = {"weight": (fan_out, fan_in), "bias": (fan_out,)}
        return {f"layers__{name}__{part}": shapes[part] for part in shapes}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"layers__{name}__{part}": (width,) for part in parts}

    shapes = affine("last", width or n_in, n_out)
    if depth:
        shapes |= affine("first", n_in, width) | norm("norm")
    for block in range(depth):
        body = f"block{block}__body__"
        shapes |= norm(f"{body}norm")
        shapes |= affine(f"{body}inner", width, width)
        shapes |= affine(f"{body}outer", width, width)
    return NetworkFeatures(spec, _tensors(**shapes), **given)


def _symmetric(points: np.ndarray) -> np.ndarray:
    """Points and their mirror images: their middle is the origin."""
    return np.concatenate([points, -points])


def _activation(name: str) -> Case:
    wave = name in ("fourier", "cos", "sin")
    return Case(
        lambda: ActivationFeatures(exact_rows(3, 7, 31, 2.0), activation=name),
        bits=18,
        limit=2**52 if wave else 2**28,
        span=8.0,
    )


def _cells(**given):
    return CellFeatures(
        exact_rows(5, 2, 41, 2.0, bits=18),
        basis=exact_rows(4, 2, 42, 0.75, bits=18),
        centre=exact_values(4, 43, 0.5),
        **given,
    )


_BOX = Scaling.from_bounds([0.0, -4.0, 10.0, 1.0], [8.0, 4.0, 13.0, 1.5])
_UNEVEN = Scaling(np.array([0.1, -0.3, 7.0]), np.array([0.3, 1.7, 0.01]))

MAPS: dict[str, Case] = {
    "fourier": Case(lambda: FourierFeatures(3, 16, seed=7), 17, 2**52, 4.0),
    "fourier-folded": Case(
        lambda: FourierFeatures(4, 10, scale=0.3, law="folded", scaling=_BOX),
        19,
        2**52,
    ),
    "fourier-adapted": Case(
        lambda: FourierFeatures(5, 12, scale=3.0, law="adapted", seed=-3),
        16,
        2**52,
        64.0,
    ),
    "fourier-uneven": Case(
        lambda: FourierFeatures(3, 8, scale=1e-3, scaling=_UNEVEN), 27, 2**52
    ),
    "fourier-wide": Case(
        lambda: FourierFeatures(784, 200, scale=28.0, seed=1), 17, 2**52, 1.0, 120
    ),
    "fourier-far": Case(
        lambda: FourierFeatures(40, 30, seed=2), 19, 2**52, 2.0**23, 60
    ),
    "nystrom": Case(
        lambda: NystromFeatures(
            _BOX.shift + _symmetric(exact_rows(3, 4, 51)) / _BOX.factor,
            scale=0.75,
            root=exact_rows(6, 6, 52, 8.0),
            scaling=_BOX,
        ),
        17,
        2**24,
    ),
    "quadratic-chi": Case(lambda: QuadraticFeatures(4, 6), 24, 2**34, 4.0),
    "quadratic-unit": Case(
        lambda: QuadraticFeatures(4, 6, law="unit", value_bound=2.0, scaling=_BOX),
        24,
        2**34,
        0.5,
    ),
    "quadratic-gaussian": Case(
        lambda: QuadraticFeatures(5, 7, law="gaussian", seed=5), 24, 2**34, 4.0
    ),
    "quadratic-wide": Case(
        lambda: QuadraticFeatures(64, 100, seed=2), 24, 2**34, 1.0, 200
    ),
    "quadratic-gaussian-wide": Case(
        lambda: QuadraticFeatures(30, 50, law="gaussian", value_bound=4096.0),
        24,
        2**34,
        8.0,
        200,
    ),
    "moments-mean": Case(lambda: MomentFeatures(3, order="mean"), 22, 2**27, 32.0),
    "moments-variance": Case(
        lambda: MomentFeatures(4, order="variance", reach=1.0, scaling=_BOX), 22, 2**22
    ),
    "moments-covariance": Case(
        lambda: MomentFeatures(4, reach=64.0, bits=34, targets=[1]), 34, 2**40, 64.0
    ),
    "moments-wide": Case(lambda: MomentFeatures(100), 22, 2**27, 32.0, 520),
    "cross-moments": Case(
        lambda: CrossMomentFeatures(
            7,
            2,
            kept=[0, 1, 3, 4, 5, 6],
            targets=[3, 6],
            importance=[1.0, 0.5, 2.0**-12, 0.25, 1.0, 0.125],
        ),
        22,
        2**27,
        32.0,
    ),
    "cross-moments-few": Case(
        lambda: CrossMomentFeatures(12, 2, targets=[0], bits=30, seed=3),
        30,
        2**35,
        32.0,
    ),
    "cross-moments-wide": Case(
        lambda: CrossMomentFeatures(200, 5), 22, 2**27, 1.0, 520
    ),
    "count-min": Case(lambda: CountMinFeatures(9, width=4, depth=3), 34, 2**44, 64.0),
    "count-sketch": Case(
        lambda: CountSketchFeatures(9, width=4, depth=3, seed=8), 34, 2**44, 64.0
    ),
    "joint-counts": Case(
        lambda: JointCountFeatures(9, width=4, depth=3, seed=8), 34, 2**44, 64.0
    ),
    "bloom": Case(lambda: BloomFeatures(9, width=16, depth=2), 34, 2**44, 64.0),
    "counters": Case(lambda: CounterFeatures(9), 34, 2**44, 64.0),
    "table": Case(
        lambda: TableFeatures(
            [[word(4 * i + j, 5) % 7 - 3 for j in range(4)] for i in range(9)],
            value_bound=1024.0,
        ),
        34,
        2**44,
        16.0,
    ),
    "concatenated": Case(
        lambda: ConcatenatedFeatures(
            [
                MomentFeatures(4, order="variance", reach=1.0, scaling=_BOX),
                FourierFeatures(4, 6, scaling=_BOX),
                QuadraticFeatures(4, 3, scaling=_BOX),
            ]
        ),
        22,
        2**22,
    ),
    # The sum of its three squared norms depends on how floats are summed.
    "concatenated-three": Case(
        lambda: ConcatenatedFeatures([FourierFeatures(1, m) for m in (4, 16, 18)]),
        16,
        2**52,
        4.0,
    ),
    "clipped-fourier": Case(
        lambda: clipped(FourierFeatures(3, 16, seed=7), norm_bound=0.7),
        17,
        2**52,
        4.0,
    ),
    "clipped-quadratic": Case(
        lambda: clipped(QuadraticFeatures(4, 6), norm_bound=3.0), 24, 2**34, 2.0
    ),
    "clipped-moments": Case(
        lambda: clipped(MomentFeatures(4, order="covariance"), norm_bound=1e3),
        22,
        2**27,
        32.0,
    ),
    "network-linear": Case(
        lambda: _network("linear", 5, 4, value_bound=512.0), 20, 2**40, 4.0
    ),
    "network-resnet": Case(
        lambda: _network("resnet", 4, 5, width=6, depth=2, scaling=_BOX), 20, 2**40
    ),
    "network-windows": Case(
        lambda: _network("resnet", 6, 4, width=5, depth=1, windows=2), 20, 2**40, 2.0
    ),
    "network-ternary": Case(lambda: _network("ternary", 6, 4), 20, 2**40, 2.0),
    "network-binary": Case(lambda: _network("binary", 6, 4), 20, 2**40, 2.0),
    "network-resnet-tanh": Case(
        lambda: _network("resnet", 4, 5, width=6, depth=1, head="tanh"), 20, 2**40, 2.0
    ),
    "network-transformer": Case(
        lambda: _network("transformer", 4, 5, width=6, depth=2), 20, 2**40, 2.0
    ),
    "network-outer": Case(
        lambda: _network(
            "transformer", 10, 3, width=5, depth=1, head="sigmoid", inputs="outer"
        ),
        20,
        2**30,
        2.0,
    ),
    "network-wide": Case(
        lambda: _network("transformer", 20, 24, width=32, depth=2), 20, 2**40
    ),
    "cells": Case(_cells, 23, 2**28, 4.0),
    "cells-crossed": Case(lambda: _cells(n_crossed=2, reach=64.0), 19, 2**25, 64.0),
    "cells-wide": Case(
        lambda: CellFeatures(
            exact_rows(40, 6, 44, 2.0),
            basis=exact_rows(50, 6, 45, 0.25),
            centre=exact_values(50, 46, 0.5),
            n_crossed=3,
        ),
        20,
        2**25,
        1.0,
    ),
    "harmonics": Case(
        lambda: HarmonicFeatures(4, 24, scale=0.5, scaling=_BOX), 18, 2**52
    ),
    "harmonics-wide": Case(
        lambda: HarmonicFeatures(100, 120, law="folded", scale=4.0, octaves=4),
        17,
        2**52,
        1.0,
        300,
    ),
    **{f"activation-{name}": _activation(name) for name in get_args(Activation)},
}

NAMES = sorted(MAPS)


_LARGEST = 2**44
"""With so many items to a row, one item is one step of the lattice."""

CROWDED: dict[str, Callable[[], AbstractFeatureMap]] = {
    "table": lambda: TableFeatures(
        [[2**40, 0, 0, 0]] + [[2**39] * 4] * 40, row_items=16
    ),
    "counters": lambda: CounterFeatures(41, row_items=3),
    "count-min": lambda: CountMinFeatures(41, width=1, depth=2, row_items=_LARGEST),
    "count-sketch": lambda: CountSketchFeatures(41, width=1, depth=1, row_items=16),
    "joint-counts": lambda: JointCountFeatures(41, width=1, depth=2, row_items=5),
    "bloom": lambda: BloomFeatures(41, width=64, depth=2, row_items=3),
    "concatenated": lambda: ConcatenatedFeatures(
        [CROWDED["table"](), CROWDED["count-min"](), CROWDED["bloom"]()]
    ),
}
"""A map for each kind that bounds what a row holds: its items meet in few numbers."""


def crowded_rows(phi: AbstractFeatureMap, count: int, seed: int = 0) -> np.ndarray:
    """Rows that hold as much as is allowed, or a little more, in fractions of steps."""
    rng = np.random.default_rng(seed)
    members = [part.feature_map for part in phi.parts()]
    rows = np.zeros((count, phi.n_features))
    for row in rows:
        one = members[rng.integers(len(members))]
        unit, most = 2.0**-one.frac_bits, float(one.row_items)
        held = rng.permutation(phi.n_features)[: rng.integers(1, phi.n_features + 1)]
        parts = rng.choice([0.5000001, 0.5, 0.4999999, 0.75, 1.5], len(held))
        row[held] = parts * unit * rng.choice([1.0, 1.0, 3.0, 2.0**20])
        if rng.random() < 0.3:
            row[held] = most / len(held) * rng.choice([1.0, 1 - 1e-9, 1 + 1e-16])
        elif rng.random() < 0.8:
            row[held[0]] += most - np.abs(row).sum()
        if rng.random() < 0.4:
            row *= rng.choice([-1.0, 1.0], len(row))
        elif rng.random() < 0.5 and getattr(one, "first_signed", None) is not None:
            row *= one.signs[-1]
    return rows
