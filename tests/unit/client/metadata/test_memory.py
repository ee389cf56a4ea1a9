"""The in-memory store keeps the contract, and its levers do what they say."""

import asyncio
import contextvars
from collections.abc import Callable

import pytest

from client.errors import ConnectionLoss, NodeExists, SessionExpired
from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import Create, SessionState
from tests.fakes import virtual_time
from tests.unit.client.metadata.contract import LagContract, Recorder, StoreContract


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


class MemoryLagLab:
    root = "/lab"

    def __init__(self) -> None:
        self.cluster = MemoryCluster(reconnect_delay_s=0.001)
        self.cluster.tree.create(self.root, b"", now_ms=0)
        self.cluster.late_s = lambda: 1e9
        self.cluster.landing = lambda store, count: (count if store in self._slow else 0, 1e9)
        self.cluster.lag = lambda store: 1e9 if store in self._held else 0.0
        self._slow: list[MemoryStore] = []
        self._held: list[MemoryStore] = []

    async def session(self) -> MemoryStore:
        return self.cluster.session()

    async def slow_session(self) -> MemoryStore:
        self._slow.append(self.cluster.session())
        return self._slow[-1]

    async def hold(self) -> None:
        self._held = self._slow

    async def release(self) -> None:
        self._held = []
        for store in self._slow:
            self.cluster.thaw(store)

    async def move(self, store: MemoryStore, *, to_slow: bool = False) -> None:
        if to_slow:
            self._slow.append(store)
        elif store in self._slow:
            self._slow.remove(store)
        self.cluster.suspend(store)
        self.cluster.resume(store)

    async def stall(self) -> None:
        self.cluster.on_request = _once("set", Fault.DELAY_REQUEST)

    async def proceed(self) -> None:
        """What was delayed takes place before the next write or sync of its session."""

    async def quiet(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


class TestMemoryStoreWithLag(LagContract):
    @pytest.fixture
    async def lab(self) -> MemoryLagLab:
        return MemoryLagLab()


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


async def test_a_frozen_server_stays_so_when_a_write_is_not_answered(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    lab.cluster.freeze(store)
    lab.cluster.on_request = _once("create", Fault.LOSE_REPLY)
    with pytest.raises(ConnectionLoss):
        await store.create("/lab/a")
    assert await other.children("/lab") == ["a"]
    assert await store.children("/lab") == []
    await store.sync("/lab")
    assert await store.children("/lab") == ["a"]


def test_a_write_that_comes_late() -> None:
    async def scenario() -> None:
        lab = MemoryLab()
        store, other = lab.cluster.session(), lab.cluster.session()
        late = asyncio.Event()
        lab.cluster.on_request = _once("create", Fault.DELAY_REQUEST)
        lab.cluster.late_s = lambda: 0.5
        await other.exists("/lab/a", late.set)
        with pytest.raises(ConnectionLoss):
            await store.create("/lab/a")
        assert await store.children("/lab") == []
        await late.wait()
        assert await store.children("/lab") == ["a"]

    virtual_time.run(scenario())


@pytest.mark.parametrize("fence", ["write", "sync", "end of the session"])
async def test_a_late_write_comes_before_what_its_session_does_later(
    lab: MemoryLab, fence: str
) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    lab.cluster.on_request = _once("create", Fault.DELAY_REQUEST)
    lab.cluster.late_s = lambda: 1e9
    with pytest.raises(ConnectionLoss):
        await store.create("/lab/a", ephemeral=fence == "end of the session")
    if fence == "write":
        with pytest.raises(NodeExists):
            await store.create("/lab/a")
    elif fence == "sync":
        await store.sync("/")
        assert await store.children("/lab") == ["a"]
    else:
        seen = Recorder()
        await other.exists("/lab/a", seen)
        lab.cluster.expire(store)
        await seen.seen(1)
        assert await other.children("/lab") == []


async def test_a_session_comes_back_to_an_older_server(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    lab.cluster.lag = lambda store: 0.0
    counts: list[int] = []
    for name in "abc":
        await other.create(f"/lab/{name}")
        if name == "a":
            assert await store.children("/lab") == ["a"]

    def landing(store: MemoryStore, count: int) -> tuple[int, float]:
        counts.append(count)
        return 1, 1e9

    lab.cluster.landing = landing
    lab.cluster.suspend(store)
    lab.cluster.resume(store)
    watch = Recorder()
    assert await store.children("/lab", watch) == ["a", "b"]
    assert counts == [2], "it has seen the first"
    assert watch.calls == []
    lab.cluster.thaw(store)
    assert await store.children("/lab") == ["a", "b", "c"]
    assert len(watch.calls) == 1


async def test_a_session_that_is_resumed_twice_comes_back_once(lab: MemoryLab) -> None:
    store = lab.cluster.session()
    states = Recorder()
    store.add_session_listener(states)
    lab.cluster.suspend(store)
    lab.cluster.resume(store)
    lab.cluster.resume(store)
    await store.sync("/")
    await asyncio.sleep(0)
    assert states.calls == [SessionState.SUSPENDED, SessionState.CONNECTED]


def test_a_server_applies_changes_in_their_order_as_they_become_due() -> None:
    async def scenario() -> None:
        lab = MemoryLab()
        store, other = lab.cluster.session(), lab.cluster.session()
        lags = iter([0.5, 0.0, 0.5])
        lab.cluster.lag = lambda each: next(lags) if each is store else 0.0
        seen = Recorder()
        await store.children("/lab", seen)
        began_s = asyncio.get_running_loop().time()
        await other.multi([Create("/lab/a"), Create("/lab/b")])
        await other.create("/lab/c")
        await asyncio.sleep(0.2)
        await other.create("/lab/d")
        assert await store.children("/lab") == []
        await seen.seen(1)
        assert asyncio.get_running_loop().time() == began_s + 0.5
        assert await store.children("/lab") == ["a", "b", "c"]
        await store.sync("/lab")
        assert asyncio.get_running_loop().time() == began_s + 0.7
        assert await store.children("/lab") == ["a", "b", "c", "d"]

    virtual_time.run(scenario())


async def test_what_nobody_lacks_is_forgotten(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    lab.cluster.lag = lambda each: 1e9 if each is store else 0.0
    await other.create("/lab/a", b"0")
    for n in range(700):
        await other.set("/lab/a", str(n).encode())
    assert len(lab.cluster.tree._past["/lab/a"]) == 701, "one server lacks them all"
    lab.cluster.thaw(store)
    lab.cluster.lag = lambda each: 0.0
    await other.set("/lab/a", b"")
    assert len(lab.cluster.tree._past["/lab/a"]) < 300
    lab.cluster.lag = None
    assert lab.cluster.tree._past == {}


async def test_an_answer_that_its_server_owes_is_lost_with_the_connection(lab: MemoryLab) -> None:
    store, other = lab.cluster.session(), lab.cluster.session()
    lab.cluster.lag = lambda each: 1e9 if each is store else 0.0
    writing = asyncio.ensure_future(store.create("/lab/a"))
    gone = asyncio.Event()
    await other.exists("/lab/a", gone.set)
    await gone.wait()
    lab.cluster.suspend(store)
    with pytest.raises(ConnectionLoss):
        await writing
    lab.cluster.resume(store)
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
