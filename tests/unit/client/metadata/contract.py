"""What every `MetadataStore` must do: one suite for the fake and for a real ZooKeeper.

A test module subclasses `StoreContract` and gives it a fixture `lab`, a `StoreLab` on a fresh
cluster. Tests build everything below `lab.root`, so a shared server is no trouble.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import pytest

from client.callbacks import Kind
from client.errors import (
    ConnectionLoss,
    MetadataError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    VersionConflict,
)
from client.metadata.store import (
    NODE_BYTES_MAX,
    Create,
    Delete,
    MetadataStore,
    SessionState,
    SetData,
)
from tests.fakes.raised import Reports, broken


class StoreLab(Protocol):
    """A cluster under test and the levers that its sessions cannot pull themselves."""

    root: str

    async def session(self) -> MetadataStore: ...
    async def expire(self, store: MetadataStore) -> None: ...
    async def cut(self, store: MetadataStore) -> None:
        """Break the connection and keep it broken; returns once the store says SUSPENDED."""

    async def heal(self, store: MetadataStore) -> None: ...


class Recorder:
    """Counts calls and remembers arguments; `await seen(n)` waits for the n-th call."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self._changed = asyncio.Event()

    def __call__(self, *args: object) -> None:
        self.calls.append(args[0] if args else None)
        self._changed.set()

    async def seen(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.calls) < count:
                self._changed.clear()
                await self._changed.wait()

    async def said(self, state: SessionState) -> None:
        async with asyncio.timeout(20):
            while state not in self.calls:
                self._changed.clear()
                await self._changed.wait()


async def until(condition: Callable[[], bool], store: MetadataStore) -> None:
    """Wait for something another session causes, one round trip at a time."""
    async with asyncio.timeout(20):
        while not condition():
            await store.sync("/")


