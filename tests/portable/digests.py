"""Digests of all maps, of all forms of some rows, and of forgetting, as JSON.

Run as a script this prints what one process finds: ``PYTHONPATH=src:tests python
tests/portable/digests.py``. Only the digests in ``golden`` are kept; the others say
what must be equal, whatever it is.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
from threadpoolctl import threadpool_info

from portable.maps import NAMES, exact_rows, feature_map, golden_rows
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.clipping import clipped
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.hashing import BloomFeatures, CountMinFeatures
from sketchlearn.features.moments import MomentFeatures
from sketchlearn.features.quadratic import QuadraticFeatures

__all__ = ["all_digests", "forget_digests", "form_digests", "golden_digests"]


def golden_digests() -> dict[str, dict[str, str]]:
    """Fingerprint of each map and digest of its rows."""
    return {
        name: {
            "fingerprint": feature_map(name).fingerprint,
            "digest": sketch_rows(golden_rows(name), feature_map(name)).digest,
        }
        for name in NAMES
    }


def form_digests() -> dict[str, dict[str, str]]:
    """For some maps, the digests of the same rows in many forms."""
    real = exact_rows(5000, 4, 71, 2.0, bits=12)
    whole = np.floor(real * 4)
    present = (real > 0).astype(np.float64)
    maps = {
        "fourier": FourierFeatures(4, 20, seed=3),
        "moments": MomentFeatures(4),
        "quadratic": QuadraticFeatures(4, 5, law="unit"),
        "clipped": clipped(FourierFeatures(4, 20, seed=3), norm_bound=1.0),
    }
    hashes = {
        "count-min": CountMinFeatures(4, width=3, depth=2),
        "bloom": BloomFeatures(4, width=3, depth=2),
    }
    found = {}
    for name, phi in maps.items():
        found[f"{name}, real"] = _digests(phi, _real_forms(real))
        found[f"{name}, whole"] = _digests(phi, _whole_forms(whole))
    for name, phi in {**maps, **hashes}.items():
        found[f"{name}, present"] = _digests(phi, _binary_forms(present))
    return found


def forget_digests() -> dict[str, dict[str, list[str]]]:
    """For each map: rows left after forgetting one, and never having seen it."""
    found = {}
    for name in NAMES:
        phi, rows = feature_map(name), golden_rows(name)[:60]
        whole = sketch_rows(rows, phi)
        for k in (0, 31, 59):
            others = np.delete(rows, k, axis=0)
            alone = sketch_rows(rows[k : k + 1], phi)
            never = sketch_rows(others, phi)
            inside = phi.batch_sum(rows) - phi.batch_sum(others)
            found[f"{name}, row {k}"] = {
                "left": [(whole - alone).digest, never.digest],
                "row": [str(alone.total.to_ints()), str(inside.to_ints())],
            }
    return found


def all_digests() -> dict[str, Any]:
    """Everything that one process finds."""
    return {
        "kernels": [library.get("architecture") for library in threadpool_info()],
        "golden": golden_digests(),
        "forms": form_digests(),
        "forget": forget_digests(),
    }


def _digests(phi, forms: Iterator[tuple[str, Any]]) -> dict[str, str]:
    return {form: sketch_rows(rows, phi).digest for form, rows in forms}


def _real_forms(rows: np.ndarray) -> Iterator[tuple[str, Any]]:
    names, single = list("abcd"), rows.astype(np.float32)
    assert (single == rows).all()
    yield "float64", rows
    yield "float32", single
    yield "big-endian", rows.astype(">f8")
    yield "long double", rows.astype(np.longdouble)
    yield "Fortran order", np.asfortranarray(rows)
    yield "single Fortran order", np.asfortranarray(single)
    yield "strided", np.repeat(np.repeat(rows, 2, axis=0), 3, axis=1)[::2, ::3]
    yield "backwards in memory", rows[::-1, ::-1].copy()[::-1, ::-1]
    frozen = rows.copy()
    frozen.flags.writeable = False
    yield "read-only", frozen
    unaligned = np.empty(rows.nbytes + 1, np.uint8)[1:].view(np.float64)
    unaligned = unaligned.reshape(rows.shape)
    unaligned[:] = rows
    yield "unaligned", unaligned
    yield "reversed order", rows[::-1]
    yield "lists", rows.tolist()
    for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
        yield kind.__name__, kind(rows)
    yield "pandas", pd.DataFrame(rows, columns=names)
    mixed = {n: (rows if i % 2 else single)[:, i] for i, n in enumerate(names)}
    yield "pandas, two types", pd.DataFrame(mixed)
    yield "polars", pl.DataFrame(rows, schema=names)
    yield "lazy polars", pl.DataFrame(single, schema=names).lazy()
    table = pa.table({name: rows[:, i] for i, name in enumerate(names)})
    yield "Arrow", table
    cuts = [(0, 1), (1, 700), (700, 3000), (3000, 5000)]
    yield "chunks", pa.concat_tables([table.slice(a, b - a) for a, b in cuts])
    yield "reader", table.to_reader(max_chunksize=333)
    for size in (1, 7, 512, 4097, 10_000):
        starts = range(0, len(rows), size)
        yield f"batches of {size}", (rows[i : i + size] for i in starts)
    order = np.argsort(rows[:, 0], kind="stable")
    yield "sorted", rows[order]


def _whole_forms(rows: np.ndarray) -> Iterator[tuple[str, Any]]:
    for kind in ("f8", "f4", "f2", "i1", "i2", "i4", "i8", ">i4"):
        yield kind, rows.astype(kind)
    yield "Fortran order", np.asfortranarray(rows.astype(np.int16))
    frame = pd.DataFrame(rows.astype(np.int64), columns=list("abcd"))
    yield "pandas", frame
    yield "nullable", frame.astype("Int32")
    yield "polars", pl.DataFrame(rows.astype(np.int8), schema=list("abcd"))
    yield "sparse", sp.csr_array(rows.astype(np.int32))
    yield "lists", rows.astype(int).tolist()


def _binary_forms(rows: np.ndarray) -> Iterator[tuple[str, Any]]:
    for kind in ("f8", "f4", "?", "u1", "u8", "i1"):
        yield kind, rows.astype(kind)
    yield "pandas", pd.DataFrame(rows.astype(bool), columns=list("abcd"))
    yield "polars", pl.DataFrame(rows.astype(bool), schema=list("abcd"))
    yield "sparse", sp.csr_array(rows.astype(bool))
    yield "lists", rows.astype(bool).tolist()


if __name__ == "__main__":
    json.dump(all_digests(), sys.stdout)
