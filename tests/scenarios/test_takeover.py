"""Taking a partition over: what the new leader finds, and what becomes of the old one.

Most scenarios run on scripted ledgers and on the real ledger client over in-process bookies.
`broker.open` takes over without any election, so that the fencing stands alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from broker.errors import LeadershipLost, NotLeader, OffsetOutOfRange, OutOfOrderSequence
from broker.partition.core.takeover import RECOVER_LEDGERS
from client.errors import ConnectionLoss, LogCorrupt, Outcome, RecoveryInconclusive
from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerMetadata, LedgerState
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from tests.fakes.bookies import Fate
from tests.fakes.brokers import (
    Broker,
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    forget_cache,
    read_all,
    settle,
    until,
)
from tests.fakes.virtual_time import run

BACKENDS = [FakeBackend, ClientBackend]
both = pytest.mark.parametrize("backend", BACKENDS)

Scenario = Callable[[World, Broker, Broker], Awaitable[None]]


def two_brokers(scenario: Scenario, backend: type = FakeBackend, **limits: int) -> None:
    async def whole() -> None:
        world = await World(backend(), **limits).start()
        first = await world.broker(1, owning=False)
        second = await world.broker(2, owning=False)
        try:
            await scenario(world, first, second)
        finally:
            await world.close()

    run(whole())


@both
def test_the_new_leader_has_everything_that_was_acknowledged(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        for number in range(20):
            await done(old.append(batch(f"v{number}", f"w{number}")))
        new = await second.open(topic)
        assert (new.high_watermark, new.log_end_offset) == (40, 40)
        assert (old.leader_epoch, new.leader_epoch) == (0, 1)
        expected = [(n, f"{'vw'[n % 2]}{n // 2}") for n in range(40)]
        assert await read_all(new) == expected
        assert await done(new.append(batch("x"))) == 40
        assert (await read_all(new))[-1] == (40, "x")
        assert await new.reader.epoch_end(LeaderEpoch(0)) == (0, 40)
        assert await new.reader.epoch_end(LeaderEpoch(1)) == (1, 41)

    two_brokers(scenario, backend, snapshot_interval_bytes=500)


@both
def test_a_zombie_is_never_told_success_and_resigns(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        zombie = await first.open(topic)
        await done(zombie.append(batch("a", pid=1)))
        new = await second.open(topic)
        lost = [zombie.append(batch("b", pid=1, sequence=1)), zombie.append(batch("c"))]
        for append in lost:
            with pytest.raises(LeadershipLost) as caught:
                await done(append)
            assert caught.value.outcome is Outcome.UNKNOWN
        assert not zombie.is_open
        assert await done(new.append(batch("b", pid=1, sequence=1))) == 1
        assert await read_all(new) == [(0, "a"), (1, "b")]
        await settle()
        assert world.segments(topic).leader_epoch == 1

    two_brokers(scenario, backend)


@both
@pytest.mark.parametrize("attempt", ["roll", "trim", "out of range"])
def test_a_zombie_cannot_roll_trim_or_answer_out_of_range(backend: type, attempt: str) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        zombie = await first.open(topic)
        await done(zombie.append(batch("a")))
        new = await second.open(topic)
        before = world.segments(topic)
        ledgers = world.ledger_ids()
        with pytest.raises((NotLeader, LeadershipLost)):
            if attempt == "roll":
                await zombie.changes.roll()
            elif attempt == "trim":
                await zombie.changes.delete_records(Offset(-1))
            else:
                await zombie.reader.read(Offset(99), 9, at_least_one=True, read_committed=False)
        await settle()
        assert not zombie.is_open
        assert world.segments(topic) == before
        assert world.ledger_ids() == ledgers, "the zombie's unlisted ledger is deleted"
        assert new.is_open

    two_brokers(scenario, backend)


def test_a_zombie_that_is_cut_off_says_nothing_about_offsets() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        zombie = await first.open(topic)
        await done(zombie.append(batch("a")))
        world.cluster.suspend(first.store)
        new = await second.open(topic)
        await done(new.append(batch("b")))
        with pytest.raises(NotLeader):
            await zombie.reader.read(Offset(2), 9, at_least_one=True, read_committed=False)
        await asyncio.sleep(10)
        with pytest.raises(NotLeader, match="may have expired"):
            zombie.reader.read_cached(Offset(1), 9, at_least_one=True, read_committed=False)
        await second.services.lease.ask(second.store)
        with pytest.raises(OffsetOutOfRange):
            await new.reader.read(Offset(3), 9, at_least_one=True, read_committed=False)

    two_brokers(scenario)


# --- duplicates across takeovers ---------------------------------------------------------------


@both
def test_duplicates_are_known_after_a_takeover(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        for number in range(30):
            await done(old.append(batch("x", pid=number % 3, sequence=number // 3)))
        new = await second.open(topic)
        for number in range(15, 30):
            again = new.append(batch("x", pid=number % 3, sequence=number // 3))
            assert (again.completed, again.base_offset) == (True, number)
        with pytest.raises(OutOfOrderSequence):
            new.append(batch("x", pid=0, sequence=11))
        assert await done(new.append(batch("x", pid=0, sequence=10))) == 30
        third = await first.open(topic)
        assert third.append(batch("x", pid=0, sequence=10)).base_offset == 30

    two_brokers(scenario, backend, snapshot_interval_bytes=700, settling_ms=0)


def test_a_record_that_survived_without_acknowledgement_is_known_too() -> None:
    """Recovery finds entries whose answer never reached the old leader: their retry is a
    duplicate, although nobody was ever told that they were stored."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a", pid=1)))
        first.ledgers.hold_answers = True
        unheard = [old.append(batch(f"b{n}", pid=1, sequence=1 + n)) for n in range(3)]
        await settle()
        assert not any(append.completed for append in unheard)
        first.kill()
        new = await second.open(topic)
        assert new.high_watermark == 4
        for number in range(3):
            again = new.append(batch(f"b{number}", pid=1, sequence=1 + number))
            assert (again.completed, again.base_offset) == (True, 1 + number)
        assert await done(new.append(batch("c", pid=1, sequence=4))) == 4
        assert [value for _, value in await read_all(new)] == ["a", "b0", "b1", "b2", "c"]

    two_brokers(scenario)


