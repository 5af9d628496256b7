"""Headers: what a file says of the features of a sketch, checked before it is used.

What is written keeps the words of the first version for ever; the code has plainer
ones, and this is where the two meet:

=================  ========================================================
in a file          in the code
=================  ========================================================
``feature_map``    ``FeatureSpec.fingerprint``, behind ``sha256:``
``description``    ``FeatureSpec.text``
``dim``            ``FeatureSpec.sketch_size``
``clip``           ``FeatureSpec.norm_bound``, empty for none
``privacy``        ``PrivateSketch.statement``, empty for an exact sketch
``kind``           ``exact``, ``counts`` (exact as well, packed), ``private`` or
                   ``test`` (of seeded noise)
``sum_hi, sum_lo`` ``total.hi, total.lo``, and ``count`` the number of rows
``version``        ``FeatureSpec.version``, or 3 for counts of maps of version 2; and
                   3 more if earlier libraries cannot read the lineage
=================  ========================================================

The other fields are called alike in both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchlearn.features.description import VERSION
from sketchlearn.features.registry import declare, is_known
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import (
    Contents,
    canonical_json,
    damaged,
    fail,
    parse_canonical,
    parse_json,
)
from sketchlearn.sketching.lineage import Lineage, format_lineage

__all__ = [
    "LONG_TEXTS",
    "MAP_FIELDS",
    "SKETCH_FIELDS",
    "Tensors",
    "columns_of",
    "features_of",
    "header_of",
    "move_long_texts",
    "parse_description",
    "require_layout",
    "require_tensors",
    "whole_text",
]

Tensors = Mapping[str, NDArray[Any]]

SIZE_LIMIT = 2**24
"""Most numbers of a sketch in a file, 256 MiB: checked before memory is taken."""

_HEX_FLOAT = r"0x[01]\.[0-9a-f]{13}p[+-][0-9]{1,4}"
"""A positive float64 as ``float.hex`` writes it."""

MAP_FIELDS = {
    "format": "sketchlearn-map",
    "version": f"[1-{VERSION}]",
    "feature_map": "sha256:[0-9a-f]{64}",
    "description": ".*",
}
"""Patterns of the fields of a map."""

SKETCH_FIELDS = {
    **MAP_FIELDS,
    "format": "sketchlearn-sketch",
    "kind": "exact",
    "n_features": "[1-9][0-9]{0,19}",
    "dim": "[1-9][0-9]{0,7}",
    "frac_bits": "0|-?[1-9][0-9]{0,3}",
    "rounding_bits": "0|-?[1-9][0-9]{0,3}",
    "value_bound": _HEX_FLOAT,
    "clip": f"({_HEX_FLOAT})?",
    "pooling": "[a-z0-9.:+-]{1,40}",
    "lineage": r"\*|[,:0-9a-f-]*",
    "privacy": "",
    "columns": r"(\[.*\])?",
}
"""Patterns of the fields of an exact sketch."""

LONG_TEXTS = {
    "description": ("description.json", 16 * 1024),
    "columns": ("columns.json", 4096),
    "lineage": ("lineage.txt", 256 * 33 + 1),
}
"""Fields that may crowd the header: beyond so many characters they are tensors of these
names. Part of the format: with other numbers the same sketch is other bytes."""


def header_of(
    spec: FeatureSpec,
    *,
    kind: str,
    pooling: str,
    lineage: Lineage | None,
    columns: tuple[str, ...] | None,
) -> dict[str, str]:
    """The fields of a sketch of any kind; those of a release lack their statement."""
    return {
        "format": SKETCH_FIELDS["format"],
        "version": str(spec.version),
        "kind": kind,
        "feature_map": f"sha256:{spec.fingerprint}",
        "description": spec.text,
        "n_features": str(spec.n_features),
        "dim": str(spec.sketch_size),
        "frac_bits": str(spec.frac_bits),
        "rounding_bits": str(spec.rounding_bits),
        "value_bound": spec.value_bound.hex(),
        "clip": "" if spec.norm_bound is None else spec.norm_bound.hex(),
        "pooling": pooling,
        "lineage": format_lineage(lineage),
        "privacy": "",
        "columns": "" if not columns else canonical_json(list(columns)),
    }


def features_of(fields: Mapping[str, str], tensors: Tensors) -> FeatureSpec:
    """What a header says of the features, if some map can have it."""
    size = int(fields["dim"])
    if size > SIZE_LIMIT:
        fail(f"holds {size} numbers; sketches have at most {SIZE_LIMIT}.")
    spec = FeatureSpec(
        text=whole_text("description", fields, tensors),
        fingerprint=fields["feature_map"].removeprefix("sha256:"),
        n_features=int(fields["n_features"]),
        sketch_size=size,
        frac_bits=int(fields["frac_bits"]),
        value_bound=float.fromhex(fields["value_bound"]),
        norm_bound=float.fromhex(fields["clip"]) if fields["clip"] else None,
        rounding_bits=int(fields["rounding_bits"]),
        version=int(fields["version"]),
    )
    _require_lattice(spec)
    if spec.text:
        _require_described(spec, parse_description(spec.text))
    return spec


def columns_of(
    fields: Mapping[str, str], tensors: Tensors, n_features: int
) -> tuple[str, ...] | None:
    """The names of the columns, one for each feature; None if they have none."""
    text = whole_text("columns", fields, tensors)
    if not text:
        return None
    names = parse_json(f'{{"columns":{text}}}', "column names")["columns"]
    plain = isinstance(names, list) and all(type(name) is str for name in names)
    if not plain or len(names) != n_features or canonical_json(names) != text:
        raise damaged("column names")
    return tuple(names)


def require_tensors(tensors: Tensors, *, size: int, counted: bool) -> None:
    """Refuse other tensors than a total of so many numbers, and maybe a count."""
    wanted = {"sum_hi": ("int64", (size,)), "sum_lo": ("uint64", (size,))}
    if counted:
        wanted["count"] = "int64", (1,)
    require_layout(tensors, wanted)


def require_layout(
    tensors: Tensors, wanted: Mapping[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Refuse other tensors, beside long texts, than these types and shapes."""
    texts = {name for name, _ in LONG_TEXTS.values()}
    found = {n: (str(a.dtype), a.shape) for n, a in tensors.items() if n not in texts}
    if found != wanted:
        fail("has the wrong tensors for a sketch; get the original file.")


