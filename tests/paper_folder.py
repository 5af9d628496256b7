"""A folder like the one the experiments read, with tiny made-up datasets."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SETS = [
    ("diabetes", "test", True, 4),
    ("hapmap31", "test", True, 24),
    ("simulated", "test", False, 5),
    ("hapmap1", "train", True, 24),
    ("vowel", "train", True, 6),
    ("wdbc", "train", True, 5),
]
CONFIG = """
task = "second-moment"
[data]
held_out = ["wdbc"]
[cpu.model]
inputs = "outer"
output = "symmetric"
decoder = { head = "tanh" }
[problem]
n_features = 24
episodes = 2
[cpu.train]
steps = 2
[nested.model]
nested = true
[nested.problem]
start_episodes = 40
[nested.train]
steps = 0
"""


def write_paper_folder(folder, *, splits=("train", "test")):
    """Write ``data`` and ``pca-sqnet.toml``; files of some splits only."""
    entries = []
    for seed, (name, split, real, width) in enumerate(SETS):
        rng = np.random.default_rng(seed)
        labels = rng.integers(3, size=90)
        rows = rng.normal(size=(90, 2)) @ rng.normal(size=(2, width)) + labels[:, None]
        rows += rng.normal(size=rows.shape)
        if name.startswith("hapmap"):
            rows = (rows > 0).astype(np.int8)
        file = folder / "data" / split / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = {f"f{i}": column for i, column in enumerate(rows.T)}
        if split in splits:
            pq.write_table(pa.table({**columns, "label": labels}), file)
        entry = {"name": name, "file": f"{split}/{name}.parquet", "split": split}
        entry |= {"rows": 90, "features": width, "real": real, "kind": "tabular"}
        entries.append(entry)
    manifest = json.dumps({"datasets": entries})
    (folder / "data" / "MANIFEST.json").write_text(manifest)
    (folder / "pca-sqnet.toml").write_text(CONFIG)
    return folder
