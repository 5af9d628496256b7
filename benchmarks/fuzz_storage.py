"""Forged files against the reader: no foreign error, no hang, no memory bomb, no tear.

Files are changed by their structure (fields of headers, values in descriptions, types
and shapes of tensors, numbers in them) and signed anew, so that they pass the checksum.
Whatever they hold, ``load`` gives an object or ``SketchFileError``; what is accepted is
written back as the same bytes (counts of version 2: packed) and can be used: inspected,
merged, evaluated, decoded, or refused by an error of ours. Each worker has a limit on
its memory and on the time of each case. One JSON line per attack; the exit code is 1 if
one broke something.

usage: python3 dev.py run benchmarks/fuzz_storage.py [--cases N] [--kills N] [--seed N]
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
from bombs import bombs, call_bombs, count_bombs, statement_bombs, weights_bombs
from forgery import (
    MAP_BYTES,
    forge,
    forge_total,
    make_counts,
    make_maps,
    make_old,
    make_parties,
    make_private,
    make_sketches,
    old_counts,
)
from weights_kinds import USES, forge_everywhere, make_weights

import sketchlearn as sl
from sketchlearn import cli
from sketchlearn.errors import SketchFileError, SketchlearnError
from sketchlearn.files import weights
from sketchlearn.files.container import encode
from sketchlearn.storage.formats.exact import ExactSketchFormat

ROOM = 2**30
"""Bytes a worker may take beyond what it has when it starts."""

SECONDS = 120
"""A case that takes longer hangs, however busy the machine is."""

CHUNK = 500

KEY = sl.PartyKey(bytes(32))


# What must hold.


class Broken(Exception):
    """Something happened that must not happen to any file."""


def ours(call):
    """The value of a call, or None where it ends in an error of ours."""
    try:
        return call()
    except SketchlearnError:
        return None


def check_file(data, folder):
    """A file is refused, or is what save would write and can be used."""
    try:
        found = sl.loads(data, max_bytes=MAP_BYTES)
    except SketchFileError as error:
        require_readable(str(error))
        return False
    if sl.dumps(found) != data and not is_older(found, data):
        raise Broken("accepted bytes that save would not write")
    repr(found)
    path = Path(folder, "case.sketch")
    path.write_bytes(data)
    inspect(path)
    if isinstance(found, sl.AbstractFeatureMap):
        if found.n_features < 10**5:
            ours(lambda: found(np.zeros((1, found.n_features))))
            ours(lambda: sl.sketch_rows(np.zeros((2, found.n_features)), found))
        return True
    if isinstance(found, sl.Session):
        ours(lambda: (found.digest, found.renewed(), found.party_of(KEY)))
        return True
    if isinstance(found, sl.Share):
        ours(lambda: sl.combine([found]))
        return True
    ours(lambda: found.feature_map)
    ours(lambda: found.with_map(sl.FourierFeatures(3, 8)))
    ours(lambda: (found.count, found.features.origin))
    if isinstance(found, sl.Sketch):
        found._repr_html_()
        ours(lambda: found.pooled)
        ours(lambda: found.packed_bytes)
        ours(lambda: found + found)
        ours(lambda: found - found)
    else:
        ours(lambda: found.read_mean(allow_noisy=True))
        ours(lambda: found.noise_std)
    return True


def is_older(found, data):
    """Whether counts are written as they were before they were packed."""
    if not isinstance(found, sl.Sketch) or sl.loads(sl.dumps(found)) != found:
        return False
    return encode(ExactSketchFormat().pack(found), None, "") == data


def inspect(path):
    """The command line says what a file holds, or why not, in plain letters."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main(["inspect", str(path)], standalone_mode=False)
        except SystemExit as stop:
            if stop.code != 1:
                raise Broken(f"inspect ended with code {stop.code}") from stop
    require_readable(err.getvalue())
    if not out.getvalue().replace("\n", "").isprintable():
        raise Broken("inspect printed what is not printable")


def require_readable(message):
    if len(message) > 1000 or not message.replace("\n", "").isprintable():
        raise Broken(f"an error of {len(message)} characters: {message[:200]!a}")


