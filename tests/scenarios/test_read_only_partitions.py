"""Too few bookies accept entries: partitions are led for reads, and get a ledger later (READ-ONLY).

A full disk makes a bookie read-only: it serves reads and fences, and leaves the registrations of
those that accept entries. What the handbook says then, shorten retention, must work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from broker.cluster.core.topology import TopicInfo
from broker.errors import LeadershipLost, NotEnoughReplicas, NotLeader, OffsetOutOfRange
from broker.leadership.under_replicated_roller import UnderReplicatedRoller
from broker.partition.partition import HIGH_WATERMARK, Partition
from client.errors import BookieReadOnly, LedgerError
from client.ids import NO_LEDGER, LeaderEpoch, LedgerId, Offset
from client.metadata import paths
from client.metadata.memory import Fault, Operation
from client.wire.bookkeeper.messages import AddRequest, Request, Response
from tests.fakes.bookies import FakeBookie
from tests.fakes.brokers import (
    Broker,
    ClientBackend,
    FakeBackend,
    World,
    batch,
    done,
    read_all,
    settle,
    until,
)
from tests.fakes.transactions import FakeVerifier, end, marker, send
from tests.fakes.virtual_time import run

Scenario = Callable[[World, Broker, Broker], Awaitable[None]]

ALL = ["b1:1", "b2:1", "b3:1"]
both = pytest.mark.parametrize("backend", [FakeBackend, ClientBackend])


def play(scenario: Scenario, backend: type = FakeBackend, **limits: int) -> None:
    """Run a scenario on two brokers; with `ClientBackend`, bookies b1 to b3 under them."""

    async def whole() -> None:
        world = await World(backend(), **limits).start()
        fill(world, 0)
        first = await world.broker(1, owning=False)
        second = await world.broker(2, owning=False)
        try:
            await scenario(world, first, second)
        finally:
            await world.close()

    run(whole())


def fill(world: World, count: int) -> None:
    """Let so many bookies accept no entries; they go on serving reads and fences."""
    if isinstance(world.backend, FakeBackend):
        world.backend.service.set_bookie_count(3 - count)
        return
    bookies = world.backend.bookies
    bookies.set_writable(ALL[count:])
    for number, name in enumerate(ALL):
        make_full(bookies[name], is_full=number < count)


def make_full(bookie: FakeBookie, *, is_full: bool) -> None:
    """Let a bookie refuse all adds but those of recoveries, or no longer."""

    def refuse(request: Request) -> Response | LedgerError:
        if isinstance(request, AddRequest) and not request.recovery:
            return BookieReadOnly(f"{bookie.name} is read-only")
        return FakeBookie.apply(bookie, request)

    if is_full:
        bookie.apply = refuse  # type: ignore[method-assign]
    else:
        vars(bookie).pop("apply", None)


async def topic_of(world: World, name: str = "t", **config: str) -> TopicInfo:
    return await world.topic(name, min_insync_replicas="2", **config)


async def refused(partition: Partition) -> None:
    """Check that nothing is appended."""
    before = partition.log_end_offset
    with pytest.raises(NotEnoughReplicas, match="read-only"):
        partition.append(batch("refused"))
    assert partition.log_end_offset == before


@both
def test_everything_but_appends_goes_on(backend: type) -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        old = await first.open(topic)
        for number in range(4):
            made = batch(f"v{number}", timestamp_ms=1000 + number, pid=7, sequence=number)
            await done(old.append(made))
        ledgers = world.ledger_ids()
        fill(world, 2)
        new = await second.open(topic)
        assert new.is_open
        assert (new.leader_epoch, new.high_watermark, new.log_end_offset) == (1, 4, 4)
        assert world.ledger_ids() == ledgers
        await refused(new)
        with pytest.raises(NotEnoughReplicas):
            await new.changes.roll()
        with pytest.raises(LeadershipLost):
            await done(old.append(batch("of a zombie")))
        assert await read_all(new) == [(number, f"v{number}") for number in range(4)]
        assert await new.reader.offset_for_timestamp(1002) == (2, 1002)
        assert await new.reader.offset_of_max_timestamp() == (3, 1003)
        assert await new.reader.epoch_end(LeaderEpoch(0)) == (0, 4)
        assert await new.reader.epoch_end(LeaderEpoch(1)) == (1, 4)
        with pytest.raises(OffsetOutOfRange):
            await new.reader.read(Offset(9), 100, at_least_one=True, read_committed=False)
        assert await new.changes.delete_records(Offset(1)) == 1
        await new.changes.maintain(10_000)
        assert new.replication.is_under_replicated
        await new.close(1.0)
        fill(world, 0)
        last = await first.open(topic)
        assert last.leader_epoch == 2
        assert last.append(batch("v3", timestamp_ms=1003, pid=7, sequence=3)).base_offset == 3
        assert await done(last.append(batch("v4", pid=7, sequence=4))) == 4
        assert await read_all(last) == [(number, f"v{number}") for number in range(1, 5)]

    play(scenario, backend, settling_ms=0)


@both
def test_retention_frees_space(backend: type) -> None:
    """The remedy: what was sealed goes, and the last ledger, which says what a takeover must know,
    stays."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world, retention_ms="1000")
        old = await first.open(topic)
        for number in range(4):
            await done(old.append(batch(f"v{number}", timestamp_ms=1000)))
            if number < 3:
                await old.changes.roll()
        fill(world, 2)
        new = await second.open(topic)
        size = new.usage.size_bytes
        assert size == old.usage.size_bytes
        await new.changes.maintain(50_000_000)
        assert (new.log_start_offset, len(world.ledger_ids())) == (3, 1)
        assert new.usage.size_bytes < size
        assert await read_all(new) == [(3, "v3")]
        assert await new.changes.delete_records(HIGH_WATERMARK) == 4
        again = await first.open(topic)
        assert (again.log_start_offset, again.log_end_offset, again.leader_epoch) == (4, 4, 2)
        await refused(again)
        fill(world, 0)
        last = await second.open(topic)
        assert await done(last.append(batch("v4"))) == 4

    play(scenario, backend)


