"""Autoencoders are compared on rows that no sketch and no training has seen."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.decoders.autoencoders.base import AbstractAutoencoder
from sketchlearn.decoders.autoencoders.conditional import ConditionalAutoencoder
from sketchlearn.decoders.autoencoders.conditional_spec import ConditionalSpec
from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.experiments.autoencoder import methods, networks, specific
from sketchlearn.experiments.autoencoder.comparison import (
    accuracy_table,
    evaluate_accuracies,
    narrow_table,
)
from sketchlearn.experiments.autoencoder.drift import drift_pair, measure_drift
from sketchlearn.experiments.autoencoder.methods import (
    AUTOENCODER_METHODS,
    autoencoder_method,
)
from sketchlearn.experiments.autoencoder.reproduction import (
    AutoencoderPlan,
    reproduce_autoencoder,
)
from sketchlearn.experiments.autoencoder.row_counts import evaluate_row_counts
from sketchlearn.experiments.autoencoder.sets import (
    FLIPPED,
    ReconstructionSet,
    load_reconstruction_sets,
    printed_accuracies,
)
from sketchlearn.experiments.autoencoder.sketch_sizes import GapClosed, compare_sketches
from sketchlearn.experiments.autoencoder.specific import (
    SpecificAutoencoders,
    SpecificMethod,
    specific_config,
)
from sketchlearn.files.weights import save_weights

RNG = np.random.default_rng
N_ROWS = 160
SETS = [
    ("MNIST", "test", True, 36),
    ("human-1000G", "test", True, 40),
    ("KDD98-PVA", "test", True, 7),
    ("quickdraw", "train", True, 36),
]
CONDITIONS = {
    "autoencoder-ae": "none",
    "autoencoder-m": "mean",
    "autoencoder-ms": "sketch",
}
FEW = AutoencoderPlan(
    sizes=(2, 16), n_seeds=2, seconds=0.1, test_rows=30, curve_rows=20
)


class Copying(AbstractAutoencoder):
    """Its codes are the rows: nothing is lost of the columns it knows."""

    def __init__(self, n_features):
        self.width = n_features

    n_features = n_codes = property(lambda self: self.width)
    mean = property(lambda self: np.full(self.width, 0.5))
    n_weights = 0

    def encode(self, rows):
        assert rows.shape[1] == self.width
        return rows

    def decode(self, codes):
        return codes - 0.5


def made_up(name, width):
    """Rows of a few patterns, by class, with some noise."""
    rng = RNG(len(name))
    labels = np.arange(N_ROWS) % 3
    patterns = rng.random((3, width)) < 0.4
    bits = patterns[labels] ^ (rng.random((N_ROWS, width)) < 0.1)
    if name in ("MNIST", "quickdraw"):
        return (bits * 255).astype(np.uint8), labels
    if name == "human-1000G":
        return bits.astype(np.int8), labels
    return (bits + rng.normal(size=bits.shape)).astype(np.float32), labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder like the one the experiment reads, with tiny made-up sets."""
    folder, entries = tmp_path_factory.mktemp("paper-folder"), []
    for name, split, real, width in SETS:
        rows, labels = made_up(name, width)
        file = folder / "data" / split / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = {f"f{i}": column for i, column in enumerate(rows.T)}
        pq.write_table(pa.table({**columns, "label": labels}), file)
        entry = {"name": name, "file": f"{split}/{name}.parquet", "split": split}
        entry |= {"rows": N_ROWS, "features": width, "real": real, "kind": ""}
        entries.append(entry)
    manifest = json.dumps({"datasets": entries})
    (folder / "data" / "MANIFEST.json").write_text(manifest)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """Tiny networks that were never trained, and specific ones that copy rows."""

    def load(name):
        sketch = (4, 1, 16) if CONDITIONS[name] == "sketch" else ()
        spec = ConditionalSpec(48, 5, CONDITIONS[name], 1, 16, *sketch)
        return ConditionalAutoencoder.initial(spec)

    calls = []

    def train_specific(rows, n_components, config, *, seed):
        calls.append((rows.shape, n_components, config.seconds))
        return Copying(rows.shape[1])

    training = SimpleNamespace(train_specific=train_specific)
    modules = {"sketchlearn.meta.specific_autoencoder": training}
    standing_in = SimpleNamespace(import_module=modules.__getitem__)
    monkeypatch.setattr(specific, "importlib", standing_in)
    networks._network.cache_clear()
    monkeypatch.setattr(networks, "load_model", load)
    models = [SimpleNamespace(name=name) for name in CONDITIONS]
    monkeypatch.setattr(methods, "list_models", lambda: models)
    yield calls
    networks._network.cache_clear()


