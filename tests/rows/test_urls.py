"""Files behind URLs give the rows of the same files on disk, and are named safely."""

import gc
import io
import json
import subprocess
import sys
import weakref

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations

from sketchlearn.errors import MissingExtraError, MissingFileError, RowsError
from sketchlearn.rows.open_items import open_items
from sketchlearn.rows.open_rows import open_rows
from sketchlearn.rows.survey import survey_rows
from sketchlearn.rows.urls import is_url, shown

ROWS = np.random.default_rng(0).normal(size=(60, 2))
TABLE = pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})


@pytest.fixture(autouse=True)
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def parquet(table=TABLE, **options):
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, **options)
    return sink.getvalue()


def feather(table=TABLE, chunksize=20):
    sink = io.BytesIO()
    pa.feather.write_feather(table, sink, chunksize=chunksize, compression="zstd")
    return sink.getvalue()


def text(table=TABLE, separator=","):
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [table.column_names, *(map(repr, row) for row in rows)]
    return "".join(separator.join(line) + "\n" for line in lines).encode()


def objects(table=TABLE):
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def gather(data, **options):
    return np.concatenate(list(open_rows(data, **options)))


def message(data, error=RowsError, **options):
    with pytest.raises(error) as caught:
        list(open_rows(data, **options))
    return str(caught.value)


FORMATS = {
    "x.parquet": parquet,
    "x.pq": lambda: parquet(row_group_size=7),
    "x.csv": text,
    "x.tsv": lambda: text(separator="\t"),
    "x.jsonl": objects,
    "x.feather": feather,
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("batch_rows", [7, 100])
def test_a_file_in_memory_has_the_rows_of_the_file(memory, name, batch_rows):
    memory.pipe(f"/data/{name}", FORMATS[name]())
    batches = open_rows(f"memory://data/{name}", batch_rows=batch_rows)

    assert batches.source == f"'memory://data/{name}'"
    assert batches.is_repeatable
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(batches)), ROWS)
    assert np.array_equal(batches.select(["b"]).peek(3), ROWS[:3, 1:])


@pytest.mark.parametrize("name", FORMATS)
def test_readings_at_the_same_time_do_not_disturb_each_other(memory, name):
    memory.pipe(f"/data/{name}", FORMATS[name]())
    batches = open_rows(f"memory://data/{name}", batch_rows=10)
    pairs = list(zip(batches, batches, strict=True))

    assert np.array_equal(np.concatenate([one for one, _ in pairs]), ROWS)
    assert np.array_equal(np.concatenate([other for _, other in pairs]), ROWS)


def test_globs_folders_and_lists_of_urls_are_read_in_order(memory):
    parts = {f"/t/y={i}/x.parquet": ROWS[20 * i : 20 * i + 20] for i in range(3)}
    for path, rows in parts.items():
        memory.pipe(path, parquet(pa.table({"a": rows[:, 0], "b": rows[:, 1]})))
    memory.pipe("/t/y=0/_SUCCESS", b"")
    memory.pipe("/t/y=0/.hidden.parquet", b"")

    for data in ("memory://t/y=*/x.parquet", "memory://t/**/x.parquet"):
        assert np.array_equal(gather(data), ROWS)
    assert open_rows("memory://t/y=*/x.parquet").source.endswith("(3 files)")
    assert open_rows("memory://t/y=[12]/x.parquet").n_rows == 40
    assert np.array_equal(gather("memory://t/y=0"), ROWS[:20])
    assert np.array_equal(gather("memory://t/y=0/"), ROWS[:20])
    mixed = ["memory://t/y=1/x.parquet", "memory://t/y=0"]
    assert np.array_equal(gather(mixed), np.concatenate([ROWS[20:40], ROWS[:20]]))


def test_local_files_and_urls_go_together(memory, tmp_path):
    (tmp_path / "x.csv").write_bytes(text(TABLE[:20]))
    memory.pipe("/x.parquet", parquet(TABLE[20:]))

    assert np.array_equal(gather([tmp_path / "x.csv", "memory://x.parquet"]), ROWS)