def test_a_record_that_did_not_survive_is_stored_by_its_retry() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a", pid=1)))
        first.ledgers.hold_answers = True
        for name, sequence in (("b", 1), ("c", 2)):
            old.append(batch(name, pid=1, sequence=sequence))
            await settle()  # an entry for each
        first.kill()
        world.backend.service.keep_unconfirmed = lambda ledger: ledger.confirmed + 2
        new = await second.open(topic)
        assert new.high_watermark == 2
        assert new.append(batch("b", pid=1, sequence=1)).base_offset == 1
        assert await done(new.append(batch("c", pid=1, sequence=2))) == 2
        assert [value for _, value in await read_all(new)] == ["a", "b", "c"]

    two_brokers(scenario)


def test_real_recovery_resurrects_what_one_bookie_has() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a", pid=1)))
        await settle()
        bookies = [world.backend.bookies[f"b{n}:1"] for n in range(1, 5)]
        for bookie in bookies:
            bookie.fate_of = lambda request: Fate.HOLD_REQUEST
        unheard = old.append(batch("b", pid=1, sequence=1))
        await settle()
        members = [bookie for bookie in bookies if bookie.held]
        members[0].release()  # one copy of three is stored: no quorum, no acknowledgement
        await settle()
        assert not unheard.completed
        for bookie in bookies:
            bookie.held.clear()
            bookie.fate_of = lambda request: Fate.DELIVER
        new = await second.open(topic)
        assert new.high_watermark == 2
        assert new.append(batch("b", pid=1, sequence=1)).base_offset == 1
        assert await read_all(new) == [(0, "a"), (1, "b")]

    two_brokers(scenario, ClientBackend)


