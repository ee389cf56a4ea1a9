"""Fixtures of the integration tests: real servers, shared by the whole session.

Every test below this folder is marked `integration`.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import LocalCluster, RealZooKeeper

# A job in the background of a script starts with Ctrl-C ignored, and so would every process that
# tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three bookies and two brokers, shared: use topics and groups of your own, kill nothing."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as shared:
        yield shared


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Start clusters of your own, with the arguments of `LocalCluster`; all end with the test."""
    started: list[LocalCluster] = []

    def start(**options: Any) -> LocalCluster:
        fresh = LocalCluster(tmp_path / f"cluster-{len(started)}", **options)
        started.append(fresh)
        return fresh.start()

    yield start
    for each in started:
        each.kill_all()
