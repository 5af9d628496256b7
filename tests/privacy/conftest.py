"""Ledgers and sketches, for every test that asks for one."""

import pytest

from privacy.ledgers import CAPS
from privacy.releases import PHI, PROMISE, ROWS
from sketchlearn.engines.sketch_rows import sketch_rows
from sketchlearn.privacy.ledger import Ledger
from sketchlearn.privacy.release import release


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def book(path):
    return Ledger(path, **CAPS)


@pytest.fixture(scope="session")
def exact():
    return sketch_rows(ROWS, PHI)


@pytest.fixture
def ample():
    """A ledger in memory with room for much."""
    return Ledger.ephemeral(epsilon=50.0, delta=1e-3, pure_epsilon=5.0)


@pytest.fixture
def swaps():
    """A ledger of replaced rows, whose number is public."""
    return Ledger.ephemeral(
        epsilon=50.0, delta=1e-3, pure_epsilon=5.0, neighbours="replace"
    )


@pytest.fixture(scope="session")
def private(exact):
    book = Ledger.ephemeral(epsilon=1.0, delta=1e-6)
    return release(exact, **PROMISE, ledger=book)
