"""What is looked at in transaction schedules besides the book: X6, X13, and all that is read.

What clients are told as it happens is in `book.py`, X14 in `world.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.core.routing import TRANSACTIONS_TOPIC
from client.ids import ProducerId
from client.spark.plan.aborted_lookup import AbortedLookup
from client.spark.splits import OffsetRange
from tests.simulation.transactions.watchers import CommittedReader

if TYPE_CHECKING:
    from broker.cluster.core.topology import TopicInfo
    from broker.partition.partition import Partition
    from client.ids import LedgerId
    from client.log.segment import Segment
    from tests.fakes.brokers import World
    from tests.simulation.transactions.nodes import Place
    from tests.simulation.transactions.world import TransactionWorld


class SealedSegments:
    """What a reader without a broker sees of a partition. Stands for an `EntrySource`."""

    def __init__(self, base: World, topic: TopicInfo, index: int) -> None:
        self._base = base
        self._topic = topic
        self._index = index

    def sealed(self) -> list[Segment]:
        """Return the segments that have facts."""
        listed = self._base.segments(self._topic, self._index)
        return [segment for segment in listed.segments if segment.facts is not None]

    async def segments(self, _topic_id: str, _partition: int, start: int, end: int) -> Any:
        """Return the segments that hold some of the offsets."""
        listed = self._base.segments(self._topic, self._index).segments
        return [
            one
            for one in listed
            if one.base_offset is not None
            and one.base_offset < end
            and (one.end_offset is None or one.end_offset > start)
        ]

    async def describe(self, ledger_id: LedgerId) -> Any:
        """Return nothing that anybody needs."""
        return ledger_id

    async def entry(self, ledger_id: LedgerId, _metadata: Any, entry_id: int) -> Any:
        """Return one entry."""
        reader = await self._base.backend.service.client("spark").open(ledger_id)
        (entry,) = await reader.read(entry_id, entry_id)
        return entry


def check_taken_over(world: TransactionWorld, place: Place, partition: Partition) -> None:
    """X6: a new leader knows of its log what is there."""
    if place[0] == TRANSACTIONS_TOPIC:
        return
    world.count("takeovers looked at")
    log, fold = world.book.log(*place), partition._leader.log.fold
    wanted = log.state()
    found = {pid: int(one.first_offset) for pid, one in fold.transactions}
    if found != wanted.open:
        world.fail("X6", f"{place}: {found} taken for open, {wanted.open} is")
    first = min(wanted.open.values(), default=partition.log_end_offset)
    if partition.last_stable_offset != max(first, partition.log_start_offset):
        world.fail("X6", f"{place}: {partition.last_stable_offset} is stable, {first} should be")
    if world.forgets_producers:
        return
    for pid, epoch in wanted.epochs.items():
        if (known := fold.producers.epoch(ProducerId(pid))) != epoch:
            world.fail("X6", f"{place}: epoch {known} of {pid}, the log has {epoch}")
    for pid, epoch in wanted.coordinators.items():
        if (known := fold.transactions.coordinator_epoch(ProducerId(pid))) != epoch:
            world.fail("X6", f"{place}: coordinator {known} of {pid}, the log has {epoch}")


async def judge_partition(world: TransactionWorld, place: Place) -> None:
    """X1, and what of X2 and X3 a whole log shows: all that was committed is read, and no more."""
    reader = CommittedReader(world, place, "judge")
    await reader.read_everything()
    log = world.book.log(*place)
    if reader.shown != sorted(log.committed):
        world.fail("X1", f"{place}: read {reader.shown}, committed {sorted(log.committed)}")
    world.book.check_markers(place, world.topics[place[0]].topic_id)
    await _judge_indexes(world, place)


async def _judge_indexes(world: TransactionWorld, place: Place) -> None:
    """X13: what the facts of sealed segments tell a reader without a broker."""
    topic, index = world.topics[place[0]], place[1]
    source = SealedSegments(world.base, topic, index)
    aborted = world.book.log(*place).aborted
    for segment in source.sealed():
        assert segment.end_offset is not None
        start, end = segment.base_offset or 0, segment.end_offset
        if start >= end:
            continue
        whole = OffsetRange(topic.id_text, topic.name, index, start, end)
        found = await AbortedLookup(source).within(whole, [segment], start, end)
        if found is None:
            world.count("segments whose end is undecided")
            continue
        world.count("indexes of sealed segments")
        wanted = [one for one in aborted if one[1] < end and one[2] >= start]
        if sorted(map(tuple, found)) != sorted(wanted):
            world.fail("X13", f"{place} {start} to {end}: {found} listed, aborted was {wanted}")
