"""One running cluster of each engine for all tests of a process."""

import pytest

from engines.clusters import ENGINES, started


@pytest.fixture(scope="session", params=ENGINES)
def cluster(request):
    with started(request.param) as running:
        yield running
