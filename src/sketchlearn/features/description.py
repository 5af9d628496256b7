"""Descriptions of feature maps: plain values that a file can hold.

A description is JSON: kind, version and arguments of a map, arrays as text. It can be
read and compared without building the map; what it may hold is known to
:mod:`sketchlearn.features.registry`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.errors import FeatureMapError, quote
from sketchlearn.files.container import canonical_json

__all__ = [
    "VERSION",
    "decode_description",
    "description_digest",
    "encode_description",
    "first_difference",
]

VERSION = 2
"""Of the arithmetic of maps: 1 was floating point, 2 is whole numbers."""


def encode_description(value: Any) -> Any:
    """Replace arrays by JSON objects, recursively."""
    if isinstance(value, np.ndarray):
        if value.dtype == np.float64:
            with np.errstate(over="ignore"):
                narrow = value.astype(np.float32)
            value = narrow if (narrow == value).all() else value  # half the space
        little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<")))
        data = base64.b64encode(little.tobytes()).decode()
        return {"dtype": little.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, Mapping):
        return {str(key): encode_description(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_description(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode_description(value: Any) -> Any:
    """Undo :func:`encode_description`."""
    if isinstance(value, Mapping):
        if set(value) == {"dtype", "shape", "data"}:
            if value["dtype"] not in ("<f8", "<f4", "<i8", "|b1"):
                raise FeatureMapError(f"unknown array type {quote(value['dtype'])}.")
            data = base64.b64decode(value["data"], validate=True)
            raw = np.frombuffer(data, value["dtype"])
            return raw.reshape(value["shape"]).copy()
        return {key: decode_description(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_description(item) for item in value]
    return value


def description_digest(
    description: Mapping[str, Any],
    lattice: list[Any],
    weights: Mapping[str, NDArray[Any]],
) -> str:
    """SHA-256 over description, lattice and weights, as 64 hex digits."""
    digest = hashlib.sha256(canonical_json(description).encode())
    digest.update(canonical_json(lattice).encode())
    for name, array in sorted(weights.items()):
        if array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise FeatureMapError(f"weight {name!r} is not finite.")
            array = array + 0.0  # -0.0 becomes 0.0
        little = array.astype(array.dtype.newbyteorder("<"))
        head = [name, little.dtype.str.lstrip("<|="), list(array.shape)]
        digest.update(canonical_json(head).encode())
        digest.update(np.ascontiguousarray(little).tobytes())
    return digest.hexdigest()


def first_difference(
    left: Mapping[str, Any], right: Mapping[str, Any], prefix: str = ""
) -> str:
    """Name the first field in which two descriptions differ, with both values."""
    for key in sorted({*left, *right}, key=lambda key: (key != "kind", str(key))):
        a, b = left.get(key), right.get(key)
        if a == b:
            continue
        if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            a, b = dict(enumerate(a)), dict(enumerate(b))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            nested = first_difference(a, b, f"{prefix}{key}.")
            if nested:
                return nested
        if key == "data":
            return f"{prefix.rstrip('.')} values"
        return f"{prefix}{key} {quote(a)} vs {quote(b)}"
    return ""
