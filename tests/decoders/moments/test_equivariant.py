"""The sketch has the last word over the learned prior, which treats features alike.

What was seen comes back, features may stand in any order and Ω in any basis, and every
width and number of columns gives correlations: symmetric, positive semi-definite, with
unit diagonal.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sketchlearn import (
    CrossMomentFeatures,
    MomentFeatures,
    Scaling,
    clipped,
    sketch_rows,
)
from sketchlearn.decoders.moments import prior_network
from sketchlearn.decoders.moments.base import AbstractMomentDecoder
from sketchlearn.decoders.moments.covariance.dense import DenseCovariance
from sketchlearn.decoders.moments.covariance.low_rank import LowRankCovariance
from sketchlearn.decoders.moments.cross_moments import (
    Places,
    held_out,
    missed_strength,
)
from sketchlearn.decoders.moments.equivariant import EquivariantDecoder
from sketchlearn.decoders.moments.nystrom import NystromDecoder
from sketchlearn.decoders.moments.prior_network import FrozenPrior, PriorSpec
from sketchlearn.decoders.moments.prior_update import (
    complete_correlation,
    extend_correlation,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.features.cross_moments import random_groups
from sketchlearn.meta.prior import PriorNetwork
from sketchlearn.metrics import leading_components, pca_log_relative_error
from sketchlearn.registry import load_model
from sketchlearn.testing import release_seeded

SHIPPED = load_model("pca-equivariant")
SPEC = PriorSpec(n_loadings=3, width=8, depth=2, n_heads=2, rank=3)
SMALL = EquivariantDecoder(PriorNetwork(SPEC, seed=3).freeze())
DECODERS = pytest.mark.parametrize("decoder", [SHIPPED, SMALL], ids=["shipped", "new"])


def correlations(d, rng, n_factors=3):
    """Correlations of a factor model."""
    loadings = rng.normal(size=(d, n_factors))
    covariance = loadings @ loadings.T + np.diag(rng.uniform(0.5, 2, d))
    scale = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scale, scale)


def require_correlations(found):
    assert np.isfinite(found).all()
    assert np.array_equal(np.diag(found), np.ones(len(found)))
    assert np.abs(found - found.T).max() < 1e-9
    assert np.linalg.eigvalsh(found)[0] > -1e-6


def dense_update(omega, seen, prior):
    """Block BFGS as its formula is printed, with inverses."""
    at = prior @ omega
    return (
        prior
        - at @ np.linalg.inv(omega.T @ at) @ at.T
        + seen @ np.linalg.inv(omega.T @ seen) @ seen.T
    )


def update_case(seed, size):
    """Ω with orthonormal columns, Y, and a prior whose variances are about ``size``."""
    rng = np.random.default_rng(seed)
    omega = np.linalg.qr(rng.normal(size=(9, 3)))[0]
    seen = correlations(9, rng) @ omega
    diagonal = size * rng.uniform(0.5, 1, 9)
    loadings = np.sqrt(size) * 0.3 * rng.normal(size=(9, 2))
    return omega, seen, np.diag(diagonal) + loadings @ loadings.T


@pytest.mark.parametrize("seed", range(4))
def test_the_update_satisfies_the_sketch_until_the_diagonal_is_put_back(seed):
    omega, seen, prior = update_case(seed, size=0.1)
    dense = dense_update(omega, seen, prior)
    assert np.diag(dense).max() <= 1  # no variance is explained twice
    found = complete_correlation(omega, seen, prior)
    np.fill_diagonal(found, np.diag(dense))
    assert np.abs(found @ omega - seen).max() < 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_prior_fills_no_more_than_the_variance_the_sketch_leaves(seed):
    omega, seen, prior = update_case(seed, size=3.0)
    shown = seen @ np.linalg.inv(omega.T @ seen) @ seen.T
    dense = dense_update(omega, seen, prior)
    left = (1 - np.diag(shown)) / np.diag(dense - shown)
    assert (left < 1).any()
    scale = np.sqrt(np.clip(left, 0, 1))
    expected = shown + (dense - shown) * np.outer(scale, scale)
    np.fill_diagonal(expected, 1.0)
    found = complete_correlation(omega, seen, prior)
    assert np.abs(found - expected).max() < 1e-3
    require_correlations(found)


def test_a_prior_that_is_the_truth_stays_the_truth():
    rng = np.random.default_rng(0)
    loadings = 0.4 * rng.normal(size=(8, 2))
    loadings /= np.maximum(1, 1.2 * np.linalg.norm(loadings, axis=1, keepdims=True))
    rest = 1 - (loadings**2).sum(axis=1)
    truth = np.diag(rest) + loadings @ loadings.T
    omega = np.linalg.qr(rng.normal(size=(8, 3)))[0]
    found = complete_correlation(omega, truth @ omega, truth)
    assert np.abs(found - truth).max() < 1e-3
    assert np.abs(found @ omega - truth @ omega).max() < 1e-3


WIDTHS = [(1, 1), (2, 1), (2, 2), (5, 1), (5, 5), (13, 12), (40, 7), (40, 40), (300, 2)]


@DECODERS
@pytest.mark.parametrize(("d", "columns"), WIDTHS)
def test_any_width_and_any_number_of_columns_give_correlations(decoder, d, columns):
    rng = np.random.default_rng(d)
    truth, omega = (
        correlations(d, rng),
        random_groups(d, columns, seed=d),
    )
    found = decoder.correlate(truth @ omega, omega, 0.0)
    assert found.shape == (d, d)
    require_correlations(found)


@DECODERS
@pytest.mark.parametrize("d", [1, 2, 9, 30])
def test_as_many_columns_as_features_give_the_truth(decoder, d):
    rng = np.random.default_rng(d)
    truth, omega = correlations(d, rng), rng.permutation(np.eye(d))
    assert np.abs(decoder.correlate(truth @ omega, omega, 0.0) - truth).max() < 1e-3


SIGNS = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
DEGENERATE = {
    "all the same": np.ones((6, 6)),
    "all the same up to sign": np.outer(SIGNS, SIGNS),
    "each feature twice": np.kron(np.eye(3), np.ones((2, 2))),
    "independent": np.eye(6),
}


@DECODERS
@pytest.mark.parametrize("columns", [1, 2, 3, 6])
@pytest.mark.parametrize("name", DEGENERATE)
def test_duplicated_and_opposite_features_are_no_trouble(decoder, name, columns):
    truth = DEGENERATE[name]
    omega = random_groups(6, columns, seed=0)
    require_correlations(decoder.correlate(truth @ omega, omega, 0.0))


def test_a_group_whose_sum_never_varies_is_no_trouble():
    truth, omega = DEGENERATE["all the same up to sign"], np.ones((6, 1))
    assert not (truth @ omega).any()
    require_correlations(SHIPPED.correlate(truth @ omega, omega, 0.0))


def test_a_column_seen_twice_is_no_trouble():
    rng = np.random.default_rng(0)
    truth, once = correlations(10, rng), random_groups(10, 2, int(rng.integers(2**62)))
    omega = np.repeat(once, 2, axis=1)
    require_correlations(SHIPPED.correlate(truth @ omega, omega, 0.0))


@DECODERS
@pytest.mark.parametrize(("d", "columns"), [(6, 2), (25, 5), (70, 12), (70, 30)])
def test_permuted_features_give_permuted_correlations(decoder, d, columns):
    rng = np.random.default_rng(d)
    truth, omega = (
        correlations(d, rng),
        random_groups(d, columns, seed=d),
    )
    found = decoder.correlate(truth @ omega, omega, 0.0)
    order = rng.permutation(d)
    assert (order != np.arange(d)).any()
    permuted = decoder.correlate((truth @ omega)[order], omega[order], 0.0)
    assert np.abs(permuted - found[np.ix_(order, order)]).max() < 1e-4


@DECODERS
@pytest.mark.parametrize(("d", "columns"), [(6, 2), (25, 5), (70, 12)])
def test_the_basis_of_omega_does_not_matter(decoder, d, columns):
    rng = np.random.default_rng(d)
    truth, omega = (
        correlations(d, rng),
        random_groups(d, columns, seed=d),
    )
    found = decoder.correlate(truth @ omega, omega, 0.0)
    turn = np.linalg.qr(rng.normal(size=(columns, columns)))[0]
    for basis in (turn, 7.0 * turn, np.triu(np.ones((columns, columns)))):
        other = decoder.correlate(truth @ omega @ basis, omega @ basis, 0.0)
        assert np.abs(other - found).max() < 1e-4


@pytest.mark.parametrize("rows", [1, 7, 49])
def test_attention_in_pieces_is_attention_at_once(monkeypatch, rows):
    rng = np.random.default_rng(0)
    truth, omega = correlations(50, rng), random_groups(50, 4, int(rng.integers(2**62)))
    whole = SHIPPED.correlate(truth @ omega, omega, 0.0)
    monkeypatch.setattr(prior_network, "QUERY_ROWS", rows)
    pieces = SHIPPED.correlate(truth @ omega, omega, 0.0)
    assert np.abs(pieces - whole).max() < 1e-5


def test_weights_hold_the_whole_decoder():
    weights = SMALL.network.to_weights({"seed": 3})
    assert (weights.kind, weights.card["seed"]) == ("equivariant", 3)
    rng = np.random.default_rng(0)
    truth, omega = correlations(9, rng), random_groups(9, 2, int(rng.integers(2**62)))
    again = EquivariantDecoder.from_weights(weights)
    one, two = (d.correlate(truth @ omega, omega, 0.0) for d in (SMALL, again))
    assert np.array_equal(one, two)
    with pytest.raises(FeatureMapError, match="'blocks.2.norm.weight' .* missing"):
        FrozenPrior(replace(SPEC, depth=3), weights.tensors)
    with pytest.raises(FeatureMapError, match="no field 'heads'"):
        PriorSpec.from_dict({"heads": 2})


def ring(d, rng):
    """Correlations of a smooth periodic field: no law that was trained on."""
    places, length = rng.uniform(size=d), rng.uniform(0.3, 1.0)
    waves = np.sin(np.pi * (places[:, None] - places)) / length
    return 0.9 * np.exp(-2 * waves**2) + 0.1 * np.eye(d)


def test_the_learned_prior_beats_independence_on_fields_it_has_not_seen():
    learned, plain = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth, omega = ring(80, rng), random_groups(80, 6, int(rng.integers(2**62)))
        for decoder, scores in ((SHIPPED, learned), (NystromDecoder(), plain)):
            found = decoder.correlate(truth @ omega, omega, 0.0)
            scores.append(pca_log_relative_error(truth, leading_components(found)))
    assert np.mean(learned) < 0.8 * np.mean(plain)


RNG = np.random.default_rng(0)
D = 20
ROWS = RNG.normal(size=(2000, 3)) @ RNG.normal(size=(3, D)) + RNG.normal(size=(2000, D))
COVARIANCE = np.cov(ROWS.T, bias=True)
SCALING = Scaling.from_bounds(-16.0, 16.0, n_features=D)


def test_decoding_keeps_means_and_variances_exact():
    sketch = sketch_rows(ROWS + 3, CrossMomentFeatures(D, 3))
    moments = SHIPPED.decode(sketch).params
    assert np.allclose(moments.mean, ROWS.mean(axis=0) + 3, atol=1e-9)
    assert np.allclose(np.diag(moments.covariance), np.diag(COVARIANCE), atol=1e-6)
    assert np.linalg.eigvalsh(moments.covariance)[0] > -1e-6
    assert not moments.unseen_variance.any()
    assert moments.n_directions == 3


def test_a_private_sketch_is_decoded_without_the_prior():
    phi = clipped(CrossMomentFeatures(D, 3, scaling=SCALING, reach=1.0), norm_bound=4.0)
    sketch = sketch_rows(ROWS, phi)
    private = release_seeded(sketch, 0, epsilon=50.0, delta=1e-5)
    one, two = (d.decode(private).params for d in (SHIPPED, NystromDecoder()))
    assert np.array_equal(one.covariance, two.covariance)
    exact = [d.decode(sketch).params for d in (SHIPPED, NystromDecoder())]
    assert not np.array_equal(exact[0].covariance, exact[1].covariance)


@pytest.mark.parametrize(
    ("d", "kind"), [(150, DenseCovariance), (1025, LowRankCovariance)]
)
def test_the_prior_is_asked_of_up_to_1024_features(d, kind):
    omega = random_groups(d, 2, seed=0)
    assert isinstance(SHIPPED.complete(omega, omega, 0.0), kind)


def test_a_sketch_of_the_whole_second_moment_needs_no_prior():
    sketch = sketch_rows(ROWS, MomentFeatures(D))
    assert np.allclose(SHIPPED.decode(sketch).params.covariance, COVARIANCE, atol=1e-8)


@pytest.mark.parametrize(
    ("decoder", "size"), [("learned", 45), ("learned", 18), ("nystrom", 18)]
)
def test_torch_is_not_loaded_whether_the_prior_is_used_or_not(decoder, size):
    code = (
        "import sys, numpy as np, sketchlearn as sl;"
        "rows = np.random.default_rng(0).normal(size=(50, 9));"
        f"sl.CompressivePCA(2, sketch_size={size}, decoder={decoder!r}).fit(rows);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_an_estimate_of_correlations_gets_them_through_omega_in_unit_variance():
    scale = np.sqrt(np.diag(COVARIANCE))
    truth = COVARIANCE / np.outer(scale, scale)
    asked = []

    class Oracle(AbstractMomentDecoder):
        def complete(self, seen, omega, noise, places=None):
            asked.append((seen, omega, noise))
            return DenseCovariance(truth)

    phi = CrossMomentFeatures(D, 4)
    decoding = Oracle(with_unseen=True).decode(sketch_rows(ROWS, phi))
    seen, omega, noise = asked[0]
    assert noise == 0.0
    assert np.allclose(omega, phi.omega * scale[:, None], atol=1e-8)
    assert np.allclose(seen, truth @ omega, atol=1e-6)
    assert np.allclose(decoding.params.covariance, COVARIANCE, atol=1e-6)
    assert decoding.residual < 1e-6
    assert decoding.params.unseen_variance.max() < 1e-4  # nothing was missed


@pytest.mark.parametrize("columns", [1, 2, 3, 6])
@pytest.mark.parametrize("strength", [0.0, 0.25, 0.9])
def test_missed_strength_is_the_eigenvalue_where_all_are_equal(columns, strength):
    pairs = np.kron(np.eye(3), [[0.0, 1.0], [1.0, 0.0]])  # eigenvalues +1 and -1
    truth = np.eye(6) + strength * pairs
    omega = random_groups(6, columns, seed=1)

    def independence(seen, omega, noise):
        return DenseCovariance(np.eye(6))

    folds = held_out(truth @ omega, omega, 0.0, independence)
    found = missed_strength(folds)
    assert found == pytest.approx(strength, abs=1e-12)


def test_unseen_variance_is_for_covariances_that_will_be_inverted():
    sketch = sketch_rows(ROWS, CrossMomentFeatures(D, 3))
    inverted = EquivariantDecoder(SHIPPED.network, with_unseen=True)
    moments = inverted.decode(sketch).params
    assert (moments.unseen_variance > 0).all()
    share = moments.unseen_variance / np.diag(COVARIANCE)
    assert np.allclose(share, share[0], rtol=1e-6)  # the same in units of variance


ORDERED = EquivariantDecoder(PriorNetwork(replace(SPEC, ordered=True), seed=3).freeze())


@pytest.mark.parametrize("seed", range(3))
def test_an_extension_keeps_what_was_found_and_is_positive_definite(seed):
    rng = np.random.default_rng(seed)
    found, guess = correlations(4, rng), correlations(9, rng)
    places = np.sort(rng.permutation(9)[:4])
    whole = extend_correlation(found, guess, places)
    assert np.allclose(whole[np.ix_(places, places)], found)
    require_correlations(whole)
    exact = guess[np.ix_(places, places)]
    assert np.allclose(extend_correlation(exact, guess, places), guess, atol=1e-3)


@pytest.mark.parametrize("decoder", [SHIPPED, NystromDecoder()])
def test_who_does_not_look_at_the_order_leaves_features_without_room_alone(decoder):
    truth, places = ring(12, RNG), Places(np.array([1, 4, 8]), 12)
    omega = random_groups(3, 1, seed=0)
    seen = truth[np.ix_(places.seen, places.seen)] @ omega
    found = decoder.complete(seen, omega, 0.0, places).dense
    others = np.setdiff1d(np.arange(12), places.seen)
    assert np.array_equal(found[np.ix_(others, others)], np.eye(9))
    assert not found[np.ix_(others, places.seen)].any()


@pytest.mark.parametrize(("d", "p"), [(2, 1), (30, 29), (30, 4), (196, 100)])
@pytest.mark.parametrize("noise", [0.0, 0.1, 100.0])
def test_features_without_room_and_noise_give_correlations(d, p, noise):
    rng = np.random.default_rng(d)
    truth, places = correlations(d, rng), Places(np.sort(rng.permutation(d)[:p]), d)
    omega = random_groups(p, max(1, p // 5), seed=d)
    seen = truth[np.ix_(places.seen, places.seen)] @ omega
    seen += noise * rng.normal(size=seen.shape)
    found = ORDERED.complete(seen, omega, noise, places).dense
    assert found.shape == (d, d)
    require_correlations(found)


def test_much_noise_leaves_what_is_likely_without_the_sketch():
    rng = np.random.default_rng(0)
    truth, omega = correlations(30, rng), random_groups(30, 4, seed=0)
    noise = rng.normal(size=omega.shape)
    drowned = [
        ORDERED.complete(truth @ omega + 1e4 * part, omega, 1e4).dense
        for part in (noise, 0 * noise)
    ]
    for found in drowned:
        require_correlations(found)
        assert np.abs(found - np.eye(30)).max() < 0.9


def test_a_private_sketch_is_decoded_with_a_prior_that_knows_noise():
    phi = clipped(CrossMomentFeatures(D, 3, scaling=SCALING, reach=1.0), norm_bound=4.0)
    private = release_seeded(sketch_rows(ROWS, phi), 0, epsilon=50.0, delta=1e-5)
    learned, plain = (d.decode(private).params for d in (ORDERED, NystromDecoder()))
    assert not np.array_equal(learned.covariance, plain.covariance)
    assert np.linalg.eigvalsh(learned.covariance)[0] > -1e-6


def test_a_compressed_sketch_places_what_it_saw_among_all_features():
    kept = np.array([0, 3, 5, 11, 19])
    sketch = sketch_rows(ROWS, CrossMomentFeatures(D, 5, kept=kept))
    decoding = ORDERED.decode(sketch)
    found, inner = decoding.params.covariance, np.ix_(kept, kept)
    assert np.allclose(found[inner], COVARIANCE[inner], atol=1e-2)
    assert np.allclose(np.diag(found), np.diag(COVARIANCE), atol=1e-6)
    assert decoding.residual < 1e-2


def test_features_that_drown_in_noise_leave_nothing_to_be_guessed_from():
    rows = ROWS.copy()
    rows[:, 10:] *= 30.0
    bounds = Scaling.from_bounds(-500.0, 500.0, n_features=D)
    kept = np.arange(5)
    phi = CrossMomentFeatures(D, 2, kept=kept, scaling=bounds, reach=1.0)
    sketch = sketch_rows(rows, clipped(phi, norm_bound=1.0))
    private = release_seeded(sketch, 0, epsilon=5.0, delta=1e-5)
    for decoder in (ORDERED, SHIPPED, NystromDecoder()):
        found = decoder.decode(private).params.covariance
        assert np.array_equal(found, np.diag(np.diag(found)))


def test_covariances_that_will_be_inverted_hold_nothing_that_was_guessed():
    kept = np.array([0, 3, 5, 11, 19])
    sketch = sketch_rows(ROWS, CrossMomentFeatures(D, 3, kept=kept))
    guessed = ORDERED.decode(sketch).params.covariance
    checked = replace(ORDERED, with_unseen=True).decode(sketch).params.covariance
    others = np.setdiff1d(np.arange(D), kept)
    assert guessed[np.ix_(others, kept)].any()
    assert not checked[np.ix_(others, kept)].any()
