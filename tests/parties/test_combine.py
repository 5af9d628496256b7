"""All shares of a session give the sum of the sketches; all else is refused."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

import sketchlearn as sl
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
from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import FeatureMapMismatch, PrivacyError, SessionError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.parties.combine import combine
from sketchlearn.parties.shares import contribute
from sketchlearn.privacy.game import play
from sketchlearn.privacy.release import release
from sketchlearn.privacy.released import merge_disjoint
from sketchlearn.testing import contribute_seeded

KEYS = make_keys()
SKETCHES = make_sketches()


@pytest.fixture(scope="module")
def shares():
    return all_shares(start(KEYS, **PROMISE), KEYS, SKETCHES)


def seeded(session, keys, sketches):
    return [
        contribute_seeded(sketches[name], session, key, seed)
        for seed, (name, key) in enumerate(keys.items())
    ]


# The sum.


@pytest.mark.parametrize("n", [2, 3, 8])
def test_without_noise_the_sum_is_the_plain_sum(n):
    names = [f"p{i}" for i in range(n)]
    keys, sketches = make_keys(names), make_sketches(names)
    whole = combine(all_shares(start(keys), keys, sketches))

    assert whole == sum(sketches.values())
    assert whole.total == sum(sketches.values()).total


def test_the_order_of_shares_does_not_matter(shares):
    left, right = combine(shares), combine(reversed(shares))
    assert left.total == right.total
    assert left.statement == right.statement


def test_a_party_without_rows_takes_part_as_well():
    nothing = SKETCHES["west"] - SKETCHES["west"]
    sketches = {**SKETCHES, "west": nothing}
    whole = combine(all_shares(start(KEYS), KEYS, sketches))
    assert whole == SKETCHES["north"] + SKETCHES["south"]


def test_a_private_sum_is_near_the_exact_one(shares):
    private, exact = combine(shares), sum(SKETCHES.values())
    assert abs(private.count - exact.count) < 6 * private.count_noise_std
    noise = (private.mean - exact.mean) * private.count
    assert np.abs(noise).max() < 6 * private.noise_std + 0.5 * private.count_noise_std


def test_noise_of_all_parties_has_the_stated_size():
    phi = clipped(MomentFeatures(4000, order="mean"), norm_bound=1.0)
    sketches = {name: sketch_rows(np.zeros((9, 4000)), phi) for name in NAMES}
    session = start(KEYS, phi, **PROMISE)
    private = combine(seeded(session, KEYS, sketches))
    noise = np.array(private.total.to_ints()[:-1], float)
    share = session.plan(sketches["north"]).shares

    ratio = noise.var() / (3 * share.sigma**2)
    assert abs(ratio - 1) < 5 * sqrt(2 / len(noise))
    assert private.statement.sigma_int == pytest.approx(sqrt(3) * share.sigma)
    assert abs(noise.mean()) < 5 * private.statement.sigma_int / sqrt(len(noise))


def test_what_comes_out_is_a_release_like_any_other(shares):
    private = combine(shares)
    statement = private.statement

    assert statement.is_possible
    assert statement.is_about(PHI.spec)
    assert (statement.epsilon, statement.delta) == (1.0, 1e-6)
    assert statement.lineage == (shares[0].session.session_id,)
    assert not statement.seeded
    again = sl.loads(sl.dumps(private))
    assert again.total == private.total
    assert again.statement == statement


def test_the_noise_is_that_of_all_parties_and_the_promise_that_of_the_honest(shares):
    alone = release(SKETCHES["north"], **PROMISE, ledger=ample()).statement
    two = all_shares(start(KEYS, **PROMISE, n_honest=2), KEYS, SKETCHES)
    for made, n_honest in ((shares, 1), (two, 2)):
        statement = combine(made).statement
        assert statement.mu2 == alone.mu2
        expected = sqrt(3 / n_honest) * alone.sigma_int
        assert statement.sigma_int == pytest.approx(expected)


def test_decoders_take_it():
    model = sl.CompressivePCA(n_components=1, bounds=(-1, 1))
    phi = clipped(model.plan(n_features=4), norm_bound=2.0)
    rng = np.random.default_rng(0)
    loads = np.array([[0.3, 0.2, -0.1, 0.05]])
    sketches = {
        name: sketch_rows(np.clip(rng.normal(size=(20_000, 1)) * loads, -1, 1), phi)
        for name in NAMES
    }
    private = combine(all_shares(start(KEYS, phi, **PROMISE), KEYS, sketches))
    model.fit_sketch(private)
    direction = loads[0] / np.linalg.norm(loads)
    assert abs(model.components_[0] @ direction) > 0.99


def test_what_was_combined_twice_is_not_merged_with_itself(shares):
    with pytest.raises(PrivacyError, match="share rows"):
        merge_disjoint(combine(shares), combine(shares))
    exact = all_shares(start(KEYS), KEYS, SKETCHES)
    with pytest.raises(PrivacyError, match="count twice"):
        combine(exact) + combine(exact)


def test_columns_come_along():
    names = ["a", "b", "c", "d"]
    sketches = {
        name: replace(sketch, columns=tuple(names) if name == "south" else None)
        for name, sketch in SKETCHES.items()
    }
    assert combine(all_shares(start(KEYS), KEYS, sketches)).columns == tuple(names)
    sketches["west"] = replace(sketches["west"], columns=("a", "b", "d", "c"))
    with pytest.raises(FeatureMapMismatch, match="a column 'c' where right has 'd'"):
        combine(all_shares(start(KEYS), KEYS, sketches))


# What keeps the promise.


def test_who_knows_his_own_noise_cannot_tell_a_row():
    """The game of the audit, played by a party that takes its own noise away."""
    keys, n = make_keys(("north", "south")), 4000
    phi = clipped(MomentFeatures(2, order="mean"), norm_bound=1.0)
    session = start(keys, phi, epsilon=1.0, delta=1e-5)
    rows = np.array([[0.2, 0.1], [0.0, 0.3], [0.5, 0.5]])
    canary = np.vstack([rows, [[1.0, 0.0]]])
    rng = np.random.default_rng(0)
    tables = []
    for data in (rows, canary):
        plan = session.plan(sketch_rows(data, phi))
        drawn = [plan.draw_share(rng.bytes).to_ints() for _ in range(n)]
        tables.append(np.array(drawn, float) / 2.0**plan.statement.frac_bits)
    any_noise, gaussian, _ = play(*tables, delta=1e-5, gaussian=True)
    assert max(any_noise, gaussian) <= 1.0


def test_too_few_honest_parties_would_be_told_apart():
    """The same game has power: a share alone does not keep what three keep."""
    keys, n = make_keys([f"p{i}" for i in range(31)]), 4000
    phi = clipped(MomentFeatures(2, order="mean"), norm_bound=1.0)
    session = start(keys, phi, epsilon=1.0, delta=1e-5, n_honest=30)
    rng, tables = np.random.default_rng(0), []
    for data in (np.zeros((3, 2)), np.array([[0.0, 0.0]] * 3 + [[1.0, 0.0]])):
        plan = session.plan(sketch_rows(data, phi))
        drawn = [plan.draw_share(rng.bytes).to_ints() for _ in range(n)]
        tables.append(np.array(drawn, float) / 2.0**plan.statement.frac_bits)
    assert max(play(*tables, delta=1e-5, gaussian=True)[:2]) > 1.0


# What is refused.


def test_missing_shares_are_named(shares):
    match = r"the shares of 'north', 'west' are missing.*share\.renewed\(session, key\)"
    with pytest.raises(SessionError, match=match):
        combine([one for one in shares if one.party == "south"])


def test_repeated_shares_are_named(shares):
    with pytest.raises(SessionError, match="several shares of 'south'"):
        combine([*shares, *(one for one in shares if one.party == "south")])


def test_foreign_shares_are_named(shares):
    session = shares[0].session.renewed()
    foreign = contribute(SKETCHES["west"], session, KEYS["west"], ledger=ample())
    with pytest.raises(SessionError, match="of 'west' are of another session"):
        combine([*shares[:2], foreign])


def test_shares_on_other_terms_under_the_same_name_are_foreign(shares):
    session = replace(shares[0].session, rows_per_unit=2)
    other = replace(shares[2], session=session)
    with pytest.raises(SessionError, match="of 'west' are of another session"):
        combine([*shares[:2], other])


@pytest.mark.parametrize("bad", [[], ["north.share"], [SKETCHES["north"]]])
def test_what_are_no_shares_is_refused(bad):
    with pytest.raises(SessionError, match="takes the shares of a session"):
        combine(bad)


@pytest.mark.parametrize("terms", [{}, PROMISE])
@pytest.mark.parametrize("place", [0, 3, 4])
def test_a_share_whose_masks_do_not_cancel_is_refused(terms, place):
    made = all_shares(start(KEYS, **terms), KEYS, SKETCHES)
    values = made[1].masked.to_ints()
    values[place] ^= 2**125
    bad = replace(made[1], masked=Int128Array.from_ints(values))
    with pytest.raises(SessionError, match="do not cancel"):
        combine([made[0], bad, made[2]])


@pytest.mark.parametrize("terms", [{}, PROMISE])
def test_shares_on_terms_that_only_look_alike_are_refused(terms):
    session = start(KEYS, **terms)
    other = session.renewed()
    made = all_shares(session, KEYS, SKETCHES)[:2]
    book = ample() if terms else None
    forged = contribute(SKETCHES["west"], other, KEYS["west"], ledger=book)
    with pytest.raises(SessionError, match="do not cancel"):
        combine([*made, replace(forged, session=session)])


def test_test_doubles_say_so_and_never_mix_with_real_shares():
    session = start(KEYS, **PROMISE)
    doubles = seeded(session, KEYS, SKETCHES)
    again = seeded(session, KEYS, SKETCHES)

    assert combine(doubles).statement.seeded
    assert combine(doubles).total == combine(again).total
    real = contribute(SKETCHES["west"], session, KEYS["west"], ledger=ample())
    with pytest.raises(SessionError, match="seeded test doubles"):
        combine([*doubles[:2], real])
    with pytest.raises(SessionError, match="nothing to seed"):
        seeded(start(KEYS), KEYS, SKETCHES)


def test_fifty_parties_add_up():
    names = [f"p{i:02d}" for i in range(50)]
    keys = make_keys(names)
    phi = clipped(MomentFeatures(2000, order="mean"), norm_bound=1.0)
    one = sketch_rows(np.ones((3, 2000)), phi)
    sketches = {name: one.with_new_lineage() for name in names}
    assert combine(all_shares(start(keys, phi), keys, sketches)) == sum(
        sketches.values()
    )
