"""Ids per second into a Count-Min table, against `datasketches`, and memory.

* speed: the same stream of ids through `sketch_items` and through `datasketches`'
  `count_min_sketch.update`, its only way in, from a Python loop: five tables of 16,384
  counters (and of 20,000, no power of two) each. Ids come as a list of texts, a list of
  integers, a NumPy array, an Arrow array of texts and a Parquet column of texts; the
  loop is over `tolist()` or `to_pylist()` of the last three, which is part of its time.
  Streams: Zipf (alpha = 1.1 over 1e6 items), and ids that are all different. The two
  take turns in one process, several times over, on the same ids; each one's time is its
  best: of the processor in one thread, where neighbours on a busy machine take no part
  of it, and of the clock in all threads;
* memory: 1e6 items, Zipf, 1e6 / 1e7 / 1e8 events drawn on the fly, as integers, and as
  texts in Arrow arrays: peak resident size, each in a process of its own.

Targets: >= 5 times the ids per second from texts and from integers; memory flat in N.

usage: python3 dev.py run benchmarks/ingest.py [ids]
       python3 dev.py run benchmarks/ingest.py --memory [events]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import datasketches
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import sketchlearn as sl

N_ITEMS, ALPHA, DEPTH = 1_000_000, 1.1, 5
WIDTHS = (16_384, 20_000)
TURNS = 4
BATCH = 1 << 18


def zipf_steps():
    """Cumulated probabilities of the items."""
    law = np.arange(1, N_ITEMS + 1) ** -ALPHA
    return np.cumsum(law / law.sum())


def draw(steps, rng, count):
    return np.minimum(np.searchsorted(steps, rng.random(count)), N_ITEMS - 1)


def forms(ids, folder):
    """The same stream as people have it: ours to sketch, and theirs to loop over."""
    texts = [f"item-{number}" for number in ids.tolist()]
    arrow = pa.array(texts)
    path, numbers = Path(folder) / "ids.parquet", ids.tolist()
    pq.write_table(pa.table({"id": arrow}), path)
    return {
        "list of texts": (texts, lambda: texts),
        "list of integers": (numbers, lambda: numbers),
        "NumPy integers": (ids, ids.tolist),
        "Arrow texts": (arrow, arrow.to_pylist),
        "Parquet texts": (path, lambda: pq.read_table(path)["id"].to_pylist()),
    }


def loop(ids, width):
    update = datasketches.count_min_sketch(DEPTH, width).update
    for one in ids():
        update(one)


def seconds(work):
    """Of the clock, and of the processor."""
    start, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - busy


def compare(name, data, theirs, width, count):
    """Print what an id costs both, and the ratios in one thread and in all."""
    phi = sl.CountMinFeatures(width=width, depth=DEPTH, row_items=1)
    column = "id" if isinstance(data, Path) else None
    times = []
    for _ in range(TURNS):
        looped = seconds(lambda: loop(theirs, width))
        with threadpool_limits(1):
            one = seconds(lambda: sl.sketch_items(data, phi, column=column))
        several = seconds(lambda: sl.sketch_items(data, phi, column=column))
        times.append((*looped, one[1], several[0]))
    clock, busy, one, several = np.min(times, axis=0) / count * 1e9
    print(
        f"  {name:18} {busy:6.0f} ns an id, ours {one:6.0f} ns: {busy / one:6.1f} x in "
        f"one thread {clock / several:6.1f} x"
    )


def speed(count):
    rng = np.random.default_rng(0)
    streams = {
        "Zipf": draw(zipf_steps(), rng, count),
        "all different": rng.permutation(count),
    }
    with tempfile.TemporaryDirectory() as folder:
        for stream, ids in streams.items():
            inputs = forms(ids, folder)
            for width in WIDTHS:
                print(f"{stream}, {count:,} ids, {DEPTH} x {width:,} counters:")
                for name, (data, theirs) in inputs.items():
                    compare(name, data, theirs, width, count)


def events(count, as_texts):
    """Batches of a stream that is never held."""
    rng, steps = np.random.default_rng(0), zipf_steps()
    names = pa.array([f"item-{number}" for number in range(N_ITEMS)])
    for start in range(0, count, BATCH):
        ids = draw(steps, rng, min(BATCH, count - start))
        yield names.take(pa.array(ids)) if as_texts else ids


def measure(count, as_texts):
    """Sketch one stream; print its rows, seconds and peak megabytes."""
    phi = sl.CountSketchFeatures(width=20_000, depth=DEPTH, row_items=1)
    start = time.perf_counter()
    sketch = sl.sketch_items(events(count, as_texts), phi, progress=False)
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in status if line.startswith("VmHWM:"))
    print(sketch.count, time.perf_counter() - start, int(peak.split()[1]) / 1024)


def memory(largest):
    for kind, limit in (("integers", largest), ("texts", largest // 10)):
        for count in (10**6, 10**7, 10**8):
            if count > limit:
                continue
            command = [sys.executable, __file__, "--measure", str(count), kind]
            found = subprocess.run(command, capture_output=True, text=True, check=True)
            rows, taken, peak = found.stdout.split()
            print(
                f"{kind:9} {int(rows):>12,} events {float(taken):7.1f} s, drawing "
                f"included; peak {float(peak):.0f} MB"
            )


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--measure"]:
        measure(int(arguments[1]), arguments[2] == "texts")
    elif arguments[:1] == ["--memory"]:
        memory(int(float(arguments[1])) if len(arguments) > 1 else 10**8)
    else:
        speed(int(float(arguments[0])) if arguments else 1_000_000)


if __name__ == "__main__":
    main()