def test_a_file_url_is_a_path_and_needs_no_fsspec(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    folder = tmp_path / "my rows"
    folder.mkdir()
    (folder / "x.csv").write_bytes(text())
    np.save(folder / "x.npy", ROWS)

    urls = [
        f"file://{folder}/x.csv",
        f"file://localhost{folder}/x.csv",
        f"FILE://{folder}/*.csv",
        f"file://{folder}/x.npy",
        (folder / "x.csv").as_uri(),
    ]
    for url in urls:
        assert np.array_equal(gather(url), ROWS)
    assert "named twice" in message([urls[0], folder / "x.csv"])
    assert "did you mean" in message(f"file://{folder}/y.csv", MissingFileError)


def test_without_fsspec_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    found = message("memory://x.parquet", MissingExtraError)

    assert "pip install 'sketchlearn[remote]'" in found


def test_a_missing_package_of_a_scheme_is_named():
    known = known_implementations
    known["nowhere"] = {"class": "nowherefs.System", "err": "Install nowherefs"}
    try:
        found = message("nowhere://me:secret@bucket/x.csv", MissingExtraError)
    finally:
        del known["nowhere"]

    assert found == (
        "cannot read 'nowhere://bucket/x.csv': Install nowherefs. "
        "Install it with: pip install nowherefs"
    )
    assert "no such scheme" in message("nothing://x.csv")


def test_what_is_missing_is_answered_as_for_paths(memory):
    memory.pipe("/data/events.csv", text())
    memory.pipe("/data/events.parquet", parquet())
    memory.pipe("/data/notes.txt", b"")
    memory.pipe("/other/notes.txt", b"")

    near = message("memory://data/evnts.csv", MissingFileError)
    assert near == "no file 'memory://data/evnts.csv'; did you mean 'events.csv'?"
    assert "folder is missing" in message("memory://gone/x.csv", MissingFileError)
    assert "*.pq" in message("memory://data/*.pq", MissingFileError)
    assert "several kinds (.csv, .parquet)" in message("memory://data")
    assert "holds no file" in message("memory://other", MissingFileError)
    assert "its suffix is none of" in message("memory://data/notes.txt")
    assert "suffix is none of" in message("memory://data/n*.txt")


def test_a_file_named_twice_by_urls_is_refused(memory):
    memory.pipe("/data/x.csv", text())
    names = ["memory://data/x.csv", "memory:///data/x.csv"]

    for pair in (names, [names[0], "memory://data/*.csv"], ["memory://data", names[1]]):
        assert "is named twice" in message(pair)


def test_a_url_as_a_path_is_told_to_be_text(tmp_path):
    found = message(tmp_path.__class__("s3://me:secret@b/x.csv"), MissingFileError)

    assert "'s3://b/x.csv' as a Path" in found
    assert "as text" in found


def test_a_local_file_called_like_a_url_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory:").mkdir()
    (tmp_path / "memory:" / "x.csv").write_bytes(text())

    assert np.array_equal(gather("memory://x.csv"), ROWS)


def test_drives_and_plain_paths_are_no_urls():
    assert not any(
        map(is_url, ("C:\\x.csv", "C:/x.csv", "c://x.csv", "/a://b", "a::b"))
    )
    assert all(map(is_url, ("s3://b/x", "simplecache::s3://b/x", "zip://x::file:///z")))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://h/x.csv?sig=secret#secret", "https://h/x.csv"),
        ("ftp://me:secret@h:21/x.csv", "ftp://h:21/x.csv"),
        ("s3://key:sec/ret@b/x.csv", "s3://b/x.csv"),
        (
            "simplecache::https://me:secret@h/x.csv?secret",
            "simplecache::https://h/x.csv",
        ),
        ("abfs://b/x.csv?sv=1&sig=sec/ret", "abfs://b/x.csv"),
        ("s3://b/y=?/x@1.csv", "s3://b/y=?/x@1.csv"),
        ("http://h:80/a@b.csv", "http://h:80/a@b.csv"),
        ("https://me:se@cret@h/x.csv", "https://h/x.csv"),
    ],
)
def test_messages_show_no_passwords_and_queries(url, text):
    assert shown(url) == text


class CountingSystem(MemoryFileSystem):
    """Files in memory; what is read of them, and what is left open, is counted."""

    protocol = "counting"
    store = {}
    pseudo_dirs = [""]
    n_bytes = 0
    opened = []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def open(self, path, mode="rb", **kwargs):
        inside = super().open(path, mode, **kwargs)
        if mode != "rb":
            return inside
        file = CountingFile(inside.getvalue())
        type(self).opened.append(weakref.ref(file))
        return file


class CountingFile(io.RawIOBase):
    def __init__(self, content):
        self.inside = io.BytesIO(content)

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *place):
        return self.inside.seek(*place)

    def tell(self):
        return self.inside.tell()

    def read(self, size=-1):
        found = self.inside.read(size)
        CountingSystem.n_bytes += len(found)
        return found


@pytest.fixture
def counting():
    fsspec.register_implementation("counting", CountingSystem, clobber=True)
    CountingSystem.opened, CountingSystem.n_bytes = [], 0
    yield fsspec.filesystem("counting")
    CountingSystem.store.clear()


