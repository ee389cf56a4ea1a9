"""One partition that another broker leads: reads of what is sealed, by its segment list.

Nothing here takes part in the partition's life. The list is read from the metadata store, again
once it is too old, and what it calls sealed is confirmed and stays as it is, so a list that is a
little old shows nothing that is not so: at most it lacks a segment, or names one that a trim has
deleted or compaction has replaced. Whatever a consumer asks beyond that is for the leader to
answer, and NOT_LEADER_OR_FOLLOWER sends it there; it must never hear from here that an offset is
out of range, for then it would start over somewhere else.

Consumers of committed records get what is decided by sealed segments: data and the list of what is
aborted in it by the same segment list, which names all ledgers of both.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.cluster.core.topology import TopicInfo
from broker.errors import FencedLeaderEpoch, LogReadFailed, NotLeader, UnknownLeaderEpoch
from broker.leadership.config import FollowerSettings
from broker.leadership.core.replica_selector import sealed_end, stable_end
from broker.partition.log_reader import LogReader
from broker.partition.log_services import LogServices
from broker.partition.segment_node import SegmentNode
from broker.partition.tail_cache import Fetched
from client.errors import LogCorrupt, MetadataError
from client.ids import BrokerId, Offset
from client.log.segments import NO_EPOCH, SegmentList

_UNKNOWN: Final = Offset(-1)
_MISS_AGE_S: Final = 0.1
"""A list that is younger is not read again because something is not in it."""


class Wanted(NamedTuple):
    """What a consumer asks for."""

    offset: Offset
    epoch: int
    """The leader epoch that it knows; -1: none."""
    committed: bool
    """Whether it reads committed records only."""


class Follower:
    """Reads one partition that is led elsewhere."""

    def __init__(
        self, services: LogServices, topic: TopicInfo, index: int, settings: FollowerSettings
    ) -> None:
        self.topic = topic
        self.index = index
        self.name = f"{topic.name}-{index}"
        self.leader: BrokerId | None = None
        """Who leads it, as far as the cluster's view tells."""
        self.used_s = 0.0
        """When it was read last."""
        self._node = SegmentNode(services.requests, topic, index, services.pages)
        self._log = LogReader(services, self._node.pages)
        self._list_age_s = settings.list_age_ms / 1000
        self._list_timeout_s = settings.list_timeout_ms / 1000
        self._listed: SegmentList | None = None
        self._read_s = 0.0
        self._is_listing = asyncio.Lock()
        self.reads = 0
        """Reads that are under way."""

    @property
    def high_watermark(self) -> Offset:
        """What consumers here may read, as far as it is known: everything sealed; -1: nothing is
        known yet."""
        return _UNKNOWN if self._listed is None else sealed_end(self._listed)

    @property
    def last_stable_offset(self) -> Offset:
        """What consumers of committed records may read here, as far as it is known."""
        return _UNKNOWN if self._listed is None else stable_end(self._listed)

    @property
    def log_start_offset(self) -> Offset:
        """First offset that may be read, as far as it is known; -1: it is not."""
        return _UNKNOWN if self._listed is None else self._listed.log_start_offset

    async def read(self, wanted: Wanted, size_max: int, *, at_least_one: bool) -> Fetched:
        """Return whole batches from the one that holds the offset on, of what is sealed.

        At most `size_max` bytes, except that `at_least_one` batch comes whatever its size. Raises
        NotLeader (the leader has to answer), FencedLeaderEpoch, UnknownLeaderEpoch, LogReadFailed,
        LogCorrupt.
        """
        self.reads += 1
        try:
            listed = await self._list(self._list_age_s)
            if not _covers(listed, wanted):
                listed = await self._list(_MISS_AGE_S)
            while True:
                self._check(listed, wanted)
                try:
                    return await self._read(listed, wanted, size_max, at_least_one=at_least_one)
                except (LogReadFailed, LogCorrupt):
                    newer = await self._list(0.0)
                    if newer == listed:
                        raise
                    listed = newer  # a segment was trimmed, or compacted, since the list was read
        finally:
            self.reads -= 1

    async def _read(
        self, listed: SegmentList, wanted: Wanted, size_max: int, *, at_least_one: bool
    ) -> Fetched:
        offset, end = wanted.offset, _end(listed, wanted)
        found = await self._log.read(listed, offset, end, size_max, at_least_one=at_least_one)
        if at_least_one and not found.buffers:
            raise self._not_here(f"nothing sealed is left from {offset} on")
        return await self._log.find_aborted(listed, offset, found) if wanted.committed else found

    def close(self) -> None:
        """Nobody reads it here any more."""
        self._log.close()

    def _check(self, listed: SegmentList, wanted: Wanted) -> None:
        """Raise what the consumer has to hear if it gets nothing here."""
        if listed.deleted:
            raise self._not_here("its topic is deleted")
        if wanted.epoch not in (NO_EPOCH, listed.leader_epoch):
            text = f"{self.name} is at leader epoch {listed.leader_epoch}, not {wanted.epoch}"
            is_old = wanted.epoch < listed.leader_epoch
            raise FencedLeaderEpoch(text) if is_old else UnknownLeaderEpoch(text)
        if not _covers(listed, wanted):
            raise self._not_here(f"offset {wanted.offset} is not sealed")

    async def _list(self, age_s: float) -> SegmentList:
        """Return the segment list, read at most so long ago. Raises NotLeader."""
        asked_s = self._now_s()
        async with self._is_listing:  # whoever waited gets what was read meanwhile
            if self._listed is None or self._read_s < asked_s - age_s:
                began_s = self._now_s()
                try:
                    async with asyncio.timeout(self._list_timeout_s):
                        self._listed, _ = await self._node.read_back()
                except (MetadataError, TimeoutError) as error:
                    raise self._not_here(f"its segment list cannot be read: {error!r}") from error
                self._read_s = began_s
            return self._listed

    def _not_here(self, why: str) -> NotLeader:
        return NotLeader(f"{self.name} is led elsewhere, and {why}", leader=self.leader)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _covers(listed: SegmentList, wanted: Wanted) -> bool:
    """Whether the list has what is wanted for, and is as new as the consumer's leader epoch."""
    is_known = wanted.epoch <= listed.leader_epoch
    return is_known and listed.log_start_offset <= wanted.offset < _end(listed, wanted)


def _end(listed: SegmentList, wanted: Wanted) -> Offset:
    return stable_end(listed) if wanted.committed else sealed_end(listed)