# --- the commit ----------------------------------------------------------------------------


def is_commit(operation: Operation) -> bool:
    """Whether this is the transaction of a takeover that nobody claimed before."""
    return operation.name == "multi" and operation.path.startswith(paths.LEDGERS_ROOT)


def break_commits(world: World, *faults: Fault) -> None:
    """Break the next commits in these ways."""
    pending = list(faults)

    def hook(operation: Operation) -> Fault | None:
        return pending.pop(0) if is_commit(operation) and pending else None

    world.cluster.on_request = hook


def ledger_path(world: World, topic: TopicInfo, position: int) -> str:
    return paths.ledger(world.segments(topic).segments[position].ledger_id)


def metadata_of(world: World, topic: TopicInfo, position: int) -> LedgerMetadata:
    """Return what the store says of a ledger of the list."""
    return metadata_codec.decode(world.cluster.tree.get(ledger_path(world, topic, position)).data)


@both
@pytest.mark.parametrize("fault", list(Fault))
def test_a_commit_without_answer_is_settled_by_reading_back(backend: type, fault: Fault) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        break_commits(world, fault, fault)
        new = await second.open(topic)
        assert new.leader_epoch == 1
        assert await done(new.append(batch("b"))) == 1
        listed = world.segments(topic)
        assert [item.ledger_id for item in listed.segments] == world.ledger_ids()
        await new.changes.roll()
        assert len(world.segments(topic).segments) == 3

    two_brokers(scenario, backend)


