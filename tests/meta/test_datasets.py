"""A collection is read lazily, standardised by column and split by whole datasets."""

import contextlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sketchlearn.errors import MissingFileError, RowsError, SketchlearnError
from sketchlearn.meta.datasets import (
    MetaDataset,
    load_folder,
    split_datasets,
)


def write(folder, name, columns, **fields):
    file = f"{fields.get('split', 'train')}-{name}.parquet"
    pq.write_table(pa.table(columns), folder / file)
    n_rows = len(columns["label"])
    return {
        "name": name, "file": file, "split": "train", "real": True,
        "rows": n_rows, "features": len(columns) - 1, **fields,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    pixels = {name: np.array([0, 255], np.uint8) for name in ("f0", "f1", "f2")}
    mixed = {"f0": np.array([1, 2, 300], np.int16), "f1": np.float32([0.5, 1, 2])}
    label = {"label": np.array([1, 0])}
    entries = [
        write(tmp_path, "pixels", {**pixels, **label}),
        write(tmp_path, "mixed", {**mixed, "label": [0, 0, 1]}, real=False),
        write(tmp_path, "secret", {**pixels, **label}, split="test"),
    ]
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"datasets": entries}))
    return tmp_path


def test_a_folder_gives_the_datasets_of_one_split(folder):
    found = load_folder(folder)
    assert [data.name for data in found] == ["pixels", "mixed"]
    assert [data.name for data in load_folder(folder, split="test")] == ["secret"]
    assert [data.name for data in load_folder(folder, real_only=True)] == ["pixels"]
    pixels, mixed = found
    assert pixels.rows.dtype == np.uint8
    assert mixed.rows.tolist() == [[1, 0.5], [2, 1], [300, 2]]
    assert mixed.rows.dtype == np.float32
    assert pixels.labels.tolist() == [1, 0]


def test_files_are_read_when_rows_are_asked_for_and_once(folder, monkeypatch):
    seen = []
    real = pq.read_table
    monkeypatch.setattr(pq, "read_table", lambda path: seen.append(path) or real(path))
    pixels = load_folder(folder)[0]
    assert (pixels.n_rows, pixels.n_features, seen) == (2, 3, [])
    assert pixels.rows is pixels.rows
    assert len(seen) == 1


def test_what_is_missing_or_wrong_is_named(folder):
    with pytest.raises(MissingFileError, match=r"MANIFEST\.json"):
        load_folder(folder / "none")
    (folder / "train-mixed.parquet").unlink()
    with pytest.raises(MissingFileError, match=r"mixed\.parquet"):
        _ = load_folder(folder)[1].rows
    text = (folder / "MANIFEST.json").read_text()
    (folder / "MANIFEST.json").write_text(text.replace('"rows": 2', '"rows": 7'))
    with pytest.raises(RowsError, match=r"'pixels' has shape \(2, 3\)"):
        _ = load_folder(folder)[0].rows
    (folder / "MANIFEST.json").write_text('{"datasets": []}')
    with pytest.raises(RowsError, match="no dataset of the split 'train'"):
        load_folder(folder)
    with pytest.raises(RowsError, match=r"got shape \(3,\)"):
        MetaDataset.from_arrays("flat", [1, 2, 3])


def test_taken_columns_have_the_moments_of_the_whole_table():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 255, size=(500, 4)).astype(np.uint8)
    rows[:, 2] = 7
    data = MetaDataset.from_arrays("a", rows)
    taken = data.take(np.arange(500), [3, 2, 0])
    expected = rows[:, [3, 2, 0]].astype(np.float64)
    expected -= expected.mean(axis=0)
    expected[:, [0, 2]] /= expected[:, [0, 2]].std(axis=0)
    assert taken.dtype == np.float32
    assert np.allclose(taken, expected, atol=1e-5)
    plain = data.take([1, 0], [0], standardize=False)
    assert plain.tolist() == rows[[1, 0], :1].tolist()


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, -3e-9])
def test_a_constant_column_becomes_zero(value):
    data = MetaDataset.from_arrays("a", np.full((1000, 1), value, np.float32))
    assert np.abs(data.take([0, 1], [0])).max() < 1e-6


