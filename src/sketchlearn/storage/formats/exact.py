"""Exact sketches in files, as sensitive as the rows that are in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.features.spec import FeatureSpec
from sketchlearn.files.container import Contents, fail
from sketchlearn.sketching.counts import counts_of
from sketchlearn.sketching.lineage import MOST_LISTED, parse_lineage
from sketchlearn.sketching.pooling.by_name import get_pooling
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.headers import (
    SKETCH_FIELDS,
    Tensors,
    columns_of,
    features_of,
    header_of,
    move_long_texts,
    require_tensors,
    whole_text,
)

__all__ = ["ExactSketchFormat", "exact_contents", "exact_sketch"]

_LATER = 3
"""Added to the version of a file whose lineage earlier libraries cannot read."""


@final
class ExactSketchFormat(AbstractFormat):
    """A total, a count, and what they are of.

    Counts were written so until version 2, and are read so for ever.
    """

    stored, kinds = Sketch, ("exact",)
    format = SKETCH_FIELDS["format"]
    fields = {**SKETCH_FIELDS, "version": "[1245]"}

    @override
    def takes(self, obj: Any) -> bool:
        if not isinstance(obj, Sketch):
            return False
        return counts_of(obj.total, obj.features, obj.pooling) is None

    @override
    def pack(self, obj: Sketch) -> Contents:
        sums = {"sum_hi": obj.total.hi, "sum_lo": obj.total.lo}
        version = obj.features.version
        return move_long_texts(*exact_contents(obj, "exact", version, sums))

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Sketch:
        version = int(fields["version"])
        plain = version - _LATER if version > _LATER else version
        spec = features_of({**fields, "version": str(plain)}, tensors)
        require_tensors(tensors, size=spec.sketch_size, counted=True)
        total = Int128Array(tensors["sum_hi"], tensors["sum_lo"])
        return exact_sketch(total, spec, fields, tensors)


def exact_contents(
    sketch: Sketch, kind: str, version: int, sums: Mapping[str, NDArray[Any]]
) -> Contents:
    """Header and tensors of an exact sketch whose total is in these tensors."""
    if not 0 <= sketch.count < 2**63:
        fail(f"cannot hold a count of {sketch.count} rows.")
    header = header_of(
        sketch.features,
        kind=kind,
        pooling=sketch.pooling,
        lineage=sketch.lineage,
        columns=sketch.columns,
    )
    inside = header["lineage"]  # single runs and parts, and few of them, at first
    is_plain = ":" not in inside and inside.count(",") < MOST_LISTED
    header["version"] = str(version if is_plain else version + _LATER)
    return header, {"count": np.array([sketch.count], np.int64), **sums}


def exact_sketch(
    total: Int128Array, spec: FeatureSpec, fields: Mapping[str, str], tensors: Tensors
) -> Sketch:
    """The sketch of a total and of what its file says of it, if rows can have it."""
    count = int(tensors["count"][0])
    sketch = Sketch(
        total=total,
        count=count,
        features=spec,
        lineage=parse_lineage(whole_text("lineage", fields, tensors)),
        pooling=get_pooling(fields["pooling"]).name,
        columns=columns_of(fields, tensors, spec.n_features),
    )
    if count < 0 or not sketch.is_possible:
        fail(
            f"is not a possible sketch: {count} rows within its bounds cannot have "
            "this total. It was forged or made with a bug; sketch the rows again."
        )
    return sketch
