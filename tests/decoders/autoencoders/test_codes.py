"""Searched codes start at those of PCA, never end worse, and adapt to any sketch."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoders.autoencoders.test_linear import binary_rows, moments_of

import sketchlearn as sl
from sketchlearn.decoders.autoencoders.code_network import (
    COMPONENT_PART,
    CodeNetwork,
    CodeSpec,
    random_directions,
)
from sketchlearn.decoders.autoencoders.code_search import (
    SearchedCodes,
    SearchSteps,
    _pull,
)
from sketchlearn.decoders.autoencoders.directions import CodeDirections
from sketchlearn.decoders.autoencoders.linear import LinearAutoencoder
from sketchlearn.errors import FeatureMapError
from sketchlearn.metrics import balanced_accuracy

SHIPPED = sl.load_model("autoencoder-codes")
NO_STEPS = SearchSteps(*np.zeros((4, 0)))


def plain(known):
    """Codes as PCA has them, with steps of a search."""
    start = CodeNetwork.initial(CodeSpec())
    return SearchedCodes(
        classes=known.classes,
        gain=np.full(len(known.spread), 8.0),
        offset=np.full(len(known.spread), known.threshold),
        loadings=8 * known.directions,
        ones=known.ones,
        steps=start.search_steps,
    )


def weighted(rows, found, ones):
    """What the search makes larger, row by row."""
    weights = np.where(rows > 0.5, 0.5 / ones, 0.5 / (1 - ones))
    return (weights * ((rows > 0.5) == found)).mean(axis=1)


def test_without_steps_the_code_is_that_of_pca():
    rows = binary_rows(300, 20)
    known = CodeDirections.of_moments(moments_of(rows), 4)
    linear = LinearAutoencoder(known)
    coder = replace(plain(known), steps=NO_STEPS)
    assert np.allclose(coder.encode(rows), linear.encode(rows), atol=5e-3)
    agree = coder.reconstruct(rows) == linear.reconstruct(rows)
    assert agree.mean() > 0.99  # but for the ridge and single precision


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_no_row_comes_back_worse_than_where_the_search_began(share):
    rows = binary_rows(400, 30, share=share)
    known = CodeDirections.of_moments(moments_of(rows), 3)
    for coder in (plain(known), SHIPPED.adapted(known)):
        start = replace(coder, steps=NO_STEPS).reconstruct(rows)
        before = weighted(rows, start, known.ones)
        after = weighted(rows, coder.reconstruct(rows), known.ones)
        assert (after >= before - 1e-6).all()
        assert after.mean() > before.mean()


@settings(max_examples=20, deadline=None)
@given(
    d=st.integers(1, 40),
    k=st.integers(1, 12),
    n=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_any_sketch_gives_finite_codes_whatever_its_size(d, k, n, seed):
    rows = np.random.default_rng(seed).integers(0, 2, (n, d)).astype(float)
    known = CodeDirections.of_moments(moments_of(rows), min(k, d))
    codes = SHIPPED.adapted(known).encode(rows)
    assert codes.shape == (n, min(k, d))
    assert np.isfinite(codes).all()


def test_rows_are_encoded_alike_alone_and_among_others():
    rows = binary_rows(900, 700)  # more entries than are encoded at once
    coder = SHIPPED.adapted(CodeDirections.of_moments(moments_of(rows), 10))
    codes = coder.encode(rows)
    for number in (0, 450, 899):
        alone = coder.encode(rows[number : number + 1])
        found, expected = coder.decode(alone), coder.decode(codes[number : number + 1])
        assert np.mean((found > 0) == (expected > 0)) > 0.99  # ties and rounding


def test_negating_all_features_leaves_the_accuracy_as_it_is():
    rows = binary_rows(2000, 40, share=0.3)
    scores = []
    for table in (rows, 1 - rows):
        known = CodeDirections.of_moments(moments_of(table[:1000]), 5)
        found = SHIPPED.adapted(known).reconstruct(table[1000:])
        scores.append(balanced_accuracy(table[1000:], found))
    assert scores[0] == pytest.approx(scores[1], abs=0.02)


@pytest.mark.parametrize("n_rows", [30, 1000])
def test_learned_codes_bring_back_more_than_pca_from_the_same_moments(n_rows):
    rows = binary_rows(2000, 60, n_factors=8)
    known = CodeDirections.of_moments(moments_of(rows[:n_rows]), 6)
    other = rows[1000:]
    ours = balanced_accuracy(other, SHIPPED.adapted(known).reconstruct(other))
    pca = balanced_accuracy(other, LinearAutoencoder(known).reconstruct(other))
    assert ours > pca + 0.02


def test_codes_need_few_digits():
    """They are no digits in which bits are hidden: rounding them changes little."""
    rows = binary_rows(1500, 100, n_factors=10)
    coder = SHIPPED.adapted(CodeDirections.of_moments(moments_of(rows), 10))
    codes = coder.encode(rows)
    step = codes.std(axis=0) / 16  # about a hundred values a number
    rounded = coder.decode(np.round(codes / step) * step) > 0
    exact = balanced_accuracy(rows, coder.decode(codes) > 0)
    assert balanced_accuracy(rows, rounded) > exact - 0.01


def test_random_directions_are_always_the_same_and_about_orthonormal():
    spread = np.linspace(0.01, 0.25, 400)
    columns = random_directions(spread, 20)
    assert np.array_equal(columns, random_directions(spread, 20))
    assert np.abs(columns.T @ columns - np.eye(20)).max() < 0.3


def test_weights_come_back_from_their_file_form():
    network = CodeNetwork.initial(CodeSpec(width=8, n_steps=3), seed=4)
    again = CodeNetwork.from_weights(network.to_weights({"seed": 4}))
    assert again.spec == network.spec
    assert all(np.array_equal(again.tensors[n], a) for n, a in network.tensors.items())


def test_tensors_and_sizes_that_do_not_belong_together_are_refused():
    network = CodeNetwork.initial(CodeSpec(width=8, n_steps=3))
    with pytest.raises(FeatureMapError, match="do not fit"):
        CodeNetwork(CodeSpec(width=8, n_steps=4), network.tensors)
    with pytest.raises(FeatureMapError, match="'odd' .* no such tensor"):
        CodeNetwork(network.spec, {**network.tensors, "odd": np.zeros(1, np.float32)})
    part = {n: a for n, a in network.tensors.items() if COMPONENT_PART not in n}
    with pytest.raises(FeatureMapError, match="do not fit"):
        CodeNetwork(network.spec, part)
    with pytest.raises(FeatureMapError, match="width must be"):
        CodeSpec(width=0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_pull_is_the_gradient_of_what_a_step_makes_larger(alpha):
    """Of α times the likelihood and 1 - α times the share that is right."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (1, 6)).astype(float)
    signs = np.where(rows > 0.5, 0.8, -1.3)
    logits, t = rng.normal(size=(1, 6)), 0.7

    def smooth(values):
        q = 1 / (1 + np.exp(-values / t))
        likelihood = np.abs(signs) * np.log(np.where(rows > 0.5, q, 1 - q))
        return t * (alpha * likelihood + (1 - alpha) * 4 * signs * q).sum()

    steps = 1e-6 * np.eye(6)
    gradient = [(smooth(logits + s) - smooth(logits - s)) / 2e-6 for s in steps]
    assert np.allclose(
        _pull(logits, signs, np.abs(signs), t, alpha)[0], gradient, atol=1e-6
    )
