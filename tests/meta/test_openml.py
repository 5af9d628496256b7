"""Sets of the paper are fetched one by one, checked, kept, and read by everybody."""

import hashlib
import json
from urllib.error import URLError

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.errors import RowsError
from sketchlearn.meta import openml
from sketchlearn.meta.datasets import load_folder
from sketchlearn.meta.manifest import list_folder
from sketchlearn.meta.openml import fetch_sets
from sketchlearn.meta.paper_sets import PaperSet, as_ranges, paper_sets

FRAME = pd.DataFrame(
    {
        "age": [1.0, 2.0, np.nan, 300.0],
        "price": [0.5, 0.25, -1.0, 2.0],
        "town": pd.Categorical(["Rome", None, "Oslo", "Rome"]),
        "sign": pd.Categorical(["-1", "1", "1", "-1"]),
        "same": [7, 7, 7, 7],
    }
)
TARGET = pd.Series(pd.Categorical(["b", "a", "b", "b"]), name="class")


def one(name, number, *, split="train", kind="tabular", features=5):
    return PaperSet(
        name=name, split=split, kind=kind, rows=4, features=features, classes=2,
        openml=number,
    )  # fmt: skip


SETS = [one("x", 1), one("y", 2, split="test"), one("z", 3), one("genes", None)]


def fake(number):
    if number == 2:
        raise URLError("no network")
    return FRAME, TARGET


def manifest(folder):
    return json.loads((folder / "MANIFEST.json").read_text())["datasets"]


def test_columns_become_numbers_and_the_manifest_says_how(tmp_path):
    fetch_sets(SETS[:1], tmp_path, fetch=fake)
    table = pq.read_table(tmp_path / "train" / "x.parquet").to_pydict()
    assert table == {
        "f0": [1, 2, 2, 300],
        "f1": [0.5, 0.25, -1.0, 2.0],
        "f2": [1, 2, 0, 1],
        "f3": [-1, 1, 1, -1],
        "f4": [7, 7, 7, 7],
        "label": [1, 0, 1, 1],
    }
    (entry,) = manifest(tmp_path)
    assert entry["dtypes"] == {"float32": 1, "int8": 1, "uint16": 1, "uint8": 2}
    assert entry["categorical_columns"] == {"f2": 3}
    assert entry["imputed"] == {
        "f0": "1 missing -> median", "f2": "1 missing -> own code 2",
    }  # fmt: skip
    assert entry["class_names"] == ["a", "b"]
    assert entry["columns"] == list(FRAME.columns)
    assert entry["constant_columns"] == ["f4"]
    assert entry["source"] == "OpenML, dataset 1"
    data = (tmp_path / entry["file"]).read_bytes()
    assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    assert entry["bytes"] == len(data)


def test_the_folder_is_one_that_trainings_read(tmp_path):
    fetch_sets(SETS, tmp_path, fetch=lambda number: (FRAME, TARGET))
    assert [data.name for data in load_folder(tmp_path)] == ["x", "z"]
    (data,) = load_folder(tmp_path, split="test")
    assert data.rows.shape == (4, 5)
    assert data.labels.tolist() == [1, 0, 1, 1]
    assert data.real


def test_what_fails_is_reported_and_fetched_when_it_is_repeated(tmp_path):
    said = []
    first = fetch_sets(SETS, tmp_path, fetch=fake, say=said.append)
    assert (first.written, first.kept, first.elsewhere) == (("x", "z"), (), ("genes",))
    assert list(first.failed) == ["y"]
    assert any("failed: y: URLError" in text for text in said)
    asked = []

    def again(number):
        asked.append(number)
        return FRAME, TARGET

    second = fetch_sets(SETS, tmp_path, fetch=again)
    assert (second.written, second.kept, second.failed) == (("y",), ("x", "z"), {})
    assert asked == [2]
    assert len(manifest(tmp_path)) == 3


def test_a_damaged_file_is_fetched_again(tmp_path):
    fetch_sets(SETS[:1], tmp_path, fetch=fake)
    path = tmp_path / "train" / "x.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert fetch_sets(SETS[:1], tmp_path, fetch=fake).written == ("x",)
    assert path.read_bytes() == whole


def test_an_interrupted_fetch_keeps_what_it_has_written(tmp_path):
    def interrupted(number):
        if number == 3:
            raise KeyboardInterrupt
        return FRAME, TARGET

    with pytest.raises(KeyboardInterrupt):
        fetch_sets(SETS, tmp_path, fetch=interrupted)
    assert [entry["name"] for entry in manifest(tmp_path)] == ["y", "x"]
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["MANIFEST.json", "x.parquet", "y.parquet"]


