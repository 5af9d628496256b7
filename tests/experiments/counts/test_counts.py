"""Streaming experiments: every method on Zipf sets and datasets, beside the paper's."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sketchlearn.cli.app import main
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.errors import ConfigError
from sketchlearn.experiments.counts.answers import Table
from sketchlearn.experiments.counts.dataset_errors import (
    dataset_tables,
    evaluate_datasets,
)
from sketchlearn.experiments.counts.methods import (
    COUNT_METHODS,
    count_method,
    fixed_table,
    methods_of,
    why_missing,
)
from sketchlearn.experiments.counts.networks import NO_NETWORKS, find_networks
from sketchlearn.experiments.counts.plan import CountsPlan
from sketchlearn.experiments.counts.search import (
    SearchedTables,
    ZipfLaw,
    search_tables,
    tables_of,
)
from sketchlearn.experiments.counts.sets import (
    FREQUENCIES,
    MEMBERSHIPS,
    BinarySet,
    SetBatch,
    draw_zipf_batch,
    load_binary_sets,
    printed_errors,
)
from sketchlearn.experiments.counts.timing import measure_seconds, seconds_table
from sketchlearn.experiments.counts.zipf_errors import (
    bytes_table,
    evaluate_networks,
    evaluate_zipf,
    zipf_laws,
    zipf_tables,
)
from sketchlearn.meta.config import TrainConfig
from sketchlearn.sqnet import SQNet
from sketchlearn.sqnet_spec import SQNetSpec

LAW = ZipfLaw(1.0, 1.0, 20)
WIDTHS = {"heart": (4, True, "test"), "dogstrain15": (130, False, "test")}
WIDTHS |= {"adult": (6, True, "train"), "diabetes": (3, True, "test")}


@pytest.fixture
def folder(tmp_path):
    """A folder like that of the paper's data, with tiny made-up datasets."""
    entries = []
    for seed, (name, (width, real, split)) in enumerate(WIDTHS.items()):
        rows = np.random.default_rng(seed).random((260, width)) < 0.2
        (tmp_path / "data" / split).mkdir(parents=True, exist_ok=True)
        file = f"{split}/{name}.parquet"
        columns = {f"f{i}": column.astype(np.int8) for i, column in enumerate(rows.T)}
        pq.write_table(pa.table(columns), tmp_path / "data" / file)
        entry = {"name": name, "file": file, "split": split, "rows": 260}
        entries.append({**entry, "features": width, "real": real, "kind": "tabular"})
    manifest = json.dumps({"datasets": entries})
    (tmp_path / "data" / "MANIFEST.json").write_text(manifest)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_rows_drawn_for_known_counts_have_these_counts():
    batch = draw_zipf_batch(12, 0.5, 1.0, seed=0, n_sets=3, n_items=40)
    for counts, rows in zip(
        batch.counts, batch.rows(np.random.default_rng(0)), strict=True
    ):
        assert rows.shape == (12, 40)
        assert rows.max() <= 1
        np.testing.assert_array_equal(rows.sum(axis=0), counts)


def test_rows_drawn_for_known_counts_hold_items_anywhere():
    batch = SetBatch(np.full((1, 3000), 3), 6)
    rows = next(batch.rows(np.random.default_rng(0)))
    np.testing.assert_allclose(rows.mean(axis=1), 0.5, atol=0.05)


def test_truth_is_the_share_of_rows_and_whether_there_is_any():
    batch = SetBatch(np.array([[0, 1, 4]]), 4)
    assert FREQUENCIES.truth(batch).tolist() == [[0, 0.25, 1]]
    assert MEMBERSHIPS.truth(batch).tolist() == [[0, 1, 1]]
    assert FREQUENCIES.error(batch, np.array([[0.0, 0.25, 0.5]])) == pytest.approx(
        1 / 12
    )


@pytest.mark.parametrize("task", [FREQUENCIES, MEMBERSHIPS], ids=lambda task: task.name)
def test_every_method_is_exact_where_no_items_meet(task):
    counts = np.random.default_rng(0).integers(0, 5, size=(4, 6))
    batch, table = SetBatch(counts, 4), Table(2000, 3)
    for name in set(methods_of(task.name)) - {"zeros", "mean"}:
        if why_missing(name, table.size, task.name, NO_NETWORKS) is None:
            answers = count_method(name, table, task.name).answer(batch, 0)
            np.testing.assert_allclose(answers.values, task.truth(batch), atol=1e-6)


