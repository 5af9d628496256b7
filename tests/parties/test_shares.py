"""A share is paid for, made once, and says nothing by itself."""

import multiprocessing
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import chisquare

from parties.sums import (
    NAMES,
    PHI,
    PROMISE,
    all_shares,
    ample,
    make_keys,
    make_sketches,
    start,
)
from privacy.ledgers import forks
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import (
    BudgetExceeded,
    FeatureMapMismatch,
    LedgerError,
    PrivacyError,
    SessionError,
)
from sketchlearn.features.clipping import clipped
from sketchlearn.features.composition import ConcatenatedFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.parties import shares
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share, contribute
from sketchlearn.privacy import planned
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.planned import PlannedRelease
from sketchlearn.privacy.release import release
from sketchlearn.sketching.sketch import Sketch

KEYS = make_keys()
SKETCHES = make_sketches()


@pytest.fixture
def session():
    return start(KEYS, **PROMISE)


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "north.ledger", epsilon=1.2, delta=1e-6)


def mine(session, book, **changes):
    arguments = {"sketch": SKETCHES["north"], "key": KEYS["north"], **changes}
    return contribute(arguments["sketch"], session, arguments["key"], ledger=book)


# What it costs.


def test_a_contribution_costs_what_a_release_costs(session):
    shared, alone = ample(), ample()
    mine(session, shared)
    release(SKETCHES["north"], **PROMISE, ledger=alone)

    (paid,), (usual,) = shared.charges, alone.charges
    assert paid.release_id == session.session_id
    assert (paid.mu2, paid.epsilon, paid.delta) == (usual.mu2, 1.0, 1e-6)
    assert paid.lineage == tuple(SKETCHES["north"].lineage)


def test_the_ledger_is_paid_on_disk_before_noise_is_drawn(session, book, monkeypatch):
    class Power(BaseException):
        """It went out."""

    def fail(*_):
        assert len(Ledger.open(book.path).charges) == 1
        raise Power

    monkeypatch.setattr(PlannedRelease, "draw_share", fail)
    with pytest.raises(Power):
        mine(session, book)
    monkeypatch.undo()
    with pytest.raises(SessionError, match="has paid for .* before"):
        mine(session, book)
    assert len(book.charges) == 1


def test_a_refused_contribution_spends_nothing_and_may_be_made_again(session, book):
    mine(start(KEYS, **PROMISE), book)
    with pytest.raises(BudgetExceeded, match="nothing was released"):
        mine(session, book)
    assert len(book.charges) == 1
    assert mine(session, ample()).party == "north"


def test_a_private_session_needs_a_ledger(session):
    for ledger in (None, 7):
        with pytest.raises(PrivacyError, match="ledger must be a Ledger or the path"):
            mine(session, ledger)
    with pytest.raises((LedgerError, OSError)):
        mine(session, "no.ledger")


def test_an_exact_session_has_no_ledger(book):
    with pytest.raises(PrivacyError, match="no ledger can pay"):
        mine(start(KEYS), book)
    assert book.charges == ()


# Once.


@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_a_second_share_of_this_process_is_refused(terms):
    session = start(KEYS, **terms)
    make = [None, None] if not terms else [ample(), ample()]
    mine(session, make[0])
    with pytest.raises(SessionError, match="contributed to this session before"):
        mine(session, make[1])
    assert not terms or make[1].charges == ()


def test_a_second_share_by_the_same_ledger_is_refused_in_another_process(
    session, book, monkeypatch
):
    mine(session, book)
    monkeypatch.setattr(shares, "_MADE", set())  # as another process sees it
    with pytest.raises(SessionError, match=r"Start a new one with session\.renewed"):
        mine(session, Ledger.open(book.path))
    assert len(book.charges) == 1


FORK = multiprocessing.get_context("fork")


def race(path, session, start_line, found):
    start_line.wait()
    try:
        mine(session, path)
        found.put("made")
    except SessionError:
        found.put("refused")


