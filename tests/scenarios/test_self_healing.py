"""Repairs on scripted bookies: what is lost is copied, what is held is not disturbed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import pytest

from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.decommission import Decommission
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.service import AutoRecovery
from client.autorecovery.tree import ReplicationTree
from client.errors import IncorrectParameter, LedgerFenced
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.under_replication import mark_under_replicated, read_mark
from client.ledger.write.writer import LedgerWriter
from client.metadata import paths
from client.metadata.memory import Fault, MemoryStore
from client.wire.bookkeeper.messages import AddRequest, ListEntriesRequest, Request
from tests.fakes.bad_nodes import HUGE, NEWER_FORMAT, NO_JSON
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster
from tests.fakes.scrape import parse
from tests.fakes.virtual_time import VirtualClock, run

NAMES = ("a:1", "b:1", "c:1", "d:1")
ROOT = paths.LEDGERS_ROOT


class Hospital:
    """A cluster with cookies and registrations, and any number of nodes of auto recovery."""

    def __init__(self, cluster: LedgerCluster) -> None:
        self.cluster = cluster
        self.store = cluster.metadata.session()
        self.nodes: list[AutoRecovery] = []

    @classmethod
    async def open(cls, *names: str) -> Hospital:
        hospital = cls(await LedgerCluster.start(*(names or NAMES)))
        for name in names or NAMES:
            path = paths.cookie(BookieId(name), ROOT)
            await hospital.store.create(path, make_parents=True)
            await hospital.store.create(paths.available_bookie(BookieId(name), ROOT))
        return hospital

    async def admit(self, **settings: int) -> AutoRecovery:
        """Start a node of auto recovery."""
        client = await self.cluster.client()
        settings = {"ledger_check_interval_ms": 0, **settings}
        node = AutoRecovery(
            self.cluster.stores[-1],
            client,
            me=BookieId(f"node{len(self.nodes)}"),
            clock=VirtualClock(),
            rng=random.Random(7),
            config=AutoRecoveryConfig(**settings),
        )
        await node.start()
        self.nodes.append(node)
        return node

    async def lose(self, name: str) -> None:
        """A bookie dies: its registration ends, it answers nobody."""
        bookies = self.cluster.bookies
        bookies[name].crash()
        await self.store.delete(paths.available_bookie(BookieId(name), ROOT))
        bookies.set_writable([known for known in bookies.writable if known != name])

    async def regain(self, name: str) -> None:
        bookies = self.cluster.bookies
        bookies[name].is_down = False
        await self.store.create(paths.available_bookie(BookieId(name), ROOT))
        bookies.set_writable([*bookies.writable, name])

    async def ledger(self, count: int, *, close: bool = True, size: int = 3) -> LedgerWriter:
        client = await self.cluster.client()
        writer = await client.create(ensemble_size=size, write_quorum=2, ack_quorum=2)
        for number in range(count):
            await writer.append(b"entry %d" % number)
        if close:
            await writer.close()
        return writer

    def members(self, ledger_id: LedgerId) -> set[str]:
        fragments = self.cluster.stored_metadata(ledger_id).fragments
        return {bookie for fragment in fragments for bookie in fragment.ensemble}

    async def is_marked(self, ledger_id: LedgerId) -> bool:
        return await read_mark(self.store, ledger_id) is not None

    def adds(self, name: str) -> list[EntryId]:
        seen = self.cluster.bookies[name].seen
        return [request.entry_id for request in seen if isinstance(request, AddRequest)]

    def damage_nothing(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Assert that every entry of closed ledgers is on its whole write set."""
        for ledger_id in ledger_ids:
            assert self.cluster.lacking(ledger_id) == set()

    async def close(self) -> None:
        for node in self.nodes:
            await node.stop()


def drop_entry(hospital: Hospital, ledger_id: LedgerId, name: str, *ids: int) -> None:
    entries = hospital.cluster.bookies[name].ledgers[ledger_id].entries
    for entry_id in ids:
        del entries[EntryId(entry_id)]


