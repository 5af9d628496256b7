"""A statement says what was done; one that cannot be true is refused."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from privacy.releases import PROMISE, plan_of
from sketchlearn.errors import PrivacyError, SketchFileError
from sketchlearn.files.container import canonical_json, encode
from sketchlearn.privacy.mechanisms import gaussian_mu
from sketchlearn.privacy.release import release
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.storage.formats.private import PrivateSketchFormat
from sketchlearn.storage.sketches import dumps, loads
from sketchlearn.testing import release_seeded


def test_the_statement_says_what_was_done(exact, ample):
    statement = release(exact, **PROMISE, ledger=ample).statement
    (spent,) = ample.charges

    assert (statement.epsilon, statement.delta) == (1.0, 1e-6)
    assert statement.neighbours == "add_remove"
    assert (statement.unit, statement.rows_per_unit) == ("record", 1)
    assert statement.mechanism == "discrete Gaussian"
    assert statement.count_mode == "joint"
    assert statement.count_epsilon == 0.0
    assert statement.frac_bits == exact.features.frac_bits
    assert statement.feature_map == exact.features.fingerprint == spent.feature_map
    assert statement.lineage == (spent.release_id,)
    assert spent.lineage == tuple(exact.lineage)
    assert statement.seeded is False
    assert spent.mu2 == statement.mu2
    true = Fraction(statement.sensitivity) * 2**statement.frac_bits
    assert Fraction(statement.mu2) >= (true / statement.sigma_int) ** 2


def test_a_statement_is_rebuilt_from_its_description_only(exact):
    plan = plan_of(exact, **PROMISE)
    values = json.loads(canonical_json(plan.describe()))

    assert PrivacyStatement.from_description(values) == plan
    for wrong in ({**values, "extra": 1}, {"epsilon": 1.0}):
        with pytest.raises(PrivacyError, match="unknown or missing fields"):
            PrivacyStatement.from_description(wrong)


def tampered(private, **changes):
    metadata, tensors = PrivateSketchFormat().pack(private)
    statement = {**json.loads(metadata["privacy"]), **changes}
    text = canonical_json({k: v for k, v in statement.items() if v != "missing"})
    return encode(({**metadata, "privacy": text}, tensors), None, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"frac_bits": 3},
        {"feature_map": "ab" * 32},
        {"lineage": []},
        {"lineage": ["ab" * 16]},
        {"lineage": None},
        {"lineage": 7},
        {"count_mode": "laplace"},
        {"count_mode": "other"},
        {"seeded": True},
        {"note": "trust me"},
        {"epsilon": "missing"},
        {"seeded": "missing"},
    ],
    ids=str,
)
def test_a_file_whose_statement_was_changed_is_refused(private, changes):
    assert loads(tampered(private)).statement == private.statement  # digest is right
    with pytest.raises(SketchFileError):
        loads(tampered(private, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.1},
        {"epsilon": -1},
        {"epsilon": "0.1"},
        {"delta": 1e-9},
        {"delta": None},
        {"mu2": 1e-9},
        {"neighbours": "replace"},
        {"neighbours": "none"},
        {"unit": "group"},
        {"rows_per_unit": 7},
        {"rows_per_unit": 0},
        {"sensitivity": 0.5},
        {"sigma_int": 5},
        {"sigma_int": -1},
        {"count_weight": 3},
        {"count_weight": 0},
        {"count_epsilon": 0.5},
        {"seeded": None},
        {"library_version": 7},
    ],
    ids=str,
)
def test_a_file_whose_statement_contradicts_itself_is_refused(private, changes):
    with pytest.raises(SketchFileError):
        loads(tampered(private, **changes))


def test_a_test_double_cannot_pass_for_a_release(exact):
    data = dumps(release_seeded(exact, 0, **PROMISE))
    metadata, tensors = PrivateSketchFormat().pack(release_seeded(exact, 0, **PROMISE))

    assert b'"kind":"test"' in data
    with pytest.raises(SketchFileError):
        loads(encode(({**metadata, "kind": "private"}, tensors), None, ""))


def test_an_exact_file_cannot_pass_for_a_release(exact, private):
    metadata, tensors = PrivateSketchFormat().pack(private)
    for change in ({"privacy": ""}, {"kind": "exact"}, {"pooling": "max"}):
        with pytest.raises(SketchFileError):
            loads(encode(({**metadata, **change}, tensors), None, ""))


@pytest.mark.parametrize(
    "claim",
    [
        {"sensitivity": 1.0},
        {"mechanism": "no noise"},
        {"mu2": 1e300},
        {"sigma_int": 2**200},
    ],
)
def test_a_statement_that_its_header_refutes_is_refused(ample, exact, claim):
    private = release(exact, **PROMISE, ledger=ample)
    with pytest.raises(SketchFileError):
        loads(tampered(private, **claim))


def test_a_laplace_count_cannot_claim_less_noise(ample, exact):
    private = release(exact, **PROMISE, ledger=ample, count="laplace")
    with pytest.raises(SketchFileError):
        loads(tampered(private, count_std=1e-9))


# How exactly a statement must agree with the formulas: as they are computed.


def with_noise(statement, factor):
    """The statement of somebody who added ``factor`` of the noise that is needed."""
    steps = Fraction(statement.sensitivity) * Fraction(2) ** statement.frac_bits
    mu = Fraction(gaussian_mu(statement.epsilon, statement.delta))
    sigma = int(steps / mu * Fraction(factor))
    mu2 = float((steps / sigma) ** 2)
    return replace(statement, sigma_int=sigma, mu2=mu2)


@pytest.mark.parametrize(
    ("factor", "possible"), [(1 - 3e-10, True), (1 - 3e-9, False), (1.0, True)]
)
def test_noise_is_what_the_promise_asks_to_nine_digits(private, factor, possible):
    assert with_noise(private.statement, factor).is_possible is possible


@pytest.mark.parametrize(
    ("version", "factor", "possible"),
    [(2, 1.0, True), (2, 1 - 5e-7, False), (1, 1 - 5e-7, True), (1, 1 - 5e-6, False)],
)
def test_sensitivities_of_version_1_have_six_digits(private, version, factor, possible):
    spec = replace(private.features, version=version)
    sensitivity = private.statement.sensitivity * factor
    statement = replace(private.statement, sensitivity=sensitivity)

    assert statement.is_about(spec) is possible
