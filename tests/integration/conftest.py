"""Fixtures of the integration tests: real servers, shared by the whole session.

Every test below this folder is marked `integration`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import RealZooKeeper


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    """One ZooKeeper server for the whole session; tests use paths of their own."""
    server = RealZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()
