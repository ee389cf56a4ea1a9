"""The in-memory store keeps the contract, and its levers do what they say."""

import asyncio
import contextvars
from collections.abc import Callable

import pytest

from client.errors import ConnectionLoss, NodeExists, SessionExpired
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import SessionState
from tests.unit.client.metadata.contract import Recorder, StoreContract


class MemoryLab:
    root = "/lab"

    def __init__(self) -> None:
        self.cluster = MemoryCluster(session_timeout_s=0.05, reconnect_delay_s=0.001)
        self.cluster.tree.create(self.root, b"", now_ms=0)

    async def session(self) -> MemoryStore:
        return self.cluster.session()

    async def expire(self, store: MemoryStore) -> None:
        self.cluster.expire(store)

    async def cut(self, store: MemoryStore) -> None:
        self.cluster.suspend(store)

    async def heal(self, store: MemoryStore) -> None:
        self.cluster.resume(store)


@pytest.fixture
async def lab() -> MemoryLab:
    return MemoryLab()


class TestMemoryStore(StoreContract):
    pass


class TestMemoryStoreWithLatency(StoreContract):
    @pytest.fixture
    async def lab(self) -> MemoryLab:
        lab = MemoryLab()
        delays = iter([0.0003, 0.0, 0.0001, 0.0005] * 100_000)
        lab.cluster.latency = lambda: next(delays)
        return lab


async def test_a_lost_request_did_not_happen(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    lab.cluster.on_request = _once("create", Fault.LOSE_REQUEST)
    with pytest.raises(ConnectionLoss):
        await store.create("/lab/a")
    assert await store.exists("/lab/a") is None


async def test_a_lost_reply_did_happen(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    lab.cluster.on_request = _once("create", Fault.LOSE_REPLY)
    with pytest.raises(ConnectionLoss):
        await store.create("/lab/a")
    with pytest.raises(NodeExists):
        await store.create("/lab/a")


async def test_a_fault_takes_the_requests_behind_it_along(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    states = Recorder()
    store.add_session_listener(states)
    lab.cluster.on_request = _once("create", Fault.LOSE_REPLY)
    outcomes = await asyncio.gather(
        store.create("/lab/a"), store.create("/lab/b"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [ConnectionLoss, ConnectionLoss]
    assert await store.children("/lab") == ["a"]
    assert states.calls == [SessionState.SUSPENDED, SessionState.CONNECTED]


async def test_the_server_expires_a_cut_session_while_the_client_still_hopes(
    lab: MemoryLab,
) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    await store.create("/lab/mine", ephemeral=True)
    gone = Recorder()
    await other.exists("/lab/mine", gone)
    lab.cluster.suspend(store)
    assert lab.cluster.live_sessions() == [1, 2]
    await gone.seen(1)
    assert lab.cluster.live_sessions() == [2]
    assert store.state is SessionState.SUSPENDED
    states = Recorder()
    store.add_session_listener(states)
    lab.cluster.resume(store)
    await states.seen(2)
    assert states.calls == [SessionState.EXPIRED, SessionState.CONNECTED]


async def test_a_second_cut_undoes_a_planned_reconnection(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    lab.cluster.latency = lambda: 0.001
    lab.cluster.suspend(store)
    lab.cluster.resume(store)
    lab.cluster.suspend(store)
    with pytest.raises(ConnectionLoss):
        await store.get("/lab")
    assert store.state is SessionState.SUSPENDED


async def test_a_stopped_process_hears_of_its_expiry_when_it_runs_again(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    await store.create("/lab/mine", ephemeral=True)
    states = Recorder()
    store.add_session_listener(states)
    lab.cluster.expire_unseen(store)
    assert await other.exists("/lab/mine") is None
    assert (store.state, states.calls) == (SessionState.CONNECTED, [])
    lab.cluster.suspend(store)
    lab.cluster.resume(store)
    await states.seen(3)
    assert states.calls == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]


async def test_nothing_of_a_killed_process_is_called(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    await store.create("/lab/mine", ephemeral=True)
    states, watch, gone = Recorder(), Recorder(), Recorder()
    store.add_session_listener(states)
    await store.get("/lab", watch)
    await other.get("/lab/mine", gone)
    in_flight = asyncio.ensure_future(store.set("/lab", b"x"))
    await asyncio.sleep(0)
    lab.cluster.kill(store)
    await gone.seen(1)
    assert (states.calls, watch.calls, in_flight.done()) == ([], [], False)
    assert (await other.get("/lab")).version == 0
    in_flight.cancel()


async def test_a_lagging_server_shows_the_past_until_a_sync(lab: MemoryLab) -> None:
    reader, writer = lab.cluster.session(), lab.cluster.session()
    watch = Recorder()
    await reader.get("/lab", watch)
    lab.cluster.freeze(reader)
    await writer.set("/lab", b"new")
    await writer.create("/lab/a")
    assert (await reader.get("/lab")).data == b""
    assert await reader.children("/lab") == []
    assert await reader.exists("/lab/a") is None
    assert watch.calls == []
    await reader.sync("/lab")
    assert len(watch.calls) == 1
    assert (await reader.get("/lab")).data == b"new"


async def test_a_watch_set_on_a_lagging_server_is_not_lost(lab: MemoryLab) -> None:
    reader, writer = lab.cluster.session(), lab.cluster.session()
    lab.cluster.freeze(reader)
    await writer.create("/lab/a")
    watch = Recorder()
    await reader.children("/lab", watch)
    lab.cluster.thaw(reader)
    await watch.seen(1)
    assert await reader.children("/lab") == ["a"]


async def test_own_writes_are_always_read(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    lab.cluster.freeze(store)
    await store.create("/lab/a")
    assert await store.children("/lab") == ["a"]


async def test_deliveries_run_in_the_context_of_their_session(lab: MemoryLab) -> None:
    host = contextvars.ContextVar("host", default="nobody")
    host.set("node-1")
    store = lab.cluster.session()
    host.set("nemesis")
    seen: list[str] = []
    store.add_session_listener(lambda state: seen.append(host.get()))
    await store.get("/lab", lambda: seen.append(host.get()))
    await lab.cluster.session().set("/lab", b"x")
    await store.sync("/")
    lab.cluster.suspend(store)
    assert seen == ["node-1", "node-1"]


async def test_closing_while_cut_leaves_the_ephemerals_to_the_timeout(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    await store.create("/lab/mine", ephemeral=True)
    lab.cluster.suspend(store)
    waiting = asyncio.ensure_future(store.get("/lab"))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(SessionExpired):
        await waiting
    gone = Recorder()
    assert await other.exists("/lab/mine", gone) is not None
    await gone.seen(1)


async def test_creation_time_comes_from_the_clock() -> None:
    class Clock:
        def now_ms(self) -> int:
            return 1_700_000_000_000

    store = MemoryCluster(clock=Clock()).session()
    await store.create("/a")
    assert (await store.get("/a")).ctime_ms == 1_700_000_000_000


def _once(name: str, fault: Fault) -> Callable[[Operation], Fault | None]:
    faults = [fault]

    def hook(operation: Operation) -> Fault | None:
        return faults.pop() if operation.name == name and faults else None

    return hook
