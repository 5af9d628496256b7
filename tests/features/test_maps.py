"""Every feature map keeps the contract: bounds, bits, exact sums, identity."""

from fractions import Fraction

import numpy as np
import pytest

from contracts import check_feature_map
from portable.maps import NAMES, feature_map, golden_rows
from sketchlearn import (
    ActivationFeatures,
    BloomFeatures,
    CellFeatures,
    ConcatenatedFeatures,
    CountMinFeatures,
    CountSketchFeatures,
    CrossMomentFeatures,
    FourierFeatures,
    MomentFeatures,
    NystromFeatures,
    QuadraticFeatures,
    Scaling,
    clipped,
)
from sketchlearn.arithmetic.draws import hash_keys
from sketchlearn.arithmetic.exact import lattice_round
from sketchlearn.errors import FeatureMapError, FeatureMapMismatch, RowRangeError
from sketchlearn.features.build import build_map
from sketchlearn.features.clipping import clip_rows
from sketchlearn.features.cross_moments import random_groups

D = 7
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, D)).astype(np.float32)
SCALING = Scaling.from_bounds(-20.0, 20.0, n_features=D)

MAPS = {
    "fourier": FourierFeatures(D, 20, seed=1),
    "fourier-folded": FourierFeatures(D, 10, law="folded", scale=0.5),
    "fourier-adapted": FourierFeatures(D, 34, law="adapted", scaling=SCALING),
    "mean": MomentFeatures(D, order="mean"),
    "variance": MomentFeatures(D, order="variance", scaling=SCALING, reach=1.0),
    "covariance": MomentFeatures(D, order="covariance"),
    "cross": CrossMomentFeatures(D, 3, targets=[6], seed=2),
    "cross-kept": CrossMomentFeatures(
        D, 2, kept=[0, 3, 5], importance=[1, 0.5, 2.0**-12], scaling=SCALING
    ),
    "quadratic-gaussian": QuadraticFeatures(D, 11, law="gaussian"),
    "quadratic-chi": QuadraticFeatures(D, 11, law="chi", scaling=SCALING),
    "quadratic-unit": QuadraticFeatures(D, 3, law="unit"),
    "nystrom": NystromFeatures(RNG.normal(size=(9, D)), scale=2.0),
    "count-min": CountMinFeatures(D, width=4, depth=2),
    "count-sketch": CountSketchFeatures(D, width=5, depth=3, seed=4),
    "bloom": BloomFeatures(D, width=4, depth=2),
}
MAPS["concatenated"] = ConcatenatedFeatures(
    [MAPS["fourier"], MAPS["covariance"], MAPS["nystrom"]]
)
MAPS["clipped"] = clipped(MAPS["fourier"], norm_bound=1.5)
MAPS["clipped-concatenated"] = clipped(MAPS["concatenated"], norm_bound=2.5)


@pytest.mark.parametrize("name", MAPS)
def test_map_keeps_the_contract(name):
    check_feature_map(MAPS[name], ROWS)


@pytest.mark.parametrize("name", NAMES)
def test_every_registered_map_keeps_the_contract(name):
    check_feature_map(feature_map(name), golden_rows(name)[:200])


FAR = [1e-3, 1.0, 8.0]


@pytest.mark.parametrize("name", [n for n in MAPS if not n.startswith("clipped")])
@pytest.mark.parametrize("size", FAR)
def test_the_integer_norm_of_a_clipped_row_never_exceeds_its_bound(name, size):
    phi = clipped(MAPS[name], norm_bound=0.7)
    k = phi.frac_bits
    rng = np.random.default_rng(1)
    for row in rng.uniform(-size, size, (20, D)):
        integers = phi.batch_sum(row[None]).to_ints()
        assert sum(q * q for q in integers) <= (Fraction(0.7) * 2**k) ** 2
        assert np.array_equal(
            lattice_round(phi(row[None]), k).sum(axis=0).tolist(), integers
        )


def test_all_fingerprints_differ():
    prints = {phi.fingerprint for phi in MAPS.values()}
    assert len(prints) == len(MAPS)