def test_every_ledger_of_a_lost_bookie_is_whole_again_without_anybody_acting() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        for _ in range(2):
            await hospital.admit()
        ledgers = [(await hospital.ledger(25)).ledger_id for _ in range(4)]
        lost = sorted(hospital.members(ledgers[0]))[0]
        await hospital.lose(lost)
        await asyncio.sleep(60)
        for ledger_id in ledgers:
            assert lost not in hospital.members(ledger_id)
            assert not await hospital.is_marked(ledger_id)
        hospital.damage_nothing(ledgers)
        assert await hospital.store.children(paths.replication_locks()) == []
        client = await hospital.cluster.client()
        for ledger_id in ledgers:
            read = await (await client.open(ledger_id)).read(EntryId(0), EntryId(24))
            assert [bytes(entry.payload) for entry in read] == [b"entry %d" % i for i in range(25)]
        await hospital.close()

    run(scenario())


def test_4419_a_bookie_that_died_before_the_auditor_started_is_noticed() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await hospital.lose(lost)
        await hospital.admit()
        await asyncio.sleep(60)  # it might have come yet
        assert lost not in hospital.members(ledger_id)
        hospital.damage_nothing([ledger_id])
        await hospital.close()

    run(scenario())


def test_3817_the_lost_bookie_delay_is_kept_whatever_else_happens() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open(*NAMES, "e:1")
        node = await hospital.admit()
        await node.tree.switches.set_delay(600)
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await asyncio.sleep(20)
        await hospital.lose(lost)
        await asyncio.sleep(60)
        await hospital.store.create(paths.available_bookie(BookieId("new:1")))
        await asyncio.sleep(400)
        assert lost in hospital.members(ledger_id)
        assert not await hospital.is_marked(ledger_id)
        await asyncio.sleep(300)
        assert lost not in hospital.members(ledger_id)
        await hospital.close()

    run(scenario())


def test_a_bookie_that_returns_within_the_delay_costs_nothing() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await hospital.admit(lost_bookie_delay_ms=600_000)
        ledger_id = (await hospital.ledger(5)).ledger_id
        before = hospital.cluster.stored_metadata(ledger_id)
        lost = sorted(hospital.members(ledger_id))[0]
        await hospital.lose(lost)
        await asyncio.sleep(300)
        await hospital.regain(lost)
        await asyncio.sleep(1000)
        assert hospital.cluster.stored_metadata(ledger_id) == before
        await hospital.close()

    run(scenario())


def test_a_cluster_that_starts_copies_nothing() -> None:
    """The auditor is elected before all but one of the bookies are registered."""

    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(5)).ledger_id
        before = hospital.cluster.stored_metadata(ledger_id)
        *late, missing = sorted(hospital.members(ledger_id))
        for name in (*late, missing):
            await hospital.lose(name)
        await hospital.admit(ledger_check_interval_ms=3_600_000)
        for name in late:
            await asyncio.sleep(7)
            await hospital.regain(name)
        await asyncio.sleep(10)
        assert not await hospital.is_marked(ledger_id)
        assert hospital.cluster.stored_metadata(ledger_id) == before
        await asyncio.sleep(60)
        assert missing not in hospital.members(ledger_id), "its time is over"
        await hospital.close()

    run(scenario())


def test_writing_the_delay_again_triggers_an_audit() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        await node.tree.switches.set_delay(100_000)
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await hospital.lose(lost)
        await asyncio.sleep(60)
        assert lost in hospital.members(ledger_id)
        await node.tree.switches.trigger()
        await asyncio.sleep(60)
        assert lost not in hospital.members(ledger_id)
        await hospital.close()

    run(scenario())


def test_an_audit_asked_for_is_repeated_until_it_succeeds() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        await node.tree.switches.set_delay(100_000)
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await hospital.lose(lost)
        await asyncio.sleep(60)
        faults = [Fault.LOSE_REQUEST]
        mark = paths.under_replicated_ledger(ledger_id)
        hospital.cluster.metadata.on_request = lambda operation: (
            faults.pop() if operation[1:] == ("create", mark) and faults else None
        )
        await node.tree.switches.trigger()
        await asyncio.sleep(60)
        assert faults == []
        assert lost not in hospital.members(ledger_id)
        await hospital.close()

    run(scenario())


