"""The fake kept honest: random histories give the same answers and watches on memory and ZooKeeper.

Two sessions work on one small tree, one operation after the other. After each, both report what it
returned or raised and which watches have fired so far.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.errors import MetadataError, NoNode
from client.metadata.memory import MemoryCluster
from client.metadata.store import MetadataStore, Versioned
from client.metadata.zookeeper import ZooKeeperStore
from tests.integration.cluster import RealZooKeeper

pytestmark = pytest.mark.smoke

Connect = Callable[[], Awaitable[MetadataStore]]

PATHS = st.sampled_from(["", "/a", "/b", "/a/c", "/a/d", "/a/c/e"])
SESSIONS = st.integers(0, 1)
VERSIONS = st.sampled_from([-1, 0, 0, 1, 2])
_roots = itertools.count()


class Step(NamedTuple):
    session: int
    name: str
    path: str
    arguments: dict[str, object]
    watched: bool = False


def steps() -> st.SearchStrategy[Step]:
    flags = st.booleans()
    data = st.sampled_from([b"", b"x", b"yy"])
    creates = st.fixed_dictionaries(
        {"data": data, "ephemeral": flags, "sequential": flags, "make_parents": flags}
    )
    mute = st.just(False)
    return st.one_of(
        st.builds(Step, SESSIONS, st.just("create"), PATHS, creates, mute),
        st.builds(Step, SESSIONS, st.just("create"), PATHS, st.just({"data": b"plain"}), mute),
        st.builds(
            Step,
            SESSIONS,
            st.just("set"),
            PATHS,
            st.fixed_dictionaries({"data": data, "version": VERSIONS}),
            mute,
        ),
        st.builds(
            Step,
            SESSIONS,
            st.just("delete"),
            PATHS,
            st.fixed_dictionaries({"version": VERSIONS}),
            mute,
        ),
        st.builds(
            Step,
            SESSIONS,
            st.sampled_from(["get", "exists", "children"]),
            PATHS,
            st.just({}),
            flags,
        ),
        st.builds(Step, SESSIONS, st.just("close"), st.just(""), st.just({}), mute),
    )


async def play(connect: Connect, root: str, history: list[Step]) -> list[object]:
    """Run a history; return what could be seen after each step."""
    stores = [await connect(), await connect()]
    await stores[0].create(root)
    fired: list[int] = []
    seen: list[object] = []
    for n, step in enumerate(history):
        store = stores[step.session]
        if step.name == "close":
            await store.close()
            stores[step.session] = await connect()
            outcome: object = "closed"
        else:
            arguments = dict(step.arguments)
            if step.watched:
                arguments["watcher"] = partial(fired.append, n)
            outcome = await perform(stores, step, root + step.path, arguments)
        for store in stores:
            await store.sync("/")
        # Two watches of one step reach two sessions in any order.
        seen.append((step.name, outcome, tuple(sorted(fired))))
    await sweep(stores[0], root)
    for store in stores:
        await store.close()
    return seen


async def perform(
    stores: list[MetadataStore], step: Step, path: str, arguments: dict[str, object]
) -> object:
    try:
        result = await getattr(stores[step.session], step.name)(path, **arguments)
    except MetadataError as error:
        return type(error).__name__
    if isinstance(result, Versioned):
        owner = [store.session_id for store in stores].index
        return (
            result.data,
            result.version,
            owner(result.ephemeral_owner) if result.ephemeral_owner else None,
        )
    return result.split("/", 2)[2:] if isinstance(result, str) else result


async def sweep(store: MetadataStore, path: str) -> None:
    with contextlib.suppress(NoNode):  # a history may have deleted even its root
        for name in await store.children(path):
            await sweep(store, f"{path}/{name}")
        await store.delete(path)


@settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=st.lists(steps(), min_size=1, max_size=25))
def test_memory_and_zookeeper_are_twins(zookeeper: RealZooKeeper, history: list[Step]) -> None:
    root = f"/twins-{next(_roots)}"

    async def both() -> tuple[list[object], list[object]]:
        cluster = MemoryCluster()

        async def in_memory() -> MetadataStore:
            return cluster.session()

        async def on_zookeeper() -> MetadataStore:
            store = ZooKeeperStore(zookeeper.hosts)
            await store.start()
            return store

        return await play(in_memory, root, history), await play(on_zookeeper, root, history)

    fake, real = asyncio.run(both())
    assert fake == real