@pytest.mark.parametrize("task", [FREQUENCIES, MEMBERSHIPS], ids=lambda task: task.name)
def test_answers_are_frequencies_of_all_sets(task):
    training = (np.random.default_rng(0).random((300, 150)) < 0.2).astype(np.uint8)
    batch = BinarySet("two", training, training).draw(20, 2, seed=0)
    for name in methods_of(task.name):
        if why_missing(name, 100, task.name, NO_NETWORKS):
            continue
        answers = count_method(name, fixed_table(100), task.name).answer(batch, 0)
        assert answers.values.shape == batch.counts.shape
        assert answers.values.min() >= 0
        assert answers.values.max() <= 1


def test_joint_decoding_is_closer_than_classical_tables_and_closer_with_more_bytes():
    batch = draw_zipf_batch(50, 1.0, 1.0, seed=0, n_sets=3)
    answers = {
        name: count_method(name, fixed_table(100), "frequency").answer(batch, 0)
        for name in ("mean", "cm", "cs-median", "joint", "joint-bytes")
    }
    errors = {k: FREQUENCIES.error(batch, one.values) for k, one in answers.items()}
    assert errors["joint"] < 0.5 * min(errors[k] for k in ("mean", "cm", "cs-median"))
    assert errors["joint-bytes"] < errors["joint"]
    narrow = answers["joint-bytes"]
    assert answers["joint"].numbers == 100 < narrow.numbers
    assert 380 <= narrow.n_bytes <= 400


def test_a_bloom_filter_of_the_same_bits_has_no_more_bits():
    batch = draw_zipf_batch(10, 1.0, 1.0, seed=0, n_sets=3)
    joint, bloom = (
        count_method(name, fixed_table(100), "membership").answer(batch, 0)
        for name in ("joint", "bloom-bits")
    )
    assert 0.97 * joint.n_bytes <= bloom.n_bytes <= joint.n_bytes


def test_sets_narrower_than_the_sketch_are_counted_exactly():
    rows = (np.random.default_rng(0).random((80, 30)) < 0.3).astype(np.uint8)
    batch = BinarySet("narrow", rows, rows).draw(20, 4, seed=0)
    for name in ("joint", "joint-bytes", "linear", "packed"):
        answers = count_method(name, fixed_table(100), "frequency").answer(batch, 0)
        np.testing.assert_array_equal(answers.values, batch.frequencies)
        assert answers.numbers == 30


def test_training_rows_make_errors_small_where_items_go_together():
    rng = np.random.default_rng(0)
    rows = ((rng.random((600, 4)) < 0.4) @ rng.integers(0, 2, (4, 150)) > 0).astype(
        np.uint8
    )
    data = BinarySet("together", rows[:300], rows[300:])
    batch = data.draw(20, 2, seed=0)
    for name in ("linear", "packed"):
        answers = count_method(name, fixed_table(50), "frequency").answer(batch, 0)
        assert FREQUENCIES.error(batch, answers.values) < 1e-4
    with pytest.raises(ConfigError, match="no training rows"):
        count_method("linear", fixed_table(50), "frequency").answer(
            SetBatch(batch.counts, 20), 0
        )


def save_network(folder, name, question="frequency", score=0.5, **spec):
    head = {"head": "sigmoid"}
    net = SQNet.initial(SQNetSpec(1000, 10, decoder=head, **spec))
    card = {"task": question, "seconds": 3.0, "validation": {"score": score}}
    net.save(folder / f"{name}.safetensors", card=card)
    return net


def test_networks_are_known_by_what_their_files_say(tmp_path):
    save_network(tmp_path, "a", score=0.4)
    best = save_network(tmp_path, "b", score=0.2)
    save_network(tmp_path, "c", feature={"kind": "ternary"})
    save_network(tmp_path, "d", feature={"windows": 10}, question="membership")
    save_network(tmp_path, "g", feature={"windows": 10, "kind": "ternary"})
    save_network(tmp_path, "e", random={"activation": "gelu", "variance": 0.1})
    deep = {"kind": "resnet", "depth": 1, "width": 8}
    save_network(tmp_path, "f", feature=deep, pooling="max")
    networks = find_networks(tmp_path)
    assert sorted(one.family for one in networks.found if one.seconds == 3.0) == [
        "rfq", "sq-linear", "sq-linear", "sq-nonlinear", "sq-parallel", "sq-ternary",
        "sq-ternary-parallel",
    ]  # fmt: skip
    linear = networks.best("frequency", 10, family="sq-linear")
    assert linear.score == 0.2
    assert why_missing("sq-parallel", 10, "frequency", networks).startswith(
        "no weights"
    )
    assert networks.kinds("frequency", 10, "pooling") == ["max", "mean"]
    assert networks.kinds("frequency", 10, "activation") == ["gelu"]
    batch = draw_zipf_batch(5, 1.0, 1.0, seed=0, n_sets=2)
    for name in ("sq-linear", "sq-ternary", "rfq", "sq-nonlinear"):
        method = count_method(name, fixed_table(10), "frequency", networks)
        answers = method.answer(batch, 0)
        assert answers.values.shape == (2, 1000)
        assert (answers.bits < 32) == (name == "sq-ternary")
    # An affine network sees the mean of the rows: the same as the exact sketch of them.
    rows = next(batch.rows(np.random.default_rng(0))).astype(np.float32)
    sketch = sketch_rows(rows, best.feature_map(), progress=False)
    method = count_method("sq-linear", fixed_table(10), "frequency", networks)
    np.testing.assert_allclose(
        method.answer(batch, 0).values[0], best.decoder().decode(sketch).params,
        atol=1e-6,
    )  # fmt: skip