def test_nothing_happens_while_auto_recovery_is_disabled() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await node.tree.switches.disable()
        await hospital.lose(lost)
        await asyncio.sleep(60)
        assert not await hospital.is_marked(ledger_id)
        await mark_under_replicated(hospital.store, ledger_id, [BookieId(lost)])
        await asyncio.sleep(600)
        assert lost in hospital.members(ledger_id)
        await node.tree.switches.enable()
        await asyncio.sleep(60)
        assert lost not in hospital.members(ledger_id)
        await hospital.close()

    run(scenario())


def test_every_missing_entry_of_a_live_bookie_is_copied_to_that_bookie() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(30)).ledger_id
        before = hospital.cluster.stored_metadata(ledger_id)
        member = before.last_fragment.ensemble[1]
        held = hospital.cluster.bookies[member].entry_ids(ledger_id)
        # Neither the first nor the last one: those are what a quick look would see.
        drop_entry(hospital, ledger_id, member, *held[3:5], held[9])
        await mark_under_replicated(hospital.store, ledger_id, [member])
        hospital.cluster.bookies[member].seen.clear()
        node = await hospital.admit()
        await asyncio.sleep(20)
        hospital.damage_nothing([ledger_id])
        assert sorted(hospital.adds(member)) == [*held[3:5], held[9]]
        stats = node.stats
        assert (stats.read_entries, stats.copied_entries, stats.repaired_ledgers) == (3, 3, 1)
        assert stats.read_bytes == stats.copied_bytes > 0
        assert hospital.cluster.stored_metadata(ledger_id) == before
        assert not await hospital.is_marked(ledger_id)
        await hospital.close()

    run(scenario())


def test_3783_4163_copies_are_recovery_adds_that_fenced_bookies_take() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        writer = await hospital.ledger(6, close=False)
        client = await hospital.cluster.client()
        await client.recover(writer.ledger_id)
        member = hospital.cluster.stored_metadata(writer.ledger_id).last_fragment.ensemble[0]
        assert hospital.cluster.bookies[member].ledgers[writer.ledger_id].fenced
        drop_entry(hospital, writer.ledger_id, member, 0)
        await mark_under_replicated(hospital.store, writer.ledger_id, [member])
        await hospital.admit()
        await asyncio.sleep(20)
        hospital.damage_nothing([writer.ledger_id])
        assert not await hospital.is_marked(writer.ledger_id)
        await hospital.close()

    run(scenario())


def test_742_3220_empty_ledgers_get_other_members_and_are_not_marked_forever() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await hospital.admit(open_ledger_grace_ms=30_000)
        closed = (await hospital.ledger(0)).ledger_id
        opened = (await hospital.ledger(0, close=False)).ledger_id
        both = hospital.members(closed) & hospital.members(opened)
        lost = sorted(both)[0]
        await hospital.lose(lost)
        await asyncio.sleep(200)
        for ledger_id in (closed, opened):
            assert lost not in hospital.members(ledger_id)
            assert not await hospital.is_marked(ledger_id)
        assert hospital.cluster.stored_metadata(opened).is_closed
        await hospital.close()

    run(scenario())


def test_the_writer_of_an_open_ledger_gets_the_grace_period_and_is_fenced_after_it() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await hospital.admit(open_ledger_grace_ms=30_000)
        writer = await hospital.ledger(4, close=False)
        lost = sorted(hospital.members(writer.ledger_id))[0]
        await hospital.lose(lost)
        await asyncio.sleep(25)
        assert not hospital.cluster.stored_metadata(writer.ledger_id).is_closed
        await asyncio.sleep(60)
        assert hospital.cluster.stored_metadata(writer.ledger_id).is_closed
        assert lost not in hospital.members(writer.ledger_id)
        hospital.damage_nothing([writer.ledger_id])
        with pytest.raises(LedgerFenced):
            await writer.append(b"too late")
        await hospital.close()

    run(scenario())