def test_a_log_that_was_never_led_is_empty() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        fill(world, 3)
        partition = await first.open(topic)
        assert (partition.leader_epoch, partition.log_end_offset) == (0, 0)
        assert await read_all(partition) == []
        assert await partition.reader.offset_of_max_timestamp() is None
        assert await partition.changes.delete_records(HIGH_WATERMARK) == 0
        await partition.changes.maintain(10_000)
        await refused(partition)
        assert partition.usage.size_bytes == 0
        assert await partition.reader.epoch_end(LeaderEpoch(0)) == (0, 0)
        fill(world, 0)
        last = await second.open(topic)
        assert await done(last.append(batch("a"))) == 0
        assert await partition.reader._node.read_back()  # its list is there

    play(scenario)


def test_a_ledger_without_entries_does_not_stand_for_those_before_it() -> None:
    """OWN-SNAPSHOT: nothing is dropped, because the last ledger has no snapshot."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        old = await first.open(topic)
        await done(old.append(batch("a", pid=7)))
        second.ledgers.hold_arrivals = True
        await second.open(topic)
        await settle()
        second.ledgers.hold_arrivals = False
        fill(world, 2)
        new = await first.open(topic)
        assert await new.changes.delete_records(HIGH_WATERMARK) == 1
        assert len(world.segments(topic).segments) == 2
        fill(world, 0)
        last = await second.open(topic)
        assert last.append(batch("a", pid=7)).base_offset == 0
        assert await done(last.append(batch("b", pid=7, sequence=1))) == 1

    play(scenario, settling_ms=0)


def test_aborted_transactions_are_known_although_no_ledger_lists_them() -> None:
    """The ledger was ended by recovery: ours would list them, but there is none."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        for broker in (first, second):
            broker.services.coordinators.verifier = FakeVerifier()
        old = await first.open(topic)
        await done(old.append(batch("first")))
        await done(send(old, "aborted"))
        await end(old, commit=False)
        await done(old.append(batch("last")))
        fill(world, 2)
        new = await second.open(topic)
        for partition in (new, await first.open(topic)):
            assert partition.last_stable_offset == 4
            fetched = await partition.reader.read(
                Offset(0), 1 << 20, at_least_one=True, read_committed=True
            )
            assert [one.first_offset for one in fetched.aborted] == [1]
        listed = world.segments(topic).segments
        assert all(one.facts is None or one.facts.transactions is None for one in listed), (
            "no place that there is not"
        )
        fill(world, 0)
        last = await second.open(topic)
        await settle()
        fetched = await last.reader.read(Offset(0), 1 << 20, at_least_one=True, read_committed=True)
        assert [one.first_offset for one in fetched.aborted] == [1]
        (sealed, _) = world.segments(topic).segments
        assert sealed.facts is not None
        assert sealed.facts.transactions is not None
        place = sealed.facts.transactions.aborted_at
        assert place is not None
        assert place.ledger_id != NO_LEDGER

    play(scenario)


