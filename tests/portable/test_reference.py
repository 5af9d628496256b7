"""Every map gives the integers of its formula, computed in plain Python."""

import math
from fractions import Fraction

import numpy as np
import pytest

from portable import reference
from portable.maps import (
    MAPS,
    NAMES,
    built_in_kinds,
    exact_rows,
    exact_values,
    feature_map,
    golden_rows,
    unscaled,
)
from portable.reference import Stream, mp
from sketchlearn.arithmetic.draws import Draws, hash_keys
from sketchlearn.arithmetic.elementary import (
    cosine_table,
    exp,
    gelu,
    log,
    sigmoid,
    tanh,
)
from sketchlearn.errors import RowRangeError
from sketchlearn.features.cross_moments import CrossMomentFeatures, random_groups
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.quadratic import QuadraticFeatures

WIDE = {name for name in NAMES if feature_map(name).n_features > 10}
CLIPPED = [name for name in NAMES if feature_map(name).kind == "clipped"]
PLAIN = [name for name in NAMES if name not in CLIPPED]
WAVES = [
    name
    for name in PLAIN
    if feature_map(name).kind in ("fourier", "harmonics")
    or name in ("activation-fourier", "activation-cos", "activation-sin")
]
WAVES.remove("fourier-uneven")  # its scaling rounds

# Functions that come from power series: their value before rounding is off by a few
# units of 2**-53, and a step is 2**-44 or more, so that it can be the next one.
NEXT_STEP = {"activation-tanh", "activation-sigmoid", "network-resnet-tanh"}
NEXT_STEP |= {"network-outer", "network-transformer", "network-wide"}


def edge_rows(name):
    """Rows on the lattice, half way between its points, small, large, at the edge."""
    case, phi = MAPS[name], feature_map(name)
    d, unit = phi.n_features, 2.0**-case.bits
    few = 2 if name in WIDE else 8
    reach = case.limit * unit
    ordinary = exact_rows(few, d, 1, min(case.span, reach))
    on_lattice = np.rint(exact_rows(few, d, 2, min(case.span, reach)) / unit)
    halves = np.where(np.abs(on_lattice) < case.limit, on_lattice + 0.5, on_lattice)
    far = np.rint(exact_rows(few, d, 3, float(case.limit), bits=40))
    fine = exact_rows(few, d, 4, 4 * unit)
    corners = np.where(exact_rows(few, d, 5) < 0, -reach, reach)
    edges = [np.zeros(d), -0.0 * np.ones(d), np.full(d, reach), np.full(d, -reach)]
    edges += [np.full(d, reach - unit / 4), np.full(d, unit / 2), np.full(d, -unit / 2)]
    single = np.eye(d)[:3] * reach
    scaled = [ordinary, on_lattice * unit, halves * unit, far * unit, fine, corners]
    return unscaled(phi, np.concatenate([*scaled, np.array(edges), single]))


def whole_frequencies(phi):
    """Of waves, with the bits of a phase and the whole numbers of the centre."""
    if phi.kind == "activation":
        return reference.turns(phi), 40, [0] * phi.n_features
    waves = reference.whole(phi.weights()["waves"])
    fine = 16 + reference.ceil_log2(phi.n_features) // 2
    return waves, fine + 16, [0] * phi.n_features