GOLDEN = {
    "fourier": "50bb714889592aec1f47c2a69b59c0ad7ba2f76a28f5e1ca84fd960192ecd723",
    "covariance": "a54f81d4102c0d46b88432af0ad6c81eb88abe51e513ee4c76a5b53e6454c7e4",
    "count-min": "269aebddf43a892af8a82c668ddf724c560c108d05992a158e45f671e0be91e7",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_fingerprints_of_fixed_maps_never_change(name):
    assert MAPS[name].fingerprint == GOLDEN[name]


def test_fourier_features_are_cosines_and_sines_of_the_frequencies():
    phi = MAPS["fourier"]
    phases = ROWS.astype(np.float64) @ phi.frequencies.astype(np.float64)
    expected = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    # a phase is off by at most half a grid point and half a step of each feature
    steps = np.abs(phi.frequencies).sum(axis=0).max() * 2.0**-17
    assert np.abs(phi(ROWS) - expected).max() < 2 * np.pi * 2.0**-17 + steps


@pytest.mark.parametrize(
    ("law", "mean", "spread"),
    [
        ("gaussian", 2.5526, 0.6964),  # chi with 7 degrees of freedom
        ("folded", np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)),
        ("adapted", 1.3494, 0.6898),
    ],
)
def test_radii_follow_their_law(law, mean, spread):
    phi = FourierFeatures(D, 200_000, law=law, seed=3)
    radii = np.linalg.norm(phi.frequencies, axis=0)
    assert abs(radii.mean() - mean) < 0.01
    assert abs(radii.std() - spread) < 0.01


def test_fourier_features_approximate_the_gaussian_kernel():
    phi = FourierFeatures(D, 20_000, scale=2.0, seed=0)
    features = phi(ROWS[:20]) / np.sqrt(phi.sketch_size / 2)
    distances = ((ROWS[:20, None] - ROWS[None, :20]) ** 2).sum(axis=2)
    assert np.abs(features @ features.T - np.exp(-distances / 8)).max() < 0.05


def test_moments_are_those_of_numpy():
    features = MAPS["covariance"](ROWS).mean(axis=0)
    moment = (ROWS.astype(np.float64).T @ ROWS) / len(ROWS)
    assert np.abs(features[:D] - ROWS.mean(axis=0)).max() < 1e-6
    assert np.abs(features[D:] - moment[np.tril_indices(D)]).max() < 1e-5


def test_cross_moments_are_the_second_moment_times_omega():
    phi = MAPS["cross"]
    features = phi(ROWS).mean(axis=0)
    moment = (ROWS.astype(np.float64).T @ ROWS) / len(ROWS)
    seen = features[2 * D :].reshape(D, 4)
    assert np.abs(seen - moment @ phi.omega).max() < 1e-4
    assert np.abs(seen[:, 3] - moment[:, 6]).max() < 1e-5
    assert np.abs(features[D : 2 * D] - np.diag(moment)).max() < 1e-5


@pytest.mark.parametrize(("d", "n_groups"), [(1, 1), (7, 1), (7, 3), (7, 7), (60, 8)])
def test_random_groups_part_the_features_evenly(d, n_groups):
    groups = random_groups(d, n_groups, seed=0)
    assert groups.shape == (d, n_groups)
    assert set(np.unique(groups)) <= {0.0, 1.0}
    assert (groups.sum(axis=1) == 1).all()  # every feature is in one group
    sizes = groups.sum(axis=0)
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


def test_random_groups_come_from_the_seed_and_favour_no_pair():
    one, two = (random_groups(6, 2, seed=3) for _ in range(2))
    assert np.array_equal(one, two)
    draws = [random_groups(6, 2, seed) for seed in range(2000)]
    together = np.mean([groups @ groups.T for groups in draws], axis=0)
    # Two of the 5 others share a group of three; standard deviation 0.011.
    assert np.abs(together[~np.eye(6, dtype=bool)] - 0.4).max() < 0.055


