"""What the documentation tells to type can be typed: every command as it is written."""

import re
import shlex
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import paper_folder
import sketchlearn as sl
from paper_folder import write_paper_folder
from sketchlearn.cli.app import main
from sketchlearn.meta.config import CONFIGS
from sketchlearn.registry import load_card

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def blocks(text):
    """Blocks of code without a language: what is typed."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.M | re.S)
    return [body for language, body in found if not language]


def commands_of(path):
    """Command lines of a page, joined by ``&&`` or not, without comments."""
    lines = "\n".join(blocks(path.read_text("utf-8"))).splitlines()
    parts = [part for line in lines for part in line.split("&&")]
    split = [shlex.split(part, comments=True) for part in parts]
    return [words[1:] for words in split if words[:1] == ["sketchlearn"]]


def inline_commands(path):
    """Commands within sentences: ``sketchlearn …`` between backticks."""
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    found = re.findall(r"`sketchlearn ([^`]+)`", prose)
    return [" ".join(words.split()).split() for words in found]


COMMANDS = [
    pytest.param(words, id=f"{path.stem}: {' '.join(words)}"[:90])
    for path in PAGES
    for words in commands_of(path)
]
INLINE = [
    pytest.param(words, id=f"{path.stem}: {' '.join(words)}"[:90])
    for path in PAGES
    for words in inline_commands(path)
]


def parse(command, words, context):
    """The deepest command of a line, its options and arguments read by click."""
    made = command.make_context(words[0], words[1:], parent=context)
    if not isinstance(command, click.Group):
        return made
    name, inner, rest = command.resolve_command(
        made, [*made._protected_args, *made.args]
    )
    return parse(inner, [name, *rest], made)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_line_has_options_and_arguments_that_exist(
    words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for folder in ("DATA", "WEIGHTS"):
        (tmp_path / folder).mkdir()
    if "--list" in words:
        assert CliRunner().invoke(main, words).exit_code == 0
        return
    parsed = parse(main, ["sketchlearn", *words], None)
    assert parsed.command.name in words


@pytest.mark.parametrize("words", INLINE)
def test_every_command_within_a_sentence_exists(words):
    command, context = main, click.Context(main)
    for word in words:
        found = (
            command.get_command(context, word)
            if isinstance(command, click.Group)
            else None
        )
        if found is None:
            break
        command = found
    assert command is not main, f"no command {words[0]!r}"
    known = {flag for option in command.params for flag in option.opts}
    flags = {word for word in words if word.startswith("--")}
    assert isinstance(command, click.Group) or flags <= known


def test_there_are_commands_on_these_pages():
    assert len(COMMANDS) > 30
    pages = {str(case.id).partition(":")[0] for case in COMMANDS}
    assert {"README", "meta-learning", "reproduce"} <= pages


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of the names that the pages use, all small."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 100, size=(300, 4))
    columns = dict(zip("abcd", rows.T, strict=True))
    for name in ("january", "events"):
        pq.write_table(pa.table(columns), f"{name}.parquet")
    lines = [",".join("abcd"), *(",".join(map(str, row)) for row in rows[:50])]
    Path("february.csv").write_text("\n".join(lines) + "\n")
    Path("words.csv").write_text("word\n" + "apple\npear\napple\n" * 20)
    answers = {name: values > 50 for name, values in columns.items()}
    pq.write_table(pa.table(answers), "answers.parquet")
    bounded = sl.clipped(sl.CompressivePCA(bounds=(0, 100)).plan(4), norm_bound=4.0)
    sl.save(sl.sketch_rows(rows, bounded), "bounded.sketch")
    write_paper_folder(tmp_path)
    (tmp_path / "data").rename(tmp_path / "DATA")
    return tmp_path


LONG = {"audit", "reproduce", "train", "data", "--decoder", "my.safetensors"}
"""Words of commands that take minutes, or need what such a command makes."""


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_commands_of_the_readme_run_one_after_the_other(folder):
    done = []
    for words in commands_of(ROOT / "README.md"):
        if not LONG & set(words):
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, (words, result.output)
            done.append(words[0])
    assert {"sketch", "merge", "fit", "query", "release", "models"} <= set(done)


def test_documented_trainings_run_when_they_are_tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wide = [(name, "train", True, 24) for name in "abcd"]
    monkeypatch.setattr(paper_folder, "SETS", wide)
    (write_paper_folder(tmp_path) / "data").rename("DATA")
    Path("my.toml").write_text((CONFIGS / "pca-ordered.toml").read_text("utf-8"))
    rows = np.random.default_rng(0).uniform(0, 100, size=(50, 6))
    sl.save(sl.CompressivePCA(sketch_size=12).sketch(rows), "both.sketch")
    page = ROOT / "docs" / "meta-learning.md"
    for words in commands_of(page):
        if words[-2:] == ["--start-from", "pca-ordered"]:
            continue  # a tiny network is no start for that one, nor it for a tiny one
        tiny = ["--preset", "tiny", "--steps", "1"] if words[0] == "train" else []
        if words[0] == "reproduce":
            continue  # has a test of its own, and no test sets here
        result = CliRunner().invoke(main, [*words, *tiny])
        assert result.exit_code == 0, (words, result.output)
    assert Path("tuned.safetensors").is_file()
    assert load_card("tuned.safetensors")["started_from"]["checksum"]


def test_a_documented_reproduction_runs_when_it_is_quick(folder):
    page = ROOT / "docs" / "reproduce.md"
    quick = [w for w in commands_of(page) if w[:2] == ["reproduce", "pca"]]
    words = next(words for words in quick if "--quick" in words)
    result = CliRunner().invoke(main, [*words, "--methods", "learned,nystrom"])
    assert result.exit_code == 0, result.output
    assert (folder / "quick" / "results.json").is_file()
