"""Feature maps once more: slow, in Python integers and fractions, from the formulas.

Sums are sums of Python integers and roundings are those of fractions, half to even.
What the library computes in single float64 operations is computed in Python floats
here; true cosines, exponentials and logarithms come from mpmath with 40 digits. A map
gives its parameters and weights, and nothing that it computes.
"""

import math
import struct
from fractions import Fraction
from functools import cache
from itertools import count

import mpmath

__all__ = ["features", "mp", "norm_squared", "total", "word"]

mp = mpmath.mp.clone()
"""A context of its own, so that others keep their digits."""

mp.dps = 40

GOLDEN = 0x9E3779B97F4A7C15
WORD = 2**64


# Draws


def mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def hashed(key: int, seed: int) -> int:
    """64 bits for a key: splitmix64 started at the mixed seed."""
    start = mix(seed * GOLDEN % WORD) if seed else 0
    return mix((key + start + GOLDEN) % WORD)


def word(seed: int, index: int) -> int:
    """The word at a place of the stream of a seed."""
    return hashed(index * GOLDEN % WORD, seed)


class Stream:
    """The draws of a seed, in the order the library takes them."""

    def __init__(self, seed: int) -> None:
        self.seed, self.place = seed, count()

    def words(self, n: int) -> list[int]:
        return [word(self.seed, next(self.place)) for _ in range(n)]

    def uniform(self, n: int) -> list[Fraction]:
        """Odd multiples of ``2**-53``."""
        return [Fraction(2 * (w >> 12) + 1, 2**53) for w in self.words(n)]

    def normal(self, n: int) -> list[mp.mpf]:
        """Pairs sqrt(-2 ln u) (cos, sin)(2 pi v), all u before all v."""
        half = (n + 1) // 2
        radii = [mp.sqrt(-2 * mp.log(real(u))) for u in self.uniform(half)]
        values = []
        for radius, turn in zip(radii, self.uniform(half), strict=True):
            values.append(radius * mp.cospi(2 * real(turn)))
            values.append(radius * mp.sinpi(2 * real(turn)))
        return values[:n]

    def matrix(self, rows: int, columns: int) -> list[list[mp.mpf]]:
        """Standard normal, row by row."""
        values = self.normal(rows * columns)
        return [values[i * columns : (i + 1) * columns] for i in range(rows)]

    def directions(self, rows: int, columns: int) -> list[list[mp.mpf]]:
        """Columns of norm 1."""
        drawn = self.matrix(rows, columns)
        norms = [mp.sqrt(sum(v * v for v in c)) for c in zip(*drawn, strict=True)]
        return [[v / n for v, n in zip(row, norms, strict=True)] for row in drawn]

    def permutation(self, n: int) -> list[int]:
        """Places sorted by their words."""
        words = self.words(n)
        return sorted(range(n), key=lambda i: words[i])


def frequencies(d: int, h: int, law: str, seed: int) -> list[list[mp.mpf]]:
    """Random frequencies of unit scale, in radians, shape (d, h)."""
    stream = Stream(seed)
    if law == "gaussian":
        return stream.matrix(d, h)
    directions = stream.directions(d, h)
    if law == "folded":
        radii = [abs(v) for v in stream.normal(h)]
    else:
        radii = []
        while len(radii) < h:
            tries = 4 * h + 16
            halves = [v * v / 2 for v in stream.normal(tries)]
            logs = [mp.log(real(u)) for u in stream.uniform(tries)]
            gammas = [a - b for a, b in zip(halves, logs, strict=True)]
            radii += [2 * mp.sqrt(g / 2 - 1) for g in gammas if g >= 2]
    return [[v * r for v, r in zip(row, radii, strict=False)] for row in directions]


# Numbers


def real(value) -> mp.mpf:
    """A fraction, integer or float with 40 digits."""
    exact = Fraction(value)
    return mp.mpf(exact.numerator) / exact.denominator


