"""Files: sketches and feature maps, written whole and read with suspicion.

How bytes are laid out is :mod:`sketchlearn.files.container`'s concern, how they reach
the disk :mod:`sketchlearn.files.durable`'s. Here each kind of object becomes fields and
tensors and comes back; what was built must encode to the bytes that were read. Each
kind is one line of the table at the end of this module.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.errors import SketchFileError, UnsavableError
from sketchlearn.features.base import AbstractFeatureMap
from sketchlearn.features.build import build_map
from sketchlearn.features.registry import declare, is_known
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import (
    NEWEST,
    Contents,
    body,
    canonical_json,
    damaged,
    decode,
    encode,
    fail,
    parse_canonical,
    parse_json,
    require_fields,
    require_key,
)
from sketchlearn.files.durable import open_regular, write_file
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.sketching.lineage import format_lineage, parse_lineage, runs_of
from sketchlearn.sketching.pooling import get_pooling
from sketchlearn.sketching.sketch import Sketch

__all__ = ["dumps", "load", "loads", "save"]

MAX_BYTES = 2**30
"""Larger files, and maps that take more memory to build, are
refused unless asked for."""

SIZE_LIMIT = 2**24

_HEX_FLOAT = r"0x[01]\.[0-9a-f]{13}p[+-][0-9]{1,4}"
_MAP_FIELDS = {
    "format": "sketchlearn-map",
    "version": f"[1-{NEWEST}]",
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
    "rounding_bits": "0|-?[1-9][0-9]{0,3}",
    "value_bound": _HEX_FLOAT,
    "clip": f"({_HEX_FLOAT})?",
    "pooling": "[a-z0-9.:+-]{1,40}",
    "lineage": r"\*|[,0-9a-f-]*",
    "privacy": "",
    "columns": r"(\[.*\])?",
}
_PRIVATE_FIELDS = {
    **_SKETCH_FIELDS,
    "kind": "private",
    "pooling": "mean",
    "privacy": r"\{.*\}",
}
_TEST_FIELDS = {**_PRIVATE_FIELDS, "kind": "test"}
_LONG_TEXTS = {
    "description": ("description.json", 16 * 1024),
    "columns": ("columns.json", 4096),
    "lineage": ("lineage.txt", 256 * 33 + 1),
}
"""Fields that may crowd the header: beyond so many characters they are tensors."""


def save(
    obj: Sketch | PrivateSketch | AbstractFeatureMap,
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
    >>> from sketchlearn.features.fourier import FourierFeatures
    >>> phi = FourierFeatures(n_features=2, sketch_size=8, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(phi, f"{folder}/phi.map")
    ...     load(f"{folder}/phi.map") == phi
    True
    """
    write_file(os.path.realpath(path), dumps(obj, key=key, key_id=key_id))


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
        Refuse larger files, and maps that take more memory to
        build.

    Returns
    -------
    Sketch or AbstractFeatureMap
        As the file says. Without a key the digest finds damage, not deceit.
    """
    name = os.fspath(path)
    with open_regular(name) as stream:
        size = os.fstat(stream.fileno()).st_size
        return _parse(stream, size, repr(name), key, feature_map, max_bytes)


def dumps(
    obj: Sketch | PrivateSketch | AbstractFeatureMap,
    *,
    key: bytes | None = None,
    key_id: str = "",
) -> bytes:
    """Give the bytes :func:`save` would write, for a database or a message."""
    require_key(key, key_id)
    kinds = [kind for kind in _KINDS.values() if isinstance(obj, kind.cls)]
    if not kinds:
        raise UnsavableError(
            f"cannot save a {type(obj).__name__}. What can be saved: "
            f"{', '.join(sorted({kind.cls.__name__ for kind in _KINDS.values()}))}."
        )
    try:
        contents = kinds[0].pack(obj)
        _unpack(contents, sys.maxsize)  # what cannot be read is not written
        return encode(contents, key, key_id)
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
    require_key(key, "")
    try:
        obj = _unpack(decode(stream, size, key, max_bytes), max_bytes)
        if feature_map is None:
            return obj
        if isinstance(obj, AbstractFeatureMap):
            fail("holds a feature map, not a sketch: load it without feature_map=.")
        return obj.with_map(feature_map)
    except SketchFileError as error:
        raise SketchFileError(f"{where} {error}") from error.__cause__


def _unpack(contents: Contents, max_bytes: int) -> Any:
    metadata, tensors = contents
    name = metadata["format"], metadata.get("kind", "")
    if name not in _KINDS:
        fail(f"holds an unknown kind of object {str(name)[:80]}; update sketchlearn.")
    kind = _KINDS[name]
    require_fields(metadata, kind.fields)
    try:
        obj = kind.unpack(metadata, tensors, max_bytes)
        again = body(kind.pack(obj))
    except (SketchFileError, ImportError):
        raise
    except Exception as error:  # any file may hold any arguments of any map
        raise SketchFileError(
            f"holds what cannot be built: {str(error)[:400]} Get the original file."
        ) from error
    if again != body(contents):
        fail("is not written the way save writes; get the original file.")
    return obj


def _pack_sketch(sketch: Sketch) -> Contents:
    spec = sketch.features
    if not 0 <= sketch.count < 2**63:
        fail(f"cannot hold a count of {sketch.count} rows.")
    metadata = {
        "format": "sketchlearn-sketch",
        "version": str(spec.version),
        "kind": "exact",
        "feature_map": f"sha256:{spec.fingerprint}",
        "description": spec.text,
        "n_features": str(spec.n_features),
        "dim": str(spec.sketch_size),
        "frac_bits": str(spec.frac_bits),
        "rounding_bits": str(spec.rounding_bits),
        "value_bound": spec.value_bound.hex(),
        "clip": "" if spec.norm_bound is None else spec.norm_bound.hex(),
        "pooling": sketch.pooling,
        "lineage": format_lineage(sketch.lineage),
        "privacy": "",
        "columns": "" if not sketch.columns else canonical_json(list(sketch.columns)),
    }
    count = np.array([sketch.count], np.int64)
    tensors = {"count": count, "sum_hi": sketch.total.hi, "sum_lo": sketch.total.lo}
    return _move_long_texts(metadata, tensors)


def _unpack_sketch(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], max_bytes: int
) -> Sketch:
    spec = _unpack_spec(fields, tensors)
    size = spec.sketch_size
    wanted = {"count": ("int64", (1,)), "sum_hi": ("int64", (size,))}
    wanted["sum_lo"] = "uint64", (size,)
    _require_tensors(tensors, wanted)
    total = Int128Array(tensors["sum_hi"], tensors["sum_lo"])
    count = int(tensors["count"][0])
    lineage = parse_lineage(_whole_text("lineage", fields, tensors))
    pooling = get_pooling(fields["pooling"]).name
    columns = _unpack_columns(fields, tensors, spec.n_features)
    sketch = Sketch(total, count, spec, pooling, lineage, columns=columns)
    if count < 0 or not sketch.is_possible:
        fail(
            f"is not a possible sketch: {count} rows within its bounds cannot have "
            "this total. It was forged or made with a bug; sketch the rows again."
        )
    return sketch


def _unpack_columns(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], n_features: int
) -> tuple[str, ...] | None:
    text = _whole_text("columns", fields, tensors)
    if not text:
        return None
    names = parse_json(f'{{"columns":{text}}}', "column names")["columns"]
    plain = isinstance(names, list) and all(type(name) is str for name in names)
    if not plain or len(names) != n_features or canonical_json(names) != text:
        raise damaged("column names")
    return tuple(names)


def _require_tensors(
    tensors: Mapping[str, NDArray[Any]],
    wanted: Mapping[str, tuple[str, tuple[int, ...]]],
) -> None:
    found = {n: (str(a.dtype), a.shape) for n, a in tensors.items()}
    for name, _ in _LONG_TEXTS.values():
        found.pop(name, None)
    if found != wanted:
        fail("has the wrong tensors for a sketch; get the original file.")


def _unpack_spec(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]
) -> FeatureSpec:
    size = int(fields["dim"])
    if size > SIZE_LIMIT:
        fail(f"holds {size} numbers; sketches have at most {SIZE_LIMIT}.")
    text = _whole_text("description", fields, tensors)
    spec = FeatureSpec(
        text=text,
        fingerprint=fields["feature_map"].removeprefix("sha256:"),
        n_features=int(fields["n_features"]),
        sketch_size=size,
        frac_bits=int(fields["frac_bits"]),
        value_bound=float.fromhex(fields["value_bound"]),
        norm_bound=float.fromhex(fields["clip"]) if fields["clip"] else None,
        rounding_bits=int(fields["rounding_bits"]),
        version=int(fields["version"]),
    )
    if not -1100 <= spec.rounding_bits <= spec.frac_bits <= 1200:
        fail(f"has frac_bits {spec.frac_bits}, beyond what floats can hold.")
    norm = 1.0 if spec.norm_bound is None else spec.norm_bound
    if not (0 < spec.value_bound < 1e301 and 0 < norm < float("inf")):
        fail("has bounds that no feature map has; it was forged.")
    coarse = spec.frac_bits < 0 and spec.rounding_bits < spec.frac_bits - 64
    if coarse or Fraction(spec.value_bound) * Fraction(2) ** spec.frac_bits < 1:
        fail("has a lattice coarser than its features; it was forged.")
    if text:
        _require_described(spec, _parse_description(text))
    return spec


def _require_described(spec: FeatureSpec, description: Mapping[str, Any]) -> None:
    """Refuse a description of another map than the header speaks of."""
    kind = description.get("kind", "unknown")
    if type(kind) is not str or not re.fullmatch("[ -~]{1,80}", kind):
        raise damaged("kind of the map")
    if description.get("version") != spec.version:
        raise damaged("version of the map")
    if not is_known(kind):  # a map of the user's own, or of a newer library
        return
    cost = declare(description)
    sizes = (cost.n_features, spec.n_features), (cost.sketch_size, spec.sketch_size)
    if any(told not in (None, size) for told, size in sizes):
        fail("contradicts the description of its map in its sizes; it was forged.")


def _pack_private(sketch: PrivateSketch) -> Contents:
    spec, statement = sketch.features, sketch.statement
    zeros = Int128Array.zeros(spec.sketch_size)
    inside = None if statement.lineage is None else frozenset(statement.lineage)
    exact = Sketch(zeros, 0, spec, lineage=inside, columns=sketch.columns)
    metadata, tensors = _pack_sketch(exact)
    if _LONG_TEXTS["lineage"][0] in tensors:  # too many for the header, once or twice
        statement = replace(statement, lineage=None)
    metadata["kind"] = "test" if statement.seeded else "private"
    metadata["privacy"] = canonical_json(statement.describe())
    tensors |= {"sum_hi": sketch.total.hi, "sum_lo": sketch.total.lo}
    del tensors["count"]
    if sketch.noisy_count is not None:
        tensors["count"] = np.array([sketch.noisy_count], np.int64)
    return metadata, tensors


def _unpack_private(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], max_bytes: int
) -> PrivateSketch:
    statement = PrivacyStatement.from_description(
        parse_json(fields["privacy"], "privacy statement")
    )
    spec = _unpack_spec(fields, tensors)
    joint = statement.count_mode == "joint"
    size = spec.sketch_size + joint
    wanted = {"sum_hi": ("int64", (size,)), "sum_lo": ("uint64", (size,))}
    if not joint:
        wanted["count"] = "int64", (1,)
    _require_tensors(tensors, wanted)
    if not statement.is_about(spec):
        fail(
            "has a privacy statement about another feature map, or promises more than "
            "its noise can keep; it was forged."
        )
    total = Int128Array(tensors["sum_hi"], tensors["sum_lo"])
    count = None if joint else int(tensors["count"][0])
    inside = parse_lineage(_whole_text("lineage", fields, tensors))
    if inside is not None:
        if inside != runs_of(inside):
            fail("has a malformed lineage; get the original file.")
        statement = replace(statement, lineage=tuple(sorted(inside)))
    columns = _unpack_columns(fields, tensors, spec.n_features)
    return PrivateSketch(total, spec, statement, count, columns=columns)


def _pack_map(feature_map: AbstractFeatureMap) -> Contents:
    text, weights = canonical_json(feature_map.description), feature_map.weights()
    tensors = {name: weights[name] for name in feature_map.stored_weights}
    for name, array in tensors.items():
        if array.dtype.kind == "f":
            tensors[name] = array + 0.0  # -0.0 becomes 0.0, as in the fingerprint
    metadata = {
        "format": "sketchlearn-map",
        "version": str(feature_map.version),
        "feature_map": f"sha256:{feature_map.fingerprint}",
        "description": text,
    }
    return _move_long_texts(metadata, tensors)


def _unpack_map(
    fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]], max_bytes: int
) -> AbstractFeatureMap:
    long_text, _ = _LONG_TEXTS["description"]
    weights = {name: tensors[name] for name in tensors if name != long_text}
    description = _parse_description(_whole_text("description", fields, tensors))
    built = build_map(description, weights, max_bytes=max_bytes)
    found = f"sha256:{built.fingerprint}"
    if str(built.version) != fields["version"]:
        raise damaged("version of the map")
    if found != fields["feature_map"]:
        fail(
            f"holds map {fields['feature_map'][:13]}.., which is {found[:13]}.. here: "
            "it was forged or damaged, or its weights were drawn by another version of "
            "NumPy (maps of version 1 only). Get the original file."
        )
    return built


def _move_long_texts(
    metadata: dict[str, str], tensors: dict[str, NDArray[Any]]
) -> Contents:
    """Move texts that would crowd the header into tensors."""
    for field, (name, room) in _LONG_TEXTS.items():
        text = metadata.get(field, "")
        if _escaped(text) > room:
            long_text = np.frombuffer(text.encode(), np.uint8)
            metadata, tensors = {**metadata, field: ""}, {**tensors, name: long_text}
    return metadata, tensors


def _whole_text(
    field: str, fields: Mapping[str, str], tensors: Mapping[str, NDArray[Any]]
) -> str:
    """A text from the header, or from its tensor."""
    long_text = tensors.get(_LONG_TEXTS[field][0], np.zeros(0, np.uint8))
    if long_text.dtype != np.uint8:
        raise damaged(field)
    return fields[field] or long_text.tobytes().decode("ascii", "replace")


def _escaped(text: str) -> int:
    return len(canonical_json(text))


def _parse_description(text: str) -> dict[str, Any]:
    return parse_canonical(text, "description of the map")


@final
@dataclass(frozen=True)
class _Kind:
    """How one kind of object becomes metadata and tensors, and comes back."""

    cls: type[Any]
    fields: Mapping[str, str]
    pack: Callable[[Any], Contents]
    unpack: Callable[[dict[str, str], dict[str, NDArray[Any]], int], Any]


_KINDS = {
    ("sketchlearn-sketch", "exact"): _Kind(
        Sketch, _SKETCH_FIELDS, _pack_sketch, _unpack_sketch
    ),
    ("sketchlearn-sketch", "private"): _Kind(
        PrivateSketch, _PRIVATE_FIELDS, _pack_private, _unpack_private
    ),
    ("sketchlearn-sketch", "test"): _Kind(
        PrivateSketch, _TEST_FIELDS, _pack_private, _unpack_private
    ),
    ("sketchlearn-map", ""): _Kind(
        AbstractFeatureMap, _MAP_FIELDS, _pack_map, _unpack_map
    ),
}
"""By the ``format`` and ``kind`` of a file; one more line makes one more kind."""
