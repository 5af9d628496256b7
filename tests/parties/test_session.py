"""Terms are complete, public, the same for all, and different in every session."""

from dataclasses import replace

import numpy as np
import pytest

from parties.sums import NAMES, PHI, PROMISE, make_keys, make_sketches, start
from sketchlearn.errors import PrivacyError, SessionError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.quadratic import QuadraticFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.session import Session

KEYS = make_keys()
PRIVATE = start(KEYS, **PROMISE, n_honest=2)


def test_the_order_in_which_parties_are_named_does_not_matter():
    backwards = start(dict(reversed(KEYS.items())), **PROMISE, n_honest=2)
    assert backwards.names == PRIVATE.names == tuple(sorted(NAMES))
    same = replace(backwards, session_id=PRIVATE.session_id)
    assert same.digest == PRIVATE.digest


def test_every_term_is_in_the_digest():
    other = make_keys()
    changes = {
        "session_id": "0" * 32,
        "parties": start(other, **PROMISE).parties,
        "feature_map": "0" * 64,
        "epsilon": 1.5,
        "delta": 1e-7,
        "neighbours": "replace",
        "rows_per_unit": 2,
        "n_honest": 1,
    }
    assert set(changes) == set(PRIVATE.describe())
    digests = {replace(PRIVATE, **{k: v}).digest for k, v in changes.items()}
    assert len(digests | {PRIVATE.digest}) == len(changes) + 1


def test_numbers_of_numpy_make_the_same_terms():
    numpy = replace(
        PRIVATE,
        epsilon=np.float64(1.0),
        delta=np.float64(1e-6),
        rows_per_unit=np.int64(1),
    )
    assert numpy.digest == PRIVATE.digest


def test_a_renewed_session_has_the_same_terms_under_another_name():
    again = PRIVATE.renewed()
    assert again.session_id != PRIVATE.session_id
    assert replace(again, session_id=PRIVATE.session_id) == PRIVATE


@pytest.mark.parametrize("terms", [PROMISE, {}, {**PROMISE, "n_honest": 1}])
def test_a_description_gives_the_session_again(terms):
    session = start(KEYS, **terms)
    assert Session.from_description(session.describe()) == session


def test_nobody_relies_on_anybody_unless_stated():
    assert start(KEYS, **PROMISE).n_honest == 1
    assert start(KEYS).n_honest is None


@pytest.mark.parametrize("n_honest", [0, 3, 4, -1, 1.0, True, "2"])
def test_the_noise_of_the_others_must_be_enough(n_honest):
    with pytest.raises(SessionError, match="n_honest must be a whole number from 1 to"):
        start(KEYS, **PROMISE, n_honest=n_honest)


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        ({"epsilon": 1.0}, "delta must be"),
        ({"delta": 1e-6}, "given together"),
        ({"n_honest": 2}, "given together"),
        ({"rows_per_unit": 2}, "promises nothing"),
        ({"neighbours": "replace"}, "promises nothing"),
        ({"epsilon": 0.0, "delta": 1e-6}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": float("nan")}, "delta must be"),
        ({**PROMISE, "neighbours": "cousins"}, "neighbours must be"),
        ({**PROMISE, "rows_per_unit": 0}, "rows_per_unit"),
    ],
)
def test_terms_that_make_no_sense_are_refused(terms, match):
    with pytest.raises(PrivacyError, match=match):
        start(KEYS, **terms)


@pytest.mark.parametrize(
    ("parties", "match"),
    [
        ({}, "2 to 4096 parties"),
        ({"north": KEYS["north"].public}, "2 to 4096 parties"),
        ([("a", "b")], "2 to 4096 parties"),
        ({"a": KEYS["north"].public, "b": KEYS["north"].public}, "same public key"),
        ({"a": KEYS["north"].public, "b b": KEYS["south"].public}, "letters, digits"),
        ({"a": KEYS["north"].public, 7: KEYS["south"].public}, "letters, digits"),
        ({"a": KEYS["north"].public, "b": "short"}, "64 hexadecimal digits"),
        ({"a": KEYS["north"].public, "b": KEYS["south"]}, "64 hexadecimal digits"),
    ],
)
def test_parties_that_cannot_be_told_apart_are_refused(parties, match):
    with pytest.raises(SessionError, match=match):
        Session.start(PHI, parties, **PROMISE)


@pytest.mark.parametrize(
    ("phi", "match"),
    [
        (QuadraticFeatures(2, 8), "no per-row bound"),
        (
            clipped(
                FourierFeatures(4, 8, scaling=Scaling.from_rows(np.eye(4))),
                norm_bound=1.0,
            ),
            "planned from rows",
        ),
    ],
)
def test_a_map_that_cannot_be_released_is_refused_at_once(phi, match):
    with pytest.raises(PrivacyError, match=match):
        start(KEYS, phi, **PROMISE)


def test_what_is_no_map_is_refused():
    with pytest.raises(SessionError, match="about a feature map"):
        start(KEYS, make_sketches()["north"])


def test_a_party_is_known_by_its_key():
    assert [PRIVATE.party_of(key) for key in KEYS.values()] == list(KEYS)
    with pytest.raises(SessionError, match="none of this session's"):
        PRIVATE.party_of(PartyKey.generate())
    with pytest.raises(SessionError, match="must be a PartyKey"):
        PRIVATE.party_of("north")
