"""Watches of the ZooKeeper store, whatever order kazoo's thread and the loop run in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat

from client.callbacks import Kind
from client.errors import ConnectionLoss
from client.metadata.store import SessionState
from client.metadata.zookeeper import ZooKeeperStore
from tests.fakes.raised import Reports, broken

STAT = ZnodeStat(*range(len(ZnodeStat._fields)))
CHANGED = WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, "/node")

Hook = Callable[[WatchedEvent], None]


class Result:
    """kazoo's result of a request that was answered at once."""

    value = (b"old", STAT)
    exception = None

    def rawlink(self, tell: Callable[[Result], None]) -> None:
        tell(self)


class Client:
    """Stands for kazoo's client; `events_before_link` of a request come before it is linked."""

    def __init__(self) -> None:
        self.events_before_link = 0
        self.hooks: list[Hook] = []

    def get_async(self, _path: str, hook: Hook) -> Result:
        self.hooks.append(hook)
        for _ in range(self.events_before_link):
            hook(CHANGED)
        return Result()


@pytest.fixture
def client() -> Client:
    return Client()


async def reading(client: Client, watcher: Callable[[], None]) -> ZooKeeperStore:
    store: Any = ZooKeeperStore("localhost:1")
    store._client = client
    store._loop = asyncio.get_running_loop()
    store._inbox.open(store._loop)
    store._state = SessionState.CONNECTED
    assert (await store.get("/node", watcher)).data == b"old"
    made: ZooKeeperStore = store
    return made


def test_an_event_that_overtakes_its_answer_is_not_lost(client: Client) -> None:
    async def main() -> None:
        calls: list[str] = []
        client.events_before_link = 1
        await reading(client, lambda: calls.append("again"))
        assert calls == ["again"]

    asyncio.run(main())


def test_a_watch_fires_once(client: Client) -> None:
    async def main() -> None:
        calls: list[str] = []
        await reading(client, lambda: calls.append("again"))
        assert calls == []
        (hook,) = client.hooks
        hook(CHANGED)
        await asyncio.sleep(0)
        assert calls == ["again"]
        hook(CHANGED)
        await asyncio.sleep(0)
        assert calls == ["again"]

    asyncio.run(main())


def test_a_watch_that_raises_costs_nobody_an_answer(client: Client) -> None:
    async def main() -> None:
        reports = Reports()
        client.events_before_link = 1
        await reading(client, broken)
        assert reports.kinds() == {Kind.METADATA: 1}

    asyncio.run(main())


def test_every_watch_and_every_listener_is_called_whatever_one_raises(client: Client) -> None:
    async def main() -> None:
        reports, calls = Reports(), list[str]()
        store: Any = await reading(client, broken)
        await store.get("/node", lambda: calls.append("watch"))
        held = asyncio.ensure_future(store.get("/held"))
        store._state = SessionState.SUSPENDED
        await asyncio.sleep(0)
        store.add_session_listener(broken)
        store.add_session_listener(lambda state: calls.append(state.value))
        store._on_state(KazooState.CONNECTED, 7)
        assert calls == ["connected", "watch"]
        assert (await held).data == b"old", "and what waited for the connection has left"
        assert reports.kinds() == {Kind.METADATA: 2}

    asyncio.run(main())


def test_a_held_request_that_cannot_be_made_costs_no_other_its_answer(client: Client) -> None:
    async def main() -> None:
        reports = Reports()
        store: Any = await reading(client, lambda: None)
        store._state = SessionState.SUSPENDED
        held = [asyncio.ensure_future(store.get(path)) for path in ("/bad", "/node")]
        await asyncio.sleep(0)
        get_async = client.get_async
        client.get_async = lambda path, hook: broken() if path == "/bad" else get_async(path, hook)  # type: ignore[method-assign]
        store._on_state(KazooState.CONNECTED, 1)
        bad, good = await asyncio.gather(*held, return_exceptions=True)
        assert (type(bad), good.data) == (ConnectionLoss, b"old")
        assert reports.kinds() == {Kind.METADATA: 1}
        assert not store._in_flight

    asyncio.run(main())
