r"""Exact sketches of items in files: counts of a few bits instead of 128.

A file of version 3 or 6 has the fields of an exact sketch and three more, and one
tensor ``counts`` (U8) instead of ``sum_hi`` and ``sum_lo``. Number ``i`` of the total
is

.. math:: 2^{shift}\,(least + n_i), \qquad
    n_i = \lfloor c / 2^{bits\, i} \rfloor \bmod 2^{bits},

with :math:`c` the bytes of ``counts`` read as one whole number, least byte first; the
bits after the last number are 0. Totals that are counts
(:mod:`sketchlearn.sketching.counts`) are always written so, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from typing_extensions import override

from sketchlearn.arithmetic.exact import Int128Array
from sketchlearn.arithmetic.packing import (
    PackedInts,
    pack_ints,
    packed_bytes,
    unpack_ints,
)
from sketchlearn.files.container import Contents, fail
from sketchlearn.sketching.counts import COUNTED_VERSION, counts_of, unit_bits
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.formats.base import AbstractFormat
from sketchlearn.storage.formats.exact import exact_contents, exact_sketch
from sketchlearn.storage.headers import (
    SKETCH_FIELDS,
    Tensors,
    features_of,
    move_long_texts,
    require_layout,
)

__all__ = ["CountsFormat"]


@final
class CountsFormat(AbstractFormat):
    """Counts of items, packed, and the number of rows."""

    stored, kinds = Sketch, ("counts",)
    format = SKETCH_FIELDS["format"]
    fields = {
        **SKETCH_FIELDS,
        "version": "[36]",
        "kind": "counts",
        "bits": "[1-9]|[1-5][0-9]|6[0-4]",
        "least": "0|-?[1-9][0-9]{0,18}",
        "shift": "0|[1-9][0-9]{0,3}",
    }

    @override
    def takes(self, obj: Any) -> bool:
        if not isinstance(obj, Sketch):
            return False
        return counts_of(obj.total, obj.features, obj.pooling) is not None

    @override
    def pack(self, obj: Sketch) -> Contents:
        counts = counts_of(obj.total, obj.features, obj.pooling)
        if counts is None:
            fail("holds counts of a map that counts nothing; it was forged.")
        packed = pack_ints(counts)
        header, tensors = exact_contents(obj, "counts", 3, {"counts": packed.data})
        header |= {
            "bits": str(packed.bits),
            "least": str(packed.least),
            "shift": str(unit_bits(obj.features, obj.pooling)),
        }
        return move_long_texts(header, tensors)

    @override
    def unpack(
        self, fields: Mapping[str, str], tensors: Tensors, max_bytes: int
    ) -> Sketch:
        spec = features_of({**fields, "version": str(COUNTED_VERSION)}, tensors)
        size, bits = spec.sketch_size, int(fields["bits"])
        n_bytes = packed_bytes(size, bits)
        wanted = {"count": ("int64", (1,)), "counts": ("uint8", (n_bytes,))}
        require_layout(tensors, wanted)
        if 16 * size > max_bytes:
            fail(
                f"takes more than max_bytes when unpacked: {16 * size} bytes, "
                f"{max_bytes} allowed."
            )
        shift = unit_bits(spec, fields["pooling"])
        if str(shift) != fields["shift"]:
            fail("counts in other units than its map; it was forged.")
        packed = PackedInts(int(fields["least"]), bits, tensors["counts"])
        counts = Int128Array.from_int64(unpack_ints(packed, size))
        return exact_sketch(counts.shifted(int(fields["shift"])), spec, fields, tensors)