def test_markers_are_refused_and_written_later() -> None:
    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        for broker in (first, second):
            broker.services.coordinators.verifier = FakeVerifier()
        old = await first.open(topic)
        await done(send(old, "a"))
        fill(world, 2)
        new = await second.open(topic)
        for _ in range(2):
            with pytest.raises(NotEnoughReplicas):
                await new.transactions.write_marker(marker(), is_tv2=False, leader_epoch=None)
        assert new.last_stable_offset == 0
        fill(world, 0)
        last = await first.open(topic)
        await end(last)
        assert last.last_stable_offset == 2

    play(scenario)


@pytest.mark.parametrize("fault", list(Fault))
def test_an_unknown_commit_is_given_up(fault: Fault) -> None:
    """It cannot be told from that of another broker without a ledger (OWN-ID)."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        topic = await topic_of(world)
        old = await first.open(topic)
        await done(old.append(batch("a")))
        fill(world, 2)
        pending = [fault]

        def hook(operation: Operation) -> Fault | None:
            is_commit = operation.path == paths.partition(topic.id_text, 0)
            return pending.pop() if is_commit and operation.name != "get" and pending else None

        world.cluster.on_request = hook
        with pytest.raises(NotLeader, match="unknown"):
            await second.open(topic)
        assert not pending
        assert (await second.open(topic)).high_watermark == 1

    play(scenario)


def test_a_leader_whose_bookies_fill_up_goes_on_reading_and_writes_when_there_is_space() -> None:
    """One produce must not end the reads, and nobody has to do anything afterwards."""

    async def scenario(world: World, first: Broker, second: Broker) -> None:
        broker = await world.broker(3)
        roller = UnderReplicatedRoller(broker.partitions, broker.ledgers, nothing_marked)
        roller.start()
        topic = await topic_of(world)
        partition = await broker.leads(topic)
        await done(partition.append(batch("a")))
        fill(world, 2)
        with pytest.raises(LeadershipLost):
            await done(partition.append(batch("b")))
        partition = await broker.leads(topic)
        ended = [value for _, value in await read_all(partition)]
        assert ended in (["a"], ["a", "b"])
        await refused(partition)
        fill(world, 0)
        await until(lambda: is_writable(broker, topic))
        partition = await broker.leads(topic)
        await done(partition.append(batch("c")))
        assert [value for _, value in await read_all(partition)] == [*ended, "c"]
        await roller.close()

    play(scenario, ClientBackend)


def is_writable(broker: Broker, topic: TopicInfo) -> bool:
    partition = broker.partitions.find(topic.name, 0)
    return partition is not None and not partition._leader.is_read_only


async def nothing_marked() -> list[LedgerId]:
    return []
