"""Watches of the ZooKeeper store, whatever order kazoo's thread and the loop run in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat

from client.metadata.store import SessionState
from client.metadata.zookeeper import ZooKeeperStore

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
