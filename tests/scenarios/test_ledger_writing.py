"""Writer scenarios: bookies that die at every step of an ensemble change, late and lost answers.

Numbers are those of the BookKeeper scenario list; issue numbers are Apache BookKeeper's. RULES.md
says which rule each test defends and how it fails without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from client.errors import BookieTimeout, LedgerFenced, WriteFailed
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.core.ledger_metadata import LedgerState
from client.ledger.write.writer import LedgerWriter
from client.metadata import paths
from client.metadata.memory import Fault, MemoryStore, Operation
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes.bookies import FakeBookie, Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle

E3 = "b0 b1 b2"


class World:
    """A ledger on three bookies, its writer, spare bookies, and a gate before its metadata."""

    def __init__(self, cluster: LedgerCluster, client: LedgerClient, writer: LedgerWriter) -> None:
        self.cluster = cluster
        self.client = client
        self.writer = writer
        self.ledger_id = writer.ledger_id
        self.outcomes = Outcomes(writer)
        self.members = [cluster.bookies[name] for name in writer.metadata.last_fragment.ensemble]
        """The first ensemble."""
        self.gate = gate_writes(cluster.stores[0])

    @classmethod
    async def start(cls, *spares: str) -> World:
        cluster = await LedgerCluster.start(*E3.split(), *spares)
        cluster.bookies.set_writable(E3.split())
        client = await cluster.client()
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        cluster.bookies.set_writable([*E3.split(), *spares])
        return cls(cluster, client, writer)

    def spare(self, name: str) -> FakeBookie:
        return self.cluster.bookies[name]

    async def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.outcomes.add()
        await settle()

    @property
    def first_entries(self) -> list[EntryId]:
        """Return where the fragments start, as the store has them."""
        metadata = self.cluster.stored_metadata(self.ledger_id)
        return [fragment.first_entry for fragment in metadata.fragments]

    @property
    def ensemble(self) -> tuple[str, ...]:
        """Return the last ensemble, as the store has it."""
        return self.cluster.stored_metadata(self.ledger_id).last_fragment.ensemble

    def check(self) -> None:
        assert self.writer.metadata.fragments == (
            self.cluster.stored_metadata(self.ledger_id).fragments
        )
        self.cluster.check_ledger(self.ledger_id, self.outcomes.confirmed)


def gate_writes(store: MemoryStore) -> asyncio.Event:
    """Let a session's metadata writes wait while the returned event is not set."""
    gate = asyncio.Event()
    gate.set()
    write = store.set

    async def gated(path: str, data: bytes, version: int = -1) -> int:
        await gate.wait()
        return await write(path, data, version)

    store.set = gated  # type: ignore[method-assign]
    return gate


def by_entry(**fates: Fate) -> Callable[[Request], Fate]:
    """Return a rule from entry (`e0`, `e1`, ...) to the fate of its add."""

    def fate_of(request: Request) -> Fate:
        if isinstance(request, AddRequest):
            return fates.get(f"e{request.entry_id}", fates.get("others", Fate.DELIVER))
        return Fate.DELIVER

    return fate_of


LOSE = by_entry(others=Fate.LOSE_REQUEST)


async def test_7_acks_during_the_change_confirm_nothing() -> None:
    """Scenario 7, issues 4651, 4097, 4194. Entry 0 is on b2; b2 fails entry 1 and is being
    replaced from entry 0 on. Now b1 stores entry 0 as well: confirming it with b2's ack would
    leave b1 as its only holder in the new fragment."""
    world = await World.start("b3")
    b0, b1, b2 = world.members
    b0.fate_of = by_entry(others=Fate.HOLD_REQUEST)
    b1.fate_of = by_entry(e0=Fate.HOLD_REQUEST)
    b2.fate_of = by_entry(e1=Fate.LOSE_REQUEST)
    world.gate.clear()
    await world.add(2)
    b1.release()
    await settle()
    assert world.outcomes.told == []
    world.gate.set()
    await settle()
    assert world.first_entries == [0]
    assert world.outcomes.confirmed == [0, 1]
    world.check()


