"""Write the golden files of versions 2, 3, 5 and 6.

``PYTHONPATH=src python tests/golden/make_golden.py``. Files of a version that was
released are never written again: a library reads every version it ever wrote. Those of
version 1 (``golden.json``, ``v1``) cannot be, nor can ``count_sketch_v2.sketch``: the
sketch of ``count_sketch_v3.sketch`` as it was written before counts were packed.
``texts_sums_v3.sketch`` was written before keys had recipes.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np

from sketchlearn.engines.sketch_items import sketch_items
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.features.fourier import FourierFeatures
from sketchlearn.features.hashing import (
    BloomFeatures,
    CountMinFeatures,
    CountSketchFeatures,
)
from sketchlearn.features.nystrom import NystromFeatures
from sketchlearn.features.scaling import Scaling
from sketchlearn.rows.keys import ItemKey
from sketchlearn.sketching.lineage import Lineage
from sketchlearn.sketching.sketch import Sketch
from sketchlearn.storage.sketches import save

HERE = Path(__file__).parent
KEY = bytes(range(32))


def golden_objects():
    """Name of each golden file with its object and its key."""
    rows = np.arange(60, dtype=np.float64).reshape(20, 3) / 64
    scaling = Scaling.from_bounds([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    plain = FourierFeatures(n_features=3, sketch_size=16, seed=7)
    scaled = FourierFeatures(
        n_features=3, sketch_size=16, scale=0.5, law="adapted", seed=7, scaling=scaling
    )
    # Far apart, so that the kernel matrix is diagonal: the same root on any machine.
    marks = NystromFeatures([[0.0, 0.0, 0.0], [99.0, 0.0, 0.0], [0.0, 99.0, 0.0]])
    return {
        "fourier_v2.sketch": (_named(sketch_rows(rows, scaled), 1), None),
        "part_v2.sketch": (_named(sketch_rows(rows[:5], scaled), 2), None),
        "max_v2.sketch": (_named(sketch_rows(rows, plain, pooling="max"), 3), None),
        "nystrom_v2.sketch": (_named(sketch_rows(rows, marks), 4), None),
        "keyed_v2.sketch": (_named(sketch_rows(rows, plain), 5), KEY),
        "fourier_v2.map": (scaled, None),
        "nystrom_v2.map": (marks, None),
    }


def golden_counts():
    """The same of sketches that are packed."""
    rows = (np.arange(40)[:, None] * 7 % 11 == np.arange(11)).astype(np.float64)
    rows[:, 0] += 1
    sizes = {"width": 5, "depth": 3, "seed": 7}
    signed = sketch_rows(rows, CountSketchFeatures(11, **sizes))
    counts = sketch_rows(rows, CountMinFeatures(11, **sizes), pooling="sum")
    members = sketch_rows(rows[:4], BloomFeatures(11, **sizes), pooling="max")
    return {
        "count_sketch_v3.sketch": (_named(signed, 6), None),
        "count_min_v3.sketch": (_named(counts, 7), KEY),
        "bloom_v3.sketch": (_named(members, 8), None),
    }


WORDS = ["the", "cat", "and", "the", "dog", "and", "the", "bird"]
SECRET = ItemKey(bytes(range(16, 48)))


def golden_texts():
    """The same of texts, by the recipes of their keys."""
    sizes = {"width": 6, "depth": 3, "seed": 7}
    recipes = {
        "texts_sums_v3.sketch": {"key_recipe": "sums"},
        "texts_siphash_v3.sketch": {},
        "texts_secret_v3.sketch": {"key": SECRET},
    }
    return {
        name: (
            _named(sketch_items(WORDS, CountSketchFeatures(**sizes, **how)), 9),
            None,
        )
        for name, how in recipes.items()
    }


def golden_passes():
    """Sketches of many passes, of which intervals are written."""
    rows = np.arange(60, dtype=np.float64).reshape(20, 3) / 64
    plain = FourierFeatures(n_features=3, sketch_size=16, seed=7)
    run = f"{9:032x}"
    passes = {f"{run}{0:016x}:{70_000:016x}", f"-{10:032x}{3:016x}:{8:016x}"}
    job = {f"{11:032x}", f"-{11:032x}{2**63 + 1:016x}", f"-{12:032x}"}
    counts = CountMinFeatures(4, width=5, depth=3, seed=7)
    return {
        "passes_v5.sketch": (_with(sketch_rows(rows, plain), passes | job), None),
        "passes_v6.sketch": (_with(sketch_rows(np.eye(4), counts), passes), None),
    }


def main():
    """Write all files and, beside them, what is in them."""
    write(golden_objects(), "golden_v2.json")
    write(golden_counts(), "golden_v3.json")
    write(golden_texts(), "golden_texts.json")
    write(golden_passes(), "golden_v6.json")


def write(objects, facts_name):
    """Write objects to files of their names, and what is in them to another."""
    facts = {}
    for name, (obj, key) in objects.items():
        save(obj, HERE / name, key=key, key_id="golden" if key else "")
        (HERE / name).chmod(0o644)
        facts[name] = {
            "sha256": hashlib.sha256((HERE / name).read_bytes()).hexdigest(),
            "key": key.hex() if key else None,
            **_facts(obj),
        }
    (HERE / facts_name).write_text(json.dumps(facts, indent=1) + "\n")


def _named(sketch, number):
    return _with(sketch, {f"{number:032x}"})


def _with(sketch, lineage):
    return dataclasses.replace(sketch, lineage=Lineage.of(lineage))


def _facts(obj):
    if not isinstance(obj, Sketch):
        rows = [[0.0, 0.25, 0.5], [1.0, 0.75, -0.5]]
        values = obj(np.array(rows)).astype(float).tolist()
        return {"fingerprint": obj.fingerprint, "rows": rows, "values": values}
    return {
        "digest": obj.digest,
        "count": obj.count,
        "pooling": obj.pooling,
        "lineage": sorted(obj.lineage),
        "fingerprint": obj.features.fingerprint,
        "total": obj.total.to_ints(),
        "pooled": obj.pooled.tolist(),
    }


if __name__ == "__main__":
    main()
