"""A ledger in a file, for every test that asks for one."""

import pytest

from privacy.ledgers import CAPS
from sketchlearn.privacy.ledger import Ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def book(path):
    return Ledger(path, **CAPS)