@both
def test_a_lost_commit_leaves_no_ledger_and_leads_nothing(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        path = paths.partition(topic.id_text, 0)
        winners: list[object] = []

        def hook(operation: Operation) -> Fault | None:
            if is_commit(operation) and not winners:
                winners.append(None)
                world.cluster.tree.set(path, world.segments(topic).encode(), -1)
            return None

        world.cluster.on_request = hook
        with pytest.raises(NotLeader, match="lost the compare-and-set"):
            await first.open(topic)
        assert world.ledger_ids() == []
        assert (await second.open(topic)).leader_epoch == 0

    two_brokers(scenario, backend)


def test_the_commit_closes_the_last_ledger() -> None:
    """Before it the ledger is open still, and a takeover that ends there has changed no list."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        await done((await first.open(topic)).append(batch("a")))
        states: list[LedgerState] = []

        def look(operation: Operation) -> None:
            if is_commit(operation):
                states.append(metadata_of(world, topic, 0).state)

        world.cluster.on_request = look
        new = await second.open(topic)
        assert states == [LedgerState.IN_RECOVERY]
        closed = metadata_of(world, topic, 0)
        assert closed.is_closed
        assert [item.facts is not None for item in world.segments(topic).segments] == [True, False]
        assert await read_all(new) == [(0, "a")]

    two_brokers(scenario, ClientBackend)


@pytest.mark.parametrize("is_answer_lost", [False, True])
def test_a_ledger_that_was_closed_elsewhere_refuses_the_commit(is_answer_lost: bool) -> None:
    """A repair ended it first, and without an entry that one bookie has and we have found."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        await settle()
        bookies = [world.backend.bookies[f"b{number}:1"] for number in range(1, 5)]
        for bookie in bookies:
            bookie.fate_of = lambda request: Fate.HOLD_REQUEST
        old.append(batch("b"))
        await settle()
        next(bookie for bookie in bookies if bookie.held).release()
        await settle()
        for bookie in bookies:
            bookie.held.clear()
            bookie.fate_of = lambda request: Fate.DELIVER
        lost = [Fault.LOSE_REQUEST] if is_answer_lost else []
        ended: list[EntryId] = []

        def repair(operation: Operation) -> Fault | None:
            if not is_commit(operation):
                return None
            if lost:
                return lost.pop()
            if not ended:
                found = metadata_of(world, topic, 0)
                ended.append(EntryId(1))
                closed = metadata_codec.encode(found.closed(ended[0], 100))
                world.cluster.tree.set(ledger_path(world, topic, 0), closed, -1)
            return None

        world.cluster.on_request = repair
        with pytest.raises(NotLeader, match="lost the compare-and-set"):
            await second.open(topic)
        assert len(world.segments(topic).segments) == 1
        new = await second.open(topic)
        assert metadata_of(world, topic, 0).last_entry == 1
        assert new.log_end_offset == 1
        assert await read_all(new) == [(0, "a")]

    two_brokers(scenario, ClientBackend)


def test_a_commit_that_came_through_and_was_overtaken_is_not_served() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        break_commits(world, Fault.LOSE_REPLY)
        world.cluster.reconnect_delay_s = 1.0
        opening = asyncio.create_task(first.open(topic))
        await until(lambda: world.segments(topic).segments)
        world.cluster.reconnect_delay_s = 0.0
        new = await second.open(topic)
        await done(new.append(batch("a")))
        with pytest.raises(NotLeader, match="overtaken"):
            await opening
        assert [item.ledger_id for item in world.segments(topic).segments] == world.ledger_ids()
        assert new.is_open

    two_brokers(scenario)


def test_nothing_is_accepted_before_the_commit() -> None:
    """A leader that dies before its commit leaves no trace of itself."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        lost: list[Operation] = []

        def lose(operation: Operation) -> Fault | None:
            if is_commit(operation) and operation.session_id == second.store.session_id:
                lost.append(operation)
                return Fault.LOSE_REQUEST
            return None

        world.cluster.on_request = lose
        opening = asyncio.create_task(second.open(topic))
        await until(lambda: len(lost) == 2)
        await settle()
        assert not opening.done()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        world.cluster.on_request = lambda operation: None
        new = await first.open(topic)
        assert new.leader_epoch == 1
        assert await read_all(new) == [(0, "a")]
        assert [item.ledger_id for item in world.segments(topic).segments] == world.ledger_ids()

    two_brokers(scenario)


# --- takeovers during a roll -------------------------------------------------------------------


@both
@pytest.mark.parametrize("written", [False, True])
def test_a_takeover_during_a_roll_recovers_the_last_two(backend: type, written: bool) -> None:
    """The old leader has listed the next ledger. Whether it writes the last one or still the one
    before, both must be closed before anything is decided."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a", pid=1)))
        if not written:
            # The answers of the old ledger never come: the roll cannot switch.
            hold_adds(world, first)
            old.append(batch("b", pid=1, sequence=1))
            rolling = asyncio.create_task(old.changes.roll())
        else:
            await stop_closing(world, first)
            rolling = asyncio.create_task(old.changes.roll())
        await until(lambda: len(world.segments(topic).segments) == 2)
        await settle()
        if written:
            await done(old.append(batch("b", pid=1, sequence=1)))
        assert [item.facts for item in world.segments(topic).segments] == [None, None]
        new = await second.open(topic)
        listed = world.segments(topic)
        assert len(listed.segments) == 3
        assert [item.facts is not None for item in listed.segments] == [True, True, False]
        assert RECOVER_LEDGERS == 2
        late = [old.append(batch("c", pid=1, sequence=2))] if old.is_open else []
        release(world, first)
        await settle()
        for append in late:
            with pytest.raises(LeadershipLost):
                await done(append)
        assert new.append(batch("b", pid=1, sequence=1)).base_offset == 1
        assert await done(new.append(batch("c", pid=1, sequence=2))) == 2
        forget_cache(new)
        assert [value for _, value in await read_all(new)] == ["a", "b", "c"]
        with pytest.raises((LeadershipLost, NotLeader)):
            await rolling

    two_brokers(scenario, backend)