async def test_7_a_replacement_gets_nothing_before_metadata_names_it() -> None:
    """Scenario 7, issues 1591, 1592. Were the writer to die now, nobody would look on b3."""
    world = await World.start("b3")
    world.members[0].fate_of = LOSE
    world.gate.clear()
    await world.add(1)
    await world.add(2)
    assert [r for r in world.spare("b3").seen if isinstance(r, AddRequest)] == []
    world.gate.set()
    await settle()
    assert world.outcomes.confirmed == [0, 1, 2]
    assert world.spare("b3").entry_ids(world.ledger_id) == [0, 1, 2]
    world.check()


async def test_7_a_second_bookie_dies_while_the_change_is_written() -> None:
    """Scenario 7, issue 1886. Both are replaced before anything is sent again."""
    world = await World.start("b3", "b4")
    b0, b1, _ = world.members
    b0.fate_of = LOSE
    b1.fate_of = by_entry(others=Fate.HOLD_REQUEST)
    world.gate.clear()
    await world.add(2)
    b1.crash()
    await settle()
    world.gate.set()
    await settle()
    assert world.outcomes.confirmed == [0, 1]
    assert not {b0.name, b1.name} & set(world.ensemble)
    assert world.first_entries == [0]
    world.check()


async def test_7_acks_of_replaced_bookies_do_not_outlive_the_change() -> None:
    """Scenario 7, issues 3005, 3041. Entry 1 has acks from b1 and b2, entry 0 has none; b2 is
    replaced. Neither may be confirmed before its new copies are stored."""
    world = await World.start("b3")
    b0, b1, b2 = world.members
    spare = world.spare("b3")
    b0.fate_of = by_entry(others=Fate.HOLD_REQUEST)
    b1.fate_of = by_entry(e0=Fate.HOLD_ANSWER, e2=Fate.HOLD_REQUEST)
    b2.fate_of = by_entry(e0=Fate.HOLD_REQUEST, e2=Fate.LOSE_REQUEST)
    spare.fate_of = by_entry(e1=Fate.HOLD_REQUEST)
    await world.add(3)
    assert world.outcomes.confirmed == []
    b1.release(1)
    await settle()
    assert world.outcomes.confirmed == [0]
    world.check()
    spare.release()
    b1.release()
    await settle()
    assert world.outcomes.confirmed == [0, 1, 2]
    world.check()


async def test_7_a_change_with_nothing_to_send_again_lets_the_queue_go_on() -> None:
    """Scenario 7, issues 1857, 4459, 4261. Nobody can replace b2; entry 0 got its quorum while
    the change was tried."""
    world = await World.start()
    b0, b1, b2 = world.members
    b0.fate_of = b1.fate_of = by_entry(e0=Fate.HOLD_ANSWER)
    b2.fate_of = LOSE
    update = world.client._nodes.update
    gate = asyncio.Event()

    async def slow_update(*args: object) -> object:
        await gate.wait()
        return await update(*args)  # type: ignore[arg-type]

    world.client._nodes.update = slow_update  # type: ignore[assignment, method-assign]
    await world.add(1)
    b0.release()
    b1.release()
    await settle()
    assert world.outcomes.told == []
    gate.set()
    await settle()
    assert world.outcomes.confirmed == [0]
    await world.add(1)
    assert world.outcomes.confirmed == [0, 1]


async def test_7_the_replacement_dies_at_once() -> None:
    """Scenario 7: the second change replaces the fragment that never got an entry confirmed."""
    world = await World.start("b3", "b4")
    world.members[0].fate_of = LOSE
    for name in ("b3", "b4"):
        world.spare(name).fate_of = LOSE if name == "b3" else by_entry()
    await world.add(1)
    await world.add(3)
    assert world.outcomes.confirmed == [0, 1, 2, 3]
    assert len(set(world.first_entries)) == len(world.first_entries)
    await world.add(1)
    assert world.spare("b4").name in world.ensemble
    world.check()


