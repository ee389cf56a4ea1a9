"""Apache BookKeeper and Quire's bookies side by side: one ZooKeeper, two trees, one client JVM.

`quire_tree` holds four of our bookies, `mixed_tree` three of ours and three of Apache's. Both
are shared: a test that kills bookies revives them. Every test below this folder is marked
`interop`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from tests.integration.cluster import RealZooKeeper
from tests.interop.bookkeeper.cluster import LONG_RUN_S, BookieTree
from tests.interop.bookkeeper.ours import Ours
from tests.interop.bookkeeper.peer import Peer

_TEST_TIMEOUT_S = 180 + 2 * LONG_RUN_S


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.interop)
        item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT_S))
    if not LONG_RUN_S:
        left_out = [item for item in mine if item.get_closest_marker("interop_long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def bookkeeper_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    server = RealZooKeeper(tmp_path_factory.mktemp("interop-zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def plant(
    bookkeeper_zookeeper: RealZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., BookieTree]]:
    """Make clusters of their own: `plant("/name", quire=3, java=1)`."""
    planted: list[BookieTree] = []

    def plant(root: str, **counts: int) -> BookieTree:
        folder = tmp_path_factory.mktemp(root.strip("/"))
        asyncio.run(init_tree(bookkeeper_zookeeper.hosts, root))
        tree = BookieTree(folder, bookkeeper_zookeeper, root)
        planted.append(tree)
        tree.add(**counts)
        return tree

    yield plant
    for tree in planted:
        tree.kill_all()


async def init_tree(hosts: str, root: str) -> None:
    """Make the tree of a cluster."""
    store = ZooKeeperStore(hosts)
    await store.start()
    await init_bookkeeper(store, rng=random.Random(root), root=root)
    await store.close()


@pytest.fixture(scope="session")
def shared_quire_tree(plant: Callable[..., BookieTree]) -> BookieTree:
    # The root that tools take which cannot be told another one.
    return plant("/ledgers", quire=4)


@pytest.fixture(scope="session")
def shared_mixed_tree(plant: Callable[..., BookieTree]) -> BookieTree:
    return plant("/mixed", quire=3, java=3)


@pytest.fixture
def quire_tree(shared_quire_tree: BookieTree) -> Iterator[BookieTree]:
    """Four Quire bookies, all of them running."""
    yield shared_quire_tree
    shared_quire_tree.revive()


@pytest.fixture
def mixed_tree(shared_mixed_tree: BookieTree) -> Iterator[BookieTree]:
    """Three Quire bookies and three Apache bookies, all of them running."""
    yield shared_mixed_tree
    shared_mixed_tree.revive()


@pytest.fixture(scope="session")
def peer(
    bookkeeper_zookeeper: RealZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """Apache's client and shell."""
    started = Peer(bookkeeper_zookeeper.hosts, tmp_path_factory.mktemp("peer"))
    yield started
    started.kill()


@pytest.fixture(scope="session")
def jaas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """System properties of a JVM whose authentication plugin is Apache's own, by SASL."""
    file = tmp_path_factory.mktemp("jaas") / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    file.write_text(
        f'BookKeeper {{\n  {module}\n  username="quire"\n  password="of the plugin";\n}};\n'
        f'Bookie {{\n  {module}\n  user_quire="of the plugin";\n}};\n'
    )
    return {"java.security.auth.login.config": str(file), "zookeeper.sasl.client": "false"}


@pytest.fixture(scope="session")
def plugged_peer(
    bookkeeper_zookeeper: RealZooKeeper,
    jaas: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Peer]:
    """Apache's client where it has an authentication plugin: give it `PLUGIN` as settings."""
    folder = tmp_path_factory.mktemp("plugged-peer")
    started = Peer(bookkeeper_zookeeper.hosts, folder, properties=jaas)
    yield started
    started.kill()


@pytest.fixture
def start_peer(bookkeeper_zookeeper: RealZooKeeper, tmp_path: Path) -> Iterator[Callable[[], Peer]]:
    """Start a JVM of the test's own, to be killed."""
    started: list[Peer] = []

    def start() -> Peer:
        fresh = Peer(bookkeeper_zookeeper.hosts, tmp_path, f"peer-{len(started)}")
        started.append(fresh)
        return fresh

    yield start
    for each in started:
        each.kill()


@pytest.fixture
async def ours(bookkeeper_zookeeper: RealZooKeeper) -> AsyncIterator[Callable[..., Any]]:
    """Make clients of ours: `await ours(tree, members=..., wire_version=...)`."""
    made = Ours(bookkeeper_zookeeper.hosts)
    yield made.client
    await made.close()
