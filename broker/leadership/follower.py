"""Reads the sealed segments of one partition that another broker leads.

A follower changes nothing. It reads the segment list from the metadata store, and reads it again
once it is too old. Sealed segments are confirmed and never change, so a slightly outdated list is
never wrong: at worst it lacks a segment, or names one that a trim has deleted or compaction has
replaced. Only the leader can answer anything beyond that, and NOT_LEADER_OR_FOLLOWER sends the
consumer there. A follower must never answer that an offset is out of range: the consumer would
reset its position.

Consumers of committed records get what sealed segments decide: the data, and the list of aborted
transactions in it, both from the ledgers of the same segment list.

Which consumers fetch from a broker in their rack, and from which one (KIP-392), is decided by the
functions at the end. Any broker can read the ledgers of any partition, so any broker can serve
sealed segments; only the leader knows the end of the active one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.errors import FencedLeaderEpoch, LogReadFailed, NotLeader, UnknownLeaderEpoch
from broker.leadership.config import FollowerSettings
from broker.partition.log_reader import LogReader
from broker.partition.log_services import LogServices
from broker.partition.segment_node import SegmentNode
from broker.partition.tail_cache import Fetched
from client.errors import LogCorrupt, MetadataError
from client.ids import BrokerId, Offset
from client.log.segments import NO_EPOCH, Segment, SegmentList

_UNKNOWN: Final = Offset(-1)
_MISS_AGE_S: Final = 0.1
"""A list younger than this is not read again only because an offset is not in it."""

NOWHERE = Offset(-1)


class FetchPosition(NamedTuple):
    """What a consumer asks for."""

    offset: Offset
    epoch: int
    """The leader epoch that the consumer knows; -1: none."""
    committed: bool
    """Whether the consumer reads committed records only."""


class Follower:
    """Reads one partition that another broker leads."""

    def __init__(
        self, services: LogServices, topic: TopicInfo, index: int, settings: FollowerSettings
    ) -> None:
        self.topic = topic
        self.index = index
        self.name = f"{topic.name}-{index}"
        self.leader: BrokerId | None = None
        """Its leader, according to the cluster's view."""
        self.used_s = 0.0
        """When it was last read, by the loop's clock."""
        self._node = SegmentNode(services.requests, topic, index, services.pages)
        self._log = LogReader(services, self._node.pages, self._node.folder)
        self._list_age_s = settings.list_age_ms / 1000
        self._list_timeout_s = settings.list_timeout_ms / 1000
        self._listed: SegmentList | None = None
        self._read_s = 0.0
        self._is_listing = asyncio.Lock()
        self.reads = 0
        """Reads in progress."""

    @property
    def high_watermark(self) -> Offset:
        """End of what consumers may read here: everything sealed; -1: not known yet."""
        return _UNKNOWN if self._listed is None else sealed_end(self._listed)

    @property
    def last_stable_offset(self) -> Offset:
        """The same for consumers of committed records; -1: not known yet."""
        return _UNKNOWN if self._listed is None else stable_end(self._listed)

    @property
    def log_start_offset(self) -> Offset:
        """First offset that may be read; -1: not known yet."""
        return _UNKNOWN if self._listed is None else self._listed.log_start_offset

    async def read(self, position: FetchPosition, size_max: int, *, at_least_one: bool) -> Fetched:
        """Return whole batches of sealed segments, from the batch that holds the offset onwards.

        At most `size_max` bytes, except that `at_least_one` batch is returned whatever its size.
        Raises NotLeader (the leader has to answer), FencedLeaderEpoch, UnknownLeaderEpoch,
        LogReadFailed, LogCorrupt.
        """
        self.reads += 1
        try:
            listed = await self._list(self._list_age_s)
            if not _covers(listed, position):
                listed = await self._list(_MISS_AGE_S)
            while True:
                self._check(listed, position)
                try:
                    return await self._read(listed, position, size_max, at_least_one=at_least_one)
                except (LogReadFailed, LogCorrupt):
                    newer = await self._list(0.0)
                    if newer == listed:
                        raise
                    listed = newer  # a segment was trimmed, or compacted, since the list was read
        finally:
            self.reads -= 1

    async def _read(
        self, listed: SegmentList, position: FetchPosition, size_max: int, *, at_least_one: bool
    ) -> Fetched:
        offset, end = position.offset, _end(listed, position)
        found = await self._log.read(listed, offset, end, size_max, at_least_one=at_least_one)
        if at_least_one and not found.buffers:
            raise self._ask_leader(f"no sealed records are left from offset {offset} on")
        return await self._log.find_aborted(listed, offset, found) if position.committed else found

    def close(self) -> None:
        """Close it: it is no longer read here."""
        self._log.close()

    def _check(self, listed: SegmentList, position: FetchPosition) -> None:
        """Raise the error for a consumer that cannot be served here."""
        if listed.deleted:
            raise self._ask_leader("its topic is deleted")
        if position.epoch not in (NO_EPOCH, listed.leader_epoch):
            text = f"{self.name} is at leader epoch {listed.leader_epoch}, not {position.epoch}"
            is_old = position.epoch < listed.leader_epoch
            raise FencedLeaderEpoch(text) if is_old else UnknownLeaderEpoch(text)
        if not _covers(listed, position):
            raise self._ask_leader(f"offset {position.offset} is not sealed")

    async def _list(self, age_s: float) -> SegmentList:
        """Return the segment list, read at most `age_s` ago. Raises NotLeader."""
        asked_s = self._now_s()
        async with self._is_listing:  # whoever waited gets the list that was read meanwhile
            if self._listed is None or self._read_s < asked_s - age_s:
                began_s = self._now_s()
                try:
                    async with asyncio.timeout(self._list_timeout_s):
                        self._listed, _ = await self._node.read_back()
                except (MetadataError, TimeoutError) as error:
                    raise self._ask_leader(f"its segment list cannot be read: {error!r}") from error
                self._read_s = began_s
            return self._listed

    def _ask_leader(self, why: str) -> NotLeader:
        return NotLeader(f"another broker leads {self.name}, and {why}", leader=self.leader)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _covers(listed: SegmentList, position: FetchPosition) -> bool:
    """Whether the list covers the position, and is as new as the consumer's leader epoch."""
    is_known = position.epoch <= listed.leader_epoch
    return is_known and listed.log_start_offset <= position.offset < _end(listed, position)


