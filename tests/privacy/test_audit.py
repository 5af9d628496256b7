"""The audit finds broken promises, and finds nothing in kept ones."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import PrivacyError
from sketchlearn.features.clipping import clipped
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.privacy import game
from sketchlearn.privacy.audit import (
    FEWEST_RELEASES,
    AuditReport,
    audit,
    released_totals,
)
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_sigma
from sketchlearn.privacy.noise import discrete_gaussian
from sketchlearn.privacy.planned import PlannedRelease
from sketchlearn.privacy.release import release

PHI = clipped(MomentFeatures(4, order="mean"), norm_bound=1.0)
ROWS = np.vstack([np.eye(4) * 0.5, np.full((1, 4), -0.25)])
CANARY = np.full(4, 0.5)  # norm 1 = S
PROMISES = [(1.0, 1e-5), (2.0, 1e-6), (4.0, 1e-3), (8.0, 1e-5)]


def play(epsilon, delta, n, canary=CANARY, releaser=None):
    """The game alone, against our release unless another is given."""
    releaser = releaser or released_totals(PHI, epsilon=epsilon, delta=delta)
    return audit(
        releaser, rows=ROWS, canary=canary, epsilon=epsilon, delta=delta, n_releases=n
    )


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_our_release_passes_a_game_that_has_power(epsilon, delta):
    report = play(epsilon, delta, 20_000)

    assert report.passed
    assert report.epsilon_gaussian >= 0.25 * epsilon
    assert report.epsilon_any <= epsilon


@pytest.mark.full
@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_our_release_passes_a_longer_game(epsilon, delta):
    report = play(epsilon, delta, 50_000)

    assert report.passed
    assert report.epsilon_gaussian >= 0.35 * epsilon


@pytest.mark.parametrize(
    "canary",
    [np.full(4, 5.0), np.array([10.0, 0, 0, 0]), np.array([1.0, -1, 0, 0]), -CANARY],
    ids=["norm 10 S", "one coordinate", "difference", "opposite"],
)
def test_no_canary_tells_more(canary):
    assert play(1.0, 1e-5, 10_000, canary).passed


def gaussian(scale):
    def releaser(rows, n):
        rng = np.random.default_rng(len(rows))
        return rows.sum(axis=0) + rng.normal(size=(n, 4)) * scale

    return releaser


@pytest.mark.parametrize(
    "share",
    [
        0.0,
        0.1,
        0.5,
    ],
)
def test_too_little_noise_is_a_broken_promise(share):
    sigma = gaussian_sigma(1.0, 1.0, 1e-5)
    report = play(1.0, 1e-5, 20_000, releaser=gaussian(share * sigma))

    assert not report.passed
    assert report.epsilon_gaussian > 1.0
    assert str(report).startswith("PROMISE BROKEN: promised epsilon=1 at delta=1e-05")


def test_enough_noise_of_any_releaser_passes():
    sigma = gaussian_sigma(1.0, 1.0, 1e-5)
    assert play(1.0, 1e-5, 20_000, releaser=gaussian(sigma)).passed


def counting(noise):
    """Releases the number of rows with noise of one's own."""

    def releaser(rows, n):
        return len(rows) + noise(np.random.default_rng(len(rows)), n)

    return releaser


def randomised_response(rows, n):
    rng = np.random.default_rng(len(rows))
    truth = len(rows) > len(ROWS)
    lie = rng.random(n) > np.e / (1 + np.e)
    return (truth ^ lie).astype(float)[:, None]


