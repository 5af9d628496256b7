"""Ids: what people call their items, as columns of integers or of texts.

An id is an integer, a text or bytes (a text is the same item as its UTF-8 bytes).
Lists, arrays and columns of all libraries end here; what is no id is refused with its
row, and messages never repeat it. What an item is to a map is its key
(:mod:`sketchlearn.rows.keys`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketchlearn.errors import RowsError
from sketchlearn.rows.items import Keys
from sketchlearn.rows.keys import SIPHASH, KeyRecipe
from sketchlearn.rows.kinds import RowsKind, kind_of
from sketchlearn.rows.texts import Texts

__all__ = ["Ids", "Place", "arrow_of", "ids_of", "keys_of", "listed_ids"]


@final
@dataclass(frozen=True)
class Place:
    """Where some ids stand in the input, for messages.

    Parameters
    ----------
    source : str
        Short description of the input.
    row : int
        Number of the row that holds the first of them.
    starts : int64 array, optional
        Row i of these holds ids ``starts[i]`` to ``starts[i + 1]``; one each if None.
    """

    source: str
    row: int = 0
    starts: NDArray[np.int64] | None = None

    def of(self, position: int) -> str:
        """Name the row of one of the ids."""
        inside = position
        if self.starts is not None:
            inside = int(np.searchsorted(self.starts, position, side="right")) - 1
        return f"row {self.row + inside} of the input ({self.source})"


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """A column of ids, none of them missing.

    Parameters
    ----------
    values : array of integers, or Texts
        The ids; with codes, those that there are.
    codes : int64 array, optional
        Position of each id among the values.
    """

    values: NDArray[np.integer] | Texts
    codes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.values if self.codes is None else self.codes)

    def part(self, start: int, stop: int) -> Ids:
        """Some of the ids, one after the other."""
        if self.codes is not None:
            return Ids(self.values, self.codes[start:stop])
        if isinstance(self.values, Texts):
            return Ids(self.values.part(start, stop))
        return Ids(self.values[start:stop])

    def listed_keys(self, recipe: KeyRecipe = SIPHASH) -> Keys:
        """Keys of the values."""
        if isinstance(self.values, Texts):
            return recipe.of_texts(self.values)
        return recipe.of_integers(self.values)

    def keys(self, recipe: KeyRecipe = SIPHASH) -> Keys:
        """Key of each id."""
        listed = self.listed_keys(recipe)
        return listed if self.codes is None else listed[self.codes]


def listed_ids(items: Any) -> list[Any]:
    """Ids as a list, from whatever they came in."""
    for convert in ("tolist", "to_pylist", "to_list"):
        if hasattr(items, convert):
            listed: list[Any] = getattr(items, convert)()
            return listed
    return list(items)


def keys_of(ids: Any, recipe: KeyRecipe = SIPHASH) -> Keys:
    """The 64-bit keys of ids, which are the same in every form they are given in.

    Parameters
    ----------
    ids : list, array, Series or Arrow array
        Integers, texts or bytes.
    recipe : KeyRecipe

    Examples
    --------
    >>> keys_of([3, -1]).tolist()
    [3, 18446744073709551615]
    >>> bool((keys_of(["a", "b"]) == keys_of(np.array([b"a", b"b"]))).all())
    True
    """
    return ids_of(ids, Place("the ids")).keys(recipe)


def ids_of(data: Any, place: Place) -> Ids:
    """A list, tuple, 1-D array or column as ids, whose place is for messages."""
    if isinstance(data, list | tuple):
        return _from_list(data, place)
    if isinstance(data, np.ndarray):
        return _from_numpy(data, place)
    return _from_arrow(arrow_of(data, place), place)


def arrow_of(data: Any, place: Place) -> pa.Array:
    """A column of any library as one Arrow array, missing values as nulls."""
    if kind_of(data) is RowsKind.TENSOR:
        data = data.detach().cpu().numpy()
    try:
        if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):
            found = pa.chunked_array(data)
        elif isinstance(data, pa.Array):
            return data
        else:
            found = pa.array(data, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        _refuse_mixed(place)
    if not isinstance(found, pa.ChunkedArray):
        return found
    if pa.types.is_dictionary(found.type):
        found = found.unify_dictionaries()
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], "int64")


def _from_list(data: Sequence[Any], place: Place) -> Ids:
    """Python objects, by the fast way for what the first of them is."""
    try:
        if data and isinstance(data[0], str):
            return Ids(_joined("\0".join(data).encode(), len(data)))
        if data and isinstance(data[0], bytes):
            return Ids(_joined(b"\0".join(data), len(data)))
        if data and isinstance(data[0], int) and not isinstance(data[0], bool):
            values = np.frombuffer(struct.pack(f"={len(data)}q", *data), np.int64)
            return Ids(_without_truths(values, data, place))
    except (TypeError, struct.error, UnicodeEncodeError, _Ambiguous):
        pass  # the slow way tells what is wrong, if anything is
    found = None
    try:
        found = pa.array(data, from_pandas=True)
    except OverflowError:
        return Ids(_large_integers(data, place))
    except (pa.ArrowException, TypeError, ValueError):
        pass  # their messages have ids in them
    if found is None:
        _refuse_objects(data, place)
        _refuse_mixed(place)  # a text that is no UTF-8
    return _from_arrow(found, place)


def _refuse_objects(data: Sequence[Any], place: Place) -> None:
    """Find the first of some objects that is no id, or is none like the first."""
    first = None
    for position, value in enumerate(data):
        kind = next((kind for kind in _KINDS if isinstance(value, kind)), None)
        if value is None or value != value:
            _refuse_missing(place, position)
        if kind is None or isinstance(value, bool):
            _refuse(place, position, f"is a {type(value).__name__}")
        if first not in (None, kind):
            _refuse(place, position, f"is a {type(value).__name__}, unlike others")
        first = kind


_KINDS: tuple[Any, ...] = (int | np.integer, str | bytes)
_TEXTS: tuple[Any, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_VIEWS: tuple[Any, ...] = (
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


class _Ambiguous(Exception):
    """A text holds the byte that was to separate texts."""


def _joined(data: bytes, count: int) -> Texts:
    """Texts out of their bytes with a zero between any two."""
    whole = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(whole == 0)
    if len(ends) != count - 1:
        raise _Ambiguous
    starts = np.zeros(count, np.int64)
    np.add(ends, 1, out=starts[1:])
    lengths = np.empty(count, np.int64)
    lengths[-1] = len(whole) - starts[-1]
    np.subtract(ends, starts[:-1], out=lengths[:-1])
    return Texts(whole, starts, lengths)


def _without_truths(
    values: NDArray[np.int64], data: Sequence[Any], place: Place
) -> NDArray[np.int64]:
    """Refuse booleans, which Python counts as 0 and 1, among integers."""
    likely = np.flatnonzero(values.view(np.uint64) <= 1).tolist()
    if likely and bool in set(map(type, itemgetter(0, *likely)(data))):
        position = next(i for i in likely if isinstance(data[i], bool))
        _refuse(place, position, "is a boolean, and others are integers")
    return values


def _large_integers(data: Sequence[Any], place: Place) -> NDArray[np.uint64]:
    """Integers of which some are beyond int64."""
    for position, value in enumerate(data):
        if value is None:
            _refuse_missing(place, position)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            _refuse(place, position, "is no integer, and others are")
        if not -(2**63) <= value < 2**64:
            _refuse(place, position, "is an integer of more than 64 bits")
        if value < 0:  # would have the key of 2**64 + value
            _refuse(place, position, "is negative, and others are 2**63 or more")
    return np.array([int(value) % 2**64 for value in data], np.uint64)


def _from_numpy(data: NDArray[Any], place: Place) -> Ids:
    if data.ndim != 1:
        raise RowsError(
            f"ids of {place.source} must be a 1-D array; got shape {data.shape}."
        )
    if np.ma.is_masked(data):
        _refuse_missing(place, int(np.flatnonzero(np.ma.getmaskarray(data))[0]))
    data = np.asarray(data)
    if data.dtype.kind in "iu":
        return Ids(data)
    if data.dtype.kind == "S":
        letters = np.ascontiguousarray(data).view(np.uint8)
        return Ids(_fixed_width(letters.reshape(len(data), data.dtype.itemsize)))
    if data.dtype.kind == "U" and data.dtype.itemsize:
        texts = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("="))
        points = texts.view(np.uint32).reshape(len(data), data.dtype.itemsize // 4)
        if not len(data) or points.max() < 128:
            return Ids(_fixed_width(points.astype(np.uint8)))
    if data.dtype.kind in "OTU":
        return _from_list(data.tolist(), place)
    return _refuse_type(place, str(data.dtype))


def _fixed_width(letters: NDArray[np.uint8]) -> Texts:
    """Texts of NumPy, which all have the same room and end before its zeros."""
    count, width = letters.shape
    letters = np.ascontiguousarray(letters)
    lengths = np.zeros(count, np.int64)
    for place in range(width):
        lengths[letters[:, place] != 0] = place + 1
    return Texts(letters.ravel(), np.arange(count) * width, lengths)


def _from_arrow(column: pa.Array, place: Place) -> Ids:
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _from_arrow(column.storage, place)
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        _refuse_missing(place, int(missing.argmax()))
    if pa.types.is_integer(kind):
        return Ids(column.to_numpy(zero_copy_only=False))
    if pa.types.is_dictionary(kind):
        return _from_dictionary(column, place)
    if pa.types.is_null(kind) and not len(column):
        return Ids(np.zeros(0, np.int64))
    if any(is_of(kind) for is_of in _VIEWS):
        return Ids(Texts.from_arrow(column.cast(pa.large_binary())))
    if any(is_of(kind) for is_of in _TEXTS):
        return Ids(Texts.from_arrow(column))
    return _refuse_type(place, str(kind))


def _from_dictionary(column: pa.DictionaryArray, place: Place) -> Ids:
    codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    listed = column.dictionary
    if listed.null_count:  # a null may be written as a value, or never be used
        empty = listed.is_null().to_numpy(zero_copy_only=False)
        if empty[codes].any():
            _refuse_missing(place, int(empty[codes].argmax()))
        places = np.cumsum(~empty) - 1
        codes, listed = places[codes], listed.drop_null()
    return Ids(_from_arrow(listed, place).values, codes)


def _refuse(place: Place, position: int, what: str) -> NoReturn:
    raise RowsError(
        f"the id in {place.of(position)} {what}. Nothing was added. Ids are integers "
        "of 64 bits, texts or bytes, all of one kind."
    )


def _refuse_missing(place: Place, position: int) -> NoReturn:
    raise RowsError(
        f"the id in {place.of(position)} is missing. Nothing was added. Leave such "
        "rows out beforehand, or give what is missing an id of its own."
    )


def _refuse_type(place: Place, kind: str) -> NoReturn:
    hint = "Cast them to integers or to text."
    if "float" in kind or "double" in kind:
        hint = (
            "Cast whole numbers to integers; if a missing value made them decimals, "
            "leave it out first."
        )
    raise RowsError(
        f"ids of {place.source} have the type {kind}. Nothing was added. Ids are "
        f"integers, texts or bytes. {hint}"
    )


def _refuse_mixed(place: Place) -> NoReturn:
    raise RowsError(
        f"ids of {place.source} (from row {place.row} on) are of several kinds, or "
        "are no ids. Nothing was added. Ids are integers of 64 bits, texts "
        "or bytes, all of one kind."
    ) from None