async def test_7_the_changes_answer_is_lost() -> None:
    """Scenario 7: the new metadata is recognised when it is read back."""
    world = await World.start("b3", "b4")
    faults = [Fault.LOSE_REPLY]

    def lose_first_set(operation: Operation) -> Fault | None:
        return faults.pop() if operation.name == "set" and faults else None

    world.cluster.metadata.on_request = lose_first_set
    world.members[0].fate_of = LOSE
    await world.add(2)
    await settle(100)
    assert faults == []
    assert world.outcomes.confirmed == [0, 1]
    node = world.cluster.metadata.tree.get(paths.ledger(world.ledger_id))
    assert node.version == 1, "one write was enough"
    world.check()


async def test_7_the_changes_answer_is_lost_and_the_next_server_lags() -> None:
    """Scenario 7: the writer goes on in the ensemble that metadata names, whatever it is shown.

    The spare one that the change brought in fails at once, so there is nobody left to choose. The
    member that it replaced comes back; another is slow. If the writer had it back in its ensemble,
    the next entry would be confirmed where no recovery asks, with one bookie down and Qa 2.
    """
    world = await World.start("b3")
    await world.add(1)
    store = world.cluster.stores[0]
    faults = [Fault.LOSE_REPLY]

    def lose_first_set(operation: Operation) -> Fault | None:
        if operation.name != "set" or not faults:
            return None
        world.cluster.bookies.set_writable(E3.split())
        return faults.pop()

    world.cluster.metadata.on_request = lose_first_set
    world.cluster.metadata.freeze(store)
    first, back, slow = world.members
    back.is_down = True
    await world.add(1)
    await settle(100)
    assert faults == []
    named = world.cluster.stored_metadata(world.ledger_id).last_fragment
    assert named.ensemble == (first.name, "b3", slow.name)
    assert world.writer.metadata.last_fragment == named
    back.is_down = False
    await asyncio.sleep(1.1)
    slow.fate_of = by_entry(others=Fate.HOLD_REQUEST)
    await world.add(1)
    await settle()
    first.is_down = True
    await (await world.cluster.client()).recover(world.ledger_id)
    world.cluster.check_ledger(world.ledger_id, world.outcomes.confirmed)


async def test_7_recovery_begins_while_the_change_is_written() -> None:
    """Scenario 7 against a recoverer: the writer loses its CAS, sees why and stops."""
    world = await World.start("b3")
    await world.add(1)
    world.members[0].fate_of = LOSE
    world.members[1].fate_of = by_entry(others=Fate.HOLD_REQUEST)
    world.gate.clear()
    await world.add(1)
    recovering = world.cluster.stored_metadata(world.ledger_id).in_recovery()
    world.cluster.store_metadata(world.ledger_id, recovering)
    world.gate.set()
    await settle()
    assert world.outcomes.errors == [LedgerFenced]
    assert world.cluster.stored_metadata(world.ledger_id) == recovering
    await (await world.cluster.client()).recover(world.ledger_id)
    world.cluster.check_ledger(world.ledger_id, world.outcomes.confirmed)


async def test_7_the_ledger_was_closed_while_the_change_was_written() -> None:
    """Scenario 7: a closed ledger is not changed, whoever closed it."""
    world = await World.start("b3")
    await world.add(1)
    world.members[0].fate_of = LOSE
    world.members[1].fate_of = by_entry(others=Fate.HOLD_REQUEST)
    world.gate.clear()
    await world.add(1)
    closed = world.cluster.stored_metadata(world.ledger_id).closed(EntryId(0), 7)
    world.cluster.store_metadata(world.ledger_id, closed)
    world.gate.set()
    await settle()
    assert len(world.outcomes.failed) == 1
    assert world.cluster.stored_metadata(world.ledger_id) == closed


@pytest.mark.parametrize("spares", [["b3", "b4", "b5"], ["b3", "b4"]])
async def test_8_all_three_replicas_fail_in_one_write_set(spares: list[str]) -> None:
    """Scenario 8. With enough spares nothing is lost; with two, the third is done without."""
    world = await World.start(*spares)
    await world.add(2)
    for bookie in world.members:
        bookie.crash()
    await world.add(3)
    assert world.outcomes.confirmed == [0, 1, 2, 3, 4]
    fragments = world.cluster.stored_metadata(world.ledger_id).fragments
    assert fragments[-1].first_entry == 2
    world.check()


