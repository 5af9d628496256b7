"""A table becomes zeros and ones, and so do other rows of it, in the same columns."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sketchlearn.errors import RowsError
from sketchlearn.rows.binary_columns import BinaryColumns, BinaryRule
from sketchlearn.rows.mixed_tables import mixed_table

RNG = np.random.default_rng
MIXED = np.array([[1.0, "a"], [2.0, "b"], [5.0, None], [9.0, "a"]], object)


def test_numbers_are_ones_above_the_median_and_the_lower_of_two_values():
    rows = np.column_stack([np.arange(20.0), np.repeat([3.0, 7.0], 10)])
    columns = BinaryColumns.learn(rows)
    assert [rule.threshold for rule in columns.rules] == [9.5, 3.0]
    assert columns.apply(np.array([[9.5, 7.0], [9.6, 3.0]])).tolist() == [
        [0, 1], [1, 0],
    ]  # fmt: skip


def test_few_different_numbers_are_categories():
    rows = np.arange(12.0)[:, None] % 4
    assert BinaryColumns.learn(rows).n_columns == 4
    assert BinaryColumns.learn(rows, max_categories=3).n_columns == 1
    assert (BinaryColumns.learn(rows).apply(rows).sum(axis=1) == 1).all()


def test_images_have_one_threshold_and_bits_stay_bits():
    pixels = RNG(0).integers(256, size=(30, 5), dtype=np.uint8)
    assert np.array_equal(BinaryColumns.learn(pixels).apply(pixels), pixels > 127)
    bits = (pixels > 200).astype(np.int8)
    bits[:, 0] = 1  # constant columns, too
    assert np.array_equal(BinaryColumns.learn(bits).apply(bits), bits)


def test_text_is_categories_and_what_was_never_seen_is_zeros():
    columns = BinaryColumns.learn(MIXED, max_categories=3)
    assert columns.names(["x", "y"]) == ["x>3.5", "y=a", "y=b"]
    assert columns.apply(MIXED).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]]
    other = np.array([[8.0, "c"]], object)
    assert columns.apply(other).tolist() == [[1, 0, 0]]
    with pytest.raises(RowsError, match="row 0, column 1: holds a category that was"):
        columns.apply(other, refuse_unknown=True)
    with pytest.raises(RowsError, match="row 2, column 1"):
        columns.apply(MIXED, refuse_unknown=True)


def test_a_choice_of_columns_is_seeded_in_order_and_the_same_for_other_rows():
    rows = RNG(0).integers(5, size=(40, 10)).astype(float)
    whole = BinaryColumns.learn(rows)
    some = BinaryColumns.learn(rows, n_columns=7, seed=3)
    assert len(some.kept) == 7
    assert list(some.kept) == sorted(set(some.kept))
    assert some.kept == BinaryColumns.learn(rows, n_columns=7, seed=3).kept
    assert some.kept != BinaryColumns.learn(rows, n_columns=7, seed=4).kept
    assert np.array_equal(some.apply(rows[:9]), whole.apply(rows[:9])[:, some.kept])
    names = [f"f{i}" for i in range(10)]
    assert some.names(names) == [whole.names(names)[place] for place in some.kept]


def test_a_category_of_which_nothing_is_kept_is_still_refused():
    rows = np.array([["a"], ["b"], ["c"]], object)
    columns = BinaryColumns.learn(rows, n_columns=1)
    with pytest.raises(RowsError, match="row 1, column 0"):
        columns.apply(np.array([["a"], ["z"]], object), refuse_unknown=True)


def test_declared_rules_do_not_look_at_rows():
    declared = {0: BinaryRule(threshold=0.5), 1: BinaryRule(("x", "y"))}
    learned = [
        BinaryColumns.learn(np.array(rows, object), declared=declared).rules
        for rows in ([[1.0, "x"]], [[7.0, "q"], [9.0, "r"]])
    ]
    assert learned[0] == learned[1] == (declared[0], declared[1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0, np.nan]], "column 1 contains NaN"),
        ([["a", 1.0], [2.0, 1.0]], "column 0 holds neither"),
        ([[{}, 1.0]], "column 0 holds neither"),
        ([[1j, 1.0]], "column 0 holds neither"),
    ],
)
def test_what_is_neither_number_nor_text_is_refused(rows, message):
    with pytest.raises(RowsError, match=message):
        BinaryColumns.learn(np.array(rows, object))


def test_rows_of_another_table_are_refused():
    columns = BinaryColumns.learn(MIXED)
    with pytest.raises(RowsError, match="expected rows of 2 columns"):
        columns.apply(np.zeros((3, 4)))
    with pytest.raises(RowsError, match="column 1 is one of text"):
        columns.apply(np.zeros((3, 2)))
    with pytest.raises(RowsError, match="column 0 is one of numbers"):
        columns.apply(np.array([["a", "b"]], object))


@pytest.mark.parametrize("given", [{}, {"threshold": 1.0, "categories": ("a",)}])
def test_a_rule_is_a_threshold_or_categories(given):
    with pytest.raises(RowsError, match="either a threshold or at least one"):
        BinaryRule(**given)
    with pytest.raises(RowsError, match="all different"):
        BinaryRule(("a", "a"))


FRAME = {"age": [30, 41, 7], "city": ["Oslo", None, "Rome"], "old": [True, True, False]}


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(FRAME),
        pd.DataFrame(FRAME).astype({"city": "category"}),
        pl.DataFrame(FRAME),
        pl.DataFrame(FRAME, schema_overrides={"city": pl.Categorical}),
        pa.table(FRAME),
    ],
)
def test_frames_of_all_libraries_are_one_mixed_table(frame):
    expected = [[30, "Oslo", True], [41, None, True], [7, "Rome", False]]
    assert mixed_table(frame).tolist() == expected


def test_frames_of_numbers_stay_numbers():
    table = mixed_table(pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}))
    assert table.dtype == np.float64
    pixels = mixed_table(pl.DataFrame({"a": [1, 200]}, schema={"a": pl.UInt8}))
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"a": [1, None]}), "'a' .* has missing numbers"),
        (pd.DataFrame({"a": [pd.Timestamp(0)]}), "'a' .* neither a number nor text"),
        (pd.DataFrame({"a": [1, "b"]}), "mixed or unknown types"),
    ],
)
def test_columns_that_are_no_numbers_or_text_are_named(frame, message):
    with pytest.raises(RowsError, match=message):
        mixed_table(frame)


def test_a_median_that_is_the_largest_value_leaves_two_sides():
    column = np.concatenate([np.arange(20.0), np.full(80, 99.0)])[:, None]
    bits = BinaryColumns.learn(column).apply(column)
    assert bits.ravel().tolist() == [0] * 20 + [1] * 80


def test_ones_alone_stay_ones():
    columns = BinaryColumns.learn(np.ones((3, 1)))
    assert columns.apply(np.array([[0.0], [1.0]])).ravel().tolist() == [0, 1]