def test_columns_of_omega_are_weighed_groups():
    phi = MAPS["cross-kept"]
    omega = phi.omega / phi.omega.max()
    assert np.array_equal(omega.sum(axis=1), [1, 0.5, 2.0**-12])
    assert ((omega > 0).sum(axis=1) == 1).all()
    rows = np.full((1, 3), phi.reach)
    assert np.abs(rows @ phi.omega).max() <= phi.reach


@pytest.mark.parametrize("law", ["gaussian", "chi", "unit"])
def test_quadratic_features_are_linear_in_the_products(law):
    phi = QuadraticFeatures(D, 11, law=law)
    products = ROWS[:, np.tril_indices(D)[0]] * ROWS[:, np.tril_indices(D)[1]]
    assert np.abs(phi(ROWS) - products @ phi.matrix.T).max() < 1e-3


def test_nystrom_features_reproduce_the_kernel_at_the_landmarks():
    marks = RNG.normal(size=(9, D))
    phi = NystromFeatures(marks, scale=2.0)
    features = phi(marks)
    distances = ((marks[:, None] - marks[None]) ** 2).sum(axis=2)
    assert np.abs(features @ features.T - np.exp(-distances / 8)).max() < 1e-3


def test_clipping_shortens_long_vectors_and_leaves_short_ones():
    inner = MomentFeatures(D, order="mean")
    phi = clipped(inner, norm_bound=2.0)
    before, after = inner(ROWS), phi(ROWS)
    norms = np.linalg.norm(before, axis=1, keepdims=True)
    assert np.allclose(after, before * np.minimum(1, 2.0 / norms))
    assert np.array_equal(after[norms[:, 0] <= 2], before[norms[:, 0] <= 2])


@pytest.mark.parametrize("value", [1e-300, 1e-20, 1.0, 1e20, 1e150, 1e300, 1.7e308])
def test_clipping_never_overflows(value):
    from_far = np.full((64, 5), value)
    shortened = clip_rows(from_far, 1.0)
    norms = np.linalg.norm(shortened, axis=1)
    expected = min(1.0, value * np.sqrt(5) if value < 1e100 else 1.0)
    assert np.allclose(norms, expected, rtol=2.0**-22, atol=2.0**-26)
    assert (norms <= 1.0).all()


def test_integer_norms_of_clipped_rows_respect_the_stated_sensitivity():
    m, k = 20, 44
    rng = np.random.default_rng(0)
    magnitudes = 10.0 ** rng.uniform(-320, 308, (2000, m))
    rows = magnitudes * rng.choice([-1, 1], (2000, m))
    integers = lattice_round(clip_rows(rows, 1.0), k)
    squares = [sum(int(q) ** 2 for q in row) for row in integers]
    assert max(squares) <= 2 ** (2 * k)


def test_concatenation_puts_parts_side_by_side():
    phi = MAPS["concatenated"]
    parts = [part(ROWS) for part in phi.members]
    assert np.array_equal(phi(ROWS), np.concatenate(parts, axis=1))
    assert phi.parts()[1].where == slice(20, 55)


def test_hash_features_count_every_item_once_per_table():
    counts = MAPS["count-min"](np.eye(D))
    assert (counts.sum(axis=1) == 2).all()
    assert set(np.unique(counts)) == {0.0, 1.0}
    signed = MAPS["count-sketch"](np.eye(D))
    assert (np.abs(signed).sum(axis=1) == 3).all()
    assert -1.0 in signed


def test_hash_is_the_published_splitmix64():
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    golden = 0x9E3779B97F4A7C15
    keys = np.array([i * golden % 2**64 for i in range(3)], np.uint64)
    assert hash_keys(keys, 0).tolist() == known