def rows_at_ties(name):
    """Large rows with a phase half way between grid points, or one step beside."""
    case, phi = MAPS[name], feature_map(name)
    frequencies, phase_bits, centre = whole_frequencies(phi)
    grid, rows = 2 ** (phase_bits - 16), []
    for f in range(min(len(frequencies[0]), 8)):
        column = [line[f] for line in frequencies]
        odd = [j for j, w in enumerate(column) if w % 2]
        for aside in (-1, 0, 1) if odd else ():
            far = exact_values(phi.n_features, 10 * f + aside, case.limit / 2, bits=36)
            q = [int(value) for value in far]
            j = odd[-1]
            q[j] -= q[j] % grid
            missing = grid // 2 + aside - reference.dot(q, column)
            q[j] += missing * pow(column[j], -1, grid) % grid
            assert (reference.dot(q, column) - grid // 2 - aside) % grid == 0
            rows.append([a + c for a, c in zip(q, centre, strict=True)])
    return unscaled(phi, np.array(rows, np.float64) * 2.0**-case.bits)


def inside(phi, expected):
    limit = Fraction(phi.value_bound) * Fraction(2) ** phi.frac_bits
    return all(abs(value) <= limit for value in expected)


def single_total(phi, row):
    return phi.batch_sum(row[None]).to_ints()


def assert_same(found, expected, name):
    if name in NEXT_STEP:
        pairs = zip(found, expected, strict=True)
        assert max(abs(a - b) for a, b in pairs) <= 1
    else:
        assert found == expected


def test_every_kind_of_map_has_a_case():
    assert {feature_map(name).kind for name in NAMES} == set(built_in_kinds())


@pytest.mark.parametrize("name", PLAIN)
def test_features_are_those_of_the_formula(name):
    phi, rows = feature_map(name), edge_rows(name)
    kept, expected = [], []
    for row in rows:
        values = reference.features(phi, row)
        if inside(phi, values):
            assert_same(single_total(phi, row), values, name)
            kept.append(row)
            expected.append(values)
        else:
            with pytest.raises(RowRangeError):
                phi.batch_sum(row[None])
    assert len(kept) >= (6 if name in WIDE else 20)
    totals = [sum(column) for column in zip(*expected, strict=True)]
    if name in NEXT_STEP:
        found = phi.batch_sum(np.array(kept)).to_ints()
        assert max(abs(a - b) for a, b in zip(found, totals, strict=True)) <= len(kept)
    else:
        assert phi.batch_sum(np.array(kept)).to_ints() == totals


@pytest.mark.parametrize("name", WAVES)
def test_large_rows_at_ties_of_the_phase_are_not_off_by_a_grid_point(name):
    phi, rows = feature_map(name), rows_at_ties(name)
    assert len(rows) >= 9
    for row in rows:
        assert single_total(phi, row) == reference.features(phi, row)
    assert phi.batch_sum(rows).to_ints() == reference.total(phi, rows)


@pytest.mark.parametrize("name", PLAIN)
def test_feature_vectors_are_the_integers_as_floats(name):
    phi, unit = feature_map(name), Fraction(2) ** feature_map(name).frac_bits
    rows = golden_rows(name)[: 5 if name in WIDE else 40]
    found = phi(rows)
    for vector, row in zip(found.tolist(), rows, strict=True):
        values = [float(value / unit) for value in reference.features(phi, row)]
        if name in NEXT_STEP:
            pairs = zip(vector, values, strict=True)
            assert max(abs(a - b) for a, b in pairs) <= 1 / unit
        elif phi.kind == "cross-moments":  # two roundings beyond 53 bits
            np.testing.assert_allclose(vector, values, rtol=2.0**-51, atol=0)
        else:
            assert vector == values


@pytest.mark.parametrize("name", [n for n in PLAIN if feature_map(n).kind != "bloom"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_row_just_beyond_the_limit_is_refused(name, sign):
    case, phi = MAPS[name], feature_map(name)
    scaled = np.zeros((3, phi.n_features))
    scaled[1, -1] = sign * (case.limit + 1) * 2.0**-case.bits
    if name == "fourier-uneven":
        scaled[1, -1] *= 1 + 2.0**-30  # its scaling rounds
    rows = unscaled(phi, scaled)
    with pytest.raises(
        RowRangeError, match=r"row 1 lies outside|feature of magnitude|too large"
    ):
        phi.batch_sum(rows)


@pytest.mark.parametrize("bound", [1e-6, 0.3, 1.0, 7.0, 1e3])
@pytest.mark.parametrize("name", ["fourier", "quadratic-chi", "moments-covariance"])
def test_clipped_rows_keep_their_direction_and_short_ones_are_only_rounded(name, bound):
    from_inner = feature_map(name)
    phi = type(feature_map("clipped-fourier"))(from_inner, norm_bound=bound)
    bits = 26 - reference.ceil_log2(bound)  # a step is 2**-26 to 2**-25 of the bound
    limit = math.floor(Fraction(bound) * reference.power(bits))
    size, extra = phi.sketch_size, phi.frac_bits - bits
    rows = golden_rows(name)[:30] * np.ldexp(1.0, -np.arange(30))[:, None]
    short = 0
    for row in rows:
        units = from_inner(row[None])[0].tolist()
        exact = [Fraction(value) * reference.power(bits) for value in units]
        found = [Fraction(value, 2**extra) for value in single_total(phi, row)]
        assert all(value.denominator == 1 for value in found)
        assert reference.norm_squared(found) <= limit**2
        squared = reference.norm_squared(exact)
        coarse = (52 - (size - 1).bit_length()) // 2
        # What rounding the entries may add to the norm, here and in the comparison.
        slack = math.isqrt(size) + 1 + limit * (math.isqrt(size) + 5) / 2**coarse
        if squared <= (limit - Fraction(slack)) ** 2:
            short += 1
            assert found == [round(value) for value in exact]
        elif squared >= (limit + Fraction(slack)) ** 2:
            norm = mp.sqrt(reference.real(squared))
            for value, wanted in zip(found, exact, strict=True):
                ideal = reference.real(wanted) * limit / norm
                assert abs(reference.real(value) - ideal) <= 1 + 2 * slack
    assert short < len(rows) or bound > 1


@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_is_a_function_of_the_row_alone(name):
    phi, rows = feature_map(name), golden_rows(name)[:50]
    singles = [single_total(phi, row) for row in rows]
    totals = [sum(column) for column in zip(*singles, strict=True)]
    assert phi.batch_sum(rows).to_ints() == totals


def test_hashes_and_uniform_draws_are_those_of_splitmix64():
    for seed in (0, 1, 7, -5, 2**63 + 11, 10**30):
        keys = [0, 1, 2**63, 2**64 - 1, 12345678901234567890]
        expected = [reference.hashed(key, seed) for key in keys]
        assert hash_keys(np.array(keys, np.uint64), seed).tolist() == expected
        draws, stream = Draws(seed), Stream(seed)
        assert draws.words(5).tolist() == stream.words(5)
        found = [Fraction(value) for value in draws.uniform(50).tolist()]
        assert found == stream.uniform(50)
        assert draws.permutation(40).tolist() == stream.permutation(40)


@pytest.mark.parametrize("seed", [0, 3])
def test_normal_draws_and_directions_are_right_to_the_last_digits(seed):
    draws, stream = Draws(seed), Stream(seed)
    expected = stream.normal(1001)
    for found, wanted in zip(draws.normal(1001).tolist(), expected, strict=True):
        assert abs(found - wanted) <= 1e-15 * abs(wanted)
    columns = zip(*draws.directions(7, 30).tolist(), strict=True)
    wanted = zip(*stream.directions(7, 30), strict=True)
    for found, exact in zip(columns, wanted, strict=True):
        gaps = [abs(a - b) for a, b in zip(found, exact, strict=True)]
        assert max(gaps) <= 1e-15


@pytest.mark.parametrize("law", ["gaussian", "folded", "adapted"])
@pytest.mark.parametrize("scale", [1.0, 0.3, 28.0])
def test_frequencies_are_the_rounded_draws_of_their_law(law, scale):
    phi = FourierFeatures(6, 40, scale=scale, law=law, seed=9)
    bits = 16 + reference.floor_log2(scale)  # P - b
    unit = reference.power(bits) / Fraction(scale)
    expected = [
        [reference.nearest(w * reference.real(unit) / (2 * mp.pi)) for w in line]
        for line in reference.frequencies(6, 20, law, 9)
    ]
    assert reference.whole(phi.weights()["waves"]) == expected


@pytest.mark.parametrize("law", ["gaussian", "chi", "unit"])
def test_quadratic_weights_are_the_rounded_draws_of_their_law(law):
    phi, stream = QuadraticFeatures(5, 8, law=law, seed=11), Stream(11)
    drawn = {
        "gaussian": lambda: stream.matrix(15, 8),
        "chi": lambda: stream.matrix(5, 8),
        "unit": lambda: stream.directions(5, 8),
    }[law]()
    unit = 2**16 / mp.sqrt(5) if law == "gaussian" else 2**22
    expected = [[reference.nearest(w * unit) for w in line] for line in drawn]
    assert reference.whole(phi.weights()["directions"]) == expected


def test_groups_are_a_permutation_dealt_out():
    groups = random_groups(11, 3, seed=6)
    assert groups.argmax(axis=1).tolist() == [p % 3 for p in Stream(6).permutation(11)]
    phi = CrossMomentFeatures(11, 3, seed=6)
    assert np.array_equal(phi.omega * 4, groups)  # 4 features to a group at most


def test_buckets_and_signs_are_those_of_the_hash():
    for name in ("count-min", "count-sketch", "joint-counts", "bloom"):
        phi = feature_map(name)
        places = reference.hash_places(phi)
        assert phi.buckets.tolist() == [[b for b, _ in line] for line in places]
        signs = [[s for _, s in line] for line in places]
        if name == "joint-counts":
            signs[0] = [1] * phi.n_features
        assert phi.signs.tolist() == signs


def test_the_table_of_cosines_is_correctly_rounded():
    cosines, sines = (table.tolist() for table in cosine_table(16, 22))
    quarter = [reference.cosine(point) for point in range(2**14 + 1)]
    half = quarter + [-value for value in quarter[-2::-1]]
    expected = half + half[-2:0:-1]
    assert cosines == expected
    assert sines == expected[-(2**14) :] + expected[: -(2**14)]


@pytest.mark.parametrize(
    ("function", "exact", "span", "tolerance"),
    [
        (exp, mp.exp, 50.0, 1e-15),
        (tanh, mp.tanh, 4.0, 1e-15),
        (sigmoid, reference.sigmoid, 30.0, 1e-15),
        (gelu, lambda x: x * mp.ncdf(x), 6.0, None),
    ],
)
def test_elementary_functions_are_right_to_the_last_digits(
    function, exact, span, tolerance
):
    points = exact_values(400, 5, span)
    for point, found in zip(points, function(points).tolist(), strict=True):
        wanted = exact(reference.real(point))
        allowed = tolerance * abs(wanted) if tolerance else 1e-7 * abs(point)
        assert abs(found - wanted) <= allowed


def test_logarithms_are_right_to_the_last_digits():
    points = [abs(x) + 2.0**-30 for x in exact_values(300, 6, 2.0)]
    points += [1 - 2.0**-53, 2.0**-1074, 1e300]
    for point, found in zip(points, log(points).tolist(), strict=True):
        wanted = mp.log(reference.real(point))
        assert abs(found - wanted) <= 1e-15 * abs(wanted)
