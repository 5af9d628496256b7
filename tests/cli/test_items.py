"""Items on the command line: ids of a column, asked for by name."""

import json
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pytest
from click.testing import CliRunner

import sketchlearn as sl
from sketchlearn.cli import main

WORDS = [f"w{int(x)}" for x in np.random.default_rng(1).zipf(1.6, 3000) if x < 500]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.csv").write_text("word,n\n" + "".join(f"{w},1\n" for w in WORDS))
    (tmp_path / "list.txt").write_text("\n".join(sorted(set(WORDS))) + "\n")
    run("sketch words.csv --for frequency --columns word --size 400 -o w.sketch")
    return tmp_path


def run(text, code=0):
    result = CliRunner().invoke(main, text.split())
    assert result.exit_code == code, result.output
    return result.output


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_items_are_asked_for_by_name(folder):
    truth = Counter(WORDS)
    found = lines(run("query w.sketch w1 w2 nothing --confidence 0.9999"))
    assert [line["item"] for line in found] == ["w1", "w2", "nothing"]
    for line in found:
        assert line["low"] <= truth[line["item"]] <= line["high"]


def test_with_all_items_listed_the_most_frequent_are_found(folder):
    truth = Counter(WORDS).most_common(3)
    found = lines(run("query w.sketch --vocabulary list.txt --top 3"))
    assert [(line["item"], round(line["count"])) for line in found] == truth


def test_a_filter_is_asked_whether_items_are_there(folder):
    run(
        "sketch words.csv --for membership --set decoder=bloom --columns word "
        "--size 4000 -o b.sketch"
    )
    found = lines(run("query b.sketch w1 nothing"))
    assert found[0]["probability"] > 0.5
    assert found[1]["probability"] < 0.5


def test_the_plan_of_another_sketch_of_items_is_used(folder):
    run("sketch words.csv --like w.sketch --columns word -o again.sketch")
    assert (folder / "again.sketch").stat().st_size == (
        folder / "w.sketch"
    ).stat().st_size
    assert "any items" in run("inspect again.sketch")


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("query w.sketch", 2, "name the items"),
        ("query w.sketch w1 --top 2", 2, "name the items"),
        ("query w.sketch --top 2", 1, "vocabulary of this sketch is open"),
        ("query w.sketch x --integers", 1, "not a whole number"),
        ("query w.sketch w1 --vocabulary none.txt", 2, "none.txt"),
        ("sketch words.csv --for frequency --columns wrd -o x.sketch", 1, "wrd"),
        ("sketch words.csv --for frequency --columns a,b -o x.sketch", 2, "one column"),
        ("sketch words.csv --for frequency --columns n --rounds 2 -o x", 2, "rounds"),
    ],
)
def test_what_makes_no_sense_is_one_line(folder, command, code, message):
    assert message in run(command, code)
    assert not (folder / "x.sketch").exists()


def test_ids_come_from_several_files_and_urls(folder):
    system = fsspec.filesystem("memory")
    whole = Path("words.csv").read_text().splitlines(keepends=True)
    Path("1.csv").write_text("".join(whole[:40]))
    system.pipe("/cli/2.csv", "".join([whole[0], *whole[40:]]).encode())
    run("sketch 1.csv memory://cli/2.csv --like w.sketch --columns word -o both.sketch")

    assert sl.load("both.sketch").digest == sl.load("w.sketch").digest
    system.rm("/cli", recursive=True)
