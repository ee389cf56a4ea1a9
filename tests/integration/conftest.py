"""Fixtures of the integration tests: real servers, shared by the whole session.

Every test below this folder is marked `integration`.
"""

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.metadata.zookeeper import ZooKeeperStore
from tests.integration.cluster import LocalCluster, RealZooKeeper
from tests.integration.lone_bookie import BookieProcess
from tests.integration.shell import Shell, shell_for

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
async def store(zookeeper: RealZooKeeper) -> AsyncIterator[ZooKeeperStore]:
    """The metadata of the ZooKeeper server alone."""
    store = ZooKeeperStore(zookeeper.hosts)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def bookie(tmp_path: Path, zookeeper: RealZooKeeper) -> Iterator[BookieProcess]:
    """One bookie, not started, on a tree of its own, which is not made yet."""
    bookie = BookieProcess(tmp_path, zookeeper.hosts, f"/bookie-{tmp_path.name}")
    yield bookie
    if bookie.process is not None and bookie.process.poll() is None:
        bookie.signal(signal.SIGKILL)


@pytest.fixture
def shell(cluster: LocalCluster, tmp_path: Path) -> Shell:
    """The `quire` command on the PATH, and the shared cluster where it looks for one."""
    return shell_for(cluster, tmp_path)


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