def _end(listed: SegmentList, position: FetchPosition) -> Offset:
    return stable_end(listed) if position.committed else sealed_end(listed)


class Candidate(Protocol):
    """A live broker."""

    @property
    def id(self) -> BrokerId:
        """Its node id."""
        ...

    @property
    def rack(self) -> str | None:
        """Its failure domain."""
        ...


def sealed_end(listed: SegmentList) -> Offset:
    """Return the offset after the last sealed record; the log's start if nothing is sealed."""
    for item in reversed(listed.items):
        if item.end_offset is not None:
            return Offset(max(item.end_offset, listed.log_start_offset))
    return listed.log_start_offset


def stable_end(listed: SegmentList) -> Offset:
    """Return the last stable offset as far as sealed segments decide it: the bound of
    read_committed consumers. The log start offset if nothing is decided, or it is not known."""
    for item in reversed(listed.segments):
        if item.facts is not None:
            return Offset(max(item.facts.stable_offset, listed.log_start_offset))
    return listed.log_start_offset


def redirect_offset_max(listed: SegmentList, bytes_min: int) -> Offset:
    """Return the largest known offset with at least `bytes_min` sealed bytes at or after it;
    `NOWHERE`: there is none. Looks at whole segments, in the head of the list only."""
    left = bytes_min
    for item in reversed(listed.items):
        if isinstance(item, Segment):
            if item.facts is None or item.base_offset is None:
                continue
            left -= item.facts.size_bytes
        else:
            left -= item.size_bytes
        if left <= 0:
            return item.base_offset if item.base_offset is not None else NOWHERE
    return NOWHERE


def choose_replica(
    rack: str, candidates: Iterable[Candidate], topic_id: UUID, index: int
) -> BrokerId | None:
    """Return the broker that serves a partition in a rack; None: the rack has none.

    All brokers and all consumers of a rack get the same one, so it reads each entry once for all of
    them. The partitions of a topic are spread over all brokers of the rack.
    """
    near = sorted(one.id for one in candidates if one.rack == rack)
    return near[(topic_id.int + index) % len(near)] if near else None