@pytest.mark.parametrize("name", ["x.parquet", "x.feather"])
def test_only_the_columns_that_are_asked_for_are_fetched(counting, name):
    wide = np.random.default_rng(1).normal(size=(40_000, 20))
    table = pa.table({f"c{i}": wide[:, i] for i in range(20)})
    content = parquet(table) if name == "x.parquet" else feather(table, 10_000)
    counting.pipe(f"/{name}", content)
    found = gather(f"counting://{name}", columns=["c3"])

    assert np.array_equal(found, wide[:, [3]])
    assert CountingSystem.n_bytes < len(content) / 4


@pytest.mark.parametrize("name", FORMATS)
def test_no_file_stays_open(counting, name):
    counting.pipe(f"/{name}", FORMATS[name]())
    batches = open_rows(f"counting://{name}", batch_rows=5)
    list(batches)
    next(iter(batches))
    gc.collect()
    left = [opened() for opened in CountingSystem.opened]

    assert len(left) >= 3
    assert all(file is None or file.closed for file in left)


def test_the_index_of_parquet_files_is_read_behind_urls(counting):
    rows = np.random.default_rng(2).normal(size=(50_000, 2))
    table = pa.table({"a": rows[:, 0], "b": rows[:, 1]})
    content = parquet(table, row_group_size=500)
    counting.pipe("/x.parquet", content)
    batches = open_rows("counting://x.parquet")
    found = survey_rows(batches, first_rows=100)

    assert batches.n_rows == 50_000
    assert found.is_whole
    assert np.array_equal(found.low, rows.min(axis=0))
    assert np.array_equal(found.some, survey_rows(open_rows(rows), first_rows=100).some)
    assert CountingSystem.n_bytes < len(content) / 2


def test_errors_of_a_file_system_name_the_url_and_no_more(counting, monkeypatch):
    counting.pipe("/x.parquet", parquet())
    batches = open_rows("counting://x.parquet")

    def broken(self, *arguments, **options):
        raise LookupError("secret")

    monkeypatch.setattr(CountingFile, "read", broken)
    with pytest.raises(
        RowsError, match=r"read 'counting://x.parquet': LookupError"
    ) as e:
        list(batches)
    assert "secret" not in str(e.value)
    monkeypatch.setattr(CountingSystem, "info", broken)
    found = message("counting://me:secret@x.parquet")
    assert found.startswith("cannot reach 'counting://x.parquet' (LookupError).")
    assert "secret" not in found


@pytest.mark.parametrize("name", ["x.parquet", "x.csv.gz", "x.feather", "x.jsonl"])
def test_a_damaged_file_behind_a_url_is_named(memory, name):
    memory.pipe(f"/{name}", b'a,b\n1,2\n3,4,5\n"')

    assert f"cannot read 'memory://{name}' as" in message(f"memory://{name}")


def test_an_array_behind_a_url_is_answered_with_what_to_do(memory):
    memory.pipe("/x.npy", b"")

    assert "Copy it here, or write it as Parquet" in message("memory://x.npy")


def test_a_new_file_is_seen_by_the_next_glob(memory):
    memory.pipe("/data/1.csv", text(TABLE[:20]))
    assert len(gather("memory://data/*.csv")) == 20
    memory.pipe("/data/2.csv", text(TABLE[20:]))
    assert len(gather("memory://data/*.csv")) == 60


def test_ids_are_read_from_urls(memory):
    memory.pipe("/1.csv", b"user,n\nu1,1\nu2,2\n")
    memory.pipe("/2.csv", b"user,n\nu1,3\n")
    for data in ("memory://*.csv", ["memory://1.csv", "memory://2.csv"]):
        items = open_items(data, column="user", vocabulary=["u1", "u2"])
        assert sum(rows.n_rows for rows in items) == 3
    assert open_items(["memory://1.csv"]).n_rows == 1  # texts are ids


def test_files_on_disk_load_no_library_of_urls_and_queries(tmp_path):
    (tmp_path / "x.csv").write_bytes(text())
    (tmp_path / "x.parquet").write_bytes(parquet())
    (tmp_path / "x.jsonl").write_bytes(objects())
    code = (
        "import sys; from sketchlearn.rows.open_rows import open_rows\n"
        "for path in sys.argv[1:]: assert sum(map(len, open_rows(path))) == 60\n"
        "print(sorted({'fsspec', 'duckdb', 'ibis', 'daft', 'polars'} & {*sys.modules}))"
    )
    paths = [f"file://{tmp_path}/x.csv", tmp_path / "x.parquet", tmp_path / "x.jsonl"]
    command = [sys.executable, "-c", code, *map(str, paths)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
