"""Where share groups are in their partitions: asks the leaders, and answers for those led here.

What a group has of a partition is in the partition's own log, so its leader is asked, by the broker
that coordinates the group. What is to change is durable when the leader answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.errors import (
    BrokerError,
    LeaderNotAvailable,
    NotLeader,
    OffsetOutOfRange,
    PeerUnanswered,
    UnknownTopicId,
)
from broker.faults import code_of, message_of
from broker.groups.core.share_offset_messages import (
    SHARE_OFFSETS,
    AskedPartition,
    OffsetsQuestion,
    OffsetsRow,
    What,
)
from broker.leadership.partitions import Partitions
from broker.link.link_services import LinkServices
from broker.link.links import Links
from broker.partition.leading.partition_shares import settled
from broker.partition.partition import Partition
from client.errors import QuireError
from client.ids import BrokerId, Offset

LANE: Final = "share offsets"
ASK_S_MAX: Final = 10.0
_TEXT_MAX: Final = 500


class ShareOffsets:
    """The questions of one broker, and its answers."""

    def __init__(self, cluster: Cluster, links: Links, partitions: Partitions) -> None:
        self._cluster = cluster
        self._links = links
        self._partitions = partitions

    def serve(self, link: LinkServices) -> None:
        """Answer what coordinators ask."""
        link.serve(SHARE_OFFSETS, self._answer)

    async def all_of(self, question: OffsetsQuestion) -> list[OffsetsRow]:
        """Return what all live brokers have of a group. Raises PeerError: one has not answered."""
        brokers = list(self._cluster.brokers)
        found = await asyncio.gather(*(self._ask(one, question) for one in brokers))
        return [row for rows in found for row in rows]

    async def of(self, question: OffsetsQuestion) -> list[OffsetsRow]:
        """Return what the leaders of the partitions that are named say, in their order."""
        rows: dict[AskedPartition, OffsetsRow] = {}
        by_broker: dict[BrokerId, list[AskedPartition]] = {}
        for one in question.partitions:
            try:
                by_broker.setdefault(self._leader(one), []).append(one)
            except BrokerError as error:
                rows[one] = _refused(one, error)

        async def ask(broker: BrokerId, asked: Sequence[AskedPartition]) -> None:
            try:
                found = await self._ask(broker, question._replace(partitions=asked))
            except BrokerError as error:
                found = [_refused(one, error) for one in asked]
            rows.update(zip(asked, found, strict=True))

        await asyncio.gather(*(ask(broker, asked) for broker, asked in by_broker.items()))
        return [rows[one] for one in question.partitions]

    async def _ask(self, broker: BrokerId, question: OffsetsQuestion) -> Sequence[OffsetsRow]:
        try:
            async with asyncio.timeout(ASK_S_MAX):
                rows = await self._links.ask(broker, SHARE_OFFSETS, question, LANE)
        except TimeoutError:
            raise PeerUnanswered(f"broker {broker} has not answered") from None
        if question.partitions and len(rows) != len(question.partitions):
            raise PeerUnanswered(f"broker {broker} has answered for {len(rows)} partitions")
        return rows

    def _leader(self, asked: AskedPartition) -> BrokerId:
        topic = self._cluster.topic_by_id.get(asked.topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {asked.topic_id}")
        broker = self._cluster.preferred_leader(topic, asked.partition)
        if broker is None:
            raise LeaderNotAvailable(f"{topic.name}-{asked.partition} has no leader")
        return broker

    # --- answers --------------------------------------------------------------------------------

    async def _answer(self, _sender: BrokerId, question: OffsetsQuestion) -> Sequence[OffsetsRow]:
        if not question.partitions:
            led = [one for one in self._partitions if one.has_shares]
            rows = [_described(one, question) for one in led]
            return [row for row in rows if row.start >= 0]
        return [await self._one(one, question) for one in question.partitions]

    async def _one(self, asked: AskedPartition, question: OffsetsQuestion) -> OffsetsRow:
        try:
            partition = self._led(asked)
            if question.what is What.BEGIN_AT:
                await _begin_at(partition, question, asked.offset)
            elif question.what is What.FORGET:
                written = partition.shares.end(question.group_id)
                if written is not None:
                    await settled(written)
            return _described(partition, question)
        except QuireError as error:
            return _refused(asked, error)

    def _led(self, asked: AskedPartition) -> Partition:
        topic = self._cluster.topic_by_id.get(asked.topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {asked.topic_id}")
        partition = self._partitions.leader(topic.name, asked.partition)
        if partition.topic.topic_id != asked.topic_id:
            raise NotLeader(f"{partition.name} was deleted and created again")
        partition.check_leading()
        return partition


async def _begin_at(partition: Partition, question: OffsetsQuestion, offset: int) -> None:
    first, last = partition.log_start_offset, partition.high_watermark
    if not first <= offset <= last:
        raise OffsetOutOfRange(Offset(offset), first, last)
    written = partition.shares.restart(question.group_id, question.incarnation, Offset(offset))
    await settled(written)


def _described(partition: Partition, question: OffsetsQuestion) -> OffsetsRow:
    row = OffsetsRow(partition.topic.topic_id, partition.index)
    if not partition.has_shares:
        return row
    share = partition.shares.find(question.group_id, question.incarnation)
    if share is None:
        return row
    start = max(share.start, partition.log_start_offset)
    counts = share.counts()
    lag = max(0, partition.high_watermark - start - counts.settled - counts.archiving)
    return row._replace(start=start, leader_epoch=partition.leader_epoch, lag=lag)


def _refused(asked: AskedPartition, error: QuireError) -> OffsetsRow:
    text = message_of(error)[:_TEXT_MAX]
    return OffsetsRow(asked.topic_id, asked.partition, code_of(error), text)


def by_topic(rows: Sequence[OffsetsRow]) -> Mapping[UUID, list[OffsetsRow]]:
    """Return the rows of each topic."""
    found: dict[UUID, list[OffsetsRow]] = {}
    for row in rows:
        found.setdefault(row.topic_id, []).append(row)
    return found