def test_a_live_writer_that_replaces_the_lost_member_is_not_disturbed() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await hospital.admit(open_ledger_grace_ms=30_000)
        writer = await hospital.ledger(4, close=False)
        lost = sorted(hospital.members(writer.ledger_id))[0]
        await hospital.lose(lost)
        for _ in range(3):
            await writer.append(b"more")
        await asyncio.sleep(300)
        metadata = hospital.cluster.stored_metadata(writer.ledger_id)
        assert not metadata.is_closed
        assert lost not in hospital.members(writer.ledger_id)  # the settled fragment was repaired
        await writer.append(b"still mine")
        await writer.close()
        hospital.damage_nothing([writer.ledger_id])
        await hospital.close()

    run(scenario())


def test_a_mark_of_a_live_member_never_stops_a_writer_and_stays_until_the_end() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await hospital.admit(retry_max_ms=10_000)
        writer = await hospital.ledger(4, close=False)
        member = hospital.cluster.stored_metadata(writer.ledger_id).last_fragment.ensemble[0]
        await mark_under_replicated(hospital.store, writer.ledger_id, [member])
        await asyncio.sleep(300)
        await writer.append(b"still mine")
        assert await hospital.is_marked(writer.ledger_id)
        drop_entry(hospital, writer.ledger_id, member, 0)
        await writer.close()
        await asyncio.sleep(30)
        hospital.damage_nothing([writer.ledger_id])
        assert not await hospital.is_marked(writer.ledger_id)
        await hospital.close()

    run(scenario())


def test_a_mark_set_again_during_the_repair_is_kept() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(6)).ledger_id
        member = hospital.cluster.stored_metadata(ledger_id).last_fragment.ensemble[0]
        drop_entry(hospital, ledger_id, member, 0)
        await mark_under_replicated(hospital.store, ledger_id, [member])
        bookie = hospital.cluster.bookies[member]

        def fate_of(request: Request) -> Fate:
            return Fate.HOLD_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER

        bookie.fate_of = fate_of
        await hospital.admit()
        await asyncio.sleep(1)
        assert len(bookie.held) == 1
        await mark_under_replicated(hospital.store, ledger_id, [member])
        versions = [await read_mark(hospital.store, ledger_id)]
        bookie.fate_of = lambda request: Fate.DELIVER
        bookie.release()
        await asyncio.sleep(1)
        assert [await read_mark(hospital.store, ledger_id)] == versions
        await asyncio.sleep(30)
        assert not await hospital.is_marked(ledger_id)  # looked again, removed by its version
        await hospital.close()

    run(scenario())


def test_an_entry_that_nobody_can_serve_is_retried_and_never_skipped() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(9)).ledger_id
        before = hospital.cluster.stored_metadata(ledger_id)
        lost = before.last_fragment.ensemble[0]
        held = {
            name: hospital.cluster.bookies[name].ledgers[ledger_id]
            for name in NAMES
            if ledger_id in hospital.cluster.bookies[name].ledgers
        }
        saved = {
            name: known.entries.pop(EntryId(3))
            for name, known in held.items()
            if EntryId(3) in known.entries
        }
        await hospital.lose(lost)
        await hospital.admit(retry_max_ms=20_000)
        await asyncio.sleep(200)
        assert hospital.cluster.stored_metadata(ledger_id) == before
        assert await hospital.is_marked(ledger_id)
        for name, entry in saved.items():
            held[name].entries[EntryId(3)] = entry
        await asyncio.sleep(60)
        assert not await hospital.is_marked(ledger_id)
        hospital.damage_nothing([ledger_id])
        await hospital.close()

    run(scenario())


def test_2855_a_locked_ledger_is_left_to_whoever_locked_it_until_that_one_is_gone() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(6)).ledger_id
        member = hospital.cluster.stored_metadata(ledger_id).last_fragment.ensemble[0]
        drop_entry(hospital, ledger_id, member, 0)
        other: MemoryStore = hospital.cluster.metadata.session()
        path = f"{ROOT}/underreplication/locks/urL{ledger_id:010d}"  # as Java workers name it
        await other.create(path, b'bookieId: "java:1"\n', ephemeral=True, make_parents=True)
        await mark_under_replicated(hospital.store, ledger_id, [member])
        await hospital.admit()
        await asyncio.sleep(60)
        assert hospital.cluster.lacking(ledger_id) == {member}
        await other.close()
        await asyncio.sleep(60)
        hospital.damage_nothing([ledger_id])
        await hospital.close()

    run(scenario())