def nearest(value) -> int:
    """The nearest integer to a number of mp."""
    return int(mp.nint(value))


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def floor_log2(value) -> int:
    exponent = math.frexp(value)[1] - 1
    assert power(exponent) <= Fraction(value) < power(exponent + 1)
    return exponent


def ceil_log2(value) -> int:
    return floor_log2(value) + (Fraction(value) != power(floor_log2(value)))


def plain(array) -> list:
    """Nested lists of Python numbers."""
    return array.tolist()


def whole(array) -> list:
    """A matrix of whole numbers as integers."""
    rows = plain(array)
    assert all(value == int(value) for row in rows for value in row)
    return [[int(value) for value in row] for row in rows]


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def times(row: list[int], matrix: list[list[int]]) -> list[int]:
    """A row times a matrix of shape (d, m)."""
    return [dot(row, column) for column in zip(*matrix, strict=True)]


def as_float(value: int) -> int:
    """Products beyond ``2**53`` are rounded once, to the nearest float64."""
    return int(float(value))


def scaled(phi, row: list[float]) -> list[float]:
    """(x - shift) factor, in float64."""
    if phi.scaling is None:
        return [float(x) for x in row]
    shift, factor = plain(phi.scaling.shift), plain(phi.scaling.factor)
    return [(float(x) - s) * f for x, s, f in zip(row, shift, factor, strict=True)]


def steps(values, bits: int) -> list[int]:
    """Nearest multiples of ``2**-bits``, half to even."""
    return [round(Fraction(value) * power(bits)) for value in values]


def lower(row):
    """The products of a row, lower triangle row by row."""
    return [row[p] * row[q] for p in range(len(row)) for q in range(p + 1)]


def norm_squared(values: list[int]) -> int:
    return sum(value * value for value in values)


# Waves


@cache
def cosine(point: int) -> int:
    """Cosine of a grid point of 2**16 in a turn, in steps of 2**-22."""
    return nearest(2**22 * mp.cospi(real(Fraction(point, 2**15))))


def sine(point: int) -> int:
    return cosine((point - 2**14) % 2**16)


def waves(q: list[int], frequencies, phase_bits: int, octaves: int = 1) -> list[int]:
    """Cosines, then sines, octave by octave, of phases of whole numbers."""
    phases = [phase % 2**phase_bits for phase in times(q, frequencies)]
    grid = [round(Fraction(phase, 2 ** (phase_bits - 16))) for phase in phases]
    points = [point * 2**j % 2**16 for j in range(octaves) for point in grid]
    return [cosine(point) for point in points] + [sine(point) for point in points]


def fourier(phi, row):
    fine = 16 + ceil_log2(phi.n_features) // 2
    q = steps(scaled(phi, row), fine - floor_log2(phi.scale))
    frequencies = whole(phi.weights()["waves"])
    return waves(q, frequencies, fine + 16, getattr(phi, "octaves", 1))


def turns(phi):
    """The matrix of an activation map in steps of 2**-22 turns."""
    unit = 2**22 / (2 * mp.pi)
    return [[nearest(real(w) * unit) for w in line] for line in plain(phi.matrix)]


def activation(phi, row):
    q, matrix = steps(scaled(phi, row), 18), plain(phi.matrix)
    if phi.activation in ("fourier", "cos", "sin"):
        both, n = waves(q, turns(phi), 40), len(matrix[0])
        return {"cos": both[:n], "sin": both[n:]}.get(phi.activation, both)
    sums = [as_float(s) for s in times(q, [steps(line, 22) for line in matrix])]
    forms, unit = [Fraction(s) * power(-40) for s in sums], power(phi.frac_bits)
    if phi.activation in ("relu", "identity"):
        low = 0 if phi.activation == "relu" else -math.inf
        return [round(max(form, low) * unit) for form in forms]
    if phi.activation == "leaky-relu":
        bent = [form if form >= 0 else Fraction(0.01 * float(form)) for form in forms]
        return [round(form * unit) for form in bent]
    if phi.activation == "gelu":
        return [round(Fraction(gelu(float(form))) * unit) for form in forms]
    function = {"tanh": mp.tanh, "sigmoid": sigmoid}[phi.activation]
    return [nearest(function(real(form)) * real(unit)) for form in forms]


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


