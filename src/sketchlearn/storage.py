"""Files: tensors and a JSON header in one file, for sketches and feature maps alike.

A file is a strict profile of safetensors, version 1: ``u64 header length | header |
tensors``. Everything is written in one way only (sorted keys, no spaces, no holes),
so one sketch is one string of bytes, and a digest in the header covers all of them.
SHA-256 finds damage; only a key (HMAC-SHA256) finds somebody who wants to deceive.

The reader believes nothing: sizes are recomputed before memory is taken, what it
built must encode to the bytes it read, and whatever the bytes, the only error is
:class:`~sketchlearn.errors.SketchFileError`. The codec knows neither sketches nor
maps; each kind of object is one line of the table at the end of this module.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import io
import json
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any, BinaryIO, NoReturn, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import MissingFileError, SketchFileError, SketchlearnError
from sketchlearn.exact import Int128Array
from sketchlearn.features.base import (
    AbstractFeatureMap,
    FeatureSpec,
    build_map,
    canonical_json,
)
from sketchlearn.pooling import get_pooling
from sketchlearn.sketch import MAX_LINEAGE, Sketch

if sys.platform == "darwin":
    import fcntl

__all__ = ["UnsavableError", "dumps", "load", "loads", "save"]

MAX_BYTES = 2**30
"""Larger files, and maps with larger weights, are refused unless asked for."""

HEADER_LIMIT, SIZE_LIMIT, STALE_SECONDS, VERSION = 65_536, 2**24, 3600, "1"

_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "U64": "<u8", "U8": "|u1"}
_DTYPE_NAMES = {np.dtype(text): name for name, text in _DTYPES.items()}
_HEX_FLOAT = r"0x[01]\.[0-9a-f]{13}p[+-][0-9]{1,4}"
_MAP_FIELDS = {
    "format": "sketchlearn-map",
    "version": VERSION,
    "feature_map": "sha256:[0-9a-f]{64}",
    "description": ".*",
}
_SKETCH_FIELDS = {
    **_MAP_FIELDS,
    "format": "sketchlearn-sketch",
    "kind": "exact",
    "n_features": "[1-9][0-9]{0,17}",
    "dim": "[1-9][0-9]{0,7}",
    "frac_bits": "0|-?[1-9][0-9]{0,3}",
    "value_bound": _HEX_FLOAT,
    "clip": f"({_HEX_FLOAT})?",
    "pooling": "[a-z0-9.:+-]{1,40}",
    "lineage": rf"\*|([0-9a-f]{{32}}(,[0-9a-f]{{32}}){{0,{MAX_LINEAGE - 1}}})?",
    "privacy": "",
}
_SKETCH_TEXT, _MAP_TEXT = 48 * 1024, 16 * 1024  # leave room for lineage, weight names
_LONG_TEXT, _FIELD = "description.json", b'"digest":"'
_FOREIGN = {
    b"PAR1": "a Parquet file; sketch it with sketch_rows",
    b"ARROW1": "an Arrow file; sketch it with sketch_rows",
    b"PK": "a zip or .npz archive; sketch the arrays in it with sketch_rows",
    b"\x93NUMPY": "a NumPy array; sketch it with sketch_rows",
    b"\x1f\x8b": "a gzip file; decompress it first",
    b"\x80": "a pickle, which could run any code; ask for a file written by save",
}

_T = TypeVar("_T")
_Layout = dict[str, tuple[str, tuple[int, ...]]]
_Contents = tuple[dict[str, str], dict[str, NDArray[Any]]]


class UnsavableError(SketchlearnError, TypeError):
    """The object is of a kind that has no file format."""


def save(
    obj: Sketch | AbstractFeatureMap,
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    key_id: str = "",
) -> None:
    """Write a sketch or a feature map to a file, all of it or nothing.

    The bytes go to a temporary file beside ``path``, reach the disk, and only then
    take the name: after a crash or a full disk the old file is still there, whole.
    The file can be read by its owner only (mode 0600, whatever the umask), because
    an exact sketch is as sensitive as its rows. A symbolic link is followed.

    Parameters
    ----------
    obj : Sketch or AbstractFeatureMap
        What to save.
    path : path
        Where; an existing file is replaced.
    key : bytes, optional
        At least 16 secret bytes. Only who has the key can then write or change the
        file unnoticed, and only who has it can load the file.
    key_id : str
        Which key it was: up to 32 letters, digits, ``-`` and ``_``, kept in clear.

    Examples
    --------
    >>> import tempfile
    >>> from sketchlearn.features.kernel import FourierFeatures
    >>> phi = FourierFeatures(n_features=2, sketch_size=8, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(phi, f"{folder}/phi.map")
    ...     load(f"{folder}/phi.map") == phi
    True
    """
    _write_file(os.path.realpath(path), dumps(obj, key=key, key_id=key_id))


def load(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    feature_map: AbstractFeatureMap | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read back what :func:`save` wrote, or refuse the file.

    Parameters
    ----------
    path : path
        A regular file.
    key : bytes, optional
        The key the file was saved with. A file without one is then refused.
    feature_map : AbstractFeatureMap, optional
        The map of the sketch, to be checked and attached to it.
    max_bytes : int
        Refuse larger files, and maps with larger weights.

    Returns
    -------
    Sketch or AbstractFeatureMap
        As the file says. Without a key the digest finds damage, not deceit.
    """
    name = os.fspath(path)
    with _open_regular(name) as stream:
        size = os.fstat(stream.fileno()).st_size
        return _parse(stream, size, repr(name), key, feature_map, max_bytes)


def dumps(
    obj: Sketch | AbstractFeatureMap, *, key: bytes | None = None, key_id: str = ""
) -> bytes:
    """Give the bytes :func:`save` would write, for a database or a message."""
    _require_key(key, key_id)
    kinds = [kind for kind in _KINDS.values() if isinstance(obj, kind.cls)]
    if not kinds:
        raise UnsavableError(
            f"cannot save a {type(obj).__name__}. What can be saved: "
            f"{', '.join(kind.cls.__name__ for kind in _KINDS.values())}."
        )
    try:
        contents = kinds[0].pack(obj)
        _unpack(contents, sys.maxsize)  # what cannot be read is not written
        return _encode(contents, key, key_id)
    except SketchFileError as error:
        raise SketchFileError(
            f"this {type(obj).__name__} cannot be saved: its file {error}"
        ) from error


def loads(
    data: bytes,
    *,
    key: bytes | None = None,
    feature_map: AbstractFeatureMap | None = None,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """Read bytes made by :func:`dumps`; arguments and errors as for :func:`load`."""
    stream = io.BytesIO(data)
    return _parse(stream, len(data), "this byte string", key, feature_map, max_bytes)


def _parse(
    stream: BinaryIO,
    size: int,
    where: str,
    key: bytes | None,
    feature_map: AbstractFeatureMap | None,
    max_bytes: int,
) -> Any:
    _require_key(key, "")
    try:
        obj = _unpack(_decode(stream, size, key, max_bytes), max_bytes)
        if feature_map is None:
            return obj
        if isinstance(obj, AbstractFeatureMap):
            _fail("holds a feature map, not a sketch: load it without feature_map=.")
        attached = obj.with_map(feature_map)
        if replace(feature_map.spec, text=obj.features.text) != obj.features:
            _fail("contradicts its own feature map; get the original file.")
        return attached
    except SketchFileError as error:
        raise SketchFileError(f"{where} {error}") from error.__cause__


def _unpack(contents: _Contents, max_bytes: int) -> Any:
    metadata, tensors = contents
    name = metadata["format"], metadata.get("kind", "")
    if name not in _KINDS:
        _fail(f"holds an unknown kind of object {str(name)[:80]}; update sketchlearn.")
    kind = _KINDS[name]
    _require_fields(metadata, kind.fields)
    try:
        obj = kind.unpack(metadata, tensors, max_bytes)
    except (SketchFileError, ImportError):
        raise
    except Exception as error:  # any file may hold any arguments of any map
        raise SketchFileError(
            f"holds what cannot be built: {error} Get the original file."
        ) from error
    if _body(kind.pack(obj)) != _body(contents):
        _fail("is not written the way save writes; get the original file.")
    return obj


# The codec: bytes <-> metadata and tensors.


def _encode(contents: _Contents, key: bytes | None, key_id: str) -> bytes:
    kind = b"sha256:" if key is None else f"hmac:{key_id}:".encode()
    metadata, tensors = contents
    blank = kind + b"0" * 64
    header, payload = _body(({**metadata, "digest": blank.decode()}, tensors))
    if len(header) - 8 > HEADER_LIMIT:
        _fail(f"would need a header of more than {HEADER_LIMIT} bytes.")
    digest = kind + _digest(header, payload, key).encode()
    # Quotes inside values are escaped, so this finds the field and nothing else.
    return header.replace(_FIELD + blank, _FIELD + digest) + payload


def _body(contents: _Contents) -> tuple[bytes, bytes]:
    """Header and payload; equal for equal contents and only for them."""
    metadata, tensors = contents
    for name, array in tensors.items():
        if array.dtype not in _DTYPE_NAMES:
            _fail(f"cannot hold numbers of type {array.dtype} ({name!r}).")
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


def _decode(
    stream: BinaryIO, size: int, key: bytes | None, max_bytes: int
) -> _Contents:
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
        _fail(f"is larger than max_bytes: {size} bytes, {max_bytes} allowed.")
    payload = stream.read(n_payload)
    _require_size(len(header) + len(payload), size)
    _require_digest(metadata.get("digest", ""), header, payload, key)
    if _encode_header(metadata, layout) != header:
        _fail("is not written the way save writes; get the original file.")
    tensors, offset = {}, 0
    for name, (dtype, shape) in layout.items():
        little = np.frombuffer(payload, _DTYPES[dtype], prod(shape), offset)
        tensors[name] = little.astype(little.dtype.newbyteorder("=")).reshape(shape)
        offset += little.nbytes
    del metadata["digest"]
    return metadata, tensors


def _decode_header(text: bytes) -> tuple[dict[str, str], _Layout]:
    if not text.startswith(b"{") or not text.isascii():
        _fail("is not a sketch or map file: no JSON header. Load a file made by save.")
    header = _parse_json(text.decode(), "header")
    metadata = header.pop("__metadata__", {})
    form = metadata.get("format") if isinstance(metadata, dict) else None
    if not str(form).startswith("sketchlearn-"):
        _fail("is a safetensors file of another program. Load a file made by save.")
    if not all(type(value) is str for value in metadata.values()):
        raise _damaged("header: a value is not text")
    version = metadata.get("version", "")
    if version != VERSION and re.fullmatch("[1-9][0-9]{0,5}", version):
        _fail(
            f"cannot be read: file version {version} was written by a newer library; "
            f"this one reads {VERSION}. Install a newer sketchlearn."
        )
    return metadata, {name: _entry(name, header[name]) for name in sorted(header)}


def _entry(name: str, entry: Any) -> tuple[str, tuple[int, ...]]:
    """Type and shape of a tensor; the offsets follow from those of all tensors."""
    if isinstance(entry, dict) and re.fullmatch("[A-Za-z0-9_.]{1,128}", name):
        dtype, shape = str(entry.get("dtype")), entry.get("shape")
        plain = dtype in _DTYPES and isinstance(shape, list) and len(shape) <= 8
        if plain and all(type(n) is int and 0 <= n < 2**63 for n in shape or ()):
            return dtype, tuple(shape or ())
    raise _damaged(f"tensor {name[:40]!r}")


def _n_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return prod(shape) * int(dtype[1:]) // 8


def _parse_json(text: str, part: str) -> dict[str, Any]:
    """Parse leniently: the caller compares the canonical form with the text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{part}: {str(error)[:80]}") from error
    if not isinstance(parsed, dict):
        raise _damaged(f"{part}: not a JSON object")
    return parsed


def _damaged(part: str) -> SketchFileError:
    return SketchFileError(f"is damaged ({part}). Copy it again.")


def _refuse_foreign(head: bytes) -> NoReturn:
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            _fail(f"looks like {name}.")
    if head and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        _fail("looks like text; if it is CSV, sketch it with sketch_rows.")
    what = "not a sketch or map file" if head else "empty"
    _fail(f"is {what}. Load a file made by save.")


def _require_size(size: int, expected: int, *, at_least: bool = False) -> None:
    if size < expected:
        _fail(f"is truncated: {size} bytes, header says {expected}; copy it again.")
    if size > expected and not at_least:
        _fail(f"is too long: {size} bytes, header says {expected}; copy it again.")


def _require_key(key: bytes | None, key_id: str) -> None:
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
        raise _damaged("digest")
    kind, key_id, digest = found.groups()
    if key is None and key_id is not None:
        _fail(f"was saved with a key (key_id {key_id!r}): pass key= to load it.")
    if key is not None and key_id is None:
        _fail("was saved without a key, so anybody can have written it; refused.")
    blank = _FIELD + kind.encode() + b"0" * 64
    header = header.replace(_FIELD + field.encode(), blank)
    if not hmac.compare_digest(_digest(header, payload, key), digest):
        other = "" if key is None else f", or saved with another key than {key_id!r}"
        _fail(f"is damaged{other}: its digest does not match. Copy it again.")


def _digest(header: bytes, payload: bytes, key: bytes | None) -> str:
    state = hashlib.sha256() if key is None else hmac.new(key, digestmod="sha256")
    state.update(header)
    state.update(payload)
    return state.hexdigest()


def _require_fields(metadata: Mapping[str, str], fields: Mapping[str, str]) -> None:
    for name in sorted({*metadata, *fields}):
        known = name in metadata and name in fields
        if not known or not re.fullmatch(fields[name], metadata[name]):
            got = metadata.get(name, "missing")[:40]
            raise _damaged(f"header field {name[:40]!r}: {got!r}")


def _fail(reason: str) -> NoReturn:
    """Refuse; the name of the file is put before the reason by the caller."""
    raise SketchFileError(reason)


# The two kinds of objects.


def _pack_sketch(sketch: Sketch) -> _Contents:
    spec, lineage = sketch.features, sketch.lineage
    if not 0 <= sketch.count < 2**63:
        _fail(f"cannot hold a count of {sketch.count} rows.")
    metadata = {
        "format": "sketchlearn-sketch",
        "version": VERSION,
        "kind": "exact",
        "feature_map": f"sha256:{spec.fingerprint}",
        "description": spec.text if _escaped(spec.text) <= _SKETCH_TEXT else "",
        "n_features": str(spec.n_features),
        "dim": str(spec.sketch_size),
        "frac_bits": str(spec.frac_bits),
        "value_bound": spec.value_bound.hex(),
        "clip": "" if spec.norm_bound is None else spec.norm_bound.hex(),
        "pooling": sketch.pooling,
        "lineage": "*" if lineage is None else ",".join(sorted(lineage)),
        "privacy": "",
    }
    count = np.array([sketch.count], np.int64)
    tensors = {"count": count, "sum_hi": sketch.total.hi, "sum_lo": sketch.total.lo}
    return metadata, tensors


def _unpack_sketch(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], max_bytes: int
) -> Sketch:
    size = int(fields["dim"])
    wanted = {"count": ("int64", (1,)), "sum_hi": ("int64", (size,))}
    wanted["sum_lo"] = "uint64", (size,)
    if {n: (str(a.dtype), a.shape) for n, a in tensors.items()} != wanted:
        _fail("has the wrong tensors for a sketch; get the original file.")
    if size > SIZE_LIMIT:
        _fail(f"holds {size} numbers; sketches have at most {SIZE_LIMIT}.")
    if fields["description"]:
        _parse_description(fields["description"])
    spec = FeatureSpec(
        text=fields["description"],
        fingerprint=fields["feature_map"].removeprefix("sha256:"),
        n_features=int(fields["n_features"]),
        sketch_size=size,
        frac_bits=int(fields["frac_bits"]),
        value_bound=float.fromhex(fields["value_bound"]),
        norm_bound=float.fromhex(fields["clip"]) if fields["clip"] else None,
    )
    if not -1100 <= spec.frac_bits <= 1200:
        _fail(f"has frac_bits {spec.frac_bits}, beyond what floats can hold.")
    total = Int128Array(tensors["sum_hi"], tensors["sum_lo"])
    count, runs = int(tensors["count"][0]), fields["lineage"]
    lineage = None if runs == "*" else frozenset(runs.split(",") if runs else ())
    pooling = get_pooling(fields["pooling"]).name
    sketch = Sketch(total, count, spec, pooling, lineage)
    with np.errstate(over="ignore"):
        if count < 0 or not sketch.is_possible:
            _fail(
                f"is not a possible sketch: {count} rows within its bounds cannot have "
                "this total. It was forged or made with a bug; sketch the rows again."
            )
    return sketch


def _pack_map(feature_map: AbstractFeatureMap) -> _Contents:
    text, weights = canonical_json(feature_map.description), feature_map.weights()
    tensors = {name: weights[name] for name in feature_map.stored_weights}
    for name, array in tensors.items():
        if array.dtype.kind == "f":
            tensors[name] = array + 0.0  # -0.0 becomes 0.0, as in the fingerprint
    if _escaped(text) > _MAP_TEXT:
        tensors[_LONG_TEXT] = np.frombuffer(text.encode(), np.uint8)
        text = ""
    metadata = {
        "format": "sketchlearn-map",
        "version": VERSION,
        "feature_map": f"sha256:{feature_map.fingerprint}",
        "description": text,
    }
    return metadata, tensors


def _unpack_map(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], max_bytes: int
) -> AbstractFeatureMap:
    weights = dict(tensors)
    long_text = weights.pop(_LONG_TEXT, np.zeros(0, np.uint8)).tobytes()
    text = fields["description"] or long_text.decode("ascii", "replace")
    description = _parse_description(text)
    _require_small(description, max_bytes)
    with np.errstate(all="ignore"):
        built = build_map(description, weights)
        found = f"sha256:{built.fingerprint}"
    if found != fields["feature_map"]:
        _fail(
            f"holds map {fields['feature_map'][:13]}.., which is {found[:13]}.. here: "
            "this version of the library (or of NumPy) draws other weights from the "
            "same seed, so the file cannot be used here."
        )
    return built


def _require_small(node: Any, max_bytes: int) -> None:
    """Refuse sizes whose weights (``n_features`` by another) would fill memory."""
    if isinstance(node, dict):
        sizes = {k: v for k, v in node.items() if type(v) is int and k != "seed"}
        other = max(1, sizes.get("sketch_size", 1), sizes.get("depth", 1))
        largest = 8 * max([other * sizes.get("n_features", 1), *sizes.values()])
        if largest > max_bytes:
            _fail(
                f"describes a feature map of about {largest} bytes; if you trust it, "
                f"load it with a max_bytes= larger than {max_bytes}."
            )
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list):
            _require_small(child, max_bytes)


def _escaped(text: str) -> int:
    return len(canonical_json(text))


def _parse_description(text: str) -> dict[str, Any]:
    parsed = _parse_json(text, "description of the map")
    if canonical_json(parsed) != text:
        raise _damaged("description of the map")
    return parsed


# The file system.


def _open_regular(path: str) -> BinaryIO:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)  # non-blocking: a FIFO would wait forever
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"there is no file {path!r}; check the path.") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise SketchFileError(
                f"{path!r} is not a file ({error.strerror}). Load a file made by save."
            ) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a directory" if stat.S_ISDIR(mode) else "a pipe, socket or device"
        raise SketchFileError(f"{path!r} is {what}. Load a file made by save.")
    return open(descriptor, "rb")


def _write_file(path: str, data: bytes) -> None:
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SketchFileError(f"cannot save to {path!r}: it is not a regular file.")
    _remove_stale(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with _descriptor(temporary, flags) as descriptor:
            rest = memoryview(data)
            while rest:
                rest = rest[_retry(os.write, descriptor, rest) :]
            _sync(descriptor)
        _retry(os.replace, temporary, path)
        if os.name != "nt":  # where folders cannot be opened
            with _descriptor(folder, os.O_RDONLY) as descriptor:
                _sync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _descriptor(path: str, flags: int) -> Iterator[int]:
    descriptor = _retry(os.open, path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        with suppress(OSError):  # not on every file system
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    _retry(os.fsync, descriptor)


def _remove_stale(folder: str, name: str) -> None:
    """Remove what earlier saves of this file left when they were killed."""
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.tmp")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > STALE_SECONDS:
                    os.unlink(entry.path)


def _retry(call: Callable[..., _T], *arguments: Any) -> _T:
    while True:
        with suppress(InterruptedError):
            return call(*arguments)


@final
@dataclass(frozen=True)
class _Kind:
    """How one kind of object becomes metadata and tensors, and comes back."""

    cls: type[Any]
    fields: Mapping[str, str]
    pack: Callable[[Any], _Contents]
    unpack: Callable[[dict[str, str], dict[str, NDArray[Any]], int], Any]


_KINDS = {
    ("sketchlearn-sketch", "exact"): _Kind(
        Sketch, _SKETCH_FIELDS, _pack_sketch, _unpack_sketch
    ),
    ("sketchlearn-map", ""): _Kind(
        AbstractFeatureMap, _MAP_FIELDS, _pack_map, _unpack_map
    ),
}
"""By the ``format`` and ``kind`` of a file; one more line makes one more kind."""
