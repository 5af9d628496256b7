"""A sketch for each class: known classes are used, others are weighed."""

import numpy as np
import pytest

from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.decoders.autoencoders.per_class import PerClassAutoencoder
from sketchlearn.errors import RowsError

SPEC = ConditionalSpec(12, 3, "sketch", 1, 16, 4, 1, 8)
FAMILY = ConditionalAutoencoder.initial(SPEC, seed=0)
RNG = np.random.default_rng(0)
SHARES = np.array([[0.9] * 5 + [0.1] * 5, [0.1] * 5 + [0.9] * 5, [0.5] * 10])
SKETCHES = RNG.normal(size=(3, 4))
COUNTS = [60, 30, 10]
CLASSES = RNG.integers(3, size=50)
ROWS = (RNG.random((50, 10)) < SHARES[CLASSES]) * 1.0
MEMBERS = [FAMILY.adapted(m, s) for m, s in zip(SHARES, SKETCHES, strict=True)]
MODEL = PerClassAutoencoder(MEMBERS, COUNTS)


def test_one_class_is_the_plain_autoencoder():
    alone = PerClassAutoencoder(MEMBERS[:1], COUNTS[:1])
    codes = alone.encode(ROWS)
    assert np.allclose(codes[:, :3], MEMBERS[0].encode(ROWS))
    assert np.array_equal(codes[:, 3:], np.ones((50, 1)))
    assert np.allclose(alone.decode(codes), MEMBERS[0].decode(codes[:, :3]))
    assert np.array_equal(alone.reconstruct(ROWS), MEMBERS[0].reconstruct(ROWS))


def test_a_row_of_known_class_goes_through_the_autoencoder_of_its_class():
    codes = MODEL.encode(ROWS, CLASSES)
    scores = MODEL.decode(codes)
    for index, member in enumerate(MEMBERS):
        own = index == CLASSES
        assert np.allclose(codes[own, :3], member.encode(ROWS[own]))
        assert np.allclose(scores[own], member.decode(codes[own, :3]))
        assert np.array_equal(codes[own, 3:], np.eye(3)[CLASSES[own]])


def test_codes_end_with_weights_of_classes_that_add_up_to_one():
    codes = MODEL.encode(ROWS)
    assert codes.shape == (50, MODEL.n_codes) == (50, 6)
    assert np.allclose(codes[:, 3:].sum(axis=1), 1)
    assert (codes[:, 3:] > 0).all()


def test_weights_are_shares_times_tempered_likelihoods():
    row = ROWS[:1]
    counts = np.array(COUNTS)
    smooth = (counts[:, None] * SHARES + 0.5) / (counts[:, None] + 1)
    likelihood = np.where(row == 1, smooth, 1 - smooth).prod(axis=1)
    weights = counts * likelihood ** (1 / np.sqrt(10))
    assert np.allclose(MODEL.encode(row)[0, 3:], weights / weights.sum())


def test_a_row_of_unknown_class_has_the_mixture_of_conditions():
    weights = MODEL.encode(ROWS[:1])[0, 3:]
    mixed = FAMILY.adapted(weights @ SHARES, weights @ SKETCHES)
    assert np.allclose(MODEL.encode(ROWS[:1])[:, :3], mixed.encode(ROWS[:1]))


def test_members_of_different_weights_or_columns_are_refused():
    other = ConditionalAutoencoder.initial(SPEC, seed=1)
    strange = other.adapted(SHARES[0], SKETCHES[0])
    narrow = FAMILY.adapted(SHARES[0][:9], SKETCHES[0])
    for member in (strange, narrow):
        with pytest.raises(RowsError, match="share their weights and their columns"):
            PerClassAutoencoder([MEMBERS[0], member], [1, 1])


@pytest.mark.parametrize("counts", [[], [1, 2], [1, 2, 0], [1, 2, np.nan], [[1, 2, 3]]])
def test_counts_that_are_no_numbers_of_rows_are_refused(counts):
    with pytest.raises(RowsError, match="one autoencoder for each class"):
        PerClassAutoencoder(MEMBERS, counts)


@pytest.mark.parametrize("classes", [[0], [3] * 50, [-1] * 50, [0.5] * 50])
def test_classes_that_are_none_are_refused(classes):
    with pytest.raises(RowsError, match="whole number from 0 to 2"):
        MODEL.encode(ROWS, classes)


def test_rows_and_codes_of_another_width_are_refused():
    with pytest.raises(RowsError, match="rows must have shape"):
        MODEL.encode(np.zeros((2, 12)))
    with pytest.raises(RowsError, match="codes must have shape"):
        MODEL.decode(np.zeros((2, 3)))
