"""Second moments come back from random quadratic measurements of them.

Exactly where there are enough measurements or the rank is low, and by the smallest
solution otherwise; what the decoders say of themselves is true.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from sketchlearn import (
    FourierFeatures,
    QuadraticFeatures,
    clipped,
    sketch_rows,
)
from sketchlearn.decoders.baselines.factorized import (
    AcceleratedDecoder,
    ExponentialDecoder,
    RobustDecoder,
)
from sketchlearn.decoders.baselines.pseudo_inverse import PseudoInverseDecoder
from sketchlearn.decoders.baselines.quadratic_operator import (
    least_norm_solution,
    measurements_of,
)
from sketchlearn.errors import FeatureMapError
from sketchlearn.testing import release_seeded

D = 8
LAWS = ["gaussian", "chi", "unit"]
FACTORIZED = [RobustDecoder, AcceleratedDecoder, ExponentialDecoder]
EVERY = [PseudoInverseDecoder, *FACTORIZED]
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, D)) @ RNG.normal(size=(D, D)) / 3
MOMENT = ROWS.T @ ROWS / len(ROWS)


def sketch_of(rows, size, law="chi", seed=0):
    phi = QuadraticFeatures(
        rows.shape[1], size, law=law, seed=seed, value_bound=2.0**16
    )
    return sketch_rows(rows, phi)


def low_rank_rows(rank, seed=1, d=D):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(300, rank)) @ rng.normal(size=(rank, d))


def error(decoding, moment):
    return np.linalg.norm(decoding.params - moment) / np.linalg.norm(moment)


def missed(decoder, rows, size, seed):
    moment = rows.T @ rows / len(rows)
    return error(decoder.decode(sketch_of(rows, size, "unit", seed)), moment)


def broken_sketch(rows, size, share):
    """A sketch some of whose numbers are three times too large."""
    sketch = sketch_of(rows, size)
    mean = sketch.mean * np.where(np.arange(size) < share * size, 3.0, 1.0)
    return SimpleNamespace(feature_map=sketch.feature_map, mean=mean)


@pytest.mark.parametrize("off_diagonal_only", [False, True])
@pytest.mark.parametrize("law", LAWS)
def test_the_operator_is_the_matrix_of_the_map(law, off_diagonal_only):
    phi = QuadraticFeatures(D, 11, law=law)
    operator = measurements_of(phi, off_diagonal_only=off_diagonal_only)
    i, j = np.tril_indices(D)
    A = phi.matrix * ((i != j) if off_diagonal_only else 1)
    factor, weights = RNG.normal(size=(D, 3)), RNG.normal(size=11)
    matrix = factor @ factor.T
    adjoint = operator.adjoint(weights)

    assert np.allclose(operator.of_matrix(matrix), A @ matrix[i, j])
    assert np.allclose(operator.of_factor(factor), A @ matrix[i, j])
    assert np.allclose(operator.gram(), A @ A.T)
    assert np.allclose(operator.dense(), A[:, (i != j) | (not off_diagonal_only)])
    assert np.allclose(operator.transposed(weights)[i, j], A.T @ weights)
    assert np.isclose((adjoint * matrix).sum(), weights @ A @ matrix[i, j])
    assert np.allclose(operator.adjoint_times(weights, factor), adjoint @ factor)


@pytest.mark.parametrize("size", [5, 20, 35, 36, 37, 60])
@pytest.mark.parametrize("law", LAWS)
def test_the_pseudo_inverse_is_the_least_squares_solution_of_least_norm(law, size):
    sketch = sketch_of(ROWS, size, law)
    entries = np.linalg.lstsq(sketch.feature_map.matrix, sketch.mean, rcond=None)[0]
    decoding = PseudoInverseDecoder().decode(sketch)

    assert np.allclose(decoding.params[np.tril_indices(D)], entries, atol=1e-6)
    assert np.array_equal(decoding.params, decoding.params.T)


@pytest.mark.parametrize("law", LAWS)
def test_as_many_measurements_as_unknowns_give_everything_back(law):
    assert error(PseudoInverseDecoder().decode(sketch_of(ROWS, 40, law)), MOMENT) < 1e-4
    known = PseudoInverseDecoder(known_diagonal=np.diag(MOMENT))
    assert error(known.decode(sketch_of(ROWS, 30, law)), MOMENT) < 1e-4


@pytest.mark.parametrize("law", LAWS)
def test_a_large_dense_operator_in_single_precision_is_still_accurate(law):
    rows = low_rank_rows(40, d=92) / 10
    sketch = sketch_of(rows, 1000, law)
    assert sketch.feature_map.matrix.size > 2**22
    assert PseudoInverseDecoder().decode(sketch).residual < 1e-5


@pytest.mark.parametrize("positive", [False, True])
def test_more_measurements_are_better(positive):
    rows = low_rank_rows(30, d=30)
    decoder = PseudoInverseDecoder(positive=positive)
    errors = [
        np.mean([missed(decoder, rows, size, seed) for seed in range(3)])
        for size in (30, 120, 300, 450)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]


def test_the_nearest_positive_matrix_is_positive_and_nearer():
    sketch = sketch_of(ROWS, 12)
    plain, positive = (
        PseudoInverseDecoder(positive=choice).decode(sketch) for choice in (False, True)
    )
    assert np.linalg.eigvalsh(plain.params)[0] < -0.01
    assert np.linalg.eigvalsh(positive.params)[0] > -1e-12
    assert error(positive, MOMENT) < error(plain, MOMENT)
    assert plain.residual < 1e-6 < positive.residual


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("decoder", FACTORIZED)
def test_a_low_rank_moment_comes_back_from_fewer_measurements_than_unknowns(
    decoder, law
):
    rows = low_rank_rows(2, d=20)
    moment = rows.T @ rows / len(rows)
    sketch = sketch_of(rows, 150, law)  # 210 unknowns
    decoding = decoder(rank=2, tol=1e-7).decode(sketch)

    assert decoding.converged
    assert decoding.residual < 1e-5
    assert error(decoding, moment) < 1e-4
    assert error(PseudoInverseDecoder().decode(sketch), moment) > 0.1


def test_the_moment_of_one_repeated_row_is_solved_by_hand():
    rows = np.tile([3.0, 4.0, 0.0], (5, 1))
    solved = [[9, 12, 0], [12, 16, 0], [0, 0, 0]]
    for decoder in FACTORIZED:
        decoding = decoder(rank=1, tol=1e-8).decode(sketch_of(rows, 6))
        assert np.allclose(decoding.params, solved, atol=1e-3)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("decoder", FACTORIZED)
def test_a_known_diagonal_is_kept_and_the_moment_stays_positive(decoder, law):
    rows = ROWS / np.sqrt(np.diag(MOMENT))
    decoding = decoder(rank=3, known_diagonal=1.0).decode(sketch_of(rows, 20, law))
    assert np.allclose(np.diag(decoding.params), 1)
    assert np.linalg.eigvalsh(decoding.params)[0] > -1e-10


@pytest.mark.parametrize("decoder", EVERY)
def test_a_known_diagonal_helps(decoder):
    rows = ROWS / np.sqrt(np.diag(MOMENT))
    moment = rows.T @ rows / len(rows)
    with_and_without = [
        [
            error(
                decoder(known_diagonal=known).decode(sketch_of(rows, 20, seed=s)),
                moment,
            )
            for s in range(5)
        ]
        for known in (1.0, None)
    ]
    assert np.mean(with_and_without[0]) < 0.9 * np.mean(with_and_without[1])


@pytest.mark.parametrize("decoder", FACTORIZED)
def test_without_a_known_diagonal_the_moment_has_the_rank_asked_for(decoder):
    values = np.linalg.eigvalsh(decoder(rank=3).decode(sketch_of(ROWS, 30)).params)
    assert np.abs(values[:-3]).max() < 1e-10 < values[-3]


def test_squares_end_where_no_other_search_finds_less():
    sketch, rank = sketch_of(ROWS, 30), 2
    A, z = sketch.feature_map.matrix, sketch.mean
    lower = np.tril_indices(D)
    found = AcceleratedDecoder(rank=rank, tol=1e-7).decode(sketch)
    values, vectors = np.linalg.eigh(found.params)
    factor = vectors[:, -rank:] * np.sqrt(values[-rank:])

    def loss(flat):
        U = flat.reshape(D, rank)
        return np.sum((A @ (U @ U.T)[lower] - z) ** 2)

    searched = minimize(loss, factor.ravel(), method="BFGS", options={"maxiter": 200})
    assert found.converged
    assert searched.fun > loss(factor.ravel()) * (1 - 1e-6)


def test_the_robust_loss_ignores_broken_measurements_and_squares_do_not():
    rows = low_rank_rows(1, d=10)
    moment = rows.T @ rows / len(rows)
    broken = broken_sketch(rows, 120, share=0.1)
    assert error(RobustDecoder(rank=1).decode(broken), moment) < 0.02
    assert error(AcceleratedDecoder(rank=1).decode(broken), moment) > 0.1


def test_the_exponential_weights_damp_large_measurements():
    rows = low_rank_rows(1, d=10)
    moment = rows.T @ rows / len(rows)
    broken = broken_sketch(rows, 120, share=0.1)
    damped, plain = (
        error(ExponentialDecoder(rank=1, damping=damping).decode(broken), moment)
        for damping in (1.0, 1e9)
    )
    squares = error(AcceleratedDecoder(rank=1).decode(broken), moment)
    assert damped < 0.5 * plain
    assert np.isclose(plain, squares, rtol=1e-3)


@pytest.mark.parametrize("known", [None, np.diag(MOMENT)])
@pytest.mark.parametrize("decoder", EVERY)
def test_the_residual_is_what_the_moment_leaves_of_the_sketch(decoder, known):
    sketch = sketch_of(ROWS, 20)
    decoding = decoder(known_diagonal=known).decode(sketch)
    explained = sketch.feature_map.matrix @ decoding.params[np.tril_indices(D)]
    left = np.linalg.norm(explained - sketch.mean) / np.linalg.norm(sketch.mean)
    assert np.isclose(decoding.residual, left, atol=1e-12)


@pytest.mark.parametrize("decoder", FACTORIZED)
def test_a_search_that_stops_early_says_so(decoder):
    stopped = decoder(rank=2, max_iter=3).decode(sketch_of(ROWS, 30))
    assert (stopped.n_iter, stopped.converged) == (3, False)
    ended = decoder(rank=2, max_iter=5000).decode(sketch_of(ROWS, 30))
    assert ended.converged
    assert 3 < ended.n_iter < 5000


@pytest.mark.parametrize("decoder", EVERY)
def test_decoding_twice_gives_the_same_numbers(decoder):
    sketch = sketch_of(ROWS, 20)
    first, second = (decoder().decode(sketch).params for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("decoder", EVERY)
def test_rows_of_zeros_have_a_moment_of_zeros(decoder):
    sketch = sketch_of(np.zeros((4, D)), 20)
    assert not decoder().decode(sketch).params.any()
    assert not decoder(known_diagonal=0.0).decode(sketch).params.any()


@pytest.mark.parametrize("decoder", EVERY)
def test_one_feature_is_its_mean_square(decoder):
    sketch = sketch_of(np.array([[1.0], [3.0]]), 2)
    assert np.allclose(decoder().decode(sketch).params, 5, atol=1e-3)
    assert np.array_equal(decoder(known_diagonal=5.0).decode(sketch).params, [[5.0]])


@pytest.mark.parametrize("decoder", EVERY)
def test_private_sketches_decode_too(decoder):
    rows = np.tile(ROWS, (50, 1))
    phi = clipped(QuadraticFeatures(D, 40, law="unit"), norm_bound=200.0)
    private = release_seeded(sketch_rows(rows, phi), 0, epsilon=100.0, delta=1e-6)
    exact = decoder(rank=D) if decoder in FACTORIZED else decoder()
    assert error(exact.decode(private), MOMENT) < 0.1


@pytest.mark.parametrize("decoder", EVERY)
def test_sketches_of_other_maps_are_refused(decoder):
    sketch = sketch_rows(ROWS, FourierFeatures(D, 8))
    with pytest.raises(FeatureMapError, match="no random quadratic measurements"):
        decoder().decode(sketch)


@pytest.mark.parametrize("known", [-1.0, np.nan, [1.0, 1.0], np.ones((D, D))])
def test_a_diagonal_that_cannot_be_is_refused(known):
    with pytest.raises(FeatureMapError, match="known_diagonal must be"):
        PseudoInverseDecoder(known_diagonal=known).decode(sketch_of(ROWS, 20))


@pytest.mark.parametrize("rank", [0, D + 1])
def test_a_rank_that_cannot_be_is_refused(rank):
    with pytest.raises(FeatureMapError, match="rank must be from 1"):
        RobustDecoder(rank=rank).decode(sketch_of(ROWS, 20))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [30, 36, 45])
def test_refinement_explains_a_sketch_to_the_last_digits(law, size):
    phi = QuadraticFeatures(D, size, law=law, seed=1)
    measurements = measurements_of(phi)
    values = measurements.of_matrix(np.diag(np.arange(1.0, D + 1)) + 0.5)
    found = measurements.of_matrix(least_norm_solution(measurements, values))
    assert np.linalg.norm(found - values) < 1e-14 * np.linalg.norm(values)
