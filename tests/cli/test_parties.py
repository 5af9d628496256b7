"""Parties add up their sketches by files and commands alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sketchlearn as sl
from sketchlearn.cli.app import main

NAMES = ("north", "south")
PHI = sl.clipped(sl.FourierFeatures(3, 16), norm_bound=1.0)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Keys, ledgers and sketches of two parties, and the map they agreed on."""
    monkeypatch.chdir(tmp_path)
    sl.save(PHI, "study.map")
    rng = np.random.default_rng(0)
    for name in NAMES:
        rows = rng.normal(size=(2000, 3))
        sl.save(sl.sketch_rows(rows, PHI, progress=False), f"{name}.sketch")
        sl.Ledger(f"{name}.ledger", epsilon=1.0, delta=1e-6)
    return tmp_path


@pytest.fixture
def parties(folder):
    """Options that name the parties with their public keys."""
    options = []
    for name in NAMES:
        made = run("party", "key", "-o", f"{name}.key", "--json")
        assert made.exit_code == 0, made.output
        options += ["--party", f"{name}={json.loads(made.stdout)['public key']}"]
    return options


def contribute(name, *more):
    return run(
        "party", "contribute", f"{name}.sketch", "study.session",
        "--key", f"{name}.key", "-o", f"{name}.share", *more,
    )  # fmt: skip


def start(parties, *terms):
    made = run(
        "party", "session", "-o", "study.session", "--map", "study.map", *parties,
        *terms,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    return made


PROMISE = ("--epsilon", "1", "--delta", "1e-6")


def test_a_private_sum_from_keys_to_a_release(parties):
    assert "north, south" in start(parties, *PROMISE).stdout
    for name in NAMES:
        made = contribute(name, "--ledger", f"{name}.ledger")
        assert made.exit_code == 0, made.output
    done = run("party", "combine", "north.share", "south.share", "-o", "all.sketch")
    assert done.exit_code == 0, done.output
    private = sl.load("all.sketch")

    assert isinstance(private, sl.PrivateSketch)
    assert private.statement.epsilon == 1.0
    assert abs(private.count - 4000) < 6 * private.count_noise_std
    assert len(sl.Ledger.open("north.ledger").charges) == 1


def test_an_exact_sum_is_the_sum(parties):
    start(parties)
    for name in NAMES:
        assert contribute(name).exit_code == 0
    made = ("north.share", "south.share", "-o", "all.sketch", "--map", "study.map")
    assert run("party", "combine", *made).exit_code == 0

    assert sl.load("all.sketch") == sl.load("north.sketch") + sl.load("south.sketch")


def test_a_renewed_session_has_the_same_terms(parties):
    start(parties, *PROMISE, "--honest", "1", "--rows-per-unit", "3")
    assert run("party", "renew", "study.session", "-o", "again.session").exit_code == 0
    old, new = sl.load("study.session"), sl.load("again.session")

    assert (old.parties, old.rows_per_unit) == (new.parties, 3)
    assert old.session_id != new.session_id


def test_inspect_shows_terms_and_shares(parties):
    start(parties, *PROMISE)
    contribute("north", "--ledger", "north.ledger")
    terms = json.loads(run("inspect", "study.session", "--json").stdout)
    share = json.loads(run("inspect", "north.share", "--json").stdout)

    assert terms["session_id"] == sl.load("study.session").session_id
    assert (share["party"], share["epsilon"]) == ("north", 1.0)


def test_a_second_contribution_is_refused_by_the_ledger(parties):
    start(parties, *PROMISE)
    contribute("north", "--ledger", "north.ledger")
    again = contribute("north", "--ledger", "north.ledger", "--force")

    assert again.exit_code == 1
    assert again.stderr.startswith("error: ")
    assert "Here: sketchlearn party renew SESSION." in again.stderr
    assert len(sl.Ledger.open("north.ledger").charges) == 1


def test_a_second_contribution_to_an_exact_sum_is_refused_by_the_key(parties):
    start(parties)
    before = contribute("north"), Path("north.share").read_bytes()
    again = contribute("north", "--force")

    assert (before[0].exit_code, again.exit_code) == (0, 1)
    assert "contributed to this session before" in again.stderr
    assert Path("north.share").read_bytes() == before[1]


def test_a_share_is_sent_again_for_free(parties):
    start(parties, *PROMISE)
    for name in NAMES:
        contribute(name, "--ledger", f"{name}.ledger", "--honest-others", "0")
    assert run("party", "renew", "study.session", "-o", "again.session").exit_code == 0
    for name in NAMES:
        made = run(
            "party", "resend", f"{name}.share", "again.session", "--key",
            f"{name}.key", "-o", f"{name}.again",
        )  # fmt: skip
        assert made.exit_code == 0, made.output
    run("party", "combine", "north.share", "south.share", "-o", "one")
    run("party", "combine", "north.again", "south.again", "-o", "two")

    assert sl.load("one").total == sl.load("two").total
    assert len(sl.Ledger.open("north.ledger").charges) == 1


def test_refusals_are_one_line_and_write_nothing(parties):
    start(parties, *PROMISE)
    contribute("north", "--ledger", "north.ledger")
    cases = {
        "'south' are missing": ("combine", "north.share", "-o", "x"),
        "holds no share": ("combine", "north.sketch", "-o", "x"),
        "holds no session": ("renew", "study.map", "-o", "x"),
        "exists already": ("renew", "study.session", "-o", "study.session"),
        "goes to a file": ("key", "-o", "-"),
        "not the key of a party": (
            "contribute", "south.sketch", "study.session", "--key", "study.map",
            "--ledger", "south.ledger", "-o", "x",
        ),
        "ledger must be a Ledger": (
            "contribute", "south.sketch", "study.session", "--key", "south.key", "-o",
            "x",
        ),
        "holds a session, not a sketch": (
            "contribute", "study.session", "study.session", "--key", "south.key",
            "-o", "x",
        ),
    }  # fmt: skip
    for words, arguments in cases.items():
        refused = run("party", *arguments)
        assert refused.exit_code == 1, arguments
        assert words in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert not Path("x").exists()
    assert sl.Ledger.open("south.ledger").charges == ()


@pytest.mark.parametrize("bad", ["north", "north=ab"])
def test_a_party_is_a_name_and_a_key(parties, bad):
    made = run(
        "party",
        "session",
        "-o",
        "s",
        "--map",
        "study.map",
        "--party",
        bad,
        *parties[2:],
    )
    assert made.exit_code in (1, 2)
    assert "NAME=KEY" in made.stderr or "64 hexadecimal digits" in made.stderr
    assert not Path("s").exists()


def test_a_key_is_never_replaced_unasked(parties):
    before = Path("north.key").read_bytes()
    assert run("party", "key", "-o", "north.key").exit_code == 1
    assert Path("north.key").read_bytes() == before
    assert Path("north.key").stat().st_mode & 0o777 == 0o600
