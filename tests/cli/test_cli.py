"""Each command is a few library calls, with exit codes and messages to rely on."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import click
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sketchlearn
import sketchlearn as sl
from paper_folder import write_paper_folder
from sketchlearn.cli.app import main
from sketchlearn.discovery import classes_declaring
from sketchlearn.files.models import packaged_weights
from sketchlearn.files.weights import save_weights
from sketchlearn.registry import load_card

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 4)) * 10


@pytest.fixture
def folder(tmp_path, monkeypatch):
    names = ["a", "b", "c", "price"]
    for part, rows in (("jan", ROWS[:200]), ("feb", ROWS[200:])):
        columns = dict(zip(names, rows.T, strict=True))
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    (tmp_path / "text.csv").write_text("a,city\n1,Oslo\n2,Rome\n")
    (tmp_path / "empty.csv").write_text("a,b,c,price\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_sketch_merge_subtract_inspect_and_fit(folder):
    bounds = ("--bounds", "-100", "100")
    assert run("sketch", "jan.parquet", "-o", "jan.sketch", *bounds).exit_code == 0
    run("sketch", "feb.parquet", "-o", "feb.sketch", "--like", "jan.sketch")
    merged = run("merge", "jan.sketch", "feb.sketch", "-o", "both.sketch", "--json")
    assert json.loads(merged.stdout)["rows"] == 300
    run("subtract", "both.sketch", "feb.sketch", "-o", "again.sketch")
    assert sl.load("again.sketch") == sl.load("jan.sketch")
    shown = json.loads(run("inspect", "both.sketch", "--json").stdout)
    assert shown["digest"] == sl.load("both.sketch").digest
    assert "cross-moments" in run("inspect", "both.sketch").stdout or shown["numbers"]
    fitted = json.loads(run("fit", "pca", "both.sketch", "--components", "2").stdout)
    expected = sl.CompressivePCA(2, bounds=(-100, 100)).fit(ROWS)
    assert np.allclose(fitted["components"], expected.components_)


def test_files_behind_urls_are_sketched_as_those_on_disk(folder):
    system = fsspec.filesystem("memory")
    for name in ("jan.parquet", "feb.parquet"):
        system.pipe(f"/cli/{name}", Path(name).read_bytes())
    bounds = ("--bounds", "-100", "100")
    run("sketch", "jan.parquet", "feb.parquet", "-o", "disk.sketch", *bounds)
    for name, data in (
        ("list", ["cli/jan.parquet", "cli/feb.parquet"]),
        ("all", ["cli"]),
    ):
        urls = [f"memory://{path}" for path in data]
        made = run("sketch", *urls, "-o", f"{name}.sketch", *bounds)
        assert made.exit_code == 0, made.output
        assert sl.load(f"{name}.sketch").digest == sl.load("disk.sketch").digest
    refused = run("sketch", "memory://me:secret@cli/mar.parquet", "-o", "x.sketch")
    assert refused.exit_code == 1
    assert "no file 'memory://cli/mar.parquet'" in refused.stderr
    assert "secret" not in refused.stderr
    system.rm("/cli", recursive=True)


def test_inspect_says_numbers_and_bytes(folder):
    counts = sl.CountMinFeatures(3, width=4, depth=2)
    sl.save(sl.sketch_rows(np.eye(3), counts), "counts.sketch")
    shown = json.loads(run("inspect", "counts.sketch", "--json").stdout)

    assert (shown["numbers"], shown["packed bytes"]) == (8, 2)
    assert shown["bytes"] == Path("counts.sketch").stat().st_size


@pytest.mark.parametrize(
    ("model", "estimator", "name"),
    [
        ("kmeans", sl.CompressiveKMeans, "cluster_centers"),
        ("mixture", sl.CompressiveGaussianMixture, "means"),
    ],
)
def test_clusters_and_mixtures_are_decoded_from_a_sketch_of_one_pass(
    folder, model, estimator, name
):
    bounds = ("--bounds", "-100", "100")
    made = run(
        "sketch", "*.parquet", "-o", "k.sketch", "--for", model, "--size", "90", *bounds
    )
    assert made.exit_code == 0, made.output
    fitted = json.loads(run("fit", model, "k.sketch", "--components", "2").stdout)
    expected = estimator(2).fit_sketch(sl.load("k.sketch"))
    assert np.allclose(fitted[name], getattr(expected, f"{name}_"))


def test_ridge_takes_its_target_by_name(folder):
    made = run(
        "sketch", "jan.parquet", "feb.parquet", "-o", "r.sketch", "--for", "ridge",
        "--target", "b",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    fitted = json.loads(run("fit", "ridge", "r.sketch", "--alpha", "0.5").stdout)
    expected = sl.CompressiveRidge(0.5).fit(ROWS[:, [0, 2, 3]], ROWS[:, 1])
    assert np.allclose(fitted["coef"], expected.coef_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sketch", "jan.parquet", "--columns", "a,prcie"), "did you mean 'price'?"),
        (("sketch", "empty.csv"), "0 rows"),
        (("sketch", "text.csv"), "column 'city'"),
        (("sketch", "jam.parquet"), "did you mean 'jan.parquet'"),
        (("sketch", "jan.parquet", "--bounds", "0", "1"), "outside the planned range"),
    ],
)
def test_bad_data_is_one_line_and_writes_nothing(folder, arguments, message):
    result = run(*arguments, "-o", "out.sketch")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert not (folder / "out.sketch").exists()


def test_threads_do_not_change_a_sketch(folder):
    for jobs in ("1", "3", "-1"):
        made = run("sketch", "jan.parquet", "-o", f"{jobs}.sketch", "--jobs", jobs)
        assert made.exit_code == 0, made.stderr
    assert sl.load("1.sketch") == sl.load("3.sketch") == sl.load("-1.sketch")
    assert "n_jobs" in run("sketch", "jan.parquet", "-o", "x", "--jobs", "0").stderr


def test_sketches_of_two_seeds_do_not_merge(folder):
    run("sketch", "jan.parquet", "-o", "a.sketch", "--size", "4", "--seed", "0")
    run("sketch", "jan.parquet", "-o", "b.sketch", "--size", "4", "--seed", "1")
    result = run("merge", "a.sketch", "b.sketch", "-o", "c.sketch")
    assert result.exit_code == 1
    assert "seed 0 vs 1" in result.stderr


def test_a_truncated_file_is_refused(folder):
    run("sketch", "jan.parquet", "-o", "a.sketch")
    data = (folder / "a.sketch").read_bytes()
    (folder / "a.sketch").write_bytes(data[:-7])
    result = run("inspect", "a.sketch")
    assert result.exit_code == 1
    assert "truncated" in result.stderr


def test_nothing_is_overwritten_without_force(folder):
    run("sketch", "jan.parquet", "-o", "a.sketch")
    before = (folder / "a.sketch").read_bytes()
    result = run("sketch", "feb.parquet", "-o", "a.sketch")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert (folder / "a.sketch").read_bytes() == before
    assert run("sketch", "feb.parquet", "-o", "a.sketch", "--force").exit_code == 0


def test_wrong_usage_exits_with_two(folder):
    assert run("sketch").exit_code == 2
    assert run("sketch", "jan.parquet", "-o", "x", "--for", "ridge").exit_code == 2
    assert run("dance").exit_code == 2
    assert run("--version").stdout.strip().endswith(sl.__version__)


def test_an_interrupt_exits_with_130(folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "sketchlearn.sketching.local_rows.LocalRows.sketch", interrupted
    )
    result = run("sketch", "jan.parquet", "-o", "a.sketch")
    assert result.exit_code == 130
    assert not (folder / "a.sketch").exists()


def test_the_demo_tells_its_story(tmp_path):
    result = run("demo", "--rows", "20000", "--directory", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "equal to the last bit" in result.stdout
    assert (tmp_path / "demo" / "all.sketch").exists()
    figures = run("demo", "--rows", "5000", "--json")
    found = json.loads(figures.stdout)
    assert found["digests_equal"] is True
    assert abs(np.subtract(*found["ridge_r2"])) < 1e-6


def test_release_spends_a_ledger_and_audit_finds_nothing(folder):
    phi = sl.clipped(
        sl.MomentFeatures(4, scaling=sl.Scaling.from_bounds(-64, 64, n_features=4)),
        norm_bound=2.0,
    )
    sl.save(phi, "study.map")
    assert "clipped" in run("inspect", "study.map").stdout
    made = run("sketch", "jan.parquet", "-o", "jan.sketch", "--like", "study.map")
    assert made.exit_code == 0, made.output
    promise = ("--epsilon", "1", "--delta", "1e-6", "--ledger", "l.ledger")
    missing = run("release", "jan.sketch", *promise, "-o", "p.sketch")
    assert missing.exit_code == 1
    assert "no ledger" in missing.stderr
    caps = ("--create-ledger", "1.0", "1e-6")
    done = run("release", "jan.sketch", *promise, *caps, "-o", "p.sketch", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["epsilon"] == 1.0
    assert isinstance(sl.load("p.sketch"), sl.PrivateSketch)
    again = run("release", "jan.sketch", *promise, "-o", "q.sketch")
    assert again.exit_code == 1
    assert "nothing was released" in again.stderr
    assert "epsilon" in run("inspect", "p.sketch").stdout
    assert run("merge", "p.sketch", "jan.sketch", "-o", "m.sketch").exit_code == 1
    audited = run("audit", "--releases", "1000", "--json")
    assert audited.exit_code == 0, audited.output
    found = json.loads(audited.stdout)
    assert found["passed"] is True
    assert [check["fault"] for check in found["checks"]] == [None] * 6


def test_map_files_are_told_from_sketches(folder):
    sl.save(sl.MomentFeatures(4), "a.map")
    for command in (("fit", "pca", "a.map"), ("merge", "a.map", "-o", "x")):
        result = run(*command)
        assert result.exit_code == 1
        assert "holds a feature map" in result.stderr
    contradicting = (
        "sketch",
        "jan.parquet",
        "-o",
        "x",
        "--like",
        "a.map",
        "--seed",
        "4",
    )
    assert run(*contradicting).exit_code == 2


def test_like_reads_the_columns_of_the_other_sketch_by_name(folder):
    run("sketch", "jan.parquet", "-o", "r.sketch", "--for", "ridge", "--target", "b")
    run("sketch", "jan.parquet", "-o", "s.sketch", "--like", "r.sketch")
    assert sl.load("r.sketch") == sl.load("s.sketch")
    assert sl.load("s.sketch").columns == ("a", "c", "price", "b")


def test_models_are_listed_and_shown(folder):
    known = sl.list_models()
    listed = json.loads(run("models", "--json").stdout)
    assert [model["name"] for model in listed] == [model.name for model in known]
    table = run("models").stdout.splitlines()
    assert len(table) == 1 + len(known)
    for model, line in zip(known, table[1:], strict=True):
        assert line.startswith(model.name)
        assert json.loads(run("models", model.name).stdout) == load_card(model.name)
    unknown = run("models", "nothing")
    assert unknown.exit_code == 1
    assert "no model 'nothing'" in unknown.stderr


def test_reproduce_pca_trains_compares_and_keeps_former_results(tmp_path):
    data = write_paper_folder(tmp_path)
    command = (
        "reproduce", "pca", "--data", data, "--quick", "--output", tmp_path / "out",
        "--weights", tmp_path / "weights", "--methods", "sqnet,learned",
        "--config", data / "pca-sqnet.toml",
    )  # fmt: skip
    skipped = run(*command, "--sizes", "700,20")
    assert skipped.exit_code == 0, skipped.output
    assert "skipped sqnet at size 700" in skipped.stderr
    assert "SQNet, printed in the paper (2 sets)" in skipped.stdout
    again = run(*command)
    assert again.exit_code == 1
    assert "--force" in again.stderr
    trained = run(*command, "--sizes", "8", "--train", "--force", "--json")
    assert trained.exit_code == 0, trained.output
    found = json.loads(trained.stdout)
    assert set(found["pca"]["sqnet"]) == {"diabetes", "hapmap31"}
    assert not found["skipped"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--data", "missing"),
        ("--data", "."),
        ("--data", "..", "--sizes", "ten"),
    ],
)
def test_reproduce_without_data_or_with_bad_sizes_is_wrong_usage(folder, arguments):
    assert run("reproduce", "pca", *arguments).exit_code == 2
    assert not (folder / "reproduced-pca").exists()


@pytest.fixture
def shared(folder):
    """Exact sketches of a bounded map, two of them released."""
    phi = sl.clipped(sl.CompressivePCA(bounds=(-100, 100)).plan(4), norm_bound=2.0)
    sl.save(phi, "study.map")
    for part in ("jan", "feb"):
        run("sketch", f"{part}.parquet", "-o", f"{part}.sketch", "--like", "study.map")
        release = ("release", f"{part}.sketch", "-o", f"{part}.private")
        promise = ("--epsilon", "1", "--delta", "1e-6", "--ledger", f"{part}.ledger")
        made = run(*release, *promise, "--create-ledger", "2", "1e-6")
        assert made.exit_code == 0, made.stderr
    return folder


def test_releases_of_different_people_are_merged(shared):
    merged = run("merge", "jan.private", "feb.private", "-o", "both.private", "--json")
    assert merged.exit_code == 0
    assert json.loads(merged.stdout)["epsilon"] == 1.0
    assert len(sl.load("both.private").statement.lineage) == 2
    twice = run("merge", "jan.private", "jan.private", "-o", "x.private")
    assert (twice.exit_code, "share rows, or may" in twice.stderr) == (1, True)
    mixed = run("merge", "jan.sketch", "feb.private", "-o", "x.private")
    assert (mixed.exit_code, "some exact; merge each kind" in mixed.stderr) == (1, True)


def test_the_same_rows_are_merged_on_request_only(shared):
    twice = ("merge", "jan.sketch", "jan.sketch", "-o", "twice.sketch")
    refused = run(*twice)
    assert (refused.exit_code, "share the run" in refused.stderr) == (1, True)
    assert run(*twice, "--distinct-rows").exit_code == 0
    assert sl.load("twice.sketch").count == 400


def test_a_sketch_goes_to_standard_output(shared):
    made = run("merge", "jan.sketch", "feb.sketch", "-o", "-")
    assert made.exit_code == 0
    assert sl.loads(made.stdout_bytes).count == 300
    assert "digest" in made.stderr
    assert not (shared / "-").exists()


def test_a_target_is_a_name_or_a_number(folder):
    run("sketch", "jan.parquet", "-o", "p.sketch", "--for", "pca")
    by_name = run("fit", "ridge", "p.sketch", "--target", "price")
    assert by_name.exit_code == 0, by_name.stderr
    assert by_name.stdout == run("fit", "ridge", "p.sketch", "--target", "3").stdout
    wrong = run("fit", "ridge", "p.sketch", "--target", "cost")
    assert wrong.exit_code == 1
    assert "no column 'cost'; it has: a, b, c, price" in wrong.stderr


@pytest.mark.parametrize("given", [("--for", "pca"), ("--size", "2000")])
def test_a_plan_of_another_file_leaves_nothing_to_say(folder, given):
    run("sketch", "jan.parquet", "-o", "p.sketch")
    made = run("sketch", "feb.parquet", "-o", "q.sketch", "--like", "p.sketch", *given)
    assert (made.exit_code, "--like takes the plan" in made.stderr) == (2, True)


def test_a_ledger_is_made_and_shown_with_what_is_left(shared):
    shown = json.loads(run("ledger", "show", "jan.ledger", "--json").stdout)
    assert shown["spent_epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert shown["left_epsilon"] == pytest.approx(
        sl.Ledger.open("jan.ledger").left_epsilon()
    )
    assert (shown["neighbours"], shown["rows_per_unit"]) == ("add_remove", 1)
    caps = ("--epsilon", "3", "--delta", "1e-5", "--rows-per-unit", "5")
    assert run("ledger", "create", "new.ledger", *caps).exit_code == 0
    again = run("ledger", "create", "new.ledger", "--epsilon", "9", "--delta", "1e-5")
    assert again.exit_code == 1
    assert "left_epsilon" in run("ledger", "show", "new.ledger").stdout


def test_a_spent_ledger_says_what_was_asked_and_what_is_left(shared):
    promise = ("--epsilon", "1.9", "--delta", "1e-6", "--ledger", "jan.ledger")
    made = run("release", "jan.sketch", "-o", "more.private", *promise)
    assert made.exit_code == 1
    words = r"epsilon=1.9 asked, about 1\.\d+ is left of 2 \(delta=1e-6\) in .*jan"
    assert re.search(words, made.stderr)
    assert not (shared / "more.private").exists()


def test_kmeans_of_files_takes_two_rounds(folder):
    plan = ("--for", "kmeans", "--clusters", "3")
    assert run("sketch", "jan.parquet", "-o", "k.sketch", *plan).exit_code == 0
    expected = sl.CompressiveKMeans(3).fit("jan.parquet")
    assert sl.load("k.sketch") == expected.sketch_
    one = ("--rounds", "1", "--size", "300")
    assert run("sketch", "jan.parquet", "-o", "1.sketch", *plan, *one).exit_code == 0
    wrong = run("sketch", "jan.parquet", "-o", "x", "--for", "pca", "--rounds", "2")
    assert (wrong.exit_code, "go with kmeans" in wrong.stderr) == (2, True)


def test_any_parameter_of_a_model_can_be_set(folder):
    run("sketch", "jan.parquet", "-o", "m.sketch", "--for", "mixture", "--rounds", "1")
    shape = ("--set", "covariance_type=diag")
    fitted = run("fit", "mixture", "m.sketch", "--components", "2", *shape)
    assert np.shape(json.loads(fitted.stdout)["covariances"]) == (2, 4)
    wrong = run("fit", "mixture", "m.sketch", "--set", "covariance=diag")
    assert (wrong.exit_code, "covariance_type" in wrong.stderr) == (2, True)


def test_an_option_of_another_model_is_refused(folder):
    run("sketch", "jan.parquet", "-o", "p.sketch")
    for option in (("--alpha", "2"), ("--target", "price")):
        wrong = run("fit", "pca", "p.sketch", *option)
        assert (wrong.exit_code, "go with ridge" in wrong.stderr) == (2, True)
    none = run("fit", "ridge", "p.sketch", "--target", "price", "--alpha", "0")
    expected = sl.CompressiveRidge(0).fit_sketch(sl.load("p.sketch"), targets=[3])
    assert np.allclose(json.loads(none.stdout)["coef"], expected.coef_)


def commands(group, *names):
    """Every command of a group with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_every_command_explains_itself(words):
    shown = run(*words, "--help")
    assert shown.exit_code == 0
    assert shown.stdout.count("\n\n") >= 2


