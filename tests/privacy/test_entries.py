"""Lines of a ledger are read in every version, and what makes no sense is refused."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from privacy.ledgers import CAPS, charge, lines_of
from sketchlearn.errors import BudgetExceeded, LedgerError, PrivacyError
from sketchlearn.files.container import canonical_json
from sketchlearn.privacy import entries, journal
from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.mechanisms import gaussian_mu

# Ledgers of version 1, which do not say what one unit is.

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copy(GOLDEN / "ledger_v1.ledger", tmp_path / "old.ledger"))


def test_a_ledger_of_version_1_is_read_and_not_changed(old):
    data = old.read_bytes()
    book = Ledger.open(old)
    same = Ledger(old, **CAPS, pure_epsilon=0.25)

    assert [item.release_id[-1] for item in book.charges] == ["1", "2", "3"]
    assert book.charges[0].lineage == ("1" * 32, "2" * 32)
    assert book.charges[1].mu2 == 0.1 / 3
    assert book.charges[1].pure_epsilon == 0.1
    assert (book.neighbours, book.rows_per_unit) == (None, None)
    assert same.summary() == book.summary()
    assert book.summary().n_charges == 3
    assert "3 charges" in repr(book)
    assert old.read_bytes() == data


def test_a_ledger_of_version_1_takes_charges_once_its_unit_is_stated(old):
    data, seen = old.read_bytes(), Ledger.open(old)
    for book in (seen, Ledger(old, **CAPS, pure_epsilon=0.25)):
        with pytest.raises(LedgerError, match=r'Ledger.open\(path, neighbours="add_re'):
            book.charge(charge(0.001))
    assert old.read_bytes() == data

    book = Ledger.open(old, neighbours="add_remove", rows_per_unit=2)
    book.charge(charge(0.001, "a", rows_per_unit=2))
    seen.charge(charge(0.001, "b"))

    assert old.read_bytes().startswith(data)
    assert len(lines_of(old)) == 7
    for book in (book, seen, Ledger.open(old)):  # noqa: B020
        assert (book.neighbours, book.rows_per_unit) == ("add_remove", 2)
        assert [item.release_id[-1] for item in book.charges] == list("123ab")
        total = 0.02 + 0.1 / 3 + 0.01 + 0.001 + 4 * 0.001
        rho = Fraction(total) / 2 + Fraction(0.1) ** 2 / 2
        assert float(book._book.account.spent.rho) == pytest.approx(float(rho))
    again = Ledger.open(old, neighbours="add_remove", rows_per_unit=2)
    assert len(lines_of(old)) == 7
    assert Ledger(old, **CAPS, pure_epsilon=0.25, rows_per_unit=2).charges
    with pytest.raises(LedgerError, match="keeps its caps and its unit"):
        Ledger.open(old, neighbours="replace", rows_per_unit=2)
    with pytest.raises(LedgerError, match="keeps its caps and its unit"):
        Ledger(old, **CAPS, pure_epsilon=0.25)
    assert again.summary().n_charges == 5


@pytest.mark.parametrize("unit", [("add_remove", None), (None, 1), ("other", 1)])
def test_a_unit_is_stated_whole_or_not_at_all(old, unit):
    data = old.read_bytes()
    with pytest.raises(PrivacyError):
        Ledger.open(old, neighbours=unit[0], rows_per_unit=unit[1])
    assert old.read_bytes() == data


def test_a_plain_ledger_of_version_1_has_room_for_what_it_had_room_for(tmp_path):
    path = tmp_path / "old.ledger"
    shutil.copy(GOLDEN / "ledger_plain_v1.ledger", path)
    book = Ledger.open(path, neighbours="add_remove", rows_per_unit=1)
    rest = gaussian_mu(1.0, 1e-6) ** 2 - 0.02

    with pytest.raises(BudgetExceeded, match=r"left of 1 \(delta=1e-6\)"):
        book.charge(charge(rest * 1.0001))
    book.charge(charge(rest * 0.9999))


GOLDEN_CHARGES = (
    Charge("0" * 31 + "1", 0.002, 0.0, "ab" * 32, ("1" * 32, "2" * 32)),
    Charge(
        *("0" * 31 + "2", 0.1 / 3, 0.1, "cd" * 32, ("3" * 32,)),
        *("replace", 2, "laplace", 0.75, 1e-6),
    ),
    Charge("0" * 31 + "3", 0.01, 0.0, "", (), "replace", 5, "joint", 0.4, 1e-5),
)


def test_a_ledger_is_written_as_ever(path, monkeypatch):
    monkeypatch.setattr(entries.time, "time", lambda: 1_700_000_000.0)
    terms = {"pure_epsilon": 1.0, "neighbours": "replace", "rows_per_unit": 2}
    book = Ledger(path, epsilon=4.0, delta=1e-5, **terms)
    for item in GOLDEN_CHARGES:
        book.charge(item)

    for file in (path, journal.witness_path(path)):
        golden = file.name.replace("people", "ledger_v3")
        assert file.read_bytes() == (GOLDEN / golden).read_bytes()


@pytest.mark.parametrize("version", [2, 3])
def test_a_ledger_is_read_as_it_was_written(tmp_path, version):
    path = tmp_path / f"ledger_v{version}.ledger"
    for file in GOLDEN.glob(f"{path.name}*"):
        shutil.copy(file, tmp_path)
    book = Ledger.open(path)

    assert (book.epsilon, book.delta, book.pure_epsilon) == (4.0, 1e-5, 1.0)
    assert (book.neighbours, book.rows_per_unit) == ("replace", 2)
    assert book.charges == GOLDEN_CHARGES
    mu2 = 16 * Fraction(0.002) + Fraction(0.1 / 3) + Fraction(0.01)
    assert book._book.account.spent.rho == (mu2 + Fraction(0.1) ** 2) / 2
    assert book.summary().n_charges == 3


# Entries in the chain that make no sense.

HEADER = {
    "format": "sketchlearn-ledger",
    "version": 2,
    "epsilon": (2.0).hex(),
    "delta": (1e-5).hex(),
    "pure_epsilon": (0.0).hex(),
    "neighbours": "add_remove",
    "rows_per_unit": 1,
}
ENTRY = {
    "release": "x",
    "time": 0,
    "mu2": (1e-3).hex(),
    "pure_epsilon": (0.0).hex(),
    "feature_map": "",
    "lineage": [],
    "neighbours": "add_remove",
    "rows_per_unit": 1,
    "count_mode": "joint",
    "epsilon": None,
    "delta": None,
}
OLD_HEADER = {
    k: v for k, v in HEADER.items() if k not in ("neighbours", "rows_per_unit")
}
OLD_HEADER["version"] = 1
STATED = {"neighbours": "add_remove", "rows_per_unit": 1, "time": 0}
NAN_TEXTS = ["nan", "inf", "-0x1p+0", "0x1p+1000", "xyz", "", 1, 1.0, None, [], {}]
BAD_ENTRIES = [
    *({"mu2": value} for value in NAN_TEXTS),
    *({"pure_epsilon": value} for value in NAN_TEXTS),
    *({"epsilon": value} for value in NAN_TEXTS[:8]),
    *({"lineage": value} for value in (3, "ab", None, {}, [1], [[]], [None])),
    *({"release": value} for value in (3, None, [])),
    *({"feature_map": value} for value in (3, None, [])),
    *({"time": value} for value in ("0", None, 0.5, True)),
    *({"rows_per_unit": value} for value in (0, -1, "1", 1.5, None, True, 2**30)),
    *({"neighbours": value} for value in ("x", None, 1, [])),
    *({"count_mode": value} for value in ("x", None, 1, [], "public")),
    {"mu2": (0.0).hex()},
    {"extra": 1},
    {"neighbours": "replace", "count_mode": "public"},
]
BAD_HEADERS = [
    *({name: v} for v in NAN_TEXTS for name in ("epsilon", "delta")),
    *({"pure_epsilon": v} for v in ("nan", "0x1p+1", "-0x1p-4", 1, None)),
    *({"version": v} for v in (0, 4, "2", True, None, 2.0, [])),
    *({"rows_per_unit": v} for v in (0, "1", None, 1.5, True)),
    *({"neighbours": v} for v in ("x", None, 1)),
    {"extra": 1},
    {"format": "other"},
]


def write_chain(path, *bodies):
    previous, text = "", ""
    for body in bodies:
        previous = journal.chain_hash(previous, body)
        text += canonical_json({**body, "hash": previous}) + "\n"
    path.write_text(text)


def require_refused(path, book=None):
    data = path.read_bytes()
    acts = [lambda: Ledger.open(path), lambda: Ledger(path, **CAPS)]
    if book is not None:
        acts += [lambda: book.charge(charge()), lambda: book.charges, book.summary]
    for act in acts:
        with pytest.raises(LedgerError):
            act()
    assert path.read_bytes() == data


def test_a_chain_written_by_hand_is_a_ledger(path):
    write_chain(path, HEADER, ENTRY, ENTRY)
    assert len(Ledger.open(path).charges) == 2  # ids may repeat: all of them count
    write_chain(path, OLD_HEADER, {k: ENTRY[k] for k in list(ENTRY)[:6]}, STATED, ENTRY)
    assert len(Ledger.open(path).charges) == 2


@pytest.mark.parametrize("change", BAD_ENTRIES, ids=str)
def test_an_entry_in_the_chain_that_makes_no_sense_is_refused(path, change):
    write_chain(path, HEADER)
    book = Ledger.open(path)
    write_chain(path, HEADER, {**ENTRY, **change})
    require_refused(path, book)


@pytest.mark.parametrize("name", ENTRY)
def test_an_entry_in_the_chain_with_a_missing_field_is_refused(path, name):
    write_chain(path, HEADER, {k: v for k, v in ENTRY.items() if k != name})
    require_refused(path)


@pytest.mark.parametrize("change", BAD_HEADERS, ids=str)
def test_a_first_line_that_makes_no_sense_is_refused(path, change):
    write_chain(path, {**HEADER, **change}, ENTRY)
    require_refused(path)


@pytest.mark.parametrize("name", HEADER)
def test_a_first_line_with_a_missing_field_is_refused(path, name):
    write_chain(path, {k: v for k, v in HEADER.items() if k != name})
    require_refused(path)


@pytest.mark.parametrize(
    "bodies",
    [
        (HEADER, STATED),
        (HEADER, HEADER),
        (OLD_HEADER, ENTRY),
        (OLD_HEADER, STATED, STATED),
        (OLD_HEADER, STATED, {k: ENTRY[k] for k in list(ENTRY)[:6]}),
        (OLD_HEADER, {**STATED, "rows_per_unit": 0}),
        (OLD_HEADER, {**STATED, "neighbours": None}),
        (OLD_HEADER, {**STATED, "extra": 1}),
        (OLD_HEADER, {}),
    ],
)
def test_lines_in_the_wrong_place_are_refused(path, bodies):
    write_chain(path, *bodies)
    require_refused(path)
