"""The container: text fields and tensors in one strict string of bytes.

A strict profile of safetensors, version 1: ``u64 header length | header | tensors``.
Everything is written in one way only (sorted keys, no spaces, no holes), so equal
contents are equal bytes, and a digest in the header covers all of them. SHA-256 finds
damage; only a key (HMAC-SHA256) finds somebody who wants to deceive.

The reader trusts nothing: sizes are recomputed before memory is taken, and whatever
the bytes, the only error is :class:`~sketchlearn.errors.SketchFileError`. What the
fields and tensors mean is not known here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import SketchFileError, quote

__all__ = [
    "HEADER_LIMIT",
    "MAX_BYTES",
    "NEWEST",
    "Contents",
    "body",
    "canonical_json",
    "damaged",
    "decode",
    "encode",
    "fail",
    "is_shallow",
    "parse_canonical",
    "parse_json",
    "require_fields",
    "require_key",
]

HEADER_LIMIT = 65_536
"""Most bytes of a header: so much is read before anything is known of a file."""

MAX_BYTES = 2**30
"""Larger files, and maps that take more memory to build, are refused unless asked
for."""

MOST_NESTED = 32
"""Most lists and mappings of a header inside one another: far fewer than Python's own
limit, so that whoever walks through them comes back."""

NEWEST = 6
"""The newest version of a file that this library reads."""

_DTYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
    "U8": "|u1",
}
"""Types of numbers in a file, by the names of safetensors."""

_DTYPE_NAMES = {np.dtype(text): name for name, text in _DTYPES.items()}
_DIGEST_FIELD = b'"digest":"'

_FOREIGN = {
    b"PAR1": "a Parquet file; sketch it with sketch_rows",
    b"ARROW1": "an Arrow file; sketch it with sketch_rows",
    b"PK": "a zip or .npz archive; sketch the arrays in it with sketch_rows",
    b"\x93NUMPY": "a NumPy array; sketch it with sketch_rows",
    b"\x1f\x8b": "a gzip file; decompress it first",
    b"\x80": "a pickle, which could run any code; ask for a file written by save",
}
"""What files of others start with, and what to do with them."""

_Layout = dict[str, tuple[str, tuple[int, ...]]]
Contents = tuple[dict[str, str], dict[str, NDArray[Any]]]
"""Text fields by name, and tensors by name."""


def canonical_json(value: Any) -> str:
    """One value, one string: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def encode(contents: Contents, key: bytes | None, key_id: str) -> bytes:
    """Contents and their digest as bytes."""
    kind = b"sha256:" if key is None else f"hmac:{key_id}:".encode()
    metadata, tensors = contents
    blank = kind + b"0" * 64
    header, payload = body(({**metadata, "digest": blank.decode()}, tensors))
    if len(header) - 8 > HEADER_LIMIT:
        fail(f"would need a header of more than {HEADER_LIMIT} bytes.")
    digest = kind + _digest(header, payload, key).encode()
    # Quotes inside values are escaped, so this finds the field and nothing else.
    return header.replace(_DIGEST_FIELD + blank, _DIGEST_FIELD + digest) + payload


def body(contents: Contents) -> tuple[bytes, bytes]:
    """Header and payload; equal for equal contents and only for them."""
    metadata, tensors = contents
    for name, array in tensors.items():
        if array.dtype not in _DTYPE_NAMES:
            fail(f"cannot hold numbers of type {array.dtype} ({name!r}).")
    arrays = [tensors[name] for name in sorted(tensors)]
    parts = [a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays]
    layout = {n: (_DTYPE_NAMES[a.dtype], a.shape) for n, a in tensors.items()}
    return _encode_header(metadata, layout), b"".join(parts)


def _encode_header(metadata: Mapping[str, str], layout: _Layout) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in sorted(layout.items()):
        start, end = end, end + _n_bytes(dtype, shape)
        header[name] = {"data_offsets": [start, end], "dtype": dtype, "shape": shape}
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def decode(stream: BinaryIO, size: int, key: bytes | None, max_bytes: int) -> Contents:
    """Contents of a stream of ``size`` bytes, checked."""
    head = stream.read(8)
    length = int.from_bytes(head, "little")
    if size < 8 or not 2 <= length <= HEADER_LIMIT:
        _refuse_foreign(head)
    _require_size(size, 8 + length, at_least=True)
    header = head + stream.read(length)
    metadata, layout = _decode_header(header[8:])
    n_payload = sum(_n_bytes(*entry) for entry in layout.values())
    _require_size(size, 8 + length + n_payload)
    if size > max_bytes:
        fail(f"is larger than max_bytes: {size} bytes, {max_bytes} allowed.")
    payload = stream.read(n_payload)
    _require_size(len(header) + len(payload), size)
    _require_digest(metadata.get("digest", ""), header, payload, key)
    if _encode_header(metadata, layout) != header:
        fail("is not written the way save writes; get the original file.")
    tensors, offset = {}, 0
    for name, (dtype, shape) in layout.items():
        little = np.frombuffer(payload, _DTYPES[dtype], prod(shape), offset)
        tensors[name] = little.astype(little.dtype.newbyteorder("=")).reshape(shape)
        offset += little.nbytes
    del metadata["digest"]
    return metadata, tensors


