"""A share is paid for, made once, and says nothing by itself."""

import errno
import fcntl
import multiprocessing
import pickle
from dataclasses import fields, replace
from fractions import Fraction
from math import sqrt

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
from privacy.ledgers import forks, in_a_child
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
from sketchlearn.parties import keys as party_keys
from sketchlearn.parties.combine import combine
from sketchlearn.parties.keys import PartyKey
from sketchlearn.parties.masks import mask_keys, unmasked
from sketchlearn.parties.session import Session
from sketchlearn.parties.shares import Share, contribute
from sketchlearn.privacy import planned
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_epsilon
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
    monkeypatch.setattr(party_keys, "_USED", set())  # as another process sees it
    with pytest.raises(SessionError, match=r"Start a new one with session\.renewed"):
        mine(session, Ledger.open(book.path))
    assert len(book.charges) == 1


def saved(path, name="north"):
    """A key of this party from a file of its own."""
    PartyKey(KEYS[name].secret).save(path)
    return PartyKey.load(path)


FORK = multiprocessing.get_context("fork")


def race(key, session, ledger, start_line, found):
    """Contribute with a key of this file at the same moment as others do."""
    start_line.wait()
    try:
        contribute(SKETCHES["north"], session, PartyKey.load(key), ledger=ledger)
        found.put("made")
    except SessionError:
        found.put("refused")


