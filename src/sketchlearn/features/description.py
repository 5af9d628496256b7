"""Descriptions of feature maps: plain values that a file can hold.

A description is JSON: kind, version and arguments of a map, arrays as text. It can be
read, compared and bounded in size without building the map.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchlearn.errors import FeatureMapError

__all__ = [
    "decode_description",
    "encode_description",
    "first_difference",
    "holds_data",
    "require_small",
]


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
                raise FeatureMapError(f"unknown array type {value['dtype']!r}.")
            raw = np.frombuffer(base64.b64decode(value["data"]), value["dtype"])
            return raw.reshape(value["shape"]).copy()
        return {key: decode_description(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode_description(item) for item in value]
    return value


def first_difference(
    left: Mapping[str, Any], right: Mapping[str, Any], prefix: str = ""
) -> str:
    """Name the first field in which two descriptions differ, with both values."""
    for key in sorted({*left, *right}, key=lambda key: (key != "kind", key)):
        a, b = left.get(key), right.get(key)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            nested = first_difference(a, b, f"{prefix}{key}.")
            if nested:
                return nested
        if key == "data":
            return f"{prefix.rstrip('.')} values"
        return f"{prefix}{key} {a!r} vs {b!r}"
    return ""


def holds_data(node: Any) -> bool:
    """Whether some part of a description was read from rows."""
    if isinstance(node, Mapping):
        if node.get("origin") == "data" or node.get("kind") == "nystrom":
            return True
        return any(holds_data(child) for child in node.values())
    return isinstance(node, list) and any(holds_data(child) for child in node)


def require_small(node: Any, max_bytes: int) -> None:
    """Refuse sizes whose weights (``n_features`` by another) would fill memory."""
    if isinstance(node, Mapping):
        sizes = {k: v for k, v in node.items() if type(v) is int and k != "seed"}
        d, m = sizes.get("n_features", 1), sizes.get("sketch_size", 1)
        pairs = d * d // 2 if node.get("order") == "covariance" else 1
        if node.get("law") == "gaussian" and node.get("kind") == "quadratic":
            pairs = d * d // 2 * m
        columns = max(m, sizes.get("depth", 1), sizes.get("n_columns", 1))
        buckets = sizes.get("width", 1) * sizes.get("depth", 1)
        n_in, n_out = sizes.get("n_inputs", 1), sizes.get("n_outputs", 1)
        wide = sizes.get("width", 0) if "n_inputs" in sizes else 0
        hidden = n_in + n_out + 2 * sizes.get("depth", 0) * wide
        layers = hidden * wide if wide else n_in * n_out
        largest = 8 * max(columns * d, pairs, buckets, layers, *sizes.values(), 1)
        if largest > max_bytes:
            raise FeatureMapError(
                f"this describes a feature map of about {largest} bytes. If you trust "
                f"it, load it with a max_bytes= larger than {max_bytes}."
            )
    for child in node.values() if isinstance(node, Mapping) else node:
        if isinstance(child, Mapping | list):
            require_small(child, max_bytes)