# Kernels and polynomials


def nystrom(phi, row):
    """Around the middle of the landmarks, in steps that keep distances exact."""
    marks = [scaled(phi, mark) for mark in plain(phi.landmarks)]
    middle = [min(c) / 2 + max(c) / 2 for c in zip(*marks, strict=True)]
    shift, factor = [0.0] * len(row), [1.0] * len(row)
    if phi.scaling is not None:
        shift, factor = plain(phi.scaling.shift), plain(phi.scaling.factor)
    away = [s + m / f for s, m, f in zip(shift, middle, factor, strict=True)]
    bits = min(24, (51 - ceil_log2(len(row))) // 2) - 8 - floor_log2(phi.scale)

    def place(point):
        moved = [(x - s) * f for x, s, f in zip(point, away, factor, strict=True)]
        return steps(moved, bits)

    unit = real(power(-bits)) / real(phi.scale)
    q, kernel = place(row), []
    for mark in plain(phi.landmarks):
        distance = norm_squared([a - b for a, b in zip(q, place(mark), strict=True)])
        kernel.append(nearest(2**22 * mp.exp(-distance * unit * unit / 2)))
    roots = [steps(line, 26) for line in plain(phi.root)]
    sums = [as_float(s) for s in times(kernel, roots)]
    return [round(Fraction(s) * power(phi.frac_bits - 48)) for s in sums]


def quadratic(phi, row):
    x, matrix = steps(scaled(phi, row), 24), whole(phi.weights()["directions"])
    if phi.law == "gaussian":
        products = [round(Fraction(as_float(p), 2**24)) for p in lower(x)]
        sums = [as_float(s) for s in times(products, matrix)]
        return [round(Fraction(s) * power(phi.frac_bits - 24 - 16)) for s in sums]
    sums = [as_float(s) for s in times(x, matrix)]
    roots = [round(Fraction(s) * power(phi.frac_bits // 2 - 24 - 22)) for s in sums]
    return [root * root for root in roots]


def moments(phi, row):
    x = steps(scaled(phi, row), phi.bits)
    means = [q << phi.bits for q in x]
    products = {"mean": [], "variance": [q * q for q in x], "covariance": lower(x)}
    return means + products[phi.order]


def cross_moments(phi, row):
    x = [Fraction(q, 2**phi.bits) for q in steps(scaled(phi, row), phi.bits)]
    kept = [x[i] for i in plain(phi.kept)]
    omega = [[Fraction(w) for w in line] for line in plain(phi.omega)]
    tests = times(kept, omega)
    values = x + [v * v for v in x] + [k * t for k in kept for t in tests]
    units = [value * power(phi.frac_bits) for value in values]
    assert all(unit.denominator == 1 for unit in units)
    return [int(unit) for unit in units]


# Hashes


def hash_places(phi) -> list[list[tuple[int, int]]]:
    """For each table, the bucket and the sign of each item."""
    tables = [hashed(table, phi.seed) for table in range(phi.depth)]
    hashes = [[hashed(i, table) for i in range(phi.n_features)] for table in tables]
    return [[(h % phi.width, 1 - 2 * (h >> 63)) for h in line] for line in hashes]


def hashes(phi, row):
    sums = [[0] * phi.width for _ in range(phi.depth)]
    first_signed = {"count-sketch": 0, "joint-counts": 1}.get(phi.kind, phi.depth)
    for number, places in enumerate(hash_places(phi)):
        table = sums[number]
        for value, (bucket, sign) in zip(row, places, strict=True):
            if phi.kind == "bloom":
                table[bucket] = max(table[bucket], int(value != 0) << phi.frac_bits)
            else:
                signed = sign if number >= first_signed else 1
                table[bucket] += signed * steps([value], phi.frac_bits)[0]
    return [value for table in sums for value in table]


def counters(phi, row):
    return steps(row, phi.frac_bits)


def table(phi, row):
    held = steps(row, phi.frac_bits)
    columns = zip(*plain(phi.table), strict=True)
    return [
        sum(a * int(b) for a, b in zip(held, column, strict=True)) for column in columns
    ]


# Cells


def cell_bits(phi) -> tuple[int, int]:
    """Bits of fractions of coordinates and of scaled rows.

    The farthest anchor has 22 bits, or coordinates 17 where products are kept; rows are
    finer by two bits, along the longest direction.
    """
    farthest = max(abs(value) for anchor in plain(phi.anchors) for value in anchor)
    bits = min(22 - ceil_log2(farthest), 42) if farthest else 22
    bits = bits if phi.n_crossed is None else 17
    columns = list(zip(*plain(phi.basis), strict=True))
    longest = max(sum(Fraction(b) ** 2 for b in column) for column in columns)
    half = -(-ceil_log2(longest) // 2)  # the exponent of the root, rounded up
    entry = max(abs(b) for column in columns for b in column)
    unit = power(20 - ceil_log2(entry))  # entries of the basis have 20 bits
    sums = max(sum(abs(Fraction(b) * unit) for b in column) for column in columns)
    away = phi.reach + max(abs(c) for c in plain(phi.centre))
    most = 61 - ceil_log2(sums) - ceil_log2(away)
    return bits, min(max(half + bits + 2, 8), 44 - ceil_log2(phi.reach), most)


def cells(phi, row):
    """The first of the nearest anchors, and what is kept of the coordinates."""
    basis = [[Fraction(b) for b in line] for line in plain(phi.basis)]
    bits, row_bits = cell_bits(phi)
    centre = steps(plain(phi.centre), row_bits)
    x = [a - b for a, b in zip(steps(scaled(phi, row), row_bits), centre, strict=True)]
    exact = times(x, basis)
    z = [round(value * power(bits - row_bits)) for value in exact]
    if phi.n_crossed is not None:
        z = [min(max(value, -(2**22)), 2**22) for value in z]
    anchors = [steps(anchor, bits) for anchor in plain(phi.anchors)]
    gaps = [norm_squared([a - b for a, b in zip(z, p, strict=True)]) for p in anchors]
    local = [1 << 2 * bits] + [value << bits for value in z]
    if phi.n_crossed is not None:
        local += [value * value for value in z]
        local += [z[a] * z[b] for a in range(phi.n_crossed) for b in range(a)]
    result = [0] * (len(anchors) * len(local))
    start = gaps.index(min(gaps)) * len(local)
    result[start : start + len(local)] = local
    return result


# Networks


def network(phi, row):
    tensors = {name: plain(array) for name, array in phi.weights().items()}
    spec = phi.network
    x = [q / 2**20 for q in steps(scaled(phi, row), 20)]
    x = lower(x) if phi.inputs == "outer" else x
    length = len(x) // spec.windows
    windows = [x[start : start + length] for start in range(0, len(x), length)]
    outputs = [value for window in windows for value in _one(tensors, spec, window)]
    return [nearest(value * real(power(phi.frac_bits))) for value in outputs]


def _one(tensors, spec, x):
    """What one window goes through; most networks have one."""
    if spec.kind in ("ternary", "binary"):
        tensors = dict(tensors)
        weight = tensors["layers.last.weight"]
        tensors["layers.last.weight"] = [_whole(line, spec.kind) for line in weight]
    elif spec.kind != "linear":
        x = _affine(tensors, "first", x)
        for block in range(spec.depth):
            name = f"block{block}.body"
            inner = _affine(tensors, f"{name}.inner", _norm(tensors, f"{name}.norm", x))
            outer = _affine(tensors, f"{name}.outer", _bent(spec, inner))
            x = [a + b for a, b in zip(x, outer, strict=True)]
        x = _bent(spec, _norm(tensors, "norm", x))
    heads = {"tanh": mp.tanh, "sigmoid": sigmoid, None: lambda value: value}
    return [heads[spec.head](real(v)) for v in _affine(tensors, "last", x)]


def _whole(line, kind):
    """Weights of one output as 0 and one magnitude, with both signs if ternary."""
    sizes = [abs(w) if kind == "ternary" else w for w in line]
    threshold = 0.7 * math.fsum(abs(w) for w in line) / len(line)
    kept = [size for size in sizes if size > threshold]
    exact = math.fsum(kept) / max(len(kept), 1)
    scale = struct.unpack("f", struct.pack("f", exact))[0]
    pairs = zip(line, sizes, strict=True)
    return [math.copysign(scale, w) if size > threshold else 0.0 for w, size in pairs]


def _affine(tensors, name, x):
    """Weights of 18 bits, inputs in steps of 2**-20, an exact sum, then the bias."""
    weight, bias = tensors[f"layers.{name}.weight"], tensors[f"layers.{name}.bias"]
    largest = max(abs(w) for line in weight for w in line)
    bits, q = 18 - ceil_log2(largest), steps(x, 20)
    sums = [as_float(dot(q, steps(line, bits))) for line in weight]
    unit = power(-20 - bits)
    return [float(s * unit) + b for s, b in zip(sums, bias, strict=True)]


def _norm(tensors, name, x):
    gain, shift = tensors[f"layers.{name}.weight"], tensors[f"layers.{name}.bias"]
    if f"layers.{name}.running_var" in tensors:
        variances = tensors[f"layers.{name}.running_var"]
        means = tensors[f"layers.{name}.running_mean"]
        gain = [g / math.sqrt(v + 1e-5) for g, v in zip(gain, variances, strict=True)]
        centred = zip(shift, gain, means, strict=True)
        shift = [b - g * m for b, g, m in centred]
        return [v * g + b for v, g, b in zip(x, gain, shift, strict=True)]
    width = len(x)
    mean = sum(steps(x, 20)) / (width * 2**20)
    away = [v - mean for v in x]
    bits = (52 - (width - 1).bit_length()) // 2
    exponent = math.frexp(max(abs(v) for v in away))[1]
    squares = norm_squared(steps(away, bits - exponent))
    variance = float(squares * power(2 * (exponent - bits))) / width
    scale = 1.0 / math.sqrt(variance + 1e-5)
    return [v * scale * g + b for v, g, b in zip(away, gain, shift, strict=True)]


def _bent(spec, x):
    return [max(v, 0.0) if spec.kind == "resnet" else gelu(v) for v in x]


def gelu(x: float) -> float:
    """The GELU x Phi(x), with Phi linear between multiples of 1/1024."""
    place = min(max(x, -8.0), 8.0) * 1024
    below = min(math.floor(place), 8 * 1024 - 1)
    low, high = share(below), share(below + 1)
    return x * (low + (place - below) * (high - low))


@cache
def share(point: int) -> float:
    """Of a standard normal law below ``point / 1024``; 0 and 1 at -8 and 8."""
    if abs(point) >= 8 * 1024:
        return float(point > 0)
    return float(mp.ncdf(real(Fraction(point, 1024))))


# All of them


def concatenated(phi, row):
    return [
        value << (phi.frac_bits - part.frac_bits)
        for part in phi.members
        for value in features(part, row)
    ]


_KINDS = {
    "fourier": fourier,
    "harmonics": fourier,
    "activation": activation,
    "nystrom": nystrom,
    "quadratic": quadratic,
    "moments": moments,
    "cross-moments": cross_moments,
    "count-min": hashes,
    "count-sketch": hashes,
    "joint-counts": hashes,
    "bloom": hashes,
    "counters": counters,
    "table": table,
    "cells": cells,
    "network": network,
    "concatenated": concatenated,
}


def features(phi, row) -> list[int]:
    """Integer features of one row, in units of ``2**-frac_bits`` of the map."""
    assert phi.kind in _KINDS, f"write the integers of kind {phi.kind!r} here"
    return _KINDS[phi.kind](phi, [float(x) for x in row])


def total(phi, rows) -> list[int]:
    """Integer total of some rows."""
    vectors = [features(phi, row) for row in rows]
    return [sum(column) for column in zip(*vectors, strict=True)]
