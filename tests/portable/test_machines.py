"""The golden digests hold for every BLAS kernel, thread count and hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden.json").read_text())
DISPATCHED = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]

CORES = {
    "Prescott": ("SSE3", {"Prescott", "Katmai"}),
    "Nehalem": ("SSE42", {"Nehalem"}),
    "Haswell": ("AVX2", {"Haswell"}),
    "Zen": ("AVX2", {"Zen", "Haswell"}),
    "SkylakeX": ("AVX512F", {"SkylakeX"}),
}
"""Kernels of OpenBLAS, what a CPU must have to run them, and what they call themselves.

A kernel that the CPU cannot run ends the process with an illegal instruction.
"""


def threads(count):
    return {"OMP_NUM_THREADS": str(count), "OPENBLAS_NUM_THREADS": str(count)}


def found_with(**variables):
    """What a process with these environment variables finds."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "digests.py")],
        env={**inherited, **threads(1), "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def check(found):
    assert found["golden"] == GOLDEN
    for name, digests in found["forms"].items():
        assert len(set(digests.values())) == 1, name
    for name, pairs in found["forget"].items():
        for left, right in pairs.values():
            assert left == right, name


@pytest.mark.parametrize(
    "count", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 4))]
)
def test_digests_do_not_depend_on_the_number_of_threads(count):
    check(found_with(**threads(count), PYTHONHASHSEED=str(count)))


@pytest.mark.parametrize(
    "core",
    [
        "Nehalem",
        "Haswell",
        "SkylakeX",
        *(pytest.param(core, marks=pytest.mark.full) for core in ("Prescott", "Zen")),
    ],
)
def test_digests_do_not_depend_on_the_kernels_of_blas(core):
    needed, names = CORES[core]
    if not __cpu_features__.get(needed):
        pytest.skip(f"this CPU cannot run {core} kernels: it has no {needed}")
    found = found_with(OPENBLAS_CORETYPE=core)
    check(found)
    if not names & set(found["kernels"]):
        pytest.skip(f"no {core} kernels in this BLAS, which used {found['kernels']}")


@pytest.mark.full
def test_digests_do_not_depend_on_the_vector_instructions_of_numpy():
    if not DISPATCHED:
        pytest.skip("NumPy uses its baseline on this CPU already")
    check(found_with(NPY_DISABLE_CPU_FEATURES=" ".join(DISPATCHED)))


def test_digests_do_not_depend_on_all_of_them_together():
    oldest = {"OPENBLAS_CORETYPE": "Prescott"} if __cpu_features__.get("SSE3") else {}
    baseline = {"NPY_DISABLE_CPU_FEATURES": " ".join(DISPATCHED)} if DISPATCHED else {}
    check(found_with(**oldest, **baseline, **threads(4), PYTHONHASHSEED="4242"))