def _decode_header(text: bytes) -> tuple[dict[str, str], _Layout]:
    if not text.startswith(b"{") or not text.isascii():
        fail("is not a sketch or map file: no JSON header. Load a file made by save.")
    header = parse_json(text.decode(), "header")
    metadata = header.pop("__metadata__", {})
    form = metadata.get("format") if isinstance(metadata, dict) else None
    if not str(form).startswith("sketchlearn-"):
        fail("is a safetensors file of another program. Load a file made by save.")
    if not all(type(value) is str for value in metadata.values()):
        raise damaged("header: a value is not text")
    version = metadata.get("version", "")
    if re.fullmatch("[1-9][0-9]{0,5}", version) and int(version) > NEWEST:
        fail(
            f"cannot be read: file version {version} was written by a newer library; "
            f"this one reads 1-{NEWEST}. Install a newer sketchlearn."
        )
    return metadata, {name: _entry(name, header[name]) for name in sorted(header)}


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor; the offsets follow from those of all tensors."""
    if isinstance(entry, dict) and re.fullmatch("[A-Za-z0-9_.]{1,128}", name):
        dtype, shape = str(entry.get("dtype")), entry.get("shape")
        if dtype in _DTYPES and isinstance(shape, list) and _is_shape(shape):
            return dtype, tuple(shape)
    raise damaged(f"tensor {quote(name)}")


def _is_shape(sizes: list[Any]) -> bool:
    """Up to 8 sides, whose product NumPy can hold even where one of them is 0."""
    if len(sizes) > 8 or not all(type(n) is int and n >= 0 for n in sizes):
        return False
    return bool(prod(n or 1 for n in sizes) < 2**59)


def _n_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * int(dtype[1:]) // 8


def parse_json(text: str, part: str) -> dict[str, Any]:
    """Parse leniently: the caller compares the canonical form with the text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(f"{part}: {str(error)[:80]}") from error
    if not isinstance(parsed, dict):
        raise damaged(f"{part}: not a JSON object")
    return parsed


def parse_canonical(text: str, part: str) -> dict[str, Any]:
    """Parse what :func:`canonical_json` wrote, and nothing else.

    One text, one value: no duplicate keys, no spaces, no NaN, and no more than
    ``MOST_NESTED`` values inside one another.
    """
    parsed = parse_json(text, part)
    try:
        same = is_shallow(parsed) and canonical_json(parsed) == text
    except ValueError as error:  # infinities: 1e999 is JSON
        raise damaged(part) from error
    if not same:
        raise damaged(part)
    return parsed


def is_shallow(value: Any, left: int = MOST_NESTED) -> bool:
    """Whether at most ``left`` lists and mappings are inside one another."""
    if not isinstance(value, dict | list):
        return True
    children = value.values() if isinstance(value, dict) else value
    return left > 0 and all(is_shallow(child, left - 1) for child in children)


def damaged(part: str) -> SketchFileError:
    """The error for a damaged part."""
    return SketchFileError(f"is damaged ({part}). Copy it again.")


def _refuse_foreign(head: bytes) -> NoReturn:
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            fail(f"looks like {name}.")
    if head and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        fail("looks like text; if it is CSV, sketch it with sketch_rows.")
    what = "not a sketch or map file" if head else "empty"
    fail(f"is {what}. Load a file made by save.")


def _require_size(size: int, expected: int, *, at_least: bool = False) -> None:
    if size < expected:
        fail(f"is truncated: {size} bytes, header says {expected}; copy it again.")
    if size > expected and not at_least:
        fail(f"is too long: {size} bytes, header says {expected}; copy it again.")


def require_key(key: bytes | None, key_id: str) -> None:
    """Check a key as the user typed it."""
    if key is not None and (not isinstance(key, bytes) or len(key) < 16):
        raise SketchFileError(
            "key must be at least 16 secret bytes; make one with os.urandom(32)."
        )
    if not re.fullmatch("[A-Za-z0-9_-]{0,32}", key_id) or (key_id and key is None):
        raise SketchFileError(
            f"key_id names a key in up to 32 letters, digits, - and _, and needs key=; "
            f"got {key_id!r}."
        )


def _require_digest(
    field: str, header: bytes, payload: bytes, key: bytes | None
) -> None:
    found = re.fullmatch("(sha256:|hmac:([A-Za-z0-9_-]{0,32}):)([0-9a-f]{64})", field)
    if found is None:
        raise damaged("digest")
    kind, key_id, digest = found.groups()
    if key is None and key_id is not None:
        fail(f"was saved with a key (key_id {key_id!r}): pass key= to load it.")
    if key is not None and key_id is None:
        fail("was saved without a key, so anybody can have written it; refused.")
    blank = _DIGEST_FIELD + kind.encode() + b"0" * 64
    header = header.replace(_DIGEST_FIELD + field.encode(), blank)
    if not hmac.compare_digest(_digest(header, payload, key), digest):
        other = "" if key is None else f", or saved with another key than {key_id!r}"
        fail(f"is damaged{other}: its digest does not match. Copy it again.")


def _digest(header: bytes, payload: bytes, key: bytes | None) -> str:
    state = hashlib.sha256() if key is None else hmac.new(key, digestmod="sha256")
    state.update(header)
    state.update(payload)
    return state.hexdigest()


def require_fields(metadata: Mapping[str, str], fields: Mapping[str, str]) -> None:
    """Refuse contents whose fields are not exactly these patterns."""
    for name in sorted({*metadata, *fields}):
        known = name in metadata and name in fields
        if not known or not re.fullmatch(fields[name], metadata[name]):
            got = quote(metadata.get(name, "missing"))
            raise damaged(f"header field {quote(name)}: {got}")


def fail(reason: str) -> NoReturn:
    """Refuse; the name of the file is put before the reason by the caller."""
    raise SketchFileError(reason)