def test_4490_the_mark_of_a_deleted_ledger_is_dropped() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        await mark_under_replicated(hospital.store, LedgerId(99), [BookieId("a:1")])
        await hospital.admit()
        await asyncio.sleep(20)
        assert not await hospital.is_marked(LedgerId(99))
        await hospital.close()

    run(scenario())


def test_a_check_of_all_ledgers_finds_lost_and_damaged_copies() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        first = (await hospital.ledger(9)).ledger_id
        second = (await hospital.ledger(9)).ledger_id
        member = hospital.cluster.stored_metadata(first).last_fragment.ensemble[1]
        held = hospital.cluster.bookies[member].entry_ids(first)
        drop_entry(hospital, first, member, held[2])
        other = hospital.cluster.stored_metadata(second).last_fragment.ensemble[2]
        last = hospital.cluster.bookies[other].entry_ids(second)[-1]
        whole = hospital.cluster.bookies[other].ledgers[second].entries[last]
        hospital.cluster.bookies[other].damage(second, last)
        await hospital.admit(ledger_check_interval_ms=3_600_000)
        await asyncio.sleep(60)
        hospital.damage_nothing([first])
        assert hospital.cluster.bookies[other].ledgers[second].entries[last] == whole
        assert not await hospital.is_marked(first)
        assert not await hospital.is_marked(second)
        await hospital.close()

    run(scenario())


def test_another_node_becomes_auditor_when_the_first_is_gone() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        first, second = await hospital.admit(), await hospital.admit()
        await asyncio.sleep(1)
        assert await first.tree.auditor() == "node0"
        await first.stop()
        await asyncio.sleep(1)
        assert await second.tree.auditor() == "node1"
        ledger_id = (await hospital.ledger(5)).ledger_id
        lost = sorted(hospital.members(ledger_id))[0]
        await hospital.lose(lost)
        await asyncio.sleep(60)
        assert lost not in hospital.members(ledger_id)
        await hospital.close()

    run(scenario())


def test_decommissioning_waits_for_every_copy_and_forgets_the_bookie() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        await node.tree.switches.set_delay(100_000)
        ledgers = [(await hospital.ledger(12)).ledger_id for _ in range(3)]
        opened = (await hospital.ledger(0, close=False)).ledger_id
        lost = BookieId(sorted(hospital.members(ledgers[0]))[0])
        client = await hospital.cluster.client()
        departure = Decommission(hospital.store, node.tree, client, lost, ROOT)
        with pytest.raises(IncorrectParameter):
            await departure.decommission(1.0, print)
        await hospital.lose(lost)
        waited: list[int] = []
        await departure.decommission(1.0, waited.append)
        assert waited
        assert all(lost not in hospital.members(each) for each in [*ledgers, opened])
        hospital.damage_nothing(ledgers)
        assert lost not in await node.tree.bookies_ever()
        assert await node.tree.marked_ledgers() == []
        await hospital.close()

    run(scenario())


def test_decommissioning_refuses_to_wait_while_nobody_works() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        await node.tree.switches.disable()
        await hospital.lose("a:1")
        client = await hospital.cluster.client()
        departure = Decommission(hospital.store, node.tree, client, BookieId("a:1"), ROOT)
        with pytest.raises(IncorrectParameter):
            await departure.decommission(1.0, print)
        assert "a:1" in await node.tree.bookies_ever()
        await hospital.close()

    run(scenario())


def test_recovering_a_bookie_copies_its_ledgers_without_auto_recovery() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        tree = ReplicationTree(hospital.store, BookieId("cli"), ROOT)
        ledgers = [(await hospital.ledger(12)).ledger_id for _ in range(3)]
        opened = (await hospital.ledger(5, close=False)).ledger_id
        lost = BookieId(sorted(hospital.members(opened))[0])
        theirs = [each for each in [*ledgers, opened] if lost in hospital.members(each)]
        client = await hospital.cluster.client()
        departure = Decommission(hospital.store, tree, client, lost, ROOT)
        replicator = FragmentReplicator(client, batch_entries=10)
        with pytest.raises(IncorrectParameter):
            await departure.recover(replicator)
        await hospital.lose(lost)
        assert await departure.recover(replicator) == (tuple(theirs), ())
        assert all(lost not in hospital.members(each) for each in theirs)
        hospital.damage_nothing([*ledgers, opened])

    run(scenario())