class StoreContract:
    async def test_a_created_node_reads_back_at_version_zero(self, lab: StoreLab) -> None:
        store = await lab.session()
        assert await store.create(f"{lab.root}/a", b"one") == f"{lab.root}/a"
        node = await store.get(f"{lab.root}/a")
        assert (node.data, node.version, node.ephemeral_owner) == (b"one", 0, 0)
        assert node.ctime_ms >= 0

    async def test_creating_twice_raises_node_exists(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        with pytest.raises(NodeExists):
            await store.create(f"{lab.root}/a", b"other")
        assert (await store.get(f"{lab.root}/a")).data == b""

    async def test_a_node_needs_its_parent(self, lab: StoreLab) -> None:
        store = await lab.session()
        with pytest.raises(NoNode):
            await store.create(f"{lab.root}/a/b/c")
        assert await store.create(f"{lab.root}/a/b/c", b"x", make_parents=True)
        assert (await store.get(f"{lab.root}/a/b")).data == b""
        await store.create(f"{lab.root}/a/b/d", make_parents=True)
        assert await store.children(f"{lab.root}/a/b") == ["c", "d"]

    async def test_make_parents_keeps_node_exists(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a/b", make_parents=True)
        with pytest.raises(NodeExists):
            await store.create(f"{lab.root}/a/b", make_parents=True)

    async def test_reading_an_absent_node(self, lab: StoreLab) -> None:
        store = await lab.session()
        with pytest.raises(NoNode):
            await store.get(f"{lab.root}/a")
        with pytest.raises(NoNode):
            await store.children(f"{lab.root}/a")
        assert await store.exists(f"{lab.root}/a") is None

    async def test_exists_tells_version_and_owner_but_no_data(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a", b"one", ephemeral=True)
        await store.set(f"{lab.root}/a", b"two")
        node = await store.exists(f"{lab.root}/a")
        assert node is not None
        assert (node.data, node.version, node.ephemeral_owner) == (b"", 1, store.session_id)

    async def test_set_is_compare_and_set(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a", b"v0")
        assert await store.set(f"{lab.root}/a", b"v1", version=0) == 1
        with pytest.raises(VersionConflict):
            await store.set(f"{lab.root}/a", b"lost", version=0)
        assert await store.set(f"{lab.root}/a", b"v2") == 2
        assert (await store.get(f"{lab.root}/a")).data == b"v2"
        with pytest.raises(NoNode):
            await store.set(f"{lab.root}/b", b"")

    async def test_delete_checks_version_and_children(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a/b", make_parents=True)
        with pytest.raises(NotEmpty):
            await store.delete(f"{lab.root}/a")
        with pytest.raises(VersionConflict):
            await store.delete(f"{lab.root}/a/b", version=3)
        await store.delete(f"{lab.root}/a/b", version=0)
        await store.delete(f"{lab.root}/a")
        with pytest.raises(NoNode):
            await store.delete(f"{lab.root}/a")

    async def test_a_recreated_node_starts_at_version_zero(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        await store.set(f"{lab.root}/a", b"x")
        await store.delete(f"{lab.root}/a")
        await store.create(f"{lab.root}/a")
        assert (await store.get(f"{lab.root}/a")).version == 0

    async def test_children_are_sorted_names(self, lab: StoreLab) -> None:
        store = await lab.session()
        for name in ("c", "a", "b"):
            await store.create(f"{lab.root}/{name}")
        assert await store.children(lab.root) == ["a", "b", "c"]

    async def test_sequence_numbers_count_every_creation_below_the_parent(
        self, lab: StoreLab
    ) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/d")
        first = await store.create(f"{lab.root}/d/n-", sequential=True)
        await store.create(f"{lab.root}/d/plain")
        await store.delete(first)
        second = await store.create(f"{lab.root}/d/n-", ephemeral=True, sequential=True)
        assert first == f"{lab.root}/d/n-0000000000"
        assert second == f"{lab.root}/d/n-0000000002"

    async def test_a_transaction_is_all_or_nothing(self, lab: StoreLab) -> None:
        store = await lab.session()
        a, c = f"{lab.root}/a", f"{lab.root}/c"
        assert await store.multi([Create(a, b"1"), Create(f"{a}/b", b"2")]) == [a, f"{a}/b"]
        assert (await store.get(f"{a}/b")).data == b"2"
        for refused, error in (
            (Create(a), NodeExists),
            (Create(f"{lab.root}/x/y"), NoNode),
            (SetData(a, b"", 7), VersionConflict),
            (SetData(f"{lab.root}/x", b""), NoNode),
            (Delete(a), NotEmpty),
            (Delete(f"{a}/b", 7), VersionConflict),
        ):
            with pytest.raises(error):
                await store.multi([Create(c), SetData(f"{a}/b", b"3", 0), refused, Create(a)])
        assert await store.children(lab.root) == ["a"]
        assert await store.get(f"{a}/b") == (await store.get_many([f"{a}/b"]))[0]
        assert (await store.get(f"{a}/b")).version == 0

    async def test_each_change_of_a_transaction_sees_those_before_it(self, lab: StoreLab) -> None:
        store = await lab.session()
        a, numbered = f"{lab.root}/a", f"{lab.root}/n-"
        made = await store.multi(
            [
                Create(a, b"1"),
                SetData(a, b"2", 0),
                SetData(a, b"3", 1),
                Create(f"{a}/b"),
                Delete(f"{a}/b", 0),
                Delete(a, 2),
                Create(a, b"4", ephemeral=True),
                Create(numbered, sequential=True),
                Create(numbered, ephemeral=True, sequential=True),
            ]
        )
        assert made[:7] == [a, 1, 2, f"{a}/b", None, None, a]
        assert made[7:] == [f"{numbered}0000000002", f"{numbered}0000000003"]
        node = await store.get(a)
        assert (node.data, node.version, node.ephemeral_owner) == (b"4", 0, store.session_id)
        await store.close()
        other = await lab.session()
        await other.sync(lab.root)
        assert await other.children(lab.root) == ["n-0000000002"], "ephemerals have gone"

    async def test_a_transaction_is_checked_before_it_leaves(self, lab: StoreLab) -> None:
        store = await lab.session()
        with pytest.raises(ValueError, match="path"):
            await store.multi([Create(f"{lab.root}/a"), Delete("a")])
        with pytest.raises(MetadataError, match="limit"):
            await store.multi([Create(f"{lab.root}/a", bytes(NODE_BYTES_MAX + 1))])
        assert await store.children(lab.root) == []

    async def test_many_nodes_are_read_at_once(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a", b"1")
        await store.create(f"{lab.root}/b", b"", ephemeral=True)
        await store.set(f"{lab.root}/a", b"2")
        names = [f"{lab.root}/{name}" for name in ("a", "gone", "b", "a")]
        found = await store.get_many(names)
        assert found[1] is None
        assert found[0] == found[3] == await store.get(names[0])
        assert found[2] == await store.get(names[2])
        assert await store.get_many([f"{lab.root}/gone/x"]) == [None]
        with pytest.raises(ValueError, match="path"):
            await store.get_many([f"{lab.root}/a", "a"])

    async def test_an_ephemeral_goes_with_its_session(self, lab: StoreLab) -> None:
        owner, other = await lab.session(), await lab.session()
        await owner.create(f"{lab.root}/a", b"x", ephemeral=True)
        gone = Recorder()
        assert (await other.get(f"{lab.root}/a", gone)).ephemeral_owner == owner.session_id
        await owner.close()
        await gone.seen(1)
        assert await other.exists(f"{lab.root}/a") is None

    async def test_an_ephemeral_takes_no_children(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a", ephemeral=True)
        with pytest.raises(MetadataError):
            await store.create(f"{lab.root}/a/b")
        with pytest.raises(MetadataError):
            await store.create(f"{lab.root}/a/b/c", make_parents=True)

    async def test_a_node_has_a_largest_size(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a", bytes(NODE_BYTES_MAX))
        with pytest.raises(MetadataError, match="limit"):
            await store.create(f"{lab.root}/b", bytes(NODE_BYTES_MAX + 1))
        with pytest.raises(MetadataError, match="limit"):
            await store.set(f"{lab.root}/a", bytes(NODE_BYTES_MAX + 1))
        assert len((await store.get(f"{lab.root}/a")).data) == NODE_BYTES_MAX

    async def test_a_path_must_be_absolute(self, lab: StoreLab) -> None:
        store = await lab.session()
        for path in ("a", "", f"{lab.root}//a", f"{lab.root}/./a", f"{lab.root}/a/"):
            with pytest.raises(ValueError, match="path"):
                await store.create(path)
            with pytest.raises(ValueError, match="path"):
                await store.get(path)

    async def test_a_data_watch_fires_once_on_set(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        watch = Recorder()
        await store.get(f"{lab.root}/a", watch)
        await store.set(f"{lab.root}/a", b"x")
        await store.set(f"{lab.root}/a", b"y")
        await store.sync(lab.root)
        assert len(watch.calls) == 1

    async def test_a_data_watch_fires_on_delete(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        watch = Recorder()
        await store.get(f"{lab.root}/a", watch)
        await store.delete(f"{lab.root}/a")
        await store.sync(lab.root)
        assert len(watch.calls) == 1

    async def test_get_of_an_absent_node_leaves_no_watch(self, lab: StoreLab) -> None:
        store = await lab.session()
        watch = Recorder()
        with pytest.raises(NoNode):
            await store.get(f"{lab.root}/a", watch)
        await store.create(f"{lab.root}/a")
        await store.sync(lab.root)
        assert watch.calls == []

    async def test_exists_watches_the_creation_of_an_absent_node(self, lab: StoreLab) -> None:
        store = await lab.session()
        watch = Recorder()
        assert await store.exists(f"{lab.root}/a", watch) is None
        await store.create(f"{lab.root}/a")
        await store.sync(lab.root)
        assert len(watch.calls) == 1

    async def test_a_child_watch_sees_members_not_their_data(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/d/a", make_parents=True)
        watch = Recorder()
        await store.children(f"{lab.root}/d", watch)
        await store.set(f"{lab.root}/d/a", b"x")
        await store.set(f"{lab.root}/d", b"x")
        await store.sync(lab.root)
        assert watch.calls == []
        await store.create(f"{lab.root}/d/b")
        await store.delete(f"{lab.root}/d/a")
        await store.sync(lab.root)
        assert len(watch.calls) == 1

    async def test_a_child_watch_sees_its_directory_go(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/d")
        watch = Recorder()
        await store.children(f"{lab.root}/d", watch)
        await store.delete(f"{lab.root}/d")
        await store.sync(lab.root)
        assert len(watch.calls) == 1

    async def test_one_callable_waiting_twice_is_called_once(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        watch, other = Recorder(), Recorder()
        await store.get(f"{lab.root}/a", watch)
        await store.get(f"{lab.root}/a", other)
        await store.get(f"{lab.root}/a", watch)
        await store.set(f"{lab.root}/a", b"x")
        await store.sync(lab.root)
        assert (len(watch.calls), len(other.calls)) == (1, 1)

    async def test_watches_of_many_nodes(self, lab: StoreLab) -> None:
        store, other = await lab.session(), await lab.session()
        names = [f"{lab.root}/{name}" for name in ("set", "gone", "deleted", "same", "set")]
        for name in names[0], names[2], names[3]:
            await other.create(name)
        watches = [Recorder() for _ in names]
        await store.sync(lab.root)  # else a watch may fire for what happened before
        found = await store.get_many(names, watches)
        assert [node is not None for node in found] == [True, False, True, True, True]
        await other.set(names[0], b"1")
        await other.set(names[0], b"2")
        await other.create(names[1])
        await other.set(names[1], b"1")
        await other.delete(names[2])
        for watch in watches[0], watches[2], watches[4]:
            await watch.seen(1)
        await store.sync(lab.root)
        assert [len(watch.calls) for watch in watches] == [1, 0, 1, 0, 1]

    async def test_no_change_is_missed_after_a_read_of_many(self, lab: StoreLab) -> None:
        """Whatever is changed meanwhile: what was read is the newest, or the watch fires."""
        reader, writer = await lab.session(), await lab.session()
        names = [f"{lab.root}/{n}" for n in range(4)]
        for name in names:
            await writer.create(name, b"0")
        for n in range(20):
            data = str(n + 1).encode()
            watches = [Recorder() for _ in names]
            changes = [asyncio.ensure_future(writer.set(name, data)) for name in names]
            found = await reader.get_many(names, watches)
            await asyncio.gather(*changes)
            for node, watch in zip(found, watches, strict=True):
                assert node is not None
                if node.data != data:
                    await watch.seen(1)

    async def test_watches_of_many_nodes_outlive_a_short_cut(self, lab: StoreLab) -> None:
        store = await lab.session()
        names = [f"{lab.root}/{n}" for n in range(3)]
        await store.multi([Create(name) for name in names])
        watches = [Recorder() for _ in names]
        await store.get_many(names, watches)
        await lab.cut(store)
        assert [len(watch.calls) for watch in watches] == [0, 0, 0]
        await lab.heal(store)
        for watch in watches:
            await watch.seen(1)

    async def test_a_transaction_fires_watches(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/c")
        members, made, changed = Recorder(), Recorder(), Recorder()
        await store.children(lab.root, members)
        await store.exists(f"{lab.root}/a/b", made)
        await store.get(f"{lab.root}/c", changed)
        await store.multi(
            [Create(f"{lab.root}/a"), Create(f"{lab.root}/a/b"), SetData(f"{lab.root}/c", b"x")]
        )
        await store.sync(lab.root)
        assert (len(members.calls), len(made.calls), len(changed.calls)) == (1, 1, 1)

    async def test_a_watch_comes_before_the_read_that_shows_the_change(self, lab: StoreLab) -> None:
        reader, writer = await lab.session(), await lab.session()
        await writer.create(f"{lab.root}/a", b"0")
        for n in range(20):
            watch = Recorder()
            seen = (await reader.get(f"{lab.root}/a", watch)).data
            change = asyncio.create_task(writer.set(f"{lab.root}/a", str(n + 1).encode()))
            while (await reader.get(f"{lab.root}/a")).data == seen:
                pass
            assert len(watch.calls) == 1
            await change

    async def test_operations_of_one_session_take_place_in_order(self, lab: StoreLab) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        versions = await asyncio.gather(
            *(store.set(f"{lab.root}/a", str(n).encode(), version=n) for n in range(50))
        )
        assert versions == list(range(1, 51))
        assert (await store.get(f"{lab.root}/a")).data == b"49"

    async def test_a_cancelled_operation_disturbs_nobody(self, lab: StoreLab) -> None:
        store = await lab.session()
        first = asyncio.create_task(store.create(f"{lab.root}/a"))
        second = asyncio.create_task(store.create(f"{lab.root}/b"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == f"{lab.root}/b"
        assert await store.children(lab.root) == ["a", "b"]

    async def test_expiry_is_told_watches_fire_and_a_new_session_works(self, lab: StoreLab) -> None:
        store, other = await lab.session(), await lab.session()
        states, watch, gone = Recorder(), Recorder(), Recorder()
        store.add_session_listener(states)
        await store.create(f"{lab.root}/mine", ephemeral=True)
        await store.create(f"{lab.root}/a")
        await store.get(f"{lab.root}/a", watch)
        await other.get(f"{lab.root}/mine", gone)
        old_session_id = store.session_id
        await lab.expire(store)
        await gone.seen(1)
        await states.said(SessionState.CONNECTED)
        assert states.calls == [
            SessionState.SUSPENDED,
            SessionState.EXPIRED,
            SessionState.CONNECTED,
        ]
        await watch.seen(1)
        assert store.session_id not in (0, old_session_id)
        assert store.state is SessionState.CONNECTED
        assert await store.exists(f"{lab.root}/mine") is None
        await store.create(f"{lab.root}/mine", ephemeral=True)
        assert len(watch.calls) == 1
        assert (await other.get(f"{lab.root}/mine")).ephemeral_owner == store.session_id

    async def test_a_short_cut_keeps_the_session_and_fires_watches(self, lab: StoreLab) -> None:
        store, other = await lab.session(), await lab.session()
        states, watch = Recorder(), Recorder()
        store.add_session_listener(states)
        await store.create(f"{lab.root}/mine", ephemeral=True)
        await store.get(f"{lab.root}/mine", watch)
        session_id = store.session_id
        await lab.cut(store)
        assert (store.state, watch.calls) == (SessionState.SUSPENDED, [])
        await other.create(f"{lab.root}/meanwhile")
        await lab.heal(store)
        await states.said(SessionState.CONNECTED)
        await watch.seen(1)
        assert states.calls == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        assert await store.children(lab.root) == ["meanwhile", "mine"]

    async def test_an_operation_waits_for_the_connection(self, lab: StoreLab) -> None:
        store = await lab.session()
        await lab.cut(store)
        waiting = asyncio.create_task(store.create(f"{lab.root}/a"))
        await asyncio.sleep(0)
        await lab.heal(store)
        assert await waiting == f"{lab.root}/a"

    async def test_a_waiting_operation_fails_when_the_session_is_gone(self, lab: StoreLab) -> None:
        store = await lab.session()
        await lab.cut(store)
        waiting = asyncio.create_task(store.create(f"{lab.root}/a"))
        await asyncio.sleep(0)
        await lab.expire(store)
        await lab.heal(store)
        with pytest.raises(SessionExpired):
            await waiting
        assert await store.children(lab.root) == []

    async def test_a_waiting_operation_gives_up_after_the_session_timeout(
        self, lab: StoreLab
    ) -> None:
        store = await lab.session()
        await lab.cut(store)
        with pytest.raises(ConnectionLoss):
            await store.create(f"{lab.root}/a")
        other = await lab.session()
        assert await other.exists(f"{lab.root}/a") is None

    async def test_what_a_watcher_or_a_listener_raises_costs_nobody_else(
        self, lab: StoreLab
    ) -> None:
        store = await lab.session()
        await store.create(f"{lab.root}/a")
        reports, watch, states = Reports(), Recorder(), Recorder()
        for watcher in (broken, watch):
            await store.get(f"{lab.root}/a", watcher)
            store.add_session_listener(broken if watcher is broken else states)
        await lab.cut(store)
        held = asyncio.ensure_future(store.get(f"{lab.root}/a"))
        await lab.heal(store)
        assert (await held).version == 0
        await states.said(SessionState.CONNECTED)
        await watch.seen(1)
        assert states.calls == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert reports.kinds() == {Kind.METADATA: 3}

    async def test_a_closed_store_refuses_and_stays_silent(self, lab: StoreLab) -> None:
        store, other = await lab.session(), await lab.session()
        await store.create(f"{lab.root}/a")
        watch, states = Recorder(), Recorder()
        await store.get(f"{lab.root}/a", watch)
        store.add_session_listener(states)
        await store.close()
        await other.set(f"{lab.root}/a", b"x")
        await other.sync("/")
        with pytest.raises(SessionExpired):
            await store.get(f"{lab.root}/a")
        await store.close()
        assert (store.session_id, watch.calls, states.calls) == (0, [], [])


class LagLab(Protocol):
    """An ensemble, one server of which can be kept from hearing of what is committed."""

    root: str

    async def session(self) -> MetadataStore: ...
    async def slow_session(self) -> MetadataStore:
        """A session at the server that can be kept behind."""

    async def hold(self) -> None:
        """From now on that server hears of nothing that is committed."""

    async def release(self) -> None:
        """Let it hear of everything, in its time."""

    async def move(self, store: MetadataStore, *, to_slow: bool = False) -> None:
        """Cut a session's connection; the next one leads to a server that lags, or does not."""

    async def stall(self) -> None:
        """From now on nothing is committed: the leader waits for a majority."""

    async def proceed(self) -> None: ...
    async def quiet(self) -> None:
        """Wait for longer than an answer takes that is on its way."""


class LagContract:
    async def test_a_lagging_server_shows_the_past(self, lab: LagLab) -> None:
        writer, reader = await lab.session(), await lab.slow_session()
        a, b, c = (f"{lab.root}/{name}" for name in "abc")
        await writer.multi([Create(a, b"old"), Create(b)])
        await reader.sync(lab.root)
        await lab.hold()
        await writer.set(a, b"new", 0)
        await writer.delete(b)
        await writer.create(c)
        assert await writer.children(lab.root) == ["a", "c"]
        node = await reader.get(a)
        assert (node.data, node.version) == (b"old", 0)
        assert await reader.children(lab.root) == ["a", "b"]
        assert await reader.exists(b) is not None
        assert await reader.exists(c) is None
        assert [n is not None for n in await reader.get_many([a, b, c])] == [True, True, False]
        await lab.release()
        await reader.sync(lab.root)
        assert (await reader.get(a)).data == b"new"
        assert await reader.children(lab.root) == ["a", "c"]

    async def test_sync_waits_until_the_server_has_caught_up(self, lab: LagLab) -> None:
        writer, reader = await lab.session(), await lab.slow_session()
        await writer.create(f"{lab.root}/a", b"old")
        await reader.sync(lab.root)
        await lab.hold()
        await writer.set(f"{lab.root}/a", b"new")
        syncing = asyncio.ensure_future(reader.sync(lab.root))
        behind = asyncio.ensure_future(reader.get(f"{lab.root}/a"))
        await lab.quiet()
        assert (syncing.done(), behind.done()) == (False, False)
        await lab.release()
        await syncing
        assert (await behind).data == b"new"

    async def test_a_write_is_made_at_once_and_answered_once_its_server_has_applied_it(
        self, lab: LagLab
    ) -> None:
        other, writer = await lab.session(), await lab.slow_session()
        await writer.create(f"{lab.root}/a", b"old")
        await lab.hold()
        before = asyncio.ensure_future(writer.get(f"{lab.root}/a"))
        writing = asyncio.ensure_future(writer.set(f"{lab.root}/a", b"new"))
        behind = asyncio.ensure_future(writer.get(f"{lab.root}/a"))
        assert (await before).data == b"old"
        await lab.quiet()
        await other.sync(lab.root)
        assert (await other.get(f"{lab.root}/a")).data == b"new"
        assert (writing.done(), behind.done()) == (False, False)
        await lab.release()
        assert await writing == 1
        assert (await behind).data == b"new"

    async def test_a_refusal_waits_for_the_server_too(self, lab: LagLab) -> None:
        other, writer = await lab.session(), await lab.slow_session()
        await other.create(f"{lab.root}/a")
        await writer.sync(lab.root)
        await lab.hold()
        await other.delete(f"{lab.root}/a")
        assert await writer.exists(f"{lab.root}/a") is not None
        writing = asyncio.ensure_future(writer.set(f"{lab.root}/a", b"x"))
        await lab.quiet()
        assert not writing.done()
        await lab.release()
        with pytest.raises(NoNode):
            await writing
        assert await writer.exists(f"{lab.root}/a") is None

    async def test_a_version_is_no_identity(self, lab: LagLab) -> None:
        """What a lagging server shows may be another node of the same version by now."""
        other, writer = await lab.session(), await lab.slow_session()
        await other.create(f"{lab.root}/a", b"first")
        await writer.sync(lab.root)
        await lab.hold()
        await other.delete(f"{lab.root}/a", 0)
        await other.create(f"{lab.root}/a", b"second")
        node = await writer.get(f"{lab.root}/a")
        assert (node.data, node.version) == (b"first", 0)
        deleting = asyncio.ensure_future(writer.delete(f"{lab.root}/a", node.version))
        await lab.quiet()
        await lab.release()
        await deleting
        assert await other.exists(f"{lab.root}/a") is None

    async def test_a_watch_fires_when_its_server_applies_the_change(self, lab: LagLab) -> None:
        writer, reader = await lab.session(), await lab.slow_session()
        await writer.create(f"{lab.root}/a", b"old")
        await reader.sync(lab.root)
        early, late = Recorder(), Recorder()
        await reader.get(f"{lab.root}/a", early)
        await lab.hold()
        await writer.set(f"{lab.root}/a", b"new")
        await reader.children(lab.root, late)
        await writer.create(f"{lab.root}/b")
        assert (await reader.get(f"{lab.root}/a", late)).data == b"old"
        await lab.quiet()
        assert (early.calls, late.calls) == ([], [])
        await lab.release()
        await reader.sync(lab.root)
        assert (len(early.calls), len(late.calls)) == (1, 2)

    async def test_a_session_that_moves_to_another_server_sees_what_is_new(
        self, lab: LagLab
    ) -> None:
        writer, reader = await lab.session(), await lab.slow_session()
        await writer.create(f"{lab.root}/a", b"old")
        await reader.sync(lab.root)
        states, watch = Recorder(), Recorder()
        reader.add_session_listener(states)
        session_id = reader.session_id
        await reader.get(f"{lab.root}/a", watch)
        await lab.hold()
        await writer.set(f"{lab.root}/a", b"new")
        assert (await reader.get(f"{lab.root}/a")).data == b"old"
        await lab.move(reader)
        await states.said(SessionState.CONNECTED)
        await watch.seen(1)
        assert reader.session_id == session_id
        await reader.sync(lab.root)
        assert (await reader.get(f"{lab.root}/a")).data == b"new"
        await lab.release()

    async def test_no_server_shows_a_session_less_than_it_has_seen(self, lab: LagLab) -> None:
        await lab.slow_session()
        writer, reader = await lab.session(), await lab.session()
        await writer.create(f"{lab.root}/a", b"old")
        await lab.hold()
        await writer.set(f"{lab.root}/a", b"seen")
        await reader.sync(lab.root)
        assert (await reader.get(f"{lab.root}/a")).data == b"seen"
        await lab.move(reader, to_slow=True)
        reading = asyncio.ensure_future(reader.get(f"{lab.root}/a"))
        await lab.quiet()
        await lab.release()
        assert (await reading).data == b"seen"

    async def test_an_unanswered_write_may_take_place_after_a_later_read(self, lab: LagLab) -> None:
        """That a write cannot be seen does not tell that it failed, until a `sync` was answered."""
        store, other = await lab.session(), await lab.session()
        await store.create(f"{lab.root}/a", b"old")
        await lab.stall()
        writing = asyncio.ensure_future(store.set(f"{lab.root}/a", b"new"))
        await lab.quiet()
        await lab.move(store)
        with pytest.raises(ConnectionLoss):
            await writing
        node = await store.get(f"{lab.root}/a")
        assert (node.data, node.version) == (b"old", 0)
        syncing = asyncio.ensure_future(store.sync(lab.root))
        await lab.proceed()
        await syncing
        node = await store.get(f"{lab.root}/a")
        assert (node.data, node.version) == (b"new", 1)
        await other.sync(lab.root)
        assert (await other.get(f"{lab.root}/a")).data == b"new"
