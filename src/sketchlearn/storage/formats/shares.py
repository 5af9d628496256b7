"""Shares in files: masked numbers, whose they are, and on which terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.files.container import Contents
from sketchlearn.parties.shares import Share
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.headers import (
    SKETCH_FIELDS,
    Tensors,
    columns_of,
    features_of,
    header_of,
    move_long_texts,
    require_layout,
)
from sketchlearn.storage.terms import SESSION_TEXT, session_of, session_text

__all__ = ["ShareFormat"]

_MASKED, _DOUBLE = "masked", "test"
"""Field ``kind``, by what the noise is."""

_NOT_SAID = ("pooling", "lineage", "privacy")
"""Fields of sketches that a share lacks."""


@final
class ShareFormat(AbstractFormat):
    """A masked total; one of seeded noise has a kind of its own."""

    stored, kinds, format = Share, (_MASKED, _DOUBLE), "sketchlearn-share"
    fields = {
        **{name: text for name, text in SKETCH_FIELDS.items() if name not in _NOT_SAID},
        "format": format,
        "kind": f"{_MASKED}|{_DOUBLE}",
        "party": "[A-Za-z0-9._-]{1,64}",
    }

    @override
    def pack(self, obj: Share) -> Contents:
        header = header_of(
            obj.features,
            kind=_DOUBLE if obj.seeded else _MASKED,
            pooling="mean",
            lineage=None,
            columns=obj.columns,
        )
        said = {name: text for name, text in header.items() if name not in _NOT_SAID}
        return move_long_texts(
            {**said, "format": self.format, "party": obj.party},
            {
                "masked_hi": obj.masked.hi,
                "masked_lo": obj.masked.lo,
                SESSION_TEXT: session_text(obj.session),
            },
        )

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Share:
        spec, session = features_of(fields, tensors), session_of(tensors)
        size = (spec.sketch_size + 1,)
        require_layout(
            tensors,
            {
                "masked_hi": ("int64", size),
                "masked_lo": ("uint64", size),
                SESSION_TEXT: ("uint8", tensors[SESSION_TEXT].shape),
            },
        )
        return Share(
            session=session,
            party=fields["party"],
            masked=Int128Array(tensors["masked_hi"], tensors["masked_lo"]),
            features=spec,
            columns=columns_of(fields, tensors, spec.n_features),
            seeded=fields["kind"] == _DOUBLE,
        )
