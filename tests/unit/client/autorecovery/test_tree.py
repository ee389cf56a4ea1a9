"""The under-replication tree: the very bytes and paths that Java auto recovery uses."""

from __future__ import annotations

import pytest

from client.autorecovery.tree import UNREADABLE, ReplicationTree, vote_of
from client.errors import MetadataCorrupt
from client.ids import BookieId, LedgerId
from client.ledger.under_replication import mark_under_replicated
from client.metadata.memory import MemoryCluster, MemoryStore
from client.metadata.store import Versioned, Watcher
from tests.fakes.bad_nodes import HUGE_JSON, NEWER_FORMAT, NO_JSON
from tests.fakes.virtual_time import run

TREE = "/ledgers/underreplication"


def make() -> tuple[MemoryCluster, MemoryStore, ReplicationTree]:
    cluster = MemoryCluster()
    store = cluster.session()
    return cluster, store, ReplicationTree(store, BookieId("me:1"), "/ledgers")


def test_the_tree_is_made_as_java_makes_it_and_only_once() -> None:
    async def scenario() -> None:
        _, store, tree = make()
        await tree.prepare()
        await tree.prepare()
        assert (await store.get(f"{TREE}/LAYOUT")).data == b'type: "BASIC"\nversion: 1\n'
        assert await store.children(TREE) == ["LAYOUT", "ledgers", "locks"]
        await store.set(f"{TREE}/LAYOUT", b'type: "OTHER"\nversion: 1\n')
        with pytest.raises(MetadataCorrupt):
            await tree.prepare()

    run(scenario())


def test_locks_are_ephemeral_and_name_their_holder() -> None:
    async def scenario() -> None:
        cluster, store, tree = make()
        assert await tree.lock(LedgerId(12))
        assert await tree.lock(LedgerId(12))  # ours already
        node = await store.get(f"{TREE}/locks/urL0000000012")
        assert node.data == b'bookieId: "me:1"\n'
        assert node.ephemeral_owner == store.session_id
        other = ReplicationTree(cluster.session(), BookieId("you:1"), "/ledgers")
        assert not await other.lock(LedgerId(12))
        await other.unlock(LedgerId(12))
        assert await other.locked_ledgers() == {12: "me:1"}
        await tree.unlock(LedgerId(12))
        assert await other.lock(LedgerId(12))

    run(scenario())


def test_every_mark_is_found() -> None:
    async def scenario() -> None:
        _, store, tree = make()
        assert await tree.marked_ledgers() == []
        ids = [LedgerId(0), LedgerId(7), LedgerId(2**40 + 1), LedgerId(2**62)]
        for ledger_id in ids:
            await mark_under_replicated(store, ledger_id, [BookieId("a:1")])
        assert await tree.marked_ledgers() == ids

    run(scenario())


def test_switches_and_delay() -> None:
    async def scenario() -> None:
        _, store, tree = make()
        assert not await tree.switches.is_disabled()
        await tree.switches.disable()
        await tree.switches.disable()
        assert await store.exists(f"{TREE}/disable") is not None
        await tree.switches.enable()
        await tree.switches.enable()
        assert not await tree.switches.is_disabled()
        assert await tree.switches.delay() is None
        await tree.switches.set_delay(30)
        await tree.switches.trigger()
        assert (await store.get(f"{TREE}/lostBookieRecoveryDelay")).data == b"30"
        assert await tree.switches.delay() == (30.0, 1)

    run(scenario())


def test_the_time_of_the_last_check_is_binary() -> None:
    async def scenario() -> None:
        _, store, tree = make()
        assert await tree.checked_ms() is None
        await tree.set_checked_ms(300)
        await tree.set_checked_ms(301)
        assert (await store.get(f"{TREE}/checkallledgersctime")).data == b"\x08\xad\x02"
        assert await tree.checked_ms() == 301

    run(scenario())


def test_an_audit_is_asked_for_without_a_change_of_the_delay() -> None:
    """Whoever sets another one meanwhile has asked for an audit, too; a server that lags shows the
    delay of before."""

    async def scenario() -> None:
        cluster, store, tree = make()
        await tree.switches.set_delay(30)
        other = ReplicationTree(cluster.session(), BookieId("you:1"), "/ledgers")
        cluster.freeze(store)
        await other.switches.set_delay(60)
        await tree.switches.trigger()
        assert await tree.switches.delay() == (60.0, 2)
        get = store.get

        async def overtaken(path: str, watcher: Watcher | None = None) -> Versioned:
            node = await get(path, watcher)
            await other.switches.set_delay(90)
            return node

        store.get = overtaken  # type: ignore[method-assign]
        await tree.switches.trigger()
        assert await other.switches.delay() == (90.0, 3)

    run(scenario())


@pytest.mark.parametrize("bad", [NO_JSON, NEWER_FORMAT, b"x" * 101, HUGE_JSON])
def test_what_cannot_be_read_is_named_and_stays(bad: bytes) -> None:
    async def scenario() -> None:
        _, store, tree = make()
        await tree.prepare()
        delay, checked = f"{TREE}/lostBookieRecoveryDelay", f"{TREE}/checkallledgersctime"
        lock, vote = f"{TREE}/locks/urL0000000012", f"{TREE}/auditorelection"
        for path in (delay, checked, lock, vote):
            await store.create(path, bad)
        assert await tree.switches.delay() is None
        await tree.switches.trigger()
        with pytest.raises(MetadataCorrupt):
            await tree.checked_ms()
        await tree.set_checked_ms(7)
        assert await tree.locked_ledgers() == {12: UNREADABLE}
        assert not await tree.lock(LedgerId(12))
        assert await tree.auditor() == UNREADABLE
        for path in (delay, checked, lock, vote):
            assert (await store.get(path)).data == bad
        assert store.unreadable.all().keys() == {delay, checked, lock, vote}
        await store.set(f"{TREE}/LAYOUT", bad)
        with pytest.raises(MetadataCorrupt, match=f"{TREE}/LAYOUT: ") as caught:
            await tree.prepare()
        assert len(str(caught.value)) < 500

    run(scenario())


def test_a_vote_is_text() -> None:
    assert vote_of(BookieId("a:1")) == b'bookieId: "a:1"\n'
