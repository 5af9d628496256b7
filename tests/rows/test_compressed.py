"""Compressed files have the rows of the plain ones, or are damaged and named."""

import bz2
import gzip

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.rows.open_rows import open_rows

ROWS = np.random.default_rng(0).normal(size=(3000, 2))
TABLE = pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})
CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}


def lines(kind):
    if kind in ("jsonl", "ndjson"):
        return b"".join(b'{"a": %r, "b": %r}\n' % tuple(row) for row in ROWS.tolist())
    separator = b"\t" if kind == "tsv" else b","
    rows = (b"%r" % a + separator + b"%r\n" % b for a, b in ROWS.tolist())
    return b"a" + separator + b"b\n" + b"".join(rows)


def pack(content, codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, CODECS[codec]) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def gather(data, **options):
    return np.concatenate(list(open_rows(data, **options)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "ndjson"])
def test_compressed_text_is_text(tmp_path, kind, codec):
    path = tmp_path / f"x.{kind}.{codec}"
    path.write_bytes(pack(lines(kind), codec))
    system = fsspec.filesystem("memory")
    system.pipe("/packed" + path.name, path.read_bytes())
    upper = path.with_name(path.name.upper())
    upper.write_bytes(path.read_bytes())

    for data in (path, upper, f"memory://packed{path.name}"):
        assert np.array_equal(gather(data, batch_rows=100), ROWS)
    assert np.array_equal(gather(path, columns=["b"]), ROWS[:, 1:])
    system.rm("/packed" + path.name)


def test_parts_that_were_written_one_after_the_other_are_all_read(tmp_path):
    content = lines("csv")
    for name, pack_one in (("x.csv.gz", gzip.compress), ("x.csv.bz2", bz2.compress)):
        (tmp_path / name).write_bytes(pack_one(content[:999]) + pack_one(content[999:]))
        assert np.array_equal(gather(tmp_path / name), ROWS)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("left", [0.5, 0.999])
def test_a_truncated_file_is_named(tmp_path, kind, codec, left):
    path = tmp_path / f"x.{kind}.{codec}"
    whole = pack(lines(kind), codec)
    path.write_bytes(whole[: int(len(whole) * left)])

    with pytest.raises(RowsError, match=rf"cannot read .*x\.{kind}\.{codec}' as"):
        gather(path)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_not_compressed_is_named(tmp_path, codec):
    (tmp_path / f"x.csv.{codec}").write_bytes(lines("csv"))

    with pytest.raises(RowsError, match=r"cannot read .*x\.csv\."):
        gather(tmp_path / f"x.csv.{codec}")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "lz4", "zstd"])
def test_parquet_of_any_compression_is_read(tmp_path, codec):
    pa.parquet.write_table(TABLE, tmp_path / "x.parquet", compression=codec)

    assert np.array_equal(gather(tmp_path / "x.parquet"), ROWS)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("start", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_files_and_streams_of_any_compression_are_read(tmp_path, codec, start):
    path = tmp_path / "x.arrow"
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with start(path, TABLE.schema, options=options) as sink:
        sink.write_table(TABLE, max_chunksize=700)
    batches = open_rows(path)

    assert batches.n_rows == (3000 if start is pa.ipc.new_file else None)
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(batches)), ROWS)
    assert np.array_equal(gather(path, columns=["b"]), ROWS[:, 1:])


def test_readings_that_are_given_up_leave_the_file_as_it_was(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(lines("csv") * 1))
    batches = open_rows(path, batch_rows=10)
    for _ in range(50):
        next(iter(batches))

    assert np.array_equal(np.concatenate(list(batches)), ROWS)
