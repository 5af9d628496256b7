"""Peak memory of streaming a Parquet file, 2e7 x 16 rows against 1e6 x 16.

Each sketch runs in a process of its own; the difference of their peak resident sizes
must stay below 100 MB.

usage: python3 dev.py run benchmarks/memory.py [rows]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sketchlearn as sl

COLUMNS, SMALL = 16, 1_000_000


def write(path, rows):
    """Write rows in row groups of a million, without holding them all."""
    rng = np.random.default_rng(0)
    names = [f"f{i}" for i in range(COLUMNS)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, SMALL):
            size = min(SMALL, rows - start)
            block = rng.normal(size=(size, COLUMNS)).astype(np.float32)
            columns = dict(zip(names, block.T, strict=True))
            writer.write_table(pa.table(columns, schema=schema))


def measure(path):
    """Sketch one file and print its rows, seconds and peak megabytes."""
    start = time.perf_counter()
    phi = sl.FourierFeatures(COLUMNS, 200, scale=4.0)
    sketch = sl.sketch_rows(path, phi, progress=False)
    print(sketch.count, time.perf_counter() - start, peak_megabytes())


def peak_megabytes():
    """Peak resident size of this process (Linux; getrusage would count the parent)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("no VmHWM in /proc/self/status; run this on Linux.")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--measure":
        measure(sys.argv[2])
        return
    large = int(float(sys.argv[1])) if len(sys.argv) > 1 else 20_000_000
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (SMALL, large):
            path = Path(folder) / f"{rows}.parquet"
            write(path, rows)
            command = [sys.executable, __file__, "--measure", str(path)]
            found = subprocess.run(command, capture_output=True, text=True, check=True)
            count, seconds, peak = found.stdout.split()
            peaks.append(float(peak))
            size = path.stat().st_size / 1e6
            print(f"{int(count):>11,} rows, {size:7.0f} MB, {float(seconds):6.1f} s, ")
            print(f"            peak {peaks[-1]:.0f} MB")
    print(f"growth: {peaks[1] - peaks[0]:.0f} MB")


if __name__ == "__main__":
    main()