def test_a_bookie_that_cannot_say_what_it_has_keeps_the_mark() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(9)).ledger_id
        before = hospital.cluster.stored_metadata(ledger_id)
        member = before.last_fragment.ensemble[0]
        held = hospital.cluster.bookies[member].entry_ids(ledger_id)
        drop_entry(hospital, ledger_id, member, held[1])
        bookie = hospital.cluster.bookies[member]
        bookie.is_down = True  # hangs, but is registered
        await mark_under_replicated(hospital.store, ledger_id, [member])
        await hospital.admit(retry_max_ms=20_000)
        await asyncio.sleep(120)
        assert await hospital.is_marked(ledger_id)
        assert hospital.cluster.stored_metadata(ledger_id) == before
        bookie.is_down = False
        await asyncio.sleep(60)
        hospital.damage_nothing([ledger_id])
        assert not await hospital.is_marked(ledger_id)
        await hospital.close()

    run(scenario())


def test_a_bookie_that_cannot_list_its_entries_is_asked_for_each() -> None:
    """Apache's with DbLedgerStorage never answers when asked for the list (rule REPAIR-ASK)."""

    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(50)).ledger_id
        member = hospital.cluster.stored_metadata(ledger_id).last_fragment.ensemble[0]
        bookie = hospital.cluster.bookies[member]
        held = bookie.entry_ids(ledger_id)
        drop_entry(hospital, ledger_id, member, held[1], held[20])
        bookie.damage(ledger_id, held[5])
        bookie.fate_of = lambda request: (
            Fate.LOSE_REQUEST if isinstance(request, ListEntriesRequest) else Fate.DELIVER
        )
        await mark_under_replicated(hospital.store, ledger_id, [member])
        await hospital.admit()
        await asyncio.sleep(60)
        assert bookie.entry_ids(ledger_id) == held
        hospital.damage_nothing([ledger_id])
        assert not await hospital.is_marked(ledger_id)
        asked = [each for each in bookie.seen if isinstance(each, ListEntriesRequest)]
        assert len(asked) == 2, "it is not asked in vain again and again"
        await hospital.close()

    run(scenario())


def test_a_bookie_that_answers_nothing_keeps_the_mark() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(9)).ledger_id
        member = hospital.cluster.stored_metadata(ledger_id).last_fragment.ensemble[0]
        bookie = hospital.cluster.bookies[member]
        bookie.fate_of = lambda request: Fate.LOSE_REQUEST
        await mark_under_replicated(hospital.store, ledger_id, [member])
        await hospital.admit(retry_max_ms=20_000)
        await asyncio.sleep(60)
        assert await hospital.is_marked(ledger_id)
        bookie.fate_of = lambda request: Fate.DELIVER
        await asyncio.sleep(60)
        assert not await hospital.is_marked(ledger_id)
        await hospital.close()

    run(scenario())


def test_without_anybody_to_take_the_copies_the_mark_stays_until_there_is() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open("a:1", "b:1", "c:1")
        await hospital.admit(retry_max_ms=20_000)
        ledger_id = (await hospital.ledger(9)).ledger_id
        await hospital.lose("a:1")
        await asyncio.sleep(120)
        assert await hospital.is_marked(ledger_id)
        hospital.cluster.bookies.set_writable(["b:1", "c:1", "new:1"])
        await asyncio.sleep(60)
        assert hospital.members(ledger_id) == {"b:1", "c:1", "new:1"}
        hospital.damage_nothing([ledger_id])
        assert not await hospital.is_marked(ledger_id)
        await hospital.close()

    run(scenario())