SOUND = {
    "Laplace": counting(lambda rng, n: rng.laplace(size=(n, 1))),
    "geometric": counting(
        lambda rng, n: rng.geometric(1 - np.exp(-1), (n, 2)) @ np.array([[1.0], [-1.0]])
    ),
    "coarse Gaussian": counting(lambda rng, n: np.rint(rng.normal(size=(n, 1)) * 5.0)),
    "randomised response": randomised_response,
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_mechanisms_of_any_noise_pass(name):
    game = {"rows": ROWS, "canary": CANARY, "epsilon": 1.0, "delta": 1e-5}
    assert audit(SOUND[name], **game, gaussian=False).passed


def not_a_number(rows, n):
    table = np.random.default_rng(0).normal(size=(n, 2)) * 50
    return np.where(len(rows) > len(ROWS), np.nan, table)


def opposite_noise(rows, n):
    noise = np.random.default_rng(len(rows)).normal(size=(n, 1)) * 50
    return np.hstack([len(rows) + noise, -noise])


@pytest.mark.parametrize("releaser", [not_a_number, opposite_noise])
def test_what_is_hidden_in_the_numbers_is_found(releaser):
    assert not play(1.0, 1e-5, 2000, releaser=releaser).passed


def test_too_few_releases_prove_nothing_and_are_refused():
    with pytest.raises(PrivacyError, match="at least 1000"):
        play(1.0, 1e-5, 999)
    with pytest.raises(PrivacyError, match="n rows"):
        play(1.0, 1e-5, 1000, releaser=lambda rows, n: np.zeros((n, 0)))


def documented(n=20_000, **promise):
    """The audit of docs/privacy.md."""
    promise = {"epsilon": 1.0, "delta": 1e-5, **promise}
    return audit(PHI, rows=np.eye(4), canary=np.full(4, 20.0), n_releases=n, **promise)


def faults(report):
    return {check.name: check.fault for check in report.checks if check.fault}


def test_the_documented_audit_finds_nothing_here():
    report = documented()

    assert report.passed, str(report)
    assert [check.name for check in report.checks] == [
        "bound of a row",
        "calibration",
        "ledger",
        "single releases",
        "noise",
        "far tails",
    ]
    power = {check.name: check.power for check in report.checks}
    assert power["noise"] == "finds noise 2.0% too small in 100,000 numbers"
    assert "longest at 1.0000 of the bound" in power["bound of a row"]
    assert str(report).count("no fault") == 6


@pytest.mark.parametrize(
    "promise", [(1e-6, 1e-30), (0.05, 1e-9), (9.0, 1e-3), (100, 0.1)]
)
def test_audits_of_any_promise_find_nothing_here(promise):
    report = documented(1000, **dict(zip(("epsilon", "delta"), promise, strict=True)))
    assert report.passed, str(report)


@pytest.mark.full
def test_a_hundred_audits_find_nothing_here():
    for _ in range(100):
        assert not faults(documented(2000))


def test_a_function_is_audited_by_the_game_alone():
    assert play(1.0, 1e-5, 1000).checks == ()


@pytest.mark.parametrize("fault", ["repeats", "single"])
def test_the_audit_draws_single_releases_as_users_do(monkeypatch, fault):
    real = discrete_gaussian

    def sampler(sigma, size, *, random_bytes):
        if fault == "single" and size < 100:
            return [0] * size
        rng = np.random.default_rng(0)
        source = rng.bytes if fault == "repeats" else random_bytes
        return real(sigma, size, random_bytes=source)

    monkeypatch.setattr("sketchlearn.privacy.planned.discrete_gaussian", sampler)
    report = documented(2000)
    assert not report.passed
    assert "noise that repeats" in faults(report)["single releases"]
    assert str(report).startswith("PROMISE BROKEN")
    assert "single releases: BROKEN: noise that repeats, by default" in str(report)


def test_noise_that_depends_on_the_rows_is_found():
    def releaser(rows, n):
        rng = np.random.default_rng(len(rows))
        return rng.normal(size=(n, 4)) * len(rows) ** 2

    assert not play(1.0, 1e-5, 20_000, releaser=releaser).passed


def test_the_report_says_what_was_found():
    report = AuditReport(1.0, 1e-5, 0.123, 0.456, "last coordinate", 20_000)

    assert str(report) == (
        "no violation found: promised epsilon=1 at delta=1e-05; lower bounds from "
        "20,000 releases of each dataset: 0.12 (any noise), 0.46 (Gaussian noise), by "
        "the last coordinate"
    )


@pytest.mark.parametrize("bounds", [(1.01, 0.0), (0.0, 1.01)])
def test_either_bound_above_the_promise_breaks_it(bounds):
    report = AuditReport(1.0, 1e-5, *bounds, "x", 10)

    assert not report.passed
    assert "PROMISE BROKEN" in str(report)


@pytest.mark.parametrize(
    "releaser",
    [
        lambda rows, n: np.zeros(n),
        lambda rows, n: np.zeros((n, len(rows))),
        lambda rows, n: np.zeros((n, 2, 2)),
    ],
    ids=["flat", "width of the rows", "too deep"],
)
def test_a_releaser_of_the_wrong_shape_is_refused(releaser):
    with pytest.raises(PrivacyError, match="n rows of equal length"):
        play(1.0, 1e-5, 1000, releaser=releaser)


def test_a_releaser_that_gives_fewer_releases_is_refused():
    with pytest.raises(PrivacyError, match="other than n"):
        play(1.0, 1e-5, 1000, releaser=lambda rows, n: np.zeros((n // 2, 4)))


def test_a_promise_out_of_range_is_refused():
    with pytest.raises(PrivacyError, match="epsilon"):
        play(0.0, 1e-5, 1000)


def test_the_releaser_draws_from_the_same_distribution_as_a_release():
    fast = released_totals(PHI, epsilon=1.0, delta=1e-5)(ROWS, 3000)
    sketch = sketch_rows(ROWS, PHI)
    slow = []
    for _ in range(1000):
        book = Ledger.ephemeral(epsilon=1.0, delta=1e-5)
        slow.append(release(sketch, epsilon=1.0, delta=1e-5, ledger=book))
    totals = np.array([one.total.to_ints() for one in slow], float)
    errors = (fast.mean(axis=0) - totals.mean(axis=0)) / slow[0].statement.sigma_int

    assert fast.shape == (3000, 5)
    assert np.abs(errors).max() < 6 * np.sqrt(1 / 3000 + 1 / 1000)
    assert np.abs(fast.std(axis=0) / totals.std(axis=0) - 1).max() < 6 / np.sqrt(1000)


def quiet(sigma, size, *, random_bytes):
    return [0] * size


def test_the_audit_finds_a_release_whose_noise_was_taken_out(monkeypatch):
    monkeypatch.setattr("sketchlearn.privacy.planned.discrete_gaussian", quiet)
    assert not play(1.0, 1e-5, 2000).passed


def test_the_audit_finds_a_door_that_draws_too_little(monkeypatch):
    real = PlannedRelease.draw

    def draw(self, random_bytes, n=1):
        sigma = self.statement.sigma_int // 2
        other = replace(self, statement=replace(self.statement, sigma_int=sigma))
        return real(other, random_bytes, n)

    monkeypatch.setattr(PlannedRelease, "draw", draw)
    assert not play(1.0, 1e-5, 20_000).passed


def test_audit_is_a_function_whatever_was_imported_before():
    code = "import sketchlearn as sl; sl.AuditReport"
    code += "; assert callable(sl.audit)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_bounds_of_an_audit_hold_together_with_the_confidence_it_states(
    monkeypatch,
):
    computed = []
    for name in ("_upper", "_lower"):
        real = getattr(game, name)
        counted = lambda hits, n, real=real: computed.append(n) or real(hits, n)  # noqa: E731
        monkeypatch.setattr(game, name, counted)
    tables = np.random.default_rng(0).normal(size=(2, 1000, 5))
    game.play(*tables, 1e-6, gaussian=True)

    assert 1e-7 < len(computed) * game.CHANCE_OF_ERROR < 1e-6


def test_no_audit_is_too_short_to_find_that_there_is_no_noise():
    fewest = FEWEST_RELEASES
    tables = np.zeros((fewest, 3)), np.ones((fewest, 3))
    assert game.play(*tables, 1e-6, gaussian=False)[0] > 3
    short = [table[: fewest // 10] for table in tables]
    assert game.play(*short, 1e-6, gaussian=False)[0] < 1