def test_count_min_never_underestimates_and_stays_near():
    rng = np.random.default_rng(0)
    items = np.minimum(rng.zipf(1.5, 5000) - 1, 199)
    phi = CountMinFeatures(200, width=50, depth=4)
    table = phi(np.eye(200))[items].sum(axis=0).reshape(4, 50)
    counts = np.bincount(items, minlength=200)
    estimate = np.min([table[t][phi.buckets[t]] for t in range(4)], axis=0)
    assert (estimate >= counts).all()
    assert np.median(estimate - counts) < 3 * 5000 / 50


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FourierFeatures(D, 7), "must be even"),
        (lambda: FourierFeatures(0, 8), "n_features must be a whole number"),
        (lambda: FourierFeatures(D, True), "sketch_size must be a whole number"),
        (lambda: FourierFeatures(D, 8, scale=0), "scale must be a positive"),
        (lambda: FourierFeatures(D, 8, law="cauchy"), "law must be one of gaussian"),
        (lambda: FourierFeatures(3, 8, scaling=SCALING), "scaling is for 7 features"),
        (lambda: MomentFeatures(D, order="third"), "order must be one of"),
        (lambda: MomentFeatures(D, reach=3.0), "power of two"),
        (lambda: CrossMomentFeatures(D, 2, kept=[3, 1]), "increasing"),
        (lambda: CrossMomentFeatures(D, 2, kept=[0], targets=[1]), "one of the kept"),
        (lambda: CrossMomentFeatures(D, 2, importance=[0.3] * D), "power of two"),
        (lambda: CrossMomentFeatures(D, D + 1), "n_columns=8 groups need as many"),
        (lambda: QuadraticFeatures(D, 2, law="cube"), "law must be one of"),
        (lambda: NystromFeatures([1.0, 2.0]), "shape"),
        (lambda: clipped(MAPS["clipped"], norm_bound=1.0), "clipped already"),
        (lambda: clipped(MAPS["fourier"], norm_bound=np.inf), "positive finite"),
        (
            lambda: ConcatenatedFeatures(
                [FourierFeatures(2, 2), FourierFeatures(3, 2)]
            ),
            "same width",
        ),
        (lambda: build_map({"kind": "dream", "version": 1}), "unknown feature map"),
        (lambda: build_map({"kind": "fourier", "version": 9}), "version 9"),
        (lambda: build_map({"kind": "fourier", "version": 1, "q": 1}), "wrong fields"),
        (lambda: build_map(MAPS["nystrom"].description), "needs its weights"),
    ],
)
def test_bad_arguments_say_what_is_wrong(build, message):
    with pytest.raises(FeatureMapError, match=message):
        build()


@pytest.mark.parametrize(
    ("phi", "row", "message"),
    [
        (MAPS["fourier"], 1e300, "row 65 lies outside .* feature 2"),
        (MAPS["quadratic-chi"], 1900.0, "row 65 has a feature of magnitude > 1024"),
        (MAPS["count-min"], 5000.0, r"row 65 lies .* feature 2, \[-1024, 1024\]"),
        (MAPS["covariance"], 33.0, r"row 65 lies outside .* feature 2, \[-32, 32\]"),
        (MAPS["variance"], 40.0, r"row 65 lies outside .* feature 2, \[-32, 32\]"),
    ],
)
def test_values_out_of_range_name_the_row_and_the_remedy(phi, row, message):
    rows = np.zeros((70, D))
    rows[65, 2] = row
    with pytest.raises(RowRangeError, match=message) as caught:
        phi(rows)
    assert "Nothing was added" in str(caught.value)


MISMATCHES = [
    FourierFeatures(D, 8),
    FourierFeatures(D, 8, seed=1),
    FourierFeatures(D, 8, scale=2.0),
    FourierFeatures(D, 8, law="folded"),
    FourierFeatures(D, 10),
    FourierFeatures(D, 8, scaling=SCALING),
    FourierFeatures(D, 8, scaling=Scaling.from_bounds(-20.0, 50.0, n_features=D)),
    clipped(FourierFeatures(D, 8), norm_bound=1.0),
    clipped(FourierFeatures(D, 8), norm_bound=2.0),
    ConcatenatedFeatures([FourierFeatures(D, 8)]),
    NystromFeatures(np.eye(8, D)),
    NystromFeatures(np.eye(8, D) * (1 + 2.0**-52)),
]