def test_a_check_of_all_ledgers_that_hangs_holds_up_no_audit() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        ledger_id = (await hospital.ledger(5)).ledger_id
        ensemble = hospital.cluster.stored_metadata(ledger_id).last_fragment.ensemble
        hanging = hospital.cluster.bookies[ensemble[0]]
        hanging.fate_of = lambda request: Fate.HOLD_REQUEST
        await hospital.admit(ledger_check_interval_ms=3_600_000)
        await asyncio.sleep(10)
        assert len(hanging.held) == 1
        await hospital.lose(ensemble[1])
        await asyncio.sleep(10)
        assert await hospital.cluster.marked(ledger_id) == {ensemble[1]}
        await hospital.close()

    run(scenario())


def test_what_was_repaired_is_counted() -> None:
    async def scenario() -> None:
        hospital = await Hospital.open()
        node = await hospital.admit()
        ledger_ids = [(await hospital.ledger(25)).ledger_id for _ in range(4)]
        lost = sorted(hospital.members(ledger_ids[0]))[0]
        held = sum(lost in hospital.members(one) for one in ledger_ids)
        await hospital.lose(lost)
        await asyncio.sleep(60)
        found = parse(node.exposition().exposition())
        assert found["quire_recovery_is_auditor"] == found["quire_recovery_lost_bookies"] == 1
        assert found["quire_recovery_marked_ledgers_total"] == held
        assert found["quire_recovery_repaired_ledgers_total"] == held
        assert found["quire_recovery_under_replicated_ledgers"] == 0
        assert found["quire_recovery_copied_entries_total"] > 0
        assert found["quire_recovery_copied_bytes_total"] > 0
        assert found["quire_ledger_read_entries_total"] > 0
        await hospital.close()
        await asyncio.sleep(1)
        assert parse(node.exposition().exposition())["quire_recovery_is_auditor"] == 0

    run(scenario())


@pytest.mark.parametrize("bad", [NO_JSON, NEWER_FORMAT, HUGE])
def test_what_cannot_be_read_holds_up_the_repair_of_nothing_else(bad: bytes) -> None:
    """A mark, the metadata of a ledger, the cluster's delay, registrations; all of it stays."""

    async def scenario() -> None:
        hospital = await Hospital.open(*NAMES, "b9:1")
        ledgers = [(await hospital.ledger(5)).ledger_id for _ in range(6)]
        lost = sorted(hospital.members(ledgers[3]))[0]
        spoiled = {
            paths.under_replicated_ledger(ledgers[0]): hospital.store.create,
            paths.ledger(ledgers[1]): hospital.store.set,
            paths.lost_bookie_delay(): hospital.store.create,
        }
        for path, write in spoiled.items():
            if write == hospital.store.create:
                await hospital.store.create(path, bad, make_parents=True)
            else:
                await hospital.store.set(path, bad)
        unreadable = next(name for name in NAMES if name != lost)
        await hospital.store.set(paths.available_bookie(BookieId(unreadable)), bad)
        await hospital.lose(lost)
        await hospital.admit()
        await asyncio.sleep(120)
        for ledger_id in ledgers[2:]:
            assert lost not in hospital.members(ledger_id)
        hospital.damage_nothing(ledgers[2:])
        for path in spoiled:
            assert (await hospital.store.get(path)).data == bad
        named = hospital.nodes[0]._store.unreadable.all()
        assert {*spoiled} <= named.keys()
        await hospital.close()

    run(scenario())


@pytest.mark.parametrize("bad", [NO_JSON, NEWER_FORMAT, HUGE[:-1]])
def test_ledgers_are_checked_though_nobody_can_read_when_they_were_last(bad: bytes) -> None:
    """As often as is due, and the time stays as it is."""

    async def scenario() -> None:
        hospital = await Hospital.open()
        path = paths.all_ledgers_checked()
        await hospital.store.create(path, bad, make_parents=True)
        node = await hospital.admit(ledger_check_interval_ms=3_600_000, start_grace_ms=0)
        await asyncio.sleep(9000)
        found = parse(node.exposition().exposition())
        assert found["quire_recovery_checks_total"] == 3
        assert (await hospital.store.get(path)).data == bad
        assert node._store.unreadable.all().keys() == {path}
        await hospital.close()

    run(scenario())
