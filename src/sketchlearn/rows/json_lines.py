"""JSON Lines: one object a line, numbers as float64, a block of lines at a time.

The first block decides which columns there are, and their types. A name that an object
does not have is a missing value.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa

from sketchlearn.errors import RowsError
from sketchlearn.rows.data_file import DataFile, blaming
from sketchlearn.rows.pieces import Piece, guarded
from sketchlearn.rows.values import require_exact_digits

__all__ = ["json_lines_piece"]

BLOCK_BYTES = 1 << 20
"""Text parsed at once, but for longer lines."""

LONGEST_LINE = 1 << 26
"""Bytes of a line from which on the file is taken for something else."""

_MARK = b"\xef\xbb\xbf"
_TURNED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+)")
_VALUES = {bool: "truth", int: "whole", float: "number", str: "text", dict: "object"}
_TYPES = {
    frozenset[str](): pa.float64(),
    frozenset({"whole"}): pa.float64(),
    frozenset({"number"}): pa.float64(),
    frozenset({"whole", "number"}): pa.float64(),
    frozenset({"truth"}): pa.bool_(),
    frozenset({"text"}): pa.string(),
}
_ID_TYPES = {
    **_TYPES,
    frozenset[str](): pa.string(),
    frozenset({"whole"}): pa.int64(),
    frozenset({"list of whole"}): pa.list_(pa.int64()),
    frozenset({"list of text"}): pa.list_(pa.string()),
}


def json_lines_piece(
    file: DataFile, encoded: Mapping[str, pa.DataType], ids: str | int | None = None
) -> Piece:
    """Open an existing file of JSON Lines; see ``rows.files.file_piece``."""
    with blaming(file), file.open_text() as text:
        first = next(_blocks(text, file), b"")
        kinds = _kinds_of(first)
    if not kinds:
        raise RowsError(
            f"0 rows in {file.text!r}: a file without objects has no columns. Leave it "
            "out. Nothing was added."
        )
    types = {name: _TYPES.get(found) for name, found in kinds.items()}
    nothing = frozenset[str]()
    types |= {n: kind for n, kind in encoded.items() if kinds.get(n) == nothing}
    if ids in kinds:
        types[str(ids)] = _ID_TYPES.get(kinds[str(ids)])
    whole = {name for name, found in kinds.items() if found == {"whole"}}

    def read(positions: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        names = [list(types)[position] for position in positions]
        for name in names:
            if types[name] is None:
                _refuse_column(file, name, _told(kinds[name]))
        checked = [name for name in names if name in whole - {*encoded, ids}]
        schema = pa.schema([(name, types[name]) for name in names])
        others = "error" if len(names) == len(types) else "ignore"
        row = 0
        with blaming(file):
            text = file.open_text()
        with text:
            for block in guarded(_blocks(text, file), partial(blaming, file)):
                with blaming(file):
                    table = _parse(block, schema, others, file)
                for batch in table.to_batches():
                    require_exact_digits(batch, checked, row, file.text)
                    row += len(batch)
                    yield batch

    told = tuple(
        _told(kinds[name]) if kind is None else str(kind)
        for name, kind in types.items()
    )
    return Piece(repr(file.text), tuple(types), told, read)


def _blocks(text: Any, file: DataFile) -> Iterator[bytes]:
    """Whole lines, and not only blank ones, about a block at a time."""
    held = text.read(len(_MARK)).removeprefix(_MARK)
    while part := text.read(BLOCK_BYTES):
        end = part.rfind(b"\n") + 1
        lines, held = held + part[:end], held if not end else b""
        held += part[end:]
        if end and lines.strip():
            yield lines
        if len(held) > LONGEST_LINE:
            raise RowsError(
                f"{file.text!r} has a line of more than {LONGEST_LINE:,} bytes. Write "
                "one object a line: a JSON array is no file of JSON Lines."
            )
    if held.strip():
        yield held


def _parse(block: bytes, schema: pa.Schema, others: str, file: DataFile) -> pa.Table:
    """The columns of a schema, of objects that may have others or not."""
    library = importlib.import_module("pyarrow.json")
    parsing = library.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior=others
    )
    reading = library.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = library.read_json(
            pa.BufferReader(block), parse_options=parsing, read_options=reading
        )
    except pa.ArrowInvalid as error:
        turned = _TURNED.search(str(error))
        if turned is not None:
            name, before, after = turned.groups()
            _refuse_column(file, name, f"{after} after {before}")
        if "unexpected field" in str(error):
            raise RowsError(
                f"{file.text!r} has names in later lines that its first ones do not "
                "have. Nothing was added. Write them into the first line too (null is "
                "no value), or leave a column out with open_rows(path, columns=[...])."
            ) from error
        raise
    n_lines = sum(1 for line in block.split(b"\n") if line.strip())
    if len(table) != n_lines:
        raise RowsError(
            f"{file.text!r} has {len(table)} objects in {n_lines} lines. Nothing was "
            "added. Write one object a line."
        )
    return table.select(schema.names)


def _kinds_of(block: bytes) -> dict[str, frozenset[str]]:
    """What values the objects of some lines have under each name, if any."""
    found: dict[str, set[str]] = {}
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        row = json.loads(line, parse_int=lambda digits: 0)
        if not isinstance(row, dict):
            raise pa.ArrowInvalid("a line is no object")
        for name, value in row.items():
            kinds = found.setdefault(name, set())
            if value not in (None, []):
                kinds.add(_kind_of(value))
    return {name: frozenset(kinds) for name, kinds in found.items()}


def _kind_of(value: Any) -> str:
    if not isinstance(value, list):
        return _VALUES[type(value)]
    inside = {_VALUES.get(type(one), "list") for one in value}
    return f"list of {inside.pop()}" if len(inside) == 1 else "list"


def _told(kinds: frozenset[str]) -> str:
    return f"JSON {' or '.join(sorted(kinds))}"


def _refuse_column(file: DataFile, name: str, kinds: str) -> NoReturn:
    raise RowsError(
        f"column {name!r} of {file.text!r} holds {kinds}, and a column has one type, "
        "which is not nested. Nothing was added. Leave it out with open_rows(path, "
        "columns=[...]), or write it otherwise."
    )