async def test_8_all_three_replicas_fail_and_nobody_is_left() -> None:
    """Scenario 8: every pending add fails, with an unknown outcome, in order, once."""
    world = await World.start("b3")
    await world.add(2)
    for bookie in world.members:
        bookie.crash()
    await world.add(3)
    assert world.outcomes.confirmed == [0, 1]
    assert world.outcomes.failed == [2, 3, 4]
    assert world.outcomes.errors == [WriteFailed]
    for bookie in world.members:
        bookie.is_down = False
    await world.writer.close()
    assert world.cluster.stored_metadata(world.ledger_id).last_entry == 1
    world.check()


async def test_9_late_failure_after_the_ack() -> None:
    """Scenario 9. b2 always fails, always after the other two confirmed. The entries it missed
    stay in the old fragment; it is replaced when the next entry is added."""
    world = await World.start("b3")
    b2 = world.members[2]
    b2.fate_of = by_entry(others=Fate.HOLD_REQUEST)
    await world.add(2)
    assert world.outcomes.confirmed == [0, 1]
    b2.fail_held(BookieTimeout("late"))
    await settle()
    assert world.first_entries == [0], "an idle ledger is left alone"
    await world.add(1)
    assert world.outcomes.confirmed == [0, 1, 2]
    assert world.first_entries == [0, 2]
    assert b2.name not in world.ensemble
    assert world.spare("b3").entry_ids(world.ledger_id) == [2]
    world.check()


async def test_10_create_whose_answer_was_lost() -> None:
    """Scenario 10, issues 2006, 1967: the first attempt made the znode; it is ours."""
    cluster = await LedgerCluster.start(*E3.split())
    client = await cluster.client()
    faults = [Fault.LOSE_REPLY]

    def lose_first_ledger(operation: Operation) -> Fault | None:
        is_ledger = operation.name == "create" and "/L0" in operation.path
        return faults.pop() if is_ledger and faults else None

    cluster.metadata.on_request = lose_first_ledger
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    assert faults == []
    assert [ledger_id async for ledger_id in client.ledgers()] == [writer.ledger_id]
    await writer.append(b"x")
    await writer.close()


async def test_a_recovering_ledger_is_not_closed_by_its_writer() -> None:
    """CLOSE-WRITER, seeds: error to the application; recovery decides the end."""
    world = await World.start()
    await world.add(2)
    metadata = world.cluster.stored_metadata(world.ledger_id)
    world.cluster.store_metadata(world.ledger_id, metadata.in_recovery())
    with pytest.raises(LedgerFenced):
        await world.writer.close()
    state = world.cluster.stored_metadata(world.ledger_id).state
    assert state is LedgerState.IN_RECOVERY


async def test_acks_arrive_in_entry_order_whatever_the_bookies_do() -> None:
    """Invariant R8: entry 1 has its quorum long before entry 0."""
    world = await World.start()
    for bookie in world.members:
        bookie.fate_of = by_entry(e0=Fate.HOLD_ANSWER)
    await world.add(3)
    assert world.outcomes.told == []
    world.members[2].release()
    await settle()
    assert world.outcomes.told == []
    world.members[0].release()
    await settle()
    assert world.outcomes.told == [(0, None), (1, None), (2, None)]


async def test_an_answer_of_a_replaced_bookie_is_no_ack() -> None:
    """ADD-STALE: b2's answer for entry 0 comes after it was replaced; b0 alone is no quorum."""
    world = await World.start("b3")
    b0, b1, b2 = world.members
    b1.fate_of = by_entry(e0=Fate.HOLD_REQUEST)
    b2.fate_of = by_entry(e0=Fate.HOLD_ANSWER, e1=Fate.LOSE_REQUEST)
    world.spare("b3").fate_of = by_entry(e0=Fate.HOLD_REQUEST)
    b0.fate_of = by_entry(e1=Fate.HOLD_REQUEST)
    await world.add(2)
    assert world.ensemble[2] == "b3"
    b2.release()
    await settle()
    assert world.outcomes.told == []
    b1.release()
    await settle()
    assert world.outcomes.confirmed[:1] == [0]
    world.check()
