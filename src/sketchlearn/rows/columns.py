"""Columns: which of them become features, in which order and of which type."""

from __future__ import annotations

import difflib
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import numpy as np
import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.pieces import Piece

__all__ = [
    "ColumnLayout",
    "Columns",
    "check_columns",
    "check_encodings",
    "find_positions",
    "lay_out_columns",
    "select_features",
]

SINGLE = {"bool", "int8", "uint8", "int16", "uint16"}
SINGLE |= {"float16", "halffloat", "bfloat16", "float32", "float"}
"""Types whose every value is a float32."""

DOUBLE = {"int32", "uint32", "int64", "uint64", "float64", "double", "null"}
DOUBLE |= {"longdouble", "float96", "float128"}
"""Types read as float64; values that do not fit are refused."""

Columns = Sequence[str] | Sequence[int] | None


@final
@dataclass(frozen=True)
class ColumnLayout:
    """How the columns of one piece become features.

    Parameters
    ----------
    positions : tuple of int
        Columns of the piece, in the order of the features.
    columns : tuple of str, or None
        Their names, if they have any.
    categories : tuple of Arrow array or None
        Categories of each one-hot encoded column; None for a number.
    single : bool
        Whether float32 holds every value.
    """

    positions: tuple[int, ...]
    columns: tuple[str, ...] | None
    categories: tuple[pa.Array | None, ...]
    single: bool

    @property
    def width(self) -> int:
        """Number of features."""
        return sum(1 if known is None else len(known) for known in self.categories)

    @property
    def dtype(self) -> type[np.float32] | type[np.float64]:
        """Type of the features."""
        return np.float32 if self.single else np.float64

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the features, if the columns have names."""
        if self.columns is None:
            return None
        names: list[str] = []
        for name, known in zip(self.columns, self.categories, strict=True):
            listed = [] if known is None else known.to_pylist()
            names += [name] if known is None else [f"{name}={item}" for item in listed]
        return tuple(names)


def lay_out_columns(
    piece: Piece, columns: Columns, encodings: Mapping[str, pa.Array]
) -> ColumnLayout:
    """Choose and check the columns of a piece.

    Parameters
    ----------
    piece : Piece
        One table or array.
    columns : sequence of str or int, or None
        Names or positions; None for all columns.
    encodings : mapping of column name to Arrow array
        Categories of the columns to one-hot encode.
    """
    if not piece.types:
        raise RowsError(
            f"{piece.source} has no columns: 0 feature(s) (shape=({piece.n_rows}, 0)) "
            "while a minimum of 1 is required."
        )
    positions = find_positions(piece, columns)
    names = None
    if piece.names is not None:
        names = tuple(piece.names[position] for position in positions)
    for name in encodings:
        if names is None or name not in names:
            _refuse_encoding(name, piece, names)
    categories: list[pa.Array | None] = [None] * len(positions)
    if names is not None:
        categories = [encodings.get(name) for name in names]
    single = True
    for index, position in enumerate(positions):
        kind = piece.types[position]
        if categories[index] is not None:
            continue
        if kind not in SINGLE and kind not in DOUBLE:
            _refuse_type(piece, kind, None if names is None else names[index])
        single = single and kind in SINGLE
    return ColumnLayout(positions, names, tuple(categories), single)


def select_features(
    layout: ColumnLayout,
    names: tuple[str, ...] | None,
    wanted: Sequence[str],
    source: str,
) -> tuple[tuple[str, ...], tuple[int, ...] | None]:
    """Columns that hold some features of a layout, and the features among theirs.

    Parameters
    ----------
    layout : ColumnLayout
        Of columns with names.
    names : tuple of str, or None
        Names of the features there are: those of the layout, or some of them.
    wanted : sequence of str
        Names of the features to take, in this order.
    source : str
        Short description of the input.
    """
    if names is None or layout.columns is None:
        raise RowsError(f"{source} has no column names to select by.")
    chosen = check_columns(wanted) or ()
    owners, listed = dict[str, str](), dict[str, list[str]]()
    for column, known in zip(layout.columns, layout.categories, strict=True):
        one = replace(layout, columns=(column,), categories=(known,))
        listed[column] = list(one.names or ())
        owners |= dict.fromkeys(listed[column], column)
    for name in chosen:
        if name not in names:
            _refuse_column(name, source, names)
    columns = tuple(dict.fromkeys(owners[str(name)] for name in chosen))
    place = {name: i for i, name in enumerate(n for c in columns for n in listed[c])}
    order = tuple(place[str(name)] for name in chosen)
    return columns, None if order == tuple(range(len(place))) else order


def check_columns(columns: Columns) -> tuple[str, ...] | tuple[int, ...] | None:
    """Check ``columns`` as the user typed it."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise RowsError(
            f"columns must be a list of names; got a string. Pass [{columns!r}]."
        )
    chosen: tuple[Any, ...] = tuple(columns)
    if not chosen:
        raise RowsError("columns is empty: name at least one column, or pass None.")
    if not all(isinstance(name, str) for name in chosen):
        if any(isinstance(name, str | bool | np.bool_) for name in chosen):
            raise RowsError("columns must be names only, or positions only.")
        try:
            chosen = tuple(map(operator.index, chosen))
        except TypeError:
            raise RowsError("columns must be a list of names or positions.") from None
    name, count = Counter(chosen).most_common(1)[0]
    if count > 1:
        raise RowsError(f"columns names {name!r} {count} times; name it once.")
    return chosen