def test_sets_are_binary_halves_and_the_human_one_is_there_twice(folder):
    sets = {data.name: data for data in load_reconstruction_sets(folder, test_rows=50)}
    assert list(sets) == ["MNIST", "human-1000G", FLIPPED, "KDD98-PVA", "quickdraw"]
    for data in sets.values():
        assert data.training.shape == (N_ROWS // 2, data.n_features)
        assert data.rows.shape == (50, data.n_features)
        assert len(data.labels) == 50
        assert set(np.unique(data.training)) == {0, 1}
    human, flipped = sets["human-1000G"], sets[FLIPPED]
    flips = human.rows ^ flipped.rows
    assert (flips == flips[0]).all()
    assert 5 < flips[0].sum() < 35
    assert np.array_equal(flips[0], (human.training ^ flipped.training)[0])
    assert [data.letter for data in sets.values()] == ["M", "H", "H flipped", "K", "QD"]
    comparable = [name for name, data in sets.items() if data.is_comparable]
    assert comparable == ["MNIST", "KDD98-PVA", "quickdraw"]
    assert sets["KDD98-PVA"].mark == "stand-in"
    assert sets["KDD98-PVA"].narrow_codes == max(1, sets["KDD98-PVA"].n_features // 4)
    with pytest.raises(ConfigError, match="no dataset 'heart'"):
        load_reconstruction_sets(folder, ["heart"])


def test_the_printed_human_column_stands_beside_both():
    printed = printed_accuracies()["+MS (train: RM)"]
    assert printed["human-1000G"] == printed[FLIPPED] == 81.2
    assert printed["average"] == 75.4


def test_a_trained_autoencoder_pads_and_cuts_other_rows():
    copying = SpecificMethod(Copying(3))
    rows = np.array([[1, 0, 1, 1]], np.uint8)
    assert copying.reconstruct(rows).tolist() == [[True, False, True, False]]
    assert copying.reconstruct(rows[:, :2]).tolist() == [[True, False]]


def test_an_autoencoder_of_a_set_is_trained_once(trained, folder):
    (data,) = load_reconstruction_sets(folder, ["MNIST"])
    coders = SpecificAutoencoders(specific_config(3.0))
    assert coders.of(data, 5) is coders.of(data, 5)
    assert coders.of(data, 5) is not coders.of(data, 4)
    assert trained == [((80, 36), 5, 3.0), ((80, 36), 4, 3.0)]


def test_an_autoencoder_of_a_set_really_learns(folder):
    (data,) = load_reconstruction_sets(folder, ["MNIST"])
    coder = SpecificAutoencoders(specific_config(1.0)).of(data, 5)
    assert data.accuracy(coder.reconstruct) > 75


@pytest.mark.parametrize("name", [n for n in AUTOENCODER_METHODS if n != "specific"])
def test_every_method_reconstructs_rows_of_every_width(trained, folder, name):
    for data in load_reconstruction_sets(folder, ["MNIST", "KDD98-PVA"]):
        method = autoencoder_method(name, n_components=min(6, data.n_features))
        fitted = method.fit(data.training, data.training_labels)
        for labels in (None, data.labels):
            found = np.asarray(fitted.reconstruct(data.rows, labels))
            assert found.shape == data.rows.shape
            assert set(np.unique(found)) <= {0, 1}


def test_ours_sees_what_pca_sees(folder):
    (data,) = load_reconstruction_sets(folder, ["MNIST"])
    sketches = [autoencoder_method(name).sketch(data.rows) for name in ("pca", "ours")]
    assert sketches[0] == sketches[1]


def test_the_table_has_printed_rows_marks_and_averages(trained, folder):
    sets = load_reconstruction_sets(folder, test_rows=30)
    printed, names = printed_accuracies(), ("specific", "ms", "pca")
    coders = SpecificAutoencoders(specific_config(1.0))
    found = evaluate_accuracies(sets, names, coders, printed=printed)
    assert found.found["AE (train: QD)"]["MNIST"] == 100
    assert found.found["AE (train: K)"]["MNIST"] < 100
    shown = accuracy_table(found)
    assert "K*" in shown
    assert "KDD98-PVA (stand-in)" in shown
    assert "M is no new dataset" in " ".join(shown.split())
    lines = shown.splitlines()
    line = next(line for line in lines if line.split()[:2] == ["printed", "79.2"])
    # H twice, the printed average, and the mean without H
    assert line.split()[1:] == ["79.2", "81.2", "81.2", "73.7", "61.9", "75.4", "71.6"]
    assert "printed: +MSK (train: RM)" in shown
    codes = sets[3].narrow_codes
    assert f"K: {sets[3].n_features} to {codes}" in narrow_table(found)
    assert found.narrow["AE"]["KDD98-PVA"][codes] == 100


def test_shares_are_of_the_distance_to_the_ceiling(folder):
    assert GapClosed("a", "full", 80.0, 85.0, 90.0).share == 0.5
    assert np.isnan(GapClosed("a", "full", 80.0, 85.0, 80.0).share)
    assert np.isnan(GapClosed("a", "full", 80.0, 85.0, None).share)
    sets = load_reconstruction_sets(folder, ["MNIST"], test_rows=20)
    found = compare_sketches(sets, None, n_seeds=1)
    assert [one.sketch for one in found] == ["full", "compressed", "few rows"]
    assert all(one.to_dict()["share"] is None for one in found)


def test_more_rows_in_the_sketch_are_better_and_all_rows_have_no_deviation(folder):
    sets = load_reconstruction_sets(folder, ["MNIST"])
    (curve,) = evaluate_row_counts(sets, ["pca"], sizes=(2, 999), n_seeds=3)
    assert curve.n_rows == (2, 80)
    assert curve.means[0] < curve.means[1]
    assert curve.deviations[0] > 0 == curve.deviations[1]


def test_codes_that_are_wider_than_rows_are_in_no_curve(trained, folder):
    sets = load_reconstruction_sets(folder, ["KDD98-PVA"])
    curves = evaluate_row_counts(sets, ["ms", "pca"], sizes=(2,), n_seeds=1)
    assert [(one.method, one.n_codes) for one in curves] == [
        ("pca", sets[0].narrow_codes)
    ]


def test_after_subtraction_the_sketch_is_that_of_the_second_set(trained, folder):
    sets = load_reconstruction_sets(folder)
    first, second = drift_pair(sets)
    assert (first.name, second.name) == ("MNIST", "quickdraw")
    assert drift_pair(sets[:1]) is None
    assert [data.name for data in drift_pair(sets[1:3])] == ["human-1000G", FLIPPED]
    for curve in measure_drift(first, second, ["m", "ms", "pca", "ours", "ae"]):
        assert curve.is_exact
        assert curve.method != "ae"


def test_everything_is_written_and_figures_are_drawn(trained, folder, tmp_path):
    said = []
    shown = reproduce_autoencoder(folder, tmp_path, FEW, say=said.append)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {
        "results.json", "tables.txt", "rows-in-sketch.png", "drift.png", "digits.png",
    }  # fmt: skip
    assert (tmp_path / "tables.txt").read_text("utf-8") == shown + "\n"
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["plan"]["seconds"] == 0.1
    assert all(one["is_exact"] for one in results["drift"])
    assert len(results["sketches"]) == 3 * 5
    assert set(results["accuracies"]) >= {"AE (train: M)", "+MSK (train: RM)", "ours"}
    # Each of five sets once, and as all are narrow once more with a small code.
    assert len([one for one in said if one.startswith("training")]) == len(trained)
    assert len(trained) == 10
    assert "NOT EXACT" not in shown


def test_without_weights_methods_are_skipped_and_say_so(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(methods, "list_models", list)
    plan = AutoencoderPlan(
        sizes=(2,), methods=("ms", "pca"), datasets=("KDD98-PVA",), n_seeds=1
    )
    shown = reproduce_autoencoder(folder, tmp_path, plan)
    assert "skipped +MS (train: RM): no weights 'autoencoder-ms'" in shown
    assert not (tmp_path / "drift.png").exists()


def test_weights_of_a_folder_are_used_everywhere(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(methods, "list_models", list)
    spec = ConditionalSpec(48, 5, "sketch", 1, 16, 4, 1, 16)
    trained = ConditionalAutoencoder.initial(spec).to_weights()
    save_weights(trained, tmp_path / "autoencoder-ms.safetensors")
    plan = replace(FEW, methods=("ms",), datasets=("MNIST", "quickdraw"))
    plan = replace(plan, sizes=(2,), n_seeds=1)
    out = tmp_path / "out"
    shown = reproduce_autoencoder(folder, out, plan, weights=str(tmp_path))
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert "skipped" not in shown
    assert [one["method"] for one in results["drift"]] == ["ms"]
    assert (out / "digits.png").exists()


def test_the_command_takes_seconds_and_needs_a_set(trained, folder, tmp_path):
    arguments = ["reproduce", "autoencoder", "--data", str(folder), "--quick"]
    arguments += ["--datasets", "quickdraw", "--seconds", "0.5", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {seconds for _, _, seconds in trained} == {0.5}
    with pytest.raises(RowsError, match="none of the sets"):
        reproduce_autoencoder(folder, tmp_path, AutoencoderPlan(datasets=("adult",)))


def test_a_set_tells_classes_only_where_asked():
    bits = np.eye(4, dtype=np.uint8)
    data = ReconstructionSet("eye", bits, np.arange(4), bits, np.arange(4))
    told = []

    def reconstruct(rows, labels):
        told.append(labels)
        return rows

    assert data.accuracy(reconstruct, n_rows=2) == 100
    data.accuracy(reconstruct, with_labels=True)
    assert told[0] is None
    assert told[1].tolist() == [0, 1, 2, 3]
