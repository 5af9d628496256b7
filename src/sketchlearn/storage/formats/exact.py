"""Exact sketches in files, as sensitive as the rows that are in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.files.container import Contents, fail
from sketchlearn.sketching.lineage import parse_lineage
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

__all__ = ["ExactSketchFormat"]


@final
class ExactSketchFormat(AbstractFormat):
    """A total, a count, and what they are of."""

    stored, kinds = Sketch, ("exact",)
    format, fields = SKETCH_FIELDS["format"], SKETCH_FIELDS

    @override
    def pack(self, obj: Sketch) -> Contents:
        if not 0 <= obj.count < 2**63:
            fail(f"cannot hold a count of {obj.count} rows.")
        header = header_of(
            obj.features,
            kind="exact",
            pooling=obj.pooling,
            lineage=obj.lineage,
            columns=obj.columns,
        )
        count = np.array([obj.count], np.int64)
        tensors = {"count": count, "sum_hi": obj.total.hi, "sum_lo": obj.total.lo}
        return move_long_texts(header, tensors)

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Sketch:
        spec = features_of(fields, tensors)
        require_tensors(tensors, size=spec.sketch_size, counted=True)
        count = int(tensors["count"][0])
        sketch = Sketch(
            total=Int128Array(tensors["sum_hi"], tensors["sum_lo"]),
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
