"""What can be read once is opened once, and no line of a file is taken for names."""

import gc
import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.rows import sources
from sketchlearn.rows.open_rows import open_rows

ROWS = np.arange(24.0).reshape(8, 3)
TABLE = pa.table({name: ROWS[:, i] for i, name in enumerate("abc")})


def frames(n_rows=2):
    for start in range(0, len(ROWS), n_rows):
        yield pd.DataFrame(ROWS[start : start + n_rows], columns=list("abc"))


def reader():
    return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(3))


def gather(batches):
    return np.concatenate(list(batches))


@pytest.mark.parametrize("make", [frames, reader], ids=["generator", "reader"])
def test_selecting_columns_loses_no_row_of_a_stream(make):
    batches = open_rows(make()).select(["c", "a"])
    assert batches.names == ("c", "a")
    assert batches.n_features == 2
    assert np.array_equal(gather(batches), ROWS[:, [2, 0]])


def test_selecting_twice_is_selecting_once():
    batches = open_rows(frames()).select(["c", "b", "a"]).select(["a", "b"])
    assert np.array_equal(gather(batches), ROWS[:, :2])


def test_a_selection_can_be_looked_at_before_it_is_read():
    batches = open_rows(frames()).select(["b"])
    assert np.array_equal(batches.peek(3), ROWS[:3, [1]])
    assert np.array_equal(gather(batches), ROWS[:, [1]])


def test_files_and_frames_can_be_selected_from_and_read_again(tmp_path):
    pa.parquet.write_table(TABLE, tmp_path / "rows.parquet")
    for data in (tmp_path / "rows.parquet", TABLE, next(frames(8))):
        batches = open_rows(data)
        chosen = batches.select(["c", "a"])
        assert np.array_equal(gather(chosen), ROWS[:, [2, 0]])
        assert np.array_equal(gather(chosen), ROWS[:, [2, 0]])
        assert np.array_equal(gather(batches), ROWS)


def test_columns_that_are_not_selected_are_not_read():
    frame = next(frames(8)).assign(b=np.nan)
    assert np.array_equal(gather(open_rows(frame).select(["a"])), ROWS[:, [0]])


def test_features_of_an_encoded_column_are_selected_one_by_one():
    frame = pd.DataFrame({"x": [1.0, 2.0], "k": ["u", "v"], "y": [3.0, 4.0]})
    batches = open_rows(frame, encodings={"k": ["u", "v"]}).select(["y", "k=v"])
    assert np.array_equal(gather(batches), [[3.0, 0.0], [4.0, 1.0]])
    rest = open_rows(frame, encodings={"k": ["u", "v"]}).select(["y", "x"])
    assert np.array_equal(gather(rest), [[3.0, 1.0], [4.0, 2.0]])


def test_rows_to_leave_out_are_left_out_of_a_selection():
    frame = next(frames(8))
    frame.loc[2, "a"] = np.nan
    batches = open_rows(frame, on_invalid="drop").select(["c", "a"])
    assert len(gather(batches)) == 7


def test_a_later_batch_with_a_column_too_many_is_refused_after_selecting():
    def widening():
        yield from itertools.islice(frames(), 1)
        yield next(frames()).assign(d=0.0)

    with pytest.raises(RowsError, match="has a column 'd'"):
        gather(open_rows(widening()).select(["b", "a"]))


@pytest.mark.parametrize(
    ("data", "names", "text"),
    [
        (ROWS, ["a"], "no column names to select by"),
        (TABLE, ["a", "z"], "no column 'z' in an Arrow table"),
        (TABLE, ["a", "a"], "names 'a' 2 times"),
        (TABLE, [], "columns is empty"),
        (TABLE, "a", "must be a list"),
    ],
)
def test_what_cannot_be_selected_is_named(data, names, text):
    with pytest.raises(RowsError, match=text):
        open_rows(data).select(names)


@pytest.mark.parametrize("make", [frames, reader], ids=["generator", "reader"])
def test_a_stream_is_never_opened_twice(make):
    stream = make()
    open_rows(stream)
    with pytest.raises(RowsError, match="was opened before"):
        open_rows(stream)


@pytest.mark.parametrize(
    "make",
    [
        lambda: map(np.asarray, [ROWS[:4], ROWS[4:]]),
        lambda: iter([ROWS[:4], ROWS[4:]]),
        lambda: (pair[0] for pair in zip([ROWS[:4], ROWS[4:]], "ab", strict=True)),
    ],
    ids=["map", "list", "generator"],
)
def test_a_stream_is_not_opened_again_after_its_rows_were_thrown_away(make):
    stream = make()
    batches = open_rows(stream)
    with pytest.raises(RowsError, match="was opened before"):
        open_rows(stream)
    del batches
    gc.collect()
    with pytest.raises(RowsError, match="was opened before"):
        open_rows(stream)


def test_a_stream_that_was_read_to_its_end_is_not_held():
    stream = map(np.asarray, [ROWS[:4], ROWS[4:]])
    assert np.array_equal(gather(open_rows(stream)), ROWS)
    assert id(stream) not in sources._HELD
    with pytest.raises(RowsError, match="0 rows in a map of batches"):
        open_rows(stream)


def test_few_streams_are_held_however_many_are_left_unread():
    for _ in range(30):
        open_rows(map(np.asarray, [ROWS[:4], ROWS[4:]]))
    assert len(sources._HELD) == 8


def test_the_last_eight_unread_streams_are_still_known():
    streams = [map(np.asarray, [ROWS[:4], ROWS[4:]]) for _ in range(9)]
    for stream in streams:
        open_rows(stream)
    for stream in streams[1:]:
        with pytest.raises(RowsError, match="was opened before"):
            open_rows(stream)
    assert id(streams[0]) not in sources._HELD