def hold_adds(world: World, broker: Broker) -> None:
    """Entries are stored from now on, but their writer does not hear of it."""
    if isinstance(world.backend, FakeBackend):
        broker.ledgers.hold_answers = True
        return
    for number in range(1, 5):
        world.backend.bookies[f"b{number}:1"].fate_of = lambda request: (
            Fate.HOLD_ANSWER
            if type(request).__name__ == "AddRequest" and not request.recovery
            else Fate.DELIVER
        )


async def stop_closing(world: World, broker: Broker) -> None:
    """The broker's ledgers cannot be closed by it from now on."""
    if isinstance(world.backend, FakeBackend):
        world.backend.service.stop_at("close")
        return
    session = broker.store.session_id
    world.cluster.on_request = lambda operation: (
        Fault.LOSE_REQUEST
        if operation.session_id == session
        and operation.name == "set"
        and operation.path.startswith(paths.LEDGERS_ROOT)
        else None
    )


def release(world: World, broker: Broker) -> None:
    world.cluster.on_request = lambda operation: None
    if isinstance(world.backend, FakeBackend):
        broker.ledgers.release()
        if "close" in world.backend.service.gate:
            world.backend.service.gate.pop("close").set()
        return
    for number in range(1, 5):
        bookie = world.backend.bookies[f"b{number}:1"]
        bookie.fate_of = lambda request: Fate.DELIVER
        bookie.release()


def test_the_older_ledger_is_recovered_before_the_newer_one() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        world.backend.service.stop_at("close")
        rolling = asyncio.create_task(old.changes.roll())
        await until(lambda: len(world.segments(topic).segments) == 2)
        world.backend.service.recovered.clear()
        await second.open(topic)
        listed = [item.ledger_id for item in world.segments(topic).segments]
        assert world.backend.service.recovered == listed[:2]
        world.backend.service.gate.pop("close").set()
        await asyncio.gather(rolling, return_exceptions=True)

    two_brokers(scenario)


# --- what can be wrong with the list or the ledgers ----------------------------------------------


def test_leaders_that_never_wrote_anything_leave_empty_ledgers() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a", pid=1)))
        for broker in (second, first, second):
            broker.ledgers.hold_arrivals = True
            await broker.open(topic)
            await settle()
        first.ledgers.hold_arrivals = second.ledgers.hold_arrivals = False
        new = await first.open(topic)
        assert new.high_watermark == 1
        assert new.append(batch("a", pid=1)).base_offset == 0
        assert await read_all(new) == [(0, "a")]
        assert await done(new.append(batch("b", pid=1, sequence=1))) == 1
        assert len(world.segments(topic).segments) == 5

    two_brokers(scenario)


def test_a_missing_ledger_is_an_error_and_never_skipped() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        ledger_id = world.segments(topic).segments[0].ledger_id
        del world.backend.service.ledgers[ledger_id]
        before = world.segments(topic)
        with pytest.raises(LogCorrupt, match="does not exist"):
            await second.open(topic)
        assert world.segments(topic) == before

    two_brokers(scenario)


def test_a_ledger_that_was_just_trimmed_is_no_error() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        await old.changes.roll()
        await settle()
        gate = world.backend.service.stop_at("recover")
        opening = asyncio.create_task(second.open(topic))
        await settle()
        await old.changes.delete_records(Offset(1))
        assert len(world.segments(topic).segments) == 1
        gate.set()
        with pytest.raises(NotLeader, match="list changed"):
            await opening
        assert (await second.open(topic)).log_start_offset == 1

    two_brokers(scenario)


def test_an_unclear_recovery_is_tried_again_not_guessed() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        world.backend.service.fail_next("recover_read", RecoveryInconclusive("one bookie is away"))
        with pytest.raises(NotLeader):
            await second.open(topic)
        assert world.segments(topic).leader_epoch == 0
        new = await second.open(topic)
        assert await read_all(new) == [(0, "a")]

    two_brokers(scenario)