ESTIMATORS = classes_declaring("command", "sketchlearn.estimators")


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_an_estimator_on_the_command_line_knows_what_it_says(name):
    made = ESTIMATORS[name]()
    options = {
        param.name for word in ("sketch", "fit") for param in main.commands[word].params
    }
    named = getattr(made, "command_options", {})
    assert set(named) <= options
    assert set(named.values()) <= set(made.get_params())
    X = np.random.default_rng(0).uniform(size=(200, 3))
    if getattr(made, "reads_items", False):  # rows are counts
        X, made = np.floor(3 * X), made.set_params(vocabulary=3)
    if "binarize" in made.get_params():  # rows are zeros and ones
        made.set_params(binarize=0.5, per_class=False)
    fitted = made.fit(X, X[:, 0])
    assert all(hasattr(fitted, attribute) for attribute in made.command_output)
    assert f"|{name}" in run("fit", "--help").stdout.replace("{", "|")


def test_every_module_that_is_imported_when_needed_is_there():
    sources = Path(sketchlearn.cli.__file__).parent.glob("*.py")
    names = [re.findall(r'lazy\("(.+?)"\)', path.read_text()) for path in sources]
    assert sum(names, [])
    for name in sum(names, []):
        assert find_spec(f"sketchlearn.{name}") is not None, name