def test_a_list_of_readers_is_opened_once():
    readers = [reader(), reader()]
    assert len(gather(open_rows(readers))) == 16
    with pytest.raises(RowsError, match="was opened before"):
        open_rows(readers)


def test_rows_of_a_stream_go_to_one_selection_only():
    batches = open_rows(frames())
    chosen = batches.select(["a"])
    gather(chosen)
    with pytest.raises(RowsError, match="cannot be read twice"):
        gather(batches)
    with pytest.raises(RowsError, match="before its rows are read"):
        batches.select(["b"])


def test_streams_and_files_know_whether_they_can_be_repeated(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    for data in (ROWS, TABLE, tmp_path / "rows.npy", list(frames())):
        assert open_rows(data).is_repeatable
    for data in (frames(), reader()):
        assert not open_rows(data).is_repeatable


@pytest.mark.parametrize("line", ["1.5,2,3", "1,1,1", "0,1,2", "-1e3,nan,2", ",7,8"])
def test_a_first_line_of_numbers_is_not_taken_for_names(tmp_path, line):
    path = tmp_path / "rows.csv"
    path.write_text(f"{line}\n4,5,6\n")
    with pytest.raises(RowsError, match=r"header=False.*header=True"):
        open_rows(path)


def test_a_file_without_names_is_read_whole(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, ROWS, delimiter=",", fmt="%.17g")
    batches = open_rows(path, header=False)
    assert batches.names == ("f0", "f1", "f2")
    assert np.array_equal(gather(batches), ROWS)
    chosen = open_rows(path, header=False, columns=["f2", "f0"])
    assert np.array_equal(gather(chosen), ROWS[:, [2, 0]])


def test_numbers_may_be_names_if_one_says_so(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(ROWS, columns=[2019, 2020, 2021]).to_csv(path, index=False)
    batches = open_rows(path, header=True)
    assert batches.names == ("2019", "2020", "2021")
    assert np.array_equal(gather(batches), ROWS)


def test_a_header_with_some_numbers_is_a_header(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("site,2020,2021\n1,2,3\n")
    assert open_rows(path).names == ("site", "2020", "2021")


def test_other_data_has_no_header(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    for data in (ROWS, tmp_path / "rows.npy", frames()):
        with pytest.raises(RowsError, match="header is for CSV files"):
            open_rows(data, header=False)
    with pytest.raises(RowsError, match="open already"):
        open_rows(open_rows(ROWS), header=False)


def test_a_file_named_twice_is_refused(tmp_path):
    path, other = tmp_path / "feb.csv", tmp_path / "mar.csv"
    path.write_text("a,b\n1.5,2\n")
    other.write_text("a,b\n1.5,2\n")
    assert len(gather(open_rows([path, other]))) == 2
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link.csv"
    link.symlink_to(path)
    roundabout = f"{tmp_path}/links/../feb.csv"
    pairs = [[path, path], [path, roundabout], [path, link], [tmp_path, str(path)]]
    for named in [*pairs, [f"{tmp_path}/*.csv", f"{tmp_path}/f*.csv"]]:
        with pytest.raises(RowsError, match=r"named twice.* Name every file once"):
            open_rows(named)
    link.rename(tmp_path / "april.csv")
    with pytest.raises(RowsError, match=r"feb\.csv' is named twice .also as .*april"):
        open_rows(tmp_path)


@pytest.mark.parametrize("index", [None, "id"])
@pytest.mark.parametrize("suffix", ["parquet", "table", "arrow", "dataset"])
def test_the_index_of_a_frame_is_no_feature(tmp_path, index, suffix):
    frame = pd.DataFrame(ROWS, columns=list("abc"), index=np.arange(8) * 7 % 8)
    frame.index.name = index
    data = pa.Table.from_pandas(frame)
    if suffix != "table":
        path = tmp_path / "rows"
        frame.to_parquet(path.with_suffix(".parquet"))
        with pa.ipc.new_file(path.with_suffix(".arrow"), data.schema) as writer:
            writer.write_table(data)
        data = path.with_suffix(f".{suffix}")
    if suffix == "dataset":
        data = pa.dataset.dataset(tmp_path / "rows.parquet")
    batches = open_rows(data)
    assert batches.names == ("a", "b", "c")
    assert np.array_equal(gather(batches), ROWS)
    name = index or "__index_level_0__"
    chosen = gather(open_rows(data, columns=[name, "b"]))
    assert np.array_equal(chosen, np.column_stack([frame.index, ROWS[:, 1]]))


def test_files_with_and_without_an_index_have_the_same_features(tmp_path):
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    frame[4:].to_parquet(tmp_path / "2.parquet", index=False)
    for name, keep in (("1", True), ("3", False)):
        frame[4:].to_parquet(tmp_path / f"{name}.parquet", index=keep)
        batches = open_rows(tmp_path)
        assert batches.names == ("a", "b", "c")
        assert set(map(tuple, gather(batches))) == set(map(tuple, ROWS[4:]))


def test_a_frame_that_is_only_an_index_has_no_feature(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame(index=pd.Index([3.0, 1.0], name="id")).to_parquet(path)
    with pytest.raises(RowsError, match=r"no column beside the index.*\(id\)"):
        open_rows(path)
    assert gather(open_rows(path, columns=["id"])).tolist() == [[3.0], [1.0]]


def test_a_column_without_a_name_is_refused_unless_others_are_selected(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame(ROWS, columns=list("abc")).to_csv(path)
    with pytest.raises(RowsError, match=r"column 0 of .* no name.*columns=\[\.\.\.\]"):
        open_rows(path)
    assert np.array_equal(gather(open_rows(path, columns=list("abc"))), ROWS)