def test_of_images_a_part_is_kept_that_has_all_classes_in_proportion(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(openml, "MOST_IMAGES", 10)
    pixels = pd.DataFrame(np.arange(80.0).reshape(40, 2), columns=["p0", "p1"])
    classes = pd.Series(["one"] * 30 + ["two"] * 10)
    images = [one("digits", 5, kind="image", features=3)]
    fetch_sets(images, tmp_path, fetch=lambda number: (pixels, classes))
    table = pq.read_table(tmp_path / "train" / "digits.parquet")
    assert 7 <= table["label"].to_pylist().count(0) <= 8
    assert table["f0"].to_pylist() == sorted(set(table["f0"].to_pylist()))
    (entry,) = manifest(tmp_path)
    assert (entry["rows"], entry["original_rows"]) == (10, 40)
    assert entry["transformation"] == (
        "stratified subsample of 10 rows, seed 0; 3 features in the paper"
    )


def test_a_set_without_classes_or_rows_is_no_set(tmp_path):
    found = fetch_sets(SETS[:1], tmp_path, fetch=lambda number: (FRAME, None))
    assert "no classes" in found.failed["x"]
    found = fetch_sets(SETS[:1], tmp_path, fetch=lambda n: (FRAME[:0], TARGET[:0]))
    assert "no rows" in found.failed["x"]
    assert not (tmp_path / "MANIFEST.json").exists()


@pytest.mark.parametrize("wrong", [np.inf, -np.inf])
def test_infinite_numbers_are_no_data(tmp_path, wrong):
    frame = FRAME.assign(price=[0.5, wrong, np.nan, 2.0])
    found = fetch_sets(SETS[:1], tmp_path, fetch=lambda number: (frame, TARGET))
    assert "column 'price' has infinite values" in found.failed["x"]
    assert not (tmp_path / "train").exists()


def test_numbers_that_differ_differ_in_the_file(tmp_path):
    frame = pd.DataFrame(
        {
            "serial": 2.0**40 + np.arange(4),
            "huge": [1e300, 0.5, -1e300, 2.0],
            "near": [0.1, 0.1 + 1e-12, 0.2, 0.3],
            "short": [0.1, 0.2, 0.3, 0.4],
        }
    )
    fetch_sets(SETS[:1], tmp_path, fetch=lambda number: (frame, TARGET))
    table = pq.read_table(tmp_path / "train" / "x.parquet")
    for place, name in enumerate(["serial", "huge", "near"]):
        assert table[f"f{place}"].to_pylist() == frame[name].tolist()
    (entry,) = manifest(tmp_path)
    assert entry["dtypes"] == {"float32": 1, "float64": 3}
    assert entry["constant_columns"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a list of datasets .JSONDecodeError"),
        ("[]", "is not a list of datasets"),
        ("{}", "is not a list of datasets .KeyError: 'datasets'"),
        ('{"datasets": [1]}', "is not a list of datasets"),
        ('{"datasets": [{"name": "x", "split": "train"}]}', "has no 'file'"),
    ],
)
def test_a_manifest_that_is_none_is_named(tmp_path, text, message):
    (tmp_path / "MANIFEST.json").write_text(text)
    reads = (load_folder, list_folder, lambda path: fetch_sets(SETS, path, fetch=fake))
    for read in reads:
        with pytest.raises(RowsError, match=rf"MANIFEST\.json' {message}"):
            read(tmp_path)
    assert (tmp_path / "MANIFEST.json").read_text() == text


def test_the_paper_has_the_sets_that_its_tables_count():
    train, test = paper_sets("train"), paper_sets("test")
    assert paper_sets() == [*train, *test]
    names = [one.name for one in paper_sets()]
    assert len(set(names)) == len(names)
    numbers = [one.openml for one in paper_sets() if one.openml]
    assert len(set(numbers)) == len(numbers) == 74
    assert {"hapmap30", "dogstrain14", "vowel"} <= {one.name for one in train}
    assert {"hapmap31", "dogstrain30", "MNIST", "vai"} <= {one.name for one in test}


def test_sets_of_a_family_are_one_range():
    names = ["MNIST", "hapmap31", "hapmap32", "hapmap34", "hapmap35", "kc2", "dog3"]
    found = as_ranges(names)
    assert found == ["MNIST", "hapmap31..32", "hapmap34..35", "kc2", "dog3"]


def run(*arguments):
    return CliRunner().invoke(main, ["data", "fetch", *map(str, arguments)])


class Bunch:
    data, target = FRAME, TARGET


def test_the_command_asks_scikit_learn_by_number(tmp_path, monkeypatch):
    asked = []

    def fetch_openml(*, data_id, as_frame, parser):
        asked.append(data_id)
        if data_id == 307:
            raise URLError("no network")
        return Bunch

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    some = ("--suite", "train", "--only", "wdbc,vowel,letters1", "-o", tmp_path / "d")
    first = run(*some, "--json")
    assert first.exit_code == 1
    assert asked == [307, 1510]
    shown = json.loads(first.stdout)
    assert (shown["written"], shown["failed"]) == (1, ["vowel"])
    assert shown["not at OpenML"] == ["letters1"]
    assert "repeat the command to go on" in first.stderr
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **_: Bunch)
    second = run(*some)
    assert second.exit_code == 0, second.output
    assert "none" in second.stdout
    wrong = run("--suite", "test", "--only", "vowel", "-o", tmp_path)
    assert wrong.exit_code == 2
    assert "'vowel' is no set of 'test'" in wrong.stderr