def move_long_texts(metadata: Mapping[str, str], tensors: Tensors) -> Contents:
    """Move texts that would crowd the header into tensors."""
    fields, arrays = dict(metadata), dict(tensors)
    for field, (name, room) in LONG_TEXTS.items():
        text = fields.get(field, "")
        if len(canonical_json(text)) > room:
            arrays[name] = np.frombuffer(text.encode(), np.uint8)
            fields[field] = ""
    return fields, arrays


def whole_text(field: str, fields: Mapping[str, str], tensors: Tensors) -> str:
    """A text from the header, or from its tensor."""
    long_text = tensors.get(LONG_TEXTS[field][0], np.zeros(0, np.uint8))
    if long_text.dtype != np.uint8:
        raise damaged(field)
    return fields[field] or long_text.tobytes().decode("ascii", "replace")


def parse_description(text: str) -> dict[str, Any]:
    """The description of a map, written in the one way there is."""
    return parse_canonical(text, "description of the map")


def _require_lattice(spec: FeatureSpec) -> None:
    """Refuse bounds and lattices that no map has."""
    if not -1100 <= spec.rounding_bits <= spec.frac_bits <= 1200:
        fail(f"has frac_bits {spec.frac_bits}, beyond what floats can hold.")
    norm = 1.0 if spec.norm_bound is None else spec.norm_bound
    if not (0 < spec.value_bound < 1e301 and 0 < norm < float("inf")):
        fail("has bounds that no feature map has; it was forged.")
    coarse = spec.frac_bits < 0 and spec.rounding_bits < spec.frac_bits - 64
    if coarse or Fraction(spec.value_bound) * Fraction(2) ** spec.frac_bits < 1:
        fail("has a lattice coarser than its features; it was forged.")


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