@forks
def test_of_processes_that_contribute_at_once_one_does(session, tmp_path):
    path = tmp_path / "north.ledger"
    Ledger(path, epsilon=50.0, delta=1e-6)
    start_line, found = FORK.Barrier(6), FORK.Queue()
    racers = [
        FORK.Process(target=race, args=(path, session, start_line, found))
        for _ in range(6)
    ]
    for racer in racers:
        racer.start()
    results = sorted(found.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join()
    assert results == ["made"] + 5 * ["refused"]
    assert len(Ledger.open(path).charges) == 1


def test_other_charges_of_one_name_still_all_count():
    book = ample()
    session = start(KEYS, **PROMISE)
    charge = session.plan(SKETCHES["north"]).charge
    book.charge(charge)
    book.charge(charge)
    with pytest.raises(SessionError):
        book.charge(charge, once=True)
    assert len(book.charges) == 2


# What it shows.


def test_a_share_is_uniform_whatever_the_sketch():
    names = [f"c{i}" for i in range(1000)]
    phi = clipped(MomentFeatures(len(names), order="mean"), norm_bound=1.0)
    for rows in (np.zeros((5, 1000)), np.ones((5, 1000))):
        made = contribute(sketch_rows(rows, phi), start(KEYS, phi), KEYS["west"])
        words = np.frombuffer(made.masked.tobytes(), np.uint8)
        assert chisquare(np.bincount(words, minlength=256)).pvalue > 1e-6


def test_a_share_carries_nothing_exact(session):
    exact = SKETCHES["north"]
    made = mine(session, ample())
    public = pickle.dumps(made)

    assert {field.name for field in fields(made)} == {
        "session", "party", "masked", "features", "columns", "seeded", "source_map",
    }  # fmt: skip
    for run in exact.lineage:
        assert run.encode() not in public
    assert exact.digest.encode() not in public
    assert made.masked.take(np.arange(4)) != exact.total


def test_two_sessions_have_nothing_in_common():
    left, right = (mine(start(KEYS), None).masked for _ in range(2))
    assert not set(left.to_ints()) & set(right.to_ints())


# What is refused.


def test_sketches_that_do_not_fit_are_refused(session):
    other = clipped(MomentFeatures(4, order="mean"), norm_bound=2.0)
    with pytest.raises(FeatureMapMismatch, match="the session is about the map"):
        mine(session, ample(), sketch=make_sketches(phi=other)["north"])
    largest = sketch_rows(np.zeros((3, 4)), PHI, pooling="max")
    with pytest.raises(FeatureMapMismatch, match="pooled by 'max'"):
        mine(session, ample(), sketch=largest)
    private = release(SKETCHES["north"], **PROMISE, ledger=ample())
    for bad in (private, "north.sketch"):
        with pytest.raises(PrivacyError, match="takes the exact sketch"):
            mine(session, ample(), sketch=bad)
    with pytest.raises(SessionError, match="must be a Session"):
        mine("study.session", ample())


def test_a_bad_key_of_another_party_is_found_before_it_is_paid():
    low = (0).to_bytes(32, "little").hex()
    public = {"north": KEYS["north"].public, "south": low}
    session, book = Session.start(PHI, public, **PROMISE), ample()
    with pytest.raises(SessionError, match="of party 'south'"):
        mine(session, book)
    assert book.charges == ()


@pytest.mark.parametrize(("value", "fits"), [(2**126 - 1, True), (2**126, False)])
def test_totals_of_all_parties_must_fit_in_128_bits(value, fits):
    parts = [
        clipped(MomentFeatures(1, order="mean"), norm_bound=bound)
        for bound in (1.0, 2.0**64)
    ]
    phi = ConcatenatedFeatures(parts)
    keys = make_keys(("north", "south"))
    large = Sketch(Int128Array.from_ints([0, -value]), 2**20, phi.spec)
    beside = Int128Array.from_ints([0, 64 * 1000 - value])
    private = replace(large, total=beside, count=1)
    if fits:
        made = contribute(large, start(keys, phi), keys["north"])
        assert len(made.masked) == 3
        planned._require_room(private, 1000, n_parties=2)
    else:
        with pytest.raises(SessionError, match="do not fit in 128 bits"):
            contribute(large, start(keys, phi), keys["north"])
        with pytest.raises(PrivacyError, match="128 bits"):
            planned._require_room(private, 1000, n_parties=2)


def test_a_share_belongs_to_its_session(session):
    made = mine(session, ample())
    for changes in (
        {"party": "east"},
        {"masked": made.masked.take(np.arange(3))},
    ):
        values = {field.name: getattr(made, field.name) for field in fields(made)}
        with pytest.raises(SessionError):
            Share(**{**values, **changes})


def test_noise_is_fresh_in_every_share(session):
    first = all_shares(session, KEYS, SKETCHES)
    again = all_shares(session.renewed(), KEYS, SKETCHES)
    assert [one.party for one in first] == [one.party for one in again] == list(NAMES)