def check_encodings(
    encodings: Mapping[str, Sequence[Any]] | None,
) -> dict[str, pa.Array]:
    """Check ``encodings`` as the user typed it; categories become Arrow arrays."""
    if encodings is not None and not isinstance(encodings, Mapping):
        raise RowsError("encodings must be a dict: {'city': ['Oslo', 'Rome'], ...}.")
    checked = {}
    for name, categories in (encodings or {}).items():
        try:
            listed = [] if isinstance(categories, str) else list(categories)
            known = pa.array(listed, from_pandas=True)
        except (TypeError, pa.ArrowException):
            listed, known = [], pa.nulls(0)
        if not listed or known.null_count or len(known.unique()) < len(listed):
            raise RowsError(
                f"encodings[{name!r}] must list the categories of that column: at "
                "least one, all of one type, none twice and none missing."
            )
        checked[name] = known
    return checked


def find_positions(piece: Piece, columns: Columns) -> tuple[int, ...]:
    """Positions of the columns of a piece that were asked for."""
    names, width = piece.names, len(piece.types)
    if names is not None and len(set(names)) < width:
        name = Counter(names).most_common(1)[0][0]
        raise RowsError(
            f"{piece.source} has several columns named {name!r}; rename them."
        )
    if columns is None:
        return _usual_positions(piece)
    if names is not None:
        found = {name: position for position, name in enumerate(names)}
        for column in columns:
            if column not in found:
                _refuse_column(column, piece.source, names)
        return tuple(found[str(column)] for column in columns)
    for position in columns:
        if isinstance(position, str):
            raise RowsError(
                f"{piece.source} has no column names, so columns=[{position!r}, ..] "
                f"means nothing; pass positions from 0 to {width - 1}."
            )
        if not 0 <= position < width:
            raise RowsError(
                f"no column {position} in {piece.source}; pass positions from 0 to "
                f"{width - 1}."
            )
    return tuple(int(position) for position in columns)


def _usual_positions(piece: Piece) -> tuple[int, ...]:
    """Columns that are read where none is asked for: all but the index of a frame."""
    if piece.names is None:
        return tuple(range(len(piece.types)))
    if "" in piece.names:
        raise RowsError(
            f"column {piece.names.index('')} of {piece.source} has no name: an index "
            "that was written beside the rows is no feature. Say which columns are: "
            "open_rows(data, columns=[...]); or name it."
        )
    if not piece.usual_names:
        raise RowsError(
            f"{piece.source} has no column beside the index of a pandas frame "
            f"({', '.join(piece.names)}). Select it with open_rows(data, "
            "columns=[...]) if it is a feature."
        )
    kept = set(piece.usual_names)
    return tuple(i for i, name in enumerate(piece.names) if name in kept)


def _refuse_column(name: str | int, source: str, names: Sequence[str]) -> NoReturn:
    close = difflib.get_close_matches(str(name), names, 1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    more = ", .." if len(names) > 10 else ""
    raise RowsError(
        f"no column {name!r} in {source}{guess} Columns: {', '.join(names[:10])}{more}"
    )


def _refuse_encoding(name: str, piece: Piece, names: Sequence[str] | None) -> NoReturn:
    if names is None or piece.names is None:
        raise RowsError(
            f"encodings names the column {name!r}, but {piece.source} has no column "
            "names. Pass a frame, an Arrow table or a file with names."
        )
    if name not in piece.names:
        _refuse_column(name, piece.source, piece.names)
    raise RowsError(
        f"encodings names the column {name!r}, which columns=[...] leaves out. "
        "Add it there, or remove its encoding."
    )


def _refuse_type(piece: Piece, kind: str, name: str | None) -> NoReturn:
    what = piece.source if name is None else f"column {name!r} of {piece.source}"
    if "complex" in kind:
        raise RowsError(
            f"Complex data not supported: {what} has type {kind}. Pass real and "
            "imaginary parts as two columns."
        )
    hint = "Cast it with astype(float) if it holds numbers"
    if name is not None:
        hint += (
            ", select numeric columns with open_rows(data, columns=[...]), or declare "
            f"its categories there with encodings={{{name!r}: [...]}}"
        )
    raise RowsError(f"{what} has type {kind}, which is not a number. {hint}.")