def check_weights(data, folder):
    """A weights file is refused, or is a model that is written back and of use."""
    path = Path(folder, "case.safetensors")
    path.write_bytes(data)
    tracemalloc.start()
    try:
        model = sl.load_model(path)
    except SketchlearnError as error:
        require_readable(str(error))
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if peak > 12 * len(data) + 4 * 2**20:
            raise Broken(f"a file of {len(data)} bytes took {peak}")
    found = weights.load_weights(path)
    written = model.to_weights(found.card)
    again = type(model).from_weights(written).to_weights(found.card)
    told = {name: written.spec.get(name) for name in found.spec}
    if told != found.spec or again.digest != written.digest:
        raise Broken("a model is not written back as it was read")
    if weights.tensors_digest(found.tensors) != weights.tensors_digest(written.tensors):
        raise Broken("a model is written back with other tensors")
    ours(lambda: USES[found.kind](model, path))
    return True


def check_models(data, folder):
    """Every estimator decodes a file that loads, or refuses it by an error of ours."""
    found = ours(lambda: sl.loads(data, max_bytes=MAP_BYTES))
    if found is None or isinstance(found, sl.AbstractFeatureMap):
        return False
    for model in (
        sl.CompressivePCA(2),
        sl.CompressiveRidge(),
        sl.CompressiveKMeans(2, random_state=0),
        sl.CompressiveGaussianMixture(2, random_state=0),
    ):
        ours(lambda model=model: model.fit_sketch(found))
    classifier = sl.CompressiveClassifier(random_state=0)
    ours(lambda: classifier.fit_sketches({0: found, 1: found}))
    return True


# Attacks.


def unchanged(data, rng):
    """A file that is forged already."""
    return data


def attack(name, change, check, bases, cases, seed):
    """Run forged files through a check, in workers that have limits."""
    start, first = time.perf_counter(), 0
    report = {"attack": name, "trials": cases, "breaks": 0, "accepted": 0, "slowest": 0}
    while first < cases:
        count = min(CHUNK, cases - first)
        done, result = run_chunk(change, check, bases, seed, first, count)
        for key in ("breaks", "accepted"):
            report[key] += result[key]
        report["slowest"] = max(report["slowest"], round(result["slowest"], 2))
        for message in result["messages"][:5]:
            print(f"{name}: {message}", file=sys.stderr, flush=True)
        first += done
    report["seconds"] = round(time.perf_counter() - start)
    print(json.dumps(report), flush=True)
    return report["breaks"]