@forks
@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_of_processes_that_contribute_at_once_one_does(tmp_path, terms):
    path = tmp_path / "north.key"
    saved(path)
    start_line, found = FORK.Barrier(6), FORK.Queue()
    session, racers = start(KEYS, **terms), []
    for number in range(6):  # each with a ledger of its own: the key must notice
        book = tmp_path / f"{number}.ledger" if terms else None
        if terms:
            Ledger(book, epsilon=50.0, delta=1e-6)
        arguments = path, session, book, start_line, found
        racers.append(FORK.Process(target=race, args=arguments))
    for racer in racers:
        racer.start()
    results = sorted(found.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join()
    assert results == ["made"] + 5 * ["refused"]


def in_another_process(monkeypatch):
    """Forget what this process knows: only files remain."""
    monkeypatch.setattr(party_keys, "_USED", set())


def check_journal(folder, terms, monkeypatch):
    """Whoever loads the key later cannot make a second share."""
    path, session = folder / "north.key", start(KEYS, **terms)
    saved(path)
    make = [ample(), ample()] if terms else [None, None]
    mine(session, make[0], key=PartyKey.load(path))
    in_another_process(monkeypatch)
    try:
        mine(session, make[1], key=PartyKey.load(path))
    except SessionError as error:
        untouched = not terms or make[1].charges == ()
        return "contributed to this session before" in str(error) and untouched
    return False


@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_a_key_file_knows_to_which_sessions_it_has_contributed(
    tmp_path, terms, monkeypatch
):
    assert check_journal(tmp_path, terms, monkeypatch)


@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_a_journal_that_is_ignored_is_found_out(tmp_path, terms, monkeypatch):
    real = party_keys._parse_key
    monkeypatch.setattr(party_keys, "_parse_key", lambda *a: (real(*a)[0], set()))
    assert not check_journal(tmp_path, terms, monkeypatch)


@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_the_session_is_on_the_disk_before_the_share_leaves(
    tmp_path, terms, monkeypatch
):
    path, session = tmp_path / "north.key", start(KEYS, **terms)
    key = saved(path)
    calls, write = [], party_keys.write_file
    monkeypatch.setattr(
        party_keys, "write_file", lambda *a: calls.append(a) or write(*a)
    )
    mine(session, ample() if terms else None, key=key)
    assert [name for name, _ in calls] == [str(path)]
    assert session.session_id.encode() in path.read_bytes()


def test_a_share_that_was_never_made_is_no_contribution(tmp_path, monkeypatch):
    """The disk is full, or the ledger: what did not leave may be made later."""
    path, session = tmp_path / "north.key", start(KEYS, **PROMISE)
    key, before = saved(path), path.read_bytes()
    with pytest.raises(BudgetExceeded):
        mine(session, Ledger.ephemeral(epsilon=0.5, delta=1e-6), key=key)

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr(party_keys, "write_file", full)
        with pytest.raises(OSError, match="No space left"):
            mine(session, ample(), key=key)
    assert path.read_bytes() == before
    assert mine(session, ample(), key=key).party == "north"


def test_a_key_that_cannot_write_its_journal_makes_no_share(tmp_path, monkeypatch):
    path = tmp_path / "north.key"
    key, book = saved(path), ample()
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", lambda *arguments: None)
        with pytest.raises(SessionError, match=r"cannot be changed .*keep nobody out"):
            mine(start(KEYS, **PROMISE), book, key=key)
    path.rename(tmp_path / "moved.key")
    with pytest.raises(SessionError, match=r"cannot be changed .*from where it is now"):
        mine(start(KEYS, **PROMISE), book, key=key)
    saved(path, "south")
    with pytest.raises(SessionError, match="holds another key"):
        mine(start(KEYS, **PROMISE), book, key=key)
    assert book.charges == ()


@forks
def test_a_key_in_memory_makes_no_share_after_a_fork():
    session = start(KEYS)

    def act():
        try:
            mine(session, None)
        except SessionError as error:
            return str(error)

    assert "after a fork two processes could contribute" in in_a_child(act)
    assert mine(session, None).party == "north"


@forks
def test_a_key_in_memory_is_not_saved_after_a_fork(tmp_path):
    key = PartyKey.generate()

    def act():
        try:
            key.save(tmp_path / "north.key")
        except SessionError as error:
            return str(error)

    assert "before the fork" in in_a_child(act)
    assert not (tmp_path / "north.key").exists()
    key.save(tmp_path / "north.key")
    assert in_a_child(lambda: key.save(tmp_path / "again.key")) is None


def test_other_charges_of_one_name_still_all_count():
    book = ample()
    session = start(KEYS, **PROMISE)
    charge = session.plan(SKETCHES["north"]).charge
    book.charge(charge)
    book.charge(charge)
    with pytest.raises(SessionError):
        book.charge(charge, once=True)
    assert len(book.charges) == 2


# Whom it relies on.


def false_parties(n):
    """The true price, and what the ledger says, of a party among n - 1 false ones."""
    keys = make_keys([f"p{i}" for i in range(n)])
    session = start(keys, **PROMISE, n_honest=n - 1)
    book = Ledger.ephemeral(epsilon=100.0, delta=1e-2)
    contribute(SKETCHES["north"], session, keys["p0"], ledger=book)
    plan = session.plan(SKETCHES["north"])
    steps = Fraction(plan.statement.sensitivity) * 2**plan.statement.frac_bits
    alone = (steps / plan.shares.sigma) ** 2  # all noise but one's own is known
    return float(alone), book.charges[0].mu2


def check_charge():
    """The ledger never says less than what a party with false others has spent."""
    return all(true <= paid for true, paid in map(false_parties, (2, 3, 20)))


def test_the_charge_holds_even_if_all_others_are_one():
    true, paid = false_parties(60)
    assert paid == pytest.approx(true, rel=1e-6)
    assert gaussian_epsilon(sqrt(paid), 1e-6) > 7  # where the terms promise 1
    assert check_charge()


def test_a_charge_that_does_not_follow_from_what_was_stated_is_found_out(monkeypatch):
    monkeypatch.setattr(PlannedRelease, "charge_among", lambda plan, n: plan.charge)
    assert not check_charge()


@pytest.mark.parametrize("n_honest", [1, 2, 3])
@pytest.mark.parametrize("honest_others", [0, 1, 2])
def test_the_charge_is_that_of_the_noise_relied_on(n_honest, honest_others):
    keys = make_keys("abcd")
    session, book = start(keys, **PROMISE, n_honest=n_honest), ample()
    contribute(
        SKETCHES["north"],
        session,
        keys["a"],
        ledger=book,
        honest_others=honest_others,
    )
    (paid,), terms = book.charges, session.plan(SKETCHES["north"]).charge
    ratio = max(1.0, n_honest / (honest_others + 1))
    assert paid.mu2 == pytest.approx(ratio * terms.mu2, rel=1e-8)
    assert paid.mu2 >= terms.mu2
    assert (paid == terms) is (honest_others + 1 >= n_honest)


def test_a_party_with_too_little_budget_for_its_distrust_is_told_what_to_do():
    keys = make_keys([f"p{i}" for i in range(9)])
    session, book = start(keys, **PROMISE, n_honest=8), ample()
    small = Ledger.ephemeral(epsilon=2.0, delta=1e-6)
    with pytest.raises(BudgetExceeded, match=r"State honest_others=.*n_honest=1, "):
        contribute(SKETCHES["north"], session, keys["p0"], ledger=small)
    assert small.charges == ()
    contribute(SKETCHES["north"], session, keys["p0"], ledger=small, honest_others=7)
    assert book.charges == ()


@pytest.mark.parametrize("honest_others", [-1, 2, 1.0, True, None, "1"])
def test_others_are_counted_and_whoever_looks_may_be_one(session, honest_others):
    book = ample()
    with pytest.raises(SessionError, match="honest_others must be .* from 0 to 1"):
        contribute(
            SKETCHES["north"],
            session,
            KEYS["north"],
            ledger=book,
            honest_others=honest_others,
        )
    assert book.charges == ()


def test_without_noise_nobody_is_relied_on():
    with pytest.raises(PrivacyError, match="Leave out ledger= and honest_others="):
        contribute(SKETCHES["north"], start(KEYS), KEYS["north"], honest_others=1)


# Once more, after a session was spoiled.


def test_a_spoiled_session_is_made_up_for_without_the_party_that_left(session):
    books = {name: ample() for name in NAMES}
    made = {
        name: contribute(SKETCHES[name], session, KEYS[name], ledger=books[name])
        for name in ("north", "west")
    }  # of the south nothing ever came
    left = {name: KEYS[name] for name in made}
    other = start(left, **PROMISE)
    again = [share.renewed(other, KEYS[name]) for name, share in made.items()]
    whole = combine(again)

    assert whole.statement.lineage == (other.session_id,)
    assert {len(books[name].charges) for name in left} == {1}
    first = [
        unmasked(share.masked, name, mask_keys(session, KEYS[name]))
        for name, share in made.items()
    ]
    assert whole.total == first[0] + first[1]  # the same noise: nothing new is shown
    noise = whole.count - SKETCHES["north"].count - SKETCHES["west"].count
    assert abs(noise) < 6 * whole.count_noise_std
    for key in left.values():
        with pytest.raises(SessionError, match="contributed to this session before"):
            made[other.party_of(key)].renewed(other, key)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.5},
        {"delta": 1e-7},
        {"neighbours": "replace"},
        {"rows_per_unit": 2},
        {"feature_map": "0" * 64},
        {"n_honest": 2},
    ],
)
def test_numbers_are_sent_again_with_the_same_noise_only(session, changes):
    share = mine(session, ample())
    with pytest.raises(SessionError, match="as to any session"):
        share.renewed(replace(session.renewed(), **changes), KEYS["north"])


def test_where_parties_rely_on_others_and_without_noise_nothing_is_sent_again(session):
    book = ample()
    for terms in ({**PROMISE, "n_honest": 2}, {}):
        first = start(KEYS, **terms)
        share = mine(first, book if terms else None)
        with pytest.raises(SessionError, match="that the others draw anew"):
            share.renewed(first.renewed(), KEYS["north"])
    share = mine(session, ample())
    with pytest.raises(SessionError, match="the share it made itself"):
        share.renewed(session.renewed(), KEYS["south"])
    with pytest.raises(SessionError, match="must be a Session"):
        share.renewed("again.session", KEYS["north"])


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
