"""What read_committed consumers get, over rolls and takeovers, against the log as a list.

The list knows every record that was stored and how its transaction ended. A consumer filters by
what it is told, as the clients do; ledgers alone have to say the same (`index_run` over the facts).
"""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.core.topology import TopicInfo
from broker.partition.partition import Partition
from client.ids import Offset
from client.log.aborted_transactions import AbortedTransaction, index_run, open_block
from client.log.segments import SegmentList
from client.log.snapshot import open_snapshot
from client.metadata import paths
from client.segments.pages import SegmentPages
from client.wire.kafka.batches.control_batch import read_marker
from client.wire.kafka.batches.records import headers
from tests.fakes.brokers import Broker, World, batch, done, forget_cache, settle
from tests.fakes.transactions import FakeVerifier, end, send
from tests.fakes.virtual_time import run

PIDS = 3


@dataclasses.dataclass
class Record:
    pid: int
    """-1: of no transaction."""
    outcome: str = "open"
    """open, committed, aborted, or marker."""
    marker_at: int = -1


class Model:
    """The log, one record per offset."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.sequences = [0] * (PIDS + 1)

    def open(self, pid: int) -> list[int]:
        return [at for at, one in enumerate(self.log) if one.pid == pid and one.outcome == "open"]

    def end(self, pid: int, *, commit: bool) -> None:
        at = len(self.log)
        for offset in self.open(pid):
            self.log[offset].outcome = "committed" if commit else "aborted"
            self.log[offset].marker_at = at
        self.log.append(Record(-1, "marker"))

    def stable(self) -> int:
        every = (at for at, one in enumerate(self.log) if one.outcome == "open" and one.pid >= 0)
        return min(every, default=len(self.log))

    def aborted(self) -> list[AbortedTransaction]:
        found: dict[int, AbortedTransaction] = {}
        for at, one in enumerate(self.log):
            if one.outcome == "aborted" and one.marker_at not in found:
                found[one.marker_at] = AbortedTransaction(one.pid, at, one.marker_at)  # type: ignore[arg-type]
        return [found[at] for at in sorted(found)]

    def visible(self, start: int) -> list[int]:
        return [
            at
            for at in range(start, self.stable())
            if (self.log[at].pid < 0 and self.log[at].outcome == "open")
            or self.log[at].outcome == "committed"
        ]


class Cluster:
    """Two brokers that take the partition from each other."""

    def __init__(self, world: World, topic: TopicInfo) -> None:
        self.world = world
        self.topic = topic
        self.model = Model()
        self.broker: Broker
        self.partition: Partition

    async def begin(self) -> None:
        self.brokers = [await self.world.broker(number, owning=False) for number in (1, 2)]
        for broker in self.brokers:
            broker.services.coordinators.verifier = FakeVerifier()
        self.broker = self.brokers[0]
        self.partition = await self.broker.open(self.topic)

    async def do(self, step: tuple) -> None:  # type: ignore[type-arg]
        model, partition = self.model, self.partition
        match step:
            case ("data", 0):
                await done(partition.append(batch("p")))
                model.log.append(Record(-1))
            case ("data", pid):
                await done(send(partition, pid=pid, sequence=model.sequences[pid]))
                model.sequences[pid] += 1
                model.log.append(Record(pid))
            case ("end", pid, commit):
                if model.open(pid):
                    await end(partition, pid, commit=commit)
                    model.end(pid, commit=commit)
            case ("roll",):
                await partition.changes.roll()
            case ("crash",):
                await self.take_over()
            case ("peace",):
                await partition.close(5.0)
                await self.take_over()
            case ("empty",):  # a taker whose first entry is lost
                arrival, self.world.backend.service.arrival_s = (
                    self.world.backend.service.arrival_s,
                    lambda: 1e6,
                )
                await self.take_over()
                self.world.backend.service.arrival_s = arrival
                await self.take_over()

    async def take_over(self) -> None:
        self.broker = self.brokers[1 - self.brokers.index(self.broker)]
        self.partition = await self.broker.open(self.topic)

    async def check(self) -> None:
        model, partition = self.model, self.partition
        await settle()
        assert partition.high_watermark == partition.log_end_offset == len(model.log)
        assert partition.last_stable_offset == model.stable()
        opened = [
            (one.producer_id, one.first_offset)
            for one in partition.transactions.open_transactions()
        ]
        expected = [(pid, model.open(pid)[0]) for pid in range(1, PIDS + 1) if model.open(pid)]
        assert sorted(opened) == expected
        for is_cached in (True, False):
            if not is_cached:
                forget_cache(partition)
            for start in range(0, len(model.log) + 1, 1 + len(model.log) // 12):
                assert await self.consume(start, is_cached=is_cached) == model.visible(start)

    async def consume(self, start: int, *, is_cached: bool) -> list[int]:
        """Read as a consumer does, two batches at a time; return the offsets it delivers."""
        offset, found = Offset(start), []
        aborting: set[int] = set()
        while offset < self.partition.last_stable_offset:
            fetched = await self.partition.reader.read(
                offset, 160, at_least_one=True, read_committed=True
            )
            assert fetched.next_offset > offset, "a consumer would stand still"
            assert fetched.next_offset <= self.model.stable()
            every = self.model.aborted()
            assert list(fetched.aborted) == [
                one
                for one in every
                if one.last_offset >= offset and one.first_offset < fetched.next_offset
            ]
            waiting = sorted(fetched.aborted, key=lambda one: one.first_offset)
            data = b"".join(bytes(part) for part in fetched.buffers)
            for at, header in headers(data):
                while waiting and waiting[0].first_offset <= header.base_offset:
                    aborting.add(waiting.pop(0).producer_id)
                if header.is_control:
                    marker = read_marker(memoryview(data)[at : at + header.size])
                    if not marker.is_commit:
                        aborting.discard(marker.producer_id)
                elif not header.is_transactional or header.producer_id not in aborting:
                    found.append(int(header.base_offset))
            aborting.clear()  # each answer has its own list
            offset = fetched.next_offset
        return [at for at in found if at >= start]

    async def check_ledgers(self) -> None:
        """X13: sealed segments say what their log says, without the leader."""
        listed: SegmentList = self.world.segments(self.topic)
        pages = SegmentPages(self.broker.store, paths.partition(self.topic.id_text, 0))
        segments = [one async for one in pages.segments(listed)]
        service, every = self.world.backend.service, self.model.aborted()
        for at, first in enumerate(segments):
            if first.facts is None or first.end_offset == first.base_offset:
                continue
            assert first.base_offset is not None
            assert first.end_offset is not None
            for start in range(first.base_offset, first.end_offset):
                for stop in range(start + 1, first.end_offset + 1):
                    run, is_certain = index_run(segments[at:], Offset(stop))
                    if not is_certain:
                        continue
                    found: list[AbortedTransaction] = []
                    for segment in run:
                        place = segment.facts.transactions.aborted_at  # type: ignore[union-attr]
                        assert place is not None
                        data = service.ledgers[place.ledger_id].entries[place.entry_id]
                        said = open_snapshot(data).transactions
                        assert said is not None
                        index = said.index_of(segment.ledger_id, own=place.ledger_id)
                        entries = service.ledgers[segment.ledger_id].entries
                        blocks = {
                            entry_id: open_block(entries[entry_id])
                            for entry_id in index.wanted(Offset(start), Offset(stop))
                        }
                        found += index.within(Offset(start), Offset(stop), blocks)
                    assert found == [
                        one for one in every if one.last_offset >= start and one.first_offset < stop
                    ]
                    assert stop <= self.model.stable()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, PIDS)),
        st.tuples(st.just("data"), st.integers(1, PIDS)),
        st.tuples(st.just("end"), st.integers(1, PIDS), st.sampled_from([False, False, True])),
        st.tuples(st.just("end"), st.integers(1, PIDS), st.sampled_from([False, False, True])),
        st.sampled_from([("roll",), ("crash",), ("peace",), ("empty",)]),
    ),
    min_size=5,
    max_size=40,
)


def play(steps: list[tuple], **limits: int) -> None:  # type: ignore[type-arg]
    async def whole() -> None:
        world = await World(**limits).start()
        cluster = Cluster(world, await world.topic())
        try:
            await cluster.begin()
            for step in steps:
                await cluster.do(step)
            await cluster.check()
            await cluster.take_over()
            await cluster.check()
            await cluster.check_ledgers()
        finally:
            await world.close()

    run(whole())


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 3), st.sampled_from([2, 256]))
def test_a_consumer_gets_what_was_committed(
    steps: list[tuple],
    block_entries: int,
    page_entries: int,  # type: ignore[type-arg]
) -> None:
    play(steps, aborted_block_entries=block_entries, segment_page_entries=page_entries)


def test_a_taker_that_writes_nothing_leaves_what_is_aborted_to_the_next() -> None:
    """LISTED-ONCE-MORE, also when there are two ledgers, and several such takers."""
    play(
        [
            ("data", 1), ("end", 1, False), ("data", 2), ("roll",), ("end", 2, False), ("data", 1),
            ("end", 1, False), ("empty",), ("empty",), ("data", 3), ("empty",), ("end", 3, False),
        ],
        segment_page_entries=2,
    )  # fmt: skip
