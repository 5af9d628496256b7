"""What tests of ledgers share: caps, charges, and processes that end early."""

import contextlib
import os
import pickle
import shutil

import pytest

from sketchlearn.privacy.charge import Charge
from sketchlearn.privacy.journal import witness_path
from sketchlearn.privacy.ledger import Ledger

CAPS = {"epsilon": 2.0, "delta": 1e-5}
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def charge(mu2=0.01, name="x", **more):
    return Charge(name, mu2=mu2, **more)


def names_in(path):
    return [item.release_id for item in Ledger.open(path).charges]


def copy_ledger(path, other):
    """Copy a ledger with its witness."""
    shutil.copy(path, other)
    shutil.copy(witness_path(path), witness_path(other))


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def in_a_child(call):
    """What ``call()`` gives in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(writing, pickle.dumps(call()))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    return pickle.loads(data)
