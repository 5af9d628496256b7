"""Freed memory is kept while a partition is sketched, and given back in the end."""

import os
import subprocess
import sys
import threading

import pytest

from sketchlearn.engines import allocation
from sketchlearn.engines.allocation import kept_memory


class Library:
    """What is told to an allocator."""

    def __init__(self):
        self.told = []

    def mallopt(self, parameter, value):
        self.told.append((parameter, value))

    def malloc_trim(self, pad):
        self.told.append("trim")


@pytest.fixture
def library(monkeypatch):
    found = Library()
    monkeypatch.setattr(allocation, "_glibc", lambda: found)
    return found


def test_an_allocator_that_was_told_nothing_is_left_alone(library, monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    with kept_memory():
        pass
    assert library.told == []


def test_what_it_was_told_holds_again_after_the_last_partition(library, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    inside = threading.Barrier(2, timeout=10)

    def sketch():
        with kept_memory():
            inside.wait()

    threads = [threading.Thread(target=sketch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.told[-3:] == [(-1, 65536), (-3, 131072), "trim"]
    assert library.told.count("trim") == 1
    with pytest.raises(ZeroDivisionError), kept_memory():
        1 / 0  # noqa: B018
    assert library.told[-3:] == [(-1, 65536), (-3, 131072), "trim"]


def test_the_allocator_of_this_system_takes_it():
    script = (
        "import numpy as np\n"
        "from sketchlearn.engines.allocation import kept_memory\n"
        "with kept_memory():\n"
        "    assert sum(np.ones(10**6).sum() for _ in range(9)) == 9e6\n"
    )
    env = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    subprocess.run([sys.executable, "-c", script], check=True, env=env)