@pytest.mark.parametrize("size", ["0", "many", "-3", "1.5"])
def test_a_size_is_a_number_or_auto(folder, size):
    made = run("sketch", "jan.parquet", "-o", "x.sketch", "--size", size)
    assert (made.exit_code, "nor 'auto'" in made.stderr) == (2, True)


def test_a_file_of_numbers_alone_is_read_on_request(folder):
    (folder / "bare.csv").write_text("1,2\n3,4\n5,7\n")
    refused = run("sketch", "bare.csv", "-o", "bare.sketch")
    assert (refused.exit_code, "header=False" in refused.stderr) == (1, True)
    assert run("sketch", "bare.csv", "-o", "bare.sketch", "--no-header").exit_code == 0
    assert sl.load("bare.sketch").count == 3


@pytest.mark.filterwarnings("always")
def test_warnings_are_one_line(folder):
    phi = sl.MomentFeatures(4, order="covariance", reach=64.0)
    run("sketch", "jan.parquet", "-o", "p.sketch")
    sl.save(sl.sketch_rows(ROWS[:5], phi), "moments.sketch")
    shown = run("fit", "kmeans", "moments.sketch", "--components", "2").stderr
    assert shown.startswith("warning: ")
    assert ".py" not in shown


def test_advice_is_given_in_the_words_of_the_command_line(folder):
    (folder / "holes.csv").write_text("a,b\n1,2\n,4\n")
    refused = run("sketch", "holes.csv", "-o", "x.sketch")
    assert (refused.exit_code, "Here: --drop-invalid." in refused.stderr) == (1, True)
    run("sketch", "jan.parquet", "-o", "jan.sketch")
    promise = ("--epsilon", "1", "--delta", "1e-6", "--ledger", "none.ledger")
    refused = run("release", "jan.sketch", "-o", "x", *promise)
    assert refused.exit_code == 1