def test_a_ledger_that_cannot_be_planned_ends_the_attempt() -> None:
    """Too few bookies do not: `test_read_only_partitions.py`."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        world.backend.service.fail_next("create", ConnectionLoss("no id"))
        with pytest.raises(NotLeader):
            await first.open(topic)
        assert world.version(topic) == 0

    two_brokers(scenario)


def test_a_deleted_topic_cannot_be_opened_and_its_leader_resigns() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        await done(old.append(batch("a")))
        listed = world.segments(topic)
        path = paths.partition(topic.id_text, 0)
        world.cluster.tree.set(path, listed.condemned().encode(), world.version(topic))
        with pytest.raises(NotLeader, match="deleted"):
            await second.open(topic)
        with pytest.raises(LeadershipLost):
            await old.changes.roll()
        assert not old.is_open
        assert world.ledger_ids() == [item.ledger_id for item in listed.segments]

    two_brokers(scenario)


# --- after the takeover ----------------------------------------------------------------------


@both
def test_old_segments_are_searched_like_new_ones(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        broker = first
        for epoch in range(3):
            leader = await broker.open(topic)
            for number in range(40):
                stamp = 1000 * epoch + 10 * (number ^ 3)
                await done(leader.append(batch(f"e{epoch}n{number}", timestamp_ms=stamp)))
            broker = second if broker is first else first
        leader = await broker.open(topic)
        for epoch in range(3):
            for number in (0, 1, 17, 38):
                target = 1000 * epoch + 10 * number
                found = await leader.reader.offset_for_timestamp(target)
                assert found is not None
                offset, stamp = found
                assert stamp >= target
                assert offset == min(
                    40 * later + n
                    for later in range(3)
                    for n in range(40)
                    if 1000 * later + 10 * (n ^ 3) >= target
                )
        assert await leader.reader.offset_of_max_timestamp() == (80 + (39 ^ 3), 2390)
        for offset in range(0, 120, 7):
            found_values = await read_all(leader, offset, size_max=200)
            assert [at for at, _ in found_values] == list(range(offset, 120))

    two_brokers(scenario, backend, snapshot_interval_bytes=900, index_interval_bytes=300)


@both
def test_a_takeover_reads_back_a_short_tail_only(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        for number in range(500):
            await done(old.append(batch(f"v{number}", pid=1, sequence=number, pad=100)))
        if isinstance(world.backend, FakeBackend):
            world.backend.service.read_count = 0
        new = await second.open(topic)
        assert new.append(batch("v499", pid=1, sequence=499, pad=100)).base_offset == 499
        if isinstance(world.backend, FakeBackend):
            assert world.backend.service.read_count < 80

    two_brokers(scenario, backend, snapshot_interval_bytes=5000)


@both
def test_a_ledger_closed_in_peace_needs_no_scan(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        old = await first.open(topic)
        for number in range(200):
            await done(old.append(batch(f"v{number}", pid=1, sequence=number)))
        await old.close(5.0)
        if isinstance(world.backend, FakeBackend):
            world.backend.service.read_count = 0
        new = await second.open(topic)
        if isinstance(world.backend, FakeBackend):
            assert world.backend.service.read_count == 2
        assert new.append(batch("v199", pid=1, sequence=199)).base_offset == 199
        assert new.high_watermark == 200

    two_brokers(scenario, backend)


def test_ledgers_say_what_they_were_created_for() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await world.topic()
        await first.open(topic)
        ledger: LedgerId = world.ledger_ids()[0]
        assert (await first.ledgers.describe(ledger)).custom_metadata == {
            "application": b"quire",
            "quire.topic_id": topic.id_text.encode(),
            "quire.partition": b"0",
            "quire.leader_epoch": b"0",
        }

    two_brokers(scenario, ClientBackend)
