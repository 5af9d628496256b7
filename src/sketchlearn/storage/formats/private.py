"""Released sketches in files: noisy totals and the statement that goes with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.files.container import Contents, canonical_json, fail, parse_json
from sketchlearn.privacy.released import PrivateSketch
from sketchlearn.privacy.statement import PrivacyStatement
from sketchlearn.sketching.lineage import Lineage, parse_lineage
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.headers import (
    LONG_TEXTS,
    SKETCH_FIELDS,
    Tensors,
    columns_of,
    features_of,
    header_of,
    move_long_texts,
    require_tensors,
    whole_text,
)

__all__ = ["PrivateSketchFormat"]

_SECRET, _SEEDED = "private", "test"
"""Field ``kind``, by what the noise is."""


@final
class PrivateSketchFormat(AbstractFormat):
    """A noisy total and a statement; seeded noise has a kind of its own."""

    stored, kinds = PrivateSketch, (_SECRET, _SEEDED)
    format = SKETCH_FIELDS["format"]
    fields = {
        **SKETCH_FIELDS,
        "kind": f"{_SECRET}|{_SEEDED}",
        "pooling": "mean",
        "privacy": r"\{.*\}",
    }

    @override
    def pack(self, obj: PrivateSketch) -> Contents:
        statement = obj.statement
        inside = None if statement.lineage is None else Lineage.of(statement.lineage)
        header = header_of(
            obj.features,
            kind=_SEEDED if statement.seeded else _SECRET,
            pooling=obj.pooling,
            lineage=inside,
            columns=obj.columns,
        )
        total, count = obj.total, obj.noisy_count
        sums: dict[str, NDArray[Any]] = {"sum_hi": total.hi, "sum_lo": total.lo}
        if count is not None:
            sums["count"] = np.array([count], np.int64)
        fields, tensors = move_long_texts(header, sums)
        if LONG_TEXTS["lineage"][0] in tensors:  # too many, once or twice
            statement = replace(statement, lineage=None)
        return {**fields, "privacy": canonical_json(statement.describe())}, tensors

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> PrivateSketch:
        statement = PrivacyStatement.from_description(
            parse_json(fields["privacy"], "privacy statement")
        )
        spec = features_of(fields, tensors)
        joint = statement.count_mode == "joint"
        require_tensors(tensors, size=spec.sketch_size + joint, counted=not joint)
        if not statement.is_about(spec):
            fail(
                "has a privacy statement about another feature map, or promises more "
                "than its noise can keep; it was forged."
            )
        inside = parse_lineage(whole_text("lineage", fields, tensors))
        if inside is not None:
            names = tuple(inside)
            if any(len(name) != 32 for name in names):  # of releases, and no others
                fail("has a malformed lineage; get the original file.")
            statement = replace(statement, lineage=names)
        return PrivateSketch(
            total=Int128Array(tensors["sum_hi"], tensors["sum_lo"]),
            features=spec,
            statement=statement,
            noisy_count=None if joint else int(tensors["count"][0]),
            columns=columns_of(fields, tensors, spec.n_features),
        )