def run_chunk(change, check, bases, seed, first, count):
    """Cases done by one worker and what came out; a worker that dies is a break."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, change, check, bases, seed, first, count)
    process = context.Process(target=work, args=arguments)
    process.start()
    sender.close()
    done, result = 0, {"breaks": 0, "accepted": 0, "slowest": 0.0, "messages": []}
    try:
        while True:
            done, result = receiver.recv()
    except EOFError:
        pass
    process.join()
    if done < count:
        result["breaks"] += 1
        message = f"case {first + done}: the worker ended with {process.exitcode}"
        result["messages"].append(message)
        done += 1
    return done, result


def work(sender, change, check, bases, seed, first, count):
    """The cases of a worker, each with an alarm that ends it."""
    limit_memory()
    warnings.simplefilter("ignore")
    result = {"breaks": 0, "accepted": 0, "slowest": 0.0, "messages": []}
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            rng = random.Random(f"{seed}:{first + index}")
            data = change(bases[(first + index) % len(bases)], rng)
            start = time.perf_counter()
            signal.alarm(SECONDS)
            try:
                result["accepted"] += check(data, folder)
            except Exception as error:
                result["breaks"] += 1
                frames = [
                    f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
                    for frame in traceback.extract_tb(error.__traceback__)
                    if "sketchlearn" in frame.filename
                ]
                where = " < ".join(frames[:-4:-1])
                message = f"{type(error).__name__} {str(error)[:150]!a} in {where}"
                result["messages"].append(f"case {first + index}: {message}")
            signal.alarm(0)
            result["slowest"] = max(result["slowest"], time.perf_counter() - start)
            sender.send((index + 1, result))


def limit_memory(room=ROOM):
    """Let this process take no more than ``room`` beyond what it has."""
    status = Path("/proc/self/statm")
    if status.exists():  # on Linux; elsewhere the limit is not kept anyway
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


def attack_bombs():
    """Each bomb is refused, at once and without memory, with default limits."""
    files = bombs() | count_bombs() | statement_bombs()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bomb.safetensors")
        broken = [
            *(
                explode("bombs", n, len(d), partial(sl.loads, d))
                for n, d in files.items()
            ),
            *(
                explode("weights", name, len(data), partial(load_bytes, data, path))
                for name, data in weights_bombs().items()
            ),
        ]
    report = {"attack": "bombs", "trials": len(broken), "breaks": sum(broken)}
    print(json.dumps(report), flush=True)
    return sum(broken)


def load_bytes(data, path):
    path.write_bytes(data)
    return sl.load_model(path)


def explode(attack, name, size, call):
    """Whether a call does anything but refuse, within the size of its file and 4 MB."""
    tracemalloc.start()
    try:
        call()
        problem = "was taken"
    except SketchlearnError:
        problem = ""
    except BaseException as error:
        problem = f"{type(error).__name__} {str(error)[:100]!a}"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    if peak > 2 * size + 4 * 2**20:
        problem += f" with {peak} bytes"
    if problem:
        print(f"{attack}: {name}: {problem}", file=sys.stderr, flush=True)
    return bool(problem)


def attack_calls():
    """Calls with huge sizes are refused, by processes that may take 256 MB more."""
    calls, broken, most = call_bombs(), 0, 0
    context = multiprocessing.get_context("fork")
    for name, call in calls.items():
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=call_limited, args=(sender, call))
        process.start()
        sender.close()
        try:
            problem, taken = receiver.recv()
        except EOFError:
            problem, taken = "died", 0
        process.join()
        most = max(most, taken)
        if problem:
            broken += 1
            print(f"calls: {name}: {problem}", file=sys.stderr, flush=True)
    report = {"attack": "calls", "trials": len(calls), "breaks": broken}
    print(json.dumps({**report, "most_bytes": most}), flush=True)
    return broken


def call_limited(sender, call):
    """Say what a call ends in, and how much memory it took."""
    limit_memory(2**28)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        call()
        problem = "was taken"
    except SketchlearnError:
        problem = ""
    except BaseException as error:
        problem = f"{type(error).__name__} {str(error)[:100]!a}"
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sender.send((problem, 1024 * (after - before)))


def attack_saves(kills):
    """Kill processes while they save; the file is always one of the two, whole."""
    start, torn, rng = time.perf_counter(), 0, random.Random(0)
    phi = sl.FourierFeatures(2, 1000)
    first, second = (sl.sketch_rows(np.full((n, 2), 0.5), phi) for n in (1, 2))
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.sketch")
        sl.save(first, path)
        for _ in range(kills):
            process = context.Process(target=save_forever, args=(first, second, path))
            process.start()
            time.sleep(rng.uniform(0.002, 0.02))
            process.kill()
            process.join()
            try:
                torn += sl.load(path) not in (first, second)
            except Exception as error:
                torn += 1
                print(f"saves: {error}", file=sys.stderr, flush=True)
    report = {"attack": "killed saves", "trials": kills, "breaks": torn}
    print(json.dumps({**report, "seconds": round(time.perf_counter() - start)}))
    return torn


def save_forever(first, second, path):
    while True:
        sl.save(first, path)
        sl.save(second, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=70_000, help="forged files")
    parser.add_argument("--models", type=int, default=600, help="and as many decoded")
    parser.add_argument("--kills", type=int, default=200, help="killed saves")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sketches = [sl.dumps(sketch) for sketch in make_sketches()]
    maps = [sl.dumps(phi) for phi in make_maps()]
    old_maps, old_sketches = make_old("map"), make_old("sketch")
    private = [sl.dumps(sketch) for sketch in make_private()]
    parties = [sl.dumps(one) for one in make_parties()]
    counts = [*(sl.dumps(sketch) for sketch in make_counts()), old_counts()]
    rest, models = given.cases, given.models
    everywhere = forge_everywhere()
    random.Random(given.seed).shuffle(everywhere)
    every = min(len(everywhere), given.cases // 5)
    plan = [
        ("maps", forge, check_file, maps, rest * 4 // 10),
        ("maps of version 1", forge, check_file, old_maps, rest // 10),
        ("sketches", forge, check_file, sketches + old_sketches, rest * 3 // 10),
        ("private sketches", forge, check_file, private, rest // 10),
        ("sessions and shares", forge, check_file, parties, rest // 10),
        ("packed counts", forge_total, check_file, counts, rest // 10),
        ("weights", forge, check_weights, make_weights(), rest - rest * 9 // 10),
        ("weights, one place", unchanged, check_weights, everywhere, every),
        ("fit_sketch of files", forge, check_models, sketches + private, models),
        ("fit_sketch of totals", forge_total, check_models, sketches + private, models),
    ]
    breaks = attack_bombs() + attack_calls()
    for attacked in plan:
        breaks += attack(*attacked, given.seed)
    breaks += attack_saves(given.kills)
    sys.exit(1 if breaks else 0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