def test_networks_are_compared_by_pooling_and_by_activation(tmp_path):
    deep = {"kind": "resnet", "depth": 1, "width": 8}
    for pooling in ("max", "min"):
        save_network(tmp_path, pooling, feature=deep, pooling=pooling)
    for activation in ("gelu", "relu"):
        random = {"activation": activation, "variance": 0.1}
        save_network(tmp_path, activation, random=random)
    networks = find_networks(tmp_path)
    compared = partial(evaluate_networks, FREQUENCIES, networks, n_sets=2)
    poolings = list(compared("pooling", size=10, laws=[LAW]))
    assert poolings == ["max (3 s)", "min (3 s)"]
    activations = list(compared("activation", size=10, laws=[LAW]))
    assert activations == ["gelu (3 s)", "relu (3 s)"]


def test_a_network_is_fine_tuned_to_a_dataset(tmp_path):
    save_network(tmp_path, "linear")
    rows = np.tile(np.arange(20) < 7, (60, 1)).astype(np.uint8)
    sets = [BinarySet("same", rows[:30], rows[30:])]
    config = TrainConfig(steps=20, learning_rate=0.05, validate_every=10)
    found = evaluate_datasets(
        FREQUENCIES, sets, ("sq-linear", "sq-tuned"), networks=find_networks(tmp_path),
        size=10, set_rows=(5,), n_sets=4, fine_tune=config,
    )  # fmt: skip
    before, after = (found.errors[k][5]["same"] for k in ("sq-linear", "sq-tuned"))
    assert after < before


def test_bits_of_a_number_are_those_of_the_largest():
    batch = SetBatch(np.array([[7, 0], [8, 0]]), 8)
    table = Table(50, 2)
    assert count_method("cm", table, "frequency").answer(batch, 0).bits == 4
    bloom = count_method("bloom", table, "membership").answer(batch, 0)
    assert (bloom.bits, bloom.numbers, bloom.n_bytes) == (1, 100, 13)
    signed = [count_method("cs", table, "frequency").answer(batch, s) for s in range(9)]
    assert {one.bits for one in signed} == {4, 5}


def test_all_tables_have_the_same_size():
    for size in (10, 100):
        tables = tables_of(size)
        assert {table.size for table in tables} == {size}
        assert len(tables) == sum(size % width == 0 for width in range(1, size + 1))


def test_the_best_table_has_the_least_mean_error():
    tables = tables_of(4)
    searched = SearchedTables(tables, np.array([[1.0, 2.0, 4.0], [5.0, 3.0, 1.0]]))
    assert searched.best == Table(2, 2)
    assert searched.best_widths.tolist() == [4, 1]
    assert searched.best_error == (2.5, 0.5)


def test_beta_is_one_where_it_has_no_effect():
    laws = zipf_laws((0.0, 1.0, 2.0), (0.5, 1.0), 10)
    assert [(law.alpha, law.beta) for law in laws] == [
        (0.0, 0.5), (0.0, 1.0), (1.0, 1.0), (2.0, 1.0),
    ]  # fmt: skip


def test_tuned_tables_come_from_the_search_and_tables_show_all_methods():
    methods = ("zeros", "cm", "cm-fixed")
    laws = [LAW, ZipfLaw(0.5, 1.0, 20)]
    search = search_tables(FREQUENCIES, ["cm"], [20], laws, n_runs=2, n_sets=5)
    found = evaluate_zipf(FREQUENCIES, methods, [20], laws, search=search, n_sets=30)
    # At alpha 1/2 all answers are 1, and of equal tables the widest is best.
    assert search["cm"][20][laws[1]].best.depth == 1
    for law in laws:
        assert found["cm"][20][law].error <= found["cm-fixed"][20][law].error
        assert found["cm"][20][law].n_sets == 30
    (shown,) = zipf_tables(FREQUENCIES, found)
    assert "m = 20, N = 20, beta = 1" in shown
    assert all(COUNT_METHODS[name] in shown for name in methods)
    weighed = bytes_table(FREQUENCIES, found)
    assert "5 bit(s) for each of the 1000 items is exact, and has 625 bytes" in weighed