def test_maps_that_differ_in_one_item_never_pass_for_each_other():
    for i, left in enumerate(MISMATCHES):
        for j, right in enumerate(MISMATCHES):
            if i != j:
                with pytest.raises(FeatureMapMismatch, match="first difference"):
                    left.spec.require_same(right.spec, "merge")


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        (MISMATCHES[0], MISMATCHES[1], "seed 0 vs 1"),
        (MISMATCHES[7], MISMATCHES[8], "norm_bound 1.0 vs 2.0"),
        (MISMATCHES[10], MISMATCHES[11], "weights"),
        (MISMATCHES[5], MISMATCHES[6], "scaling"),
    ],
)
def test_the_error_names_the_first_difference(left, right, named):
    assert named in left.spec.first_difference(right.spec)


def test_a_map_planned_from_data_says_so():
    assert MAPS["fourier"].origin == "declared"
    assert FourierFeatures(D, 8, scaling=Scaling.from_rows(ROWS)).origin == "data"
    assert MAPS["clipped-concatenated"].origin == "data"  # landmarks are rows
    assert clipped(MAPS["fourier"], norm_bound=1.0).origin == "declared"


@pytest.mark.parametrize("width", [2, 3, 40, 500])
def test_a_row_near_the_bound_is_clipped_alike_alone_and_beside_others(width):
    rng = np.random.default_rng(width)
    rows = rng.normal(size=(300, width))
    close = 1 + 3 * 2.0**-26 * rng.uniform(-1, 1, (300, 1))
    rows *= close / np.linalg.norm(rows, axis=1, keepdims=True)
    together = clip_rows(np.concatenate([rows, np.full((1, width), 100.0)]), 1.0)
    alone = np.concatenate([clip_rows(row[None], 1.0) for row in rows])

    assert np.array_equal(together[:-1], alone)
    squares = [sum(Fraction(v) ** 2 for v in row) for row in alone.tolist()]
    assert max(squares) <= 1
    assert min(squares) > 1 - 2.0**-20


@pytest.mark.parametrize("bound", [1e-200, 1e-160, 1.0, 1e200])
def test_the_norm_of_parts_side_by_side_is_bounded_for_bounds_of_any_size(bound):
    inner = clipped(FourierFeatures(2, 8), norm_bound=bound)
    phi = ConcatenatedFeatures([inner, clipped(MAPS_OF_TWO, norm_bound=bound)])
    found = phi.batch_sum(np.array([[0.3, -0.7]])).to_ints()

    assert sum(q * q for q in found) <= phi.spec.norm_steps**2
    assert phi.norm_bound == pytest.approx(bound * 2**0.5)


MAPS_OF_TWO = MomentFeatures(2, order="covariance")


def test_a_value_is_in_range_or_not_whatever_else_is_in_the_batch():
    phi = MomentFeatures(1, reach=1.0)
    edge, beyond = 1 + 2.0**-24, 1 + 2.0**-22  # the first one rounds to 1
    for rows in ([[edge]], [[edge], [0.5]], [[edge]] * 5000):
        assert phi.batch_sum(np.array(rows)) is not None
        assert phi(np.array(rows)).max() == 1.0
    for rows in ([[beyond]], [[beyond], [0.5]], [[beyond]] * 5000):
        with pytest.raises(RowRangeError):
            phi.batch_sum(np.array(rows))


@pytest.mark.parametrize(
    "farthest", [1.0, 1.0000000000000002, 4.0 - 2.0**-50, 1e-9, 3e6]
)
def test_cells_are_what_their_description_says(farthest):
    phi = CellFeatures([[-1.0], [farthest]], basis=[[1.0]], centre=[0.0])
    assert build_map(phi.description) == phi
    assert np.array_equal(build_map(phi.description).anchors, phi.anchors)


@pytest.mark.parametrize(
    "build",
    [
        lambda: CellFeatures([[1e9], [-1e9]], basis=[[1.0]], centre=[0.0]),
        lambda: CountMinFeatures(3, width=2, depth=1, value_bound=1e-300),
        lambda: NystromFeatures([[1.0]], scale=5e-324),
        lambda: FourierFeatures(2, 4, scale=1e-300),
        lambda: ActivationFeatures([[1e30]], activation="tanh"),
    ],
)
def test_numbers_beyond_exact_arithmetic_are_refused_when_the_map_is_made(build):
    with pytest.raises(FeatureMapError):
        build()