def test_a_sketch_comes_from_standard_input(shared):
    data = (shared / "jan.sketch").read_bytes()
    arguments = ["merge", "-", "feb.sketch", "-o", "both.sketch"]
    assert CliRunner().invoke(main, arguments, input=data).exit_code == 0
    assert sl.load("both.sketch").count == 300


def test_own_weights_are_inspected_and_decoded_with(folder):
    path = "mine.safetensors"
    save_weights(packaged_weights("pca-ordered"), path)
    shown = json.loads(run("inspect", path, "--json").stdout)
    weights = packaged_weights("pca-ordered")
    assert (shown["kind"], shown["checksum"]) == ("equivariant", weights.digest)
    assert (shown["spec"], shown["card"]) == (weights.spec, weights.card)
    assert shown["bytes"] == Path(path).stat().st_size
    assert weights.digest in run("inspect", path).stdout
    assert json.loads(run("models", path).stdout) == weights.card
    run("sketch", "jan.parquet", "-o", "jan.sketch", "--size", "8")
    arguments = ("fit", "pca", "jan.sketch", "--components", "2")
    assert run(*arguments, "--decoder", path).stdout == run(*arguments).stdout
    refused = run("fit", "kmeans", "jan.sketch", "--decoder", path)
    assert refused.exit_code == 2
    assert "--decoder is no option of kmeans" in refused.stderr
    missing = run(*arguments, "--decoder", "none.safetensors")
    assert missing.exit_code == 1
    assert "no file 'none.safetensors'" in missing.stderr


def test_reproduce_refuses_an_output_it_cannot_write_before_it_computes(tmp_path):
    data = write_paper_folder(tmp_path)
    taken = tmp_path / "taken"
    taken.write_text("")
    done = run("reproduce", "pca", "--quick", "--data", data, "--output", taken)
    assert done.exit_code == 1
    assert "results cannot be written there" in done.stderr
    assert "size" not in done.stderr


def test_weights_are_written_under_a_name_they_are_found_by(tmp_path):
    done = run("train", "pca-ordered", "--data", tmp_path, "--output", tmp_path / "w")
    assert done.exit_code == 2
    assert "w.safetensors" in done.stderr