def test_datasets_are_split_in_halves_and_marked(folder):
    sets = {data.name: data for data in load_binary_sets(folder)}
    assert list(sets) == ["dogstrain15", "heart", "adult"]
    assert {name: data.mark for name, data in sets.items()} == {
        "dogstrain15": "simulated", "heart": "", "adult": "",
    }  # fmt: skip
    assert sets["adult"].split == "train"
    for data in sets.values():
        assert len(data.training) == len(data.rows) == 130
    with pytest.raises(ConfigError, match="no dataset 'diabetes'"):
        load_binary_sets(folder, ["diabetes"])


def test_sets_of_a_dataset_are_rows_of_one_half():
    training, rows = np.zeros((30, 2), np.uint8), np.ones((30, 2), np.uint8)
    data = BinarySet("two", training, rows)
    batch = data.draw(10, 3, seed=0)
    assert (batch.counts == 10).all()
    assert (data.draw(10, 3, seed=0, training=True).counts == 0).all()
    for picked in batch.rows(np.random.default_rng(0)):
        assert picked.shape == (10, 2)
        assert picked.all()
    with pytest.raises(ConfigError, match="no sets of 31"):
        data.draw(31, 1, seed=0)


def test_the_table_of_datasets_has_what_the_paper_prints_and_says_what_is_simulated(
    folder,
):
    sets = load_binary_sets(folder, ["dogstrain15", "heart"])
    printed = printed_errors(FREQUENCIES)
    assert printed["CS"]["dogstrain15"] == 0.2
    found = evaluate_datasets(
        FREQUENCIES, sets, ("zeros", "cm-fixed"), n_sets=6, printed=printed
    )
    shown = dataset_tables(FREQUENCIES, found)
    lines = {line.split("  ")[0]: line.split() for line in shown.splitlines()}
    assert lines["printed: CS"][-3:] == ["2.0e-01", "1.0e-02", "1.1e-01"]
    assert lines["printed: SQ (f)"][-3:-1] == ["8.0e-03", "3.0e-05"]
    assert lines["columns"] == ["columns", "130", "4"]
    assert "dogstrain15* " in shown
    assert "not the paper's rows: dogstrain15 (simulated)" in shown
    zeros = [np.square(data.draw(20, 6, seed=0).frequencies).mean() for data in sets]
    for value, data in zip(zeros, sets, strict=True):
        assert found.errors["zeros"][20][data.name] == pytest.approx(value)


def test_times_are_beside_those_of_the_paper():
    seconds = measure_seconds(FREQUENCIES, ["zeros", "cm-fixed"], n_sets=2)
    assert "~" in seconds_table(seconds)
    line = seconds_table(seconds).splitlines()[-1]
    assert line.startswith(COUNT_METHODS["cm-fixed"])
    assert line.split()[-1] == "5.0e-04"


def test_plans_refuse_what_does_not_exist():
    with pytest.raises(ConfigError, match="no method 'bloom'"):
        CountsPlan(question="frequency", methods=("bloom",))
    with pytest.raises(ConfigError, match="from 5 on"):
        CountsPlan(question="membership", methods=("bloom",), sizes=(4,))


@pytest.mark.parametrize("task", [FREQUENCIES, MEMBERSHIPS], ids=lambda task: task.name)
def test_a_quick_plan_writes_tables_and_figures(task, folder):
    output = folder / "out"
    command = ("reproduce", task.name, "--data", folder, "--quick", "--output", output)
    some = "zeros,cm" if task is FREQUENCIES else "zeros,bloom"
    some += ",joint,packed,sq-linear"
    first = run(*command, "--methods", some)
    assert first.exit_code == 0, first.output
    assert (output / "tables.txt").read_text() == first.stdout
    assert "printed: SQ (f)" in first.stdout
    assert "simulated" in first.stdout
    assert sorted(path.name for path in output.glob("*.png")) == [
        "best-tables-100.png", "search-100.png", "zipf.png",
    ]  # fmt: skip
    written = json.loads((output / "results.json").read_text())
    drawn = {point["method"] for point in written["zipf"]}
    assert drawn == set(some.split(",")) - {"packed", "sq-linear"}
    assert "packed" in written["datasets"]["errors"]
    assert "skipped SQNet, linear: no weights of 100 numbers" in first.stdout
    assert written["datasets"]["marks"] == {"dogstrain15": "simulated"}
    assert written["missing_sets"] == []
    assert run(*command).exit_code == 1
