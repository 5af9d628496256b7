"""k-means is judged against Lloyd's algorithm, and what was left out is said."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from paper_folder import write_paper_folder
from sketchlearn.cli.app import main
from sketchlearn.errors import ConfigError, RowsError
from sketchlearn.experiments.kmeans import figures, methods, privacy
from sketchlearn.experiments.kmeans.comparison import (
    KMeansResults,
    evaluate_clusterings,
    ratio_table,
    summary_tables,
)
from sketchlearn.experiments.kmeans.figures import (
    draw_errors,
    draw_private_ratios,
    draw_ratios,
)
from sketchlearn.experiments.kmeans.methods import (
    KMEANS_METHODS,
    LLOYD_LABEL,
    ClusterMethod,
    fourier_plan,
    kmeans_method,
)
from sketchlearn.experiments.kmeans.privacy import (
    CKM,
    PrivateRatios,
    measure_private_ratios,
)
from sketchlearn.experiments.kmeans.reproduction import KMeansPlan
from sketchlearn.experiments.kmeans.sets import (
    ClusterSet,
    inertia,
    load_cluster_sets,
)
from sketchlearn.experiments.kmeans.timing import TIMED, measure_times

# Ten pairs of points, 1 apart within and 100 between: Lloyd's inertia is ten halves.
MIDDLES = 100.0 * np.arange(10)[:, None]
PAIRS = ClusterSet("pairs", np.concatenate([MIDDLES - 0.5, MIDDLES + 0.5]))


@pytest.fixture
def folder(tmp_path):
    return write_paper_folder(tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_inertia_is_the_summed_squared_distance_to_the_nearest_centre():
    rng = np.random.default_rng(0)
    rows, centres = rng.normal(size=(30, 3)), rng.normal(size=(4, 3))
    expected = sum(min(((x - c) ** 2).sum() for c in centres) for x in rows)
    assert inertia(rows, centres) == pytest.approx(expected)


def test_a_ratio_is_relative_to_lloyd():
    assert PAIRS.lloyd == pytest.approx(5)
    assert PAIRS.ratio(MIDDLES) == pytest.approx(1)
    # (1.5² + 0.5²) / (2 · 0.5²)
    assert PAIRS.ratio(MIDDLES + 1) == pytest.approx(5)


def test_real_test_sets_have_features_in_the_unit_interval_that_vary(folder):
    sets = load_cluster_sets(folder)
    assert [data.name for data in sets] == ["diabetes", "hapmap31"]
    for data in sets:
        np.testing.assert_array_equal(data.rows.min(axis=0), 0)
        np.testing.assert_array_equal(data.rows.max(axis=0), 1)


def test_an_unknown_or_simulated_set_is_refused(folder):
    for name in ("nothing", "simulated"):
        with pytest.raises(RowsError, match=f"no real test set '{name}'"):
            load_cluster_sets(folder, ["diabetes", name])


def test_scores_are_means_over_seeds_and_slow_pairs_are_noted():
    def moved(rows, size, seed):
        return MIDDLES + seed

    methods = [ClusterMethod("ours", moved, False), ClusterMethod("amp", moved, True)]
    results = evaluate_clusterings(
        [PAIRS],
        methods,
        sizes=(100, 200),
        n_seeds=2,
        why_left_out=lambda method, data, size: (
            "slow" if method.is_slow and size == 200 else None
        ),
    )
    assert results.ratios["ours"]["pairs"] == {100: pytest.approx(3), 200: 3}
    assert list(results.ratios["amp"]["pairs"]) == [100]
    assert results.skipped == ("amp: 1 of 2 pairs of a set and a size, slow",)


def test_methods_are_compared_on_the_sets_they_share():
    results = KMeansResults(
        {"a": (9, 2), "b": (9, 3)},
        (50, 60),
        {
            "ours": {"a": {50: 1.0, 60: 1.1}, "b": {50: 4.0, 60: 5.0}},
            "amp": {"a": {50: 2.0}},
        },
        {},
    )
    assert results.shared_sets(50) == ["a"]
    assert results.shared_sets(60) == ["a", "b"]
    everywhere, at_50, at_60 = summary_tables(results).split("\n\n")
    assert KMEANS_METHODS["amp"] not in everywhere
    assert KMEANS_METHODS["amp"] not in at_60
    assert [line.split()[-3:] for line in at_50.splitlines()[2:]] == [
        ["1.000"] * 3,
        ["2.000"] * 3,
    ]
    assert at_60.splitlines()[2].split()[-3:] == ["3.050", "3.050", "5.000"]
    assert ratio_table(results, "amp").splitlines()[-1].split() == [
        "b", "9", "3", "-", "-",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", [n for n in KMEANS_METHODS if n not in ("mean", "amp")]
)
def test_every_method_finds_more_than_the_mean_of_ten_far_clusters(name):
    rng = np.random.default_rng(0)
    places = np.linspace(0.05, 0.95, 10)[:, None]
    rows = places[rng.integers(10, size=600)] + 0.01 * rng.normal(size=(600, 1))
    rows = rows.clip(0, 1)
    method = kmeans_method(name)
    centres = method.centers(rows, 60, 0)
    assert np.isfinite(centres).all()
    at_mean = inertia(rows, kmeans_method("mean").centers(rows, 60, 0))
    # A matrix for 196 features sees little of the first alone.
    share = 0.5 if name == "ckm-paper" else 0.3
    assert inertia(rows, centres) < share * at_mean


@pytest.mark.parametrize(("n_features", "n_landmarks"), [(1, 30), (4, 12), (99, 1)])
def test_landmarks_are_counted_as_rows_and_there_is_one_at_least(
    monkeypatch, n_features, n_landmarks
):
    seen = []

    def stop(landmarks, **settings):
        seen.append(len(landmarks))
        raise RowsError("seen")

    monkeypatch.setattr(methods, "NystromFeatures", stop)
    rows = np.random.default_rng(0).uniform(size=(300, n_features))
    with pytest.raises(RowsError, match="seen"):
        kmeans_method("ompr-nystrom").centers(rows, 60, 0)
    assert seen == [n_landmarks]


def test_errors_are_ratios_times_those_of_lloyd_averaged_over_all_sets():
    def moved(rows, size, seed):
        return MIDDLES + 1

    other = ClusterSet("other", PAIRS.rows / 10)
    results = evaluate_clusterings(
        [PAIRS, other], [ClusterMethod("ours", moved, False)], sizes=(20,)
    )
    expected = [inertia(one.rows, MIDDLES + 1) / 20 for one in (PAIRS, other)]
    assert results.lloyd["pairs"] == pytest.approx(0.25)
    assert results.mean_errors("ours", [20]) == pytest.approx([np.mean(expected)])
    assert np.isnan(results.mean_errors("ours", [50])).all()


def test_the_papers_figure_has_its_sizes_and_lloyd_beside(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        figures, "draw_lines", lambda panels, path, **options: drawn.extend(panels)
    )
    ratios = {"ckm-paper": {"a": {20: 3.0, 1000: 2.0}, "b": {20: 2.0, 1000: 2.0}}}
    ratios["amp"] = {"a": {1000: 2.0}}
    results = KMeansResults(
        {"a": (9, 2), "b": (9, 2)}, (20, 1000), ratios, {}, lloyd={"a": 1.0, "b": 4.0}
    )
    draw_errors(results, tmp_path / "errors.png")
    for panel, values in zip(drawn, ([5.5, 2.5], [2.5, 1.0]), strict=True):
        labels = [line.label for line in panel.lines]
        assert labels == [KMEANS_METHODS["ckm-paper"], LLOYD_LABEL]
        assert [line.y for line in panel.lines] == [[value] for value in values]
    drawn.clear()
    draw_ratios(results, tmp_path / "ratios.png")
    assert all(line.x == [1000] for panel in drawn for line in panel.lines)
    none = KMeansResults({"a": (9, 2)}, (1000,), {"ours": {}}, {}, lloyd={"a": 1.0})
    assert draw_errors(none, tmp_path / "errors.png") is None


def test_message_passing_returns_ten_finite_centres_even_where_it_fails():
    rows = np.random.default_rng(0).uniform(size=(300, 2))
    centres = kmeans_method("amp").centers(rows, 60, 0)
    assert centres.shape == (10, 2)
    assert np.isfinite(centres).all()


def test_gaussian_frequencies_are_as_long_as_those_of_adapted_radius():
    rows = np.random.default_rng(0).uniform(size=(600, 30))
    lengths = [
        np.linalg.norm(fourier_plan(rows, 400, law=law).frequencies, axis=0).mean()
        for law in ("gaussian", "adapted")
    ]
    assert 0.3 < lengths[0] / lengths[1] < 3


def test_times_are_measured_for_every_number_of_rows_beside_lloyd():
    curves = measure_times((300, 600), n_features=1, sketch_size=60)
    assert set(curves.seconds) == {*TIMED, "lloyd"}
    assert all(len(values) == 2 for values in curves.seconds.values())
    assert curves.ratios["lloyd"] == [1.0, 1.0]
    assert min(curves.ratios["ours"]) > 0.9


def test_noise_makes_private_centres_worse(tmp_path, monkeypatch):
    monkeypatch.setattr(privacy, "EPSILONS", (0.01,))
    entries, folder = [], tmp_path / "data"
    folder.mkdir()
    corners = np.random.default_rng(0).integers(0, 256, size=(10, 4))
    for name, split in (("MNIST", "test"), ("EMNIST-digits", "train")):
        rng = np.random.default_rng(len(name))
        rows = corners[rng.integers(10, size=600)] + rng.normal(size=(600, 4))
        table = {f"f{i}": column for i, column in enumerate(rows.clip(0, 255).T)}
        pq.write_table(pa.table({**table, "label": np.zeros(600)}), folder / name)
        entry = {"name": name, "file": name, "split": split, "rows": 600}
        entries.append({**entry, "features": 4, "real": True})
    manifest = json.dumps({"datasets": entries})
    (folder / "MANIFEST.json").write_text(manifest)
    found = measure_private_ratios(tmp_path, sizes=(200,), n_releases=1)
    assert list(found.ratios) == ["1 round", "2 rounds", *CKM.values()]
    for by_size in found.ratios.values():
        noisy, exact = by_size[200]
        assert exact < found.mean / 2
        assert noisy is None or noisy > exact


def test_both_trainings_of_iterative_ckm_share_a_panel(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        figures,
        "draw_lines",
        lambda panels, path, **options: drawn.extend(panels),
    )
    by_size = {500: [None, 8.0, 1.5, 1.2, 1.1], 1000: [None, 2.0, 1.5, 1.2, 1.1]}
    labels = ["1 round", "2 rounds", *CKM.values()]
    found = PrivateRatios(600, 1.4, dict.fromkeys(labels, by_size))
    draw_private_ratios(found, tmp_path / "privacy.png")
    assert [panel.title for panel in drawn] == ["1 round", "2 rounds", "Iterative CKM"]
    descents = {line.label: line for line in drawn[2].lines}
    assert set(descents) == {
        *(f"m = {m}, {how}" for m in by_size for how in ("regular", "privacy-aware")),
        KMEANS_METHODS["mean"],
    }
    regular, aware = (
        descents[f"m = 500, {how}"] for how in ("regular", "privacy-aware")
    )
    assert regular.colour == aware.colour
    assert regular.style != aware.style
    assert np.isnan(aware.y[0])
    assert aware.y[1:] == [2.5, 1.5, 1.2, 1.1]
    assert "2.5 if larger" in drawn[2].y_label


def test_plans_refuse_what_does_not_exist():
    with pytest.raises(ConfigError, match="no method 'magic'"):
        KMeansPlan(methods=("magic",))
    with pytest.raises(ConfigError, match="from 20 on"):
        KMeansPlan(sizes=(10, 1000))


def test_slow_methods_run_everywhere_only_if_asked():
    plan, slow = KMeansPlan(), kmeans_method("amp")
    narrow = replace(PAIRS, name="diabetes")
    assert not plan.why_left_out(slow, PAIRS, 500)
    assert plan.why_left_out(slow, PAIRS, 1000)
    assert plan.why_left_out(slow, narrow, 5000)
    assert not plan.why_left_out(slow, narrow, 1000)
    assert not plan.why_left_out(kmeans_method("ours"), PAIRS, 5000)
    assert not replace(plan, complete=True).why_left_out(slow, PAIRS, 5000)


def test_a_method_is_left_out_beyond_its_largest_size_and_the_note_says_why():
    plan, printed = KMeansPlan(complete=True), kmeans_method("ckm-paper")
    assert printed.largest_size == 500
    assert plan.why_left_out(printed, PAIRS, 20) is None
    assert plan.why_left_out(printed, PAIRS, 500) is None
    assert plan.why_left_out(printed, PAIRS, 1000) == "it has 500 numbers at most"
    slow = KMeansPlan().why_left_out(kmeans_method("amp"), PAIRS, 2000)
    assert slow == "slow (--complete runs them)"


def test_reproduce_kmeans_writes_tables_and_figures_and_keeps_former_results(folder):
    output = folder / "out"
    command = ("reproduce", "kmeans", "--data", folder, "--quick", "--output", output)
    first = run(*command, "--methods", "ours,mean")
    assert first.exit_code == 0, first.output
    assert KMEANS_METHODS["ours"] in first.stdout
    assert (output / "tables.txt").read_text() == first.stdout
    figures = sorted(path.name for path in output.glob("*.png"))
    assert figures == ["errors.png", "times.png"]
    more = run(
        *command[:-1], folder / "more", "--methods", "ours", "--sizes", "50,1000"
    )
    assert more.exit_code == 0, more.output
    figures = sorted(path.name for path in (folder / "more").glob("*.png"))
    assert figures == ["errors.png", "ratios.png", "times.png"]
    written = json.loads((output / "results.json").read_text())
    assert list(written["ratios"]["ours"]) == ["diabetes"]
    again = run(*command)
    assert again.exit_code == 1
    assert "--force" in again.stderr


@pytest.mark.parametrize(
    "arguments", [(), ("--data", "missing"), ("--data", "."), ("--sizes", "ten")]
)
def test_reproduce_kmeans_without_data_or_with_bad_sizes_is_wrong_usage(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "kmeans", *arguments).exit_code == 2
    assert not list(tmp_path.iterdir())