def test_a_split_holds_out_whole_datasets():
    all_sets = [MetaDataset.from_arrays(str(n), [[n]]) for n in range(10)]
    train, rest = split_datasets(all_sets, 0.3, seed=1)
    names = [{data.name for data in part} for part in (train, rest)]
    assert len(rest) == 3
    assert names[0] | names[1] == {str(n) for n in range(10)}
    assert not names[0] & names[1]
    assert [d.name for d in split_datasets(all_sets, 0.3, seed=1)[1]] == [
        d.name for d in rest
    ]
    splits = {
        tuple(d.name for d in split_datasets(all_sets, 0.3, seed=seed)[1])
        for seed in range(5)
    }
    assert len(splits) > 1
    assert len(split_datasets(all_sets[:2], 0.01)[1]) == 1
    assert len(split_datasets(all_sets[:2], 0.99)[0]) == 1


@pytest.mark.parametrize("held_out", [0.0, 1.0, 2, ["nothing"]])
def test_a_split_that_makes_no_sense_is_refused(held_out):
    with pytest.raises(RowsError, match="cannot hold out"):
        split_datasets([MetaDataset.from_arrays(n, [[0]]) for n in "ab"], held_out)


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array([1.0, np.nan, 2.0]), "'f1' .* has missing or infinite values"),
        (pa.array([1.0, np.inf, 2.0]), "'f1' .* has missing or infinite values"),
        (pa.array([1, None, 2]), "'f1' .* has missing or infinite values"),
        (pa.array(["a", "b", "c"]), "'f1' .* holds string"),
    ],
)
def test_a_file_with_anything_but_finite_numbers_is_refused(tmp_path, column, match):
    table = pa.table({"f0": pa.array([1.0, 2.0, 3.0]), "f1": column})
    pq.write_table(table, tmp_path / "a.parquet")
    entry = {"name": "a", "file": "a.parquet", "split": "train", "real": True}
    entry |= {"rows": 3, "features": 2}
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"datasets": [entry]}))
    (data,) = load_folder(tmp_path)
    with pytest.raises(RowsError, match=match):
        data.rows  # noqa: B018
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    (data,) = load_folder(tmp_path)
    with pytest.raises(RowsError, match="no Parquet file that can be read"):
        data.rows  # noqa: B018


def test_a_manifest_names_files_of_its_own_folder(tmp_path):
    entry = {"name": "a", "file": "../a.parquet", "split": "train", "real": True}
    entry |= {"rows": 3, "features": 2}
    (tmp_path / "MANIFEST.json").write_text(json.dumps({"datasets": [entry]}))
    with pytest.raises(RowsError, match="names a file outside of the folder"):
        load_folder(tmp_path)


WRONG = [None, -1, 1.5, True, "x", "", "a\0b", [], [1], {}, 2**70, "\ud800"]


def test_whatever_a_manifest_says_the_errors_are_ours(folder):
    path = folder / "MANIFEST.json"
    entries = json.loads(path.read_text())["datasets"]
    told = [
        {**entries[0], key: value} for key in [*entries[0], "kind"] for value in WRONG
    ]
    told += [{k: v for k, v in entries[0].items() if k != key} for key in entries[0]]
    texts = [
        json.dumps({"datasets": [entry, *entries[1:]]}) for entry in [*told, *WRONG]
    ]
    texts += [json.dumps({"datasets": value}) for value in WRONG]
    texts += [json.dumps(value) for value in WRONG]
    for text in [*texts, "", "{", "[" * 10**5, '{"datasets": ' + "[" * 10**5]:
        path.write_text(text)
        with contextlib.suppress(SketchlearnError):
            for data in load_folder(folder):
                _ = data.rows
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RowsError, match="is not a list of datasets"):
        load_folder(folder)
