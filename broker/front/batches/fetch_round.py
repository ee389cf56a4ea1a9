"""One pass over everything a Fetch request asks for.

The limits of the answer: partitions are served in the order of the request; the first batch of the
first partition with data is included whatever its size, everything else only within both limits,
and within a number of batches, however small they are.
What is in memory is taken at once; what is only on bookies is read afterwards, all of it
concurrently, within the broker's budget for such reads, for which the first of them waits.

A consumer that says in which rack it is may be told to read from a broker there, and then that
broker reads what is sealed for it, though it does not lead (`broker/leadership/followers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from broker.access.rights import READ_TOPIC
from broker.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    InvalidRequest,
    NotLeader,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedCompression,
)
from broker.faults import code_of
from broker.front.core.fetch_sessions import Asked
from broker.front.services import Call, Services
from broker.leadership.awaited_partitions import Key
from broker.leadership.follower import FetchPosition, Follower
from broker.leadership.followers import Consumer
from broker.partition.partition import Fetched, Partition
from client.errors import QuireError
from client.ids import BrokerId, Offset
from client.ledger.bookies.core.racks import relation
from client.wire.kafka.answer_parts import Topic
from client.wire.kafka.batches.records import CODEC_MASK, Codec, headers
from client.wire.kafka.fetch import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    FetchRequest,
    PartitionData,
    PartitionFetch,
)
from client.wire.steps import STEP_ITEMS, Steps

_ZSTD_FROM: Final = 10
UNKNOWN: Final = -1
_ANSWER_BATCHES_MAX: Final = 50_000
"""Beyond about this many batches, an answer takes none of further partitions: each is a buffer."""
_BATCHES_PER_ITEM: Final = 20
"""Batches that cost as much to collect as a partition."""


class _Read(NamedTuple):
    """A partition whose data is on bookies only."""

    at: int
    leader: Partition | Follower
    """Who reads it."""
    size_max: int
    at_least_one: bool


class FetchRound:
    """What was found, by position in the request."""

    __slots__ = (
        "_awaited",
        "_committed",
        "_consumer",
        "_leaders",
        "_left",
        "_peer",
        "_reads",
        "_request",
        "_services",
        "_version",
        "asked",
        "failed",
        "read_bytes",
        "results",
        "size",
    )

    def __init__(
        self, services: Services, request: FetchRequest, asked: Sequence[Asked], call: Call
    ) -> None:
        self.asked: Final = asked
        self.results: list[PartitionData] = []
        self.size = 0
        """Record bytes in `results`."""
        self.read_bytes = 0
        """Of those, what was read from bookies: taken from the budget, and the caller's to give
        back."""
        self.failed = False
        """Whether a partition has an error or names another broker: neither waits."""
        self._awaited: list[Key] = []
        """Partitions that will be led in a moment; refused if the answer leaves before."""
        self._services = services
        self._version = call.version
        self._peer = call.peer
        self._committed = request.isolation == READ_COMMITTED
        self._request = request
        self._consumer: Consumer | None = None
        """Set if another broker may be able to serve the consumer."""
        if request.rack and services.followers.is_on:
            peer = call.peer
            self._consumer = Consumer(
                request.rack, peer.listener, peer.host, call.client_id, self._committed
            )
        self._leaders: list[Partition | None] = []
        self._reads: list[_Read] = []
        self._left = min(request.bytes_max, services.config.fetch_bytes_max)

    def collect(self) -> Steps[None]:
        """Take what is in memory."""
        work = batch_count = 0
        for at, one in enumerate(self.asked):
            if work >= STEP_ITEMS:
                work = 0
                yield
            if batch_count >= _ANSWER_BATCHES_MAX:
                self._left = 0
            self._left -= self._collect(at, one, self._left)
            count = len(self.results[at].records)
            batch_count += count
            work += 1 + count // _BATCHES_PER_ITEM

    @property
    def needs_reading(self) -> bool:
        """Whether `read` has something to do."""
        return bool(self._reads)

    def _collect(self, at: int, one: Asked, left: int) -> int:
        """Look at one partition; return how much of the limit it uses."""
        leader: Partition | None = None
        fetched: Fetched | None = None
        replica: BrokerId | None = None
        fetch = one.fetch
        size_max = max(0, min(fetch.bytes_max, left))
        first = not self.size and not self._reads
        used = 0
        try:
            leader = self._leader(one)
            check_epoch(leader, max(UNKNOWN, fetch.leader_epoch))  # as in Kafka, only here
            if self._consumer is not None:
                followers = self._services.followers
                replica = followers.preferred_read_replica(
                    leader, self._consumer, Offset(fetch.offset)
                )
            if replica is None and (size_max or first):
                fetched = leader.reader.read_cached(
                    Offset(fetch.offset),
                    size_max,
                    at_least_one=first,
                    read_committed=self._committed,
                )
                if fetched is None:
                    self._reads.append(_Read(at, leader, size_max, first))
                    used = size_max
                else:
                    self._check_codecs(fetched)
                    used = fetched.size
                    self.size += used
                    self._services.metrics.cache_read_bytes += used
        except QuireError as error:
            if leader is None and isinstance(error, NotLeader):
                return self._collect_elsewhere(at, one, error, size_max, first=first)
            self.failed = True
            self.results.append(self._refusal(fetch, error, leader))
        else:
            data = self._data(fetch, leader, fetched)
            if replica is not None:
                self.failed = True
                data = data._replace(replica=replica)
            self.results.append(data)
        self._leaders.append(leader)
        return used

    def _collect_elsewhere(
        self, at: int, one: Asked, error: NotLeader, size_max: int, *, first: bool
    ) -> int:
        """Do as `_collect` for a partition that is not led here, or not yet."""
        fetch, name = one.fetch, self._name(one.topic)
        self._leaders.append(None)
        key = self._services.partitions.awaited_key(name, fetch.partition)
        followers, reader = self._services.followers, self._consumer
        if key is not None:
            self._awaited.append(key)
        if key is not None or reader is None or not followers.serves(reader.rack):
            self.failed |= key is None
            self.results.append(self._refusal(fetch, error, None))
            return 0
        follower = followers.find(name, fetch.partition, error)
        self.results.append(self._data(fetch, follower, None))
        if not (size_max or first):
            return 0
        self._reads.append(_Read(at, follower, size_max, first))
        return size_max

    def _leader(self, one: Asked) -> Partition:
        if self._request.isolation not in ISOLATION_LEVELS:
            raise InvalidRequest(f"unknown isolation level {self._request.isolation}")
        name = self._name(one.topic)
        self._services.rights.require(self._peer, READ_TOPIC, name)
        leader = self._services.partitions.leader(name, one.fetch.partition)
        if isinstance(one.topic, UUID) and leader.topic.topic_id != one.topic:
            raise InconsistentTopicId(
                f"{leader.name} was deleted and created again: its id has changed"
            )
        return leader

    def _name(self, topic: Topic) -> str:
        if isinstance(topic, str):
            return topic
        known = self._services.cluster.topic_by_id.get(topic)
        if known is None:
            raise UnknownTopicId(f"no topic has the id {topic}")
        return known.name

    def count_fetched(self, topic: Topic, size: int) -> None:
        """Count record bytes of a partition that are about to be sent."""
        known = topic if isinstance(topic, str) else self._services.cluster.topic_by_id.get(topic)
        if known is not None:
            name = known if isinstance(known, str) else known.name
            where = relation(self._services.config.rack, self._request.rack)
            self._services.metrics.on_fetched(name, size, where)

    async def read(self) -> None:
        """Read from bookies what was not in memory."""
        budget = self._services.reading
        first, *others = self._reads
        await budget.acquire(first.size_max)
        taken = [first, *(read for read in others if budget.take(read.size_max))]
        taken_bytes = sum(read.size_max for read in taken)
        try:
            outcomes = await asyncio.gather(*map(self._read_one, taken))
            self.read_bytes = sum(found.size for found in outcomes if isinstance(found, Fetched))
        finally:
            budget.keep(taken_bytes, self.read_bytes)
        self._reads = []
        for read, outcome in zip(taken, outcomes, strict=True):
            fetch = self.asked[read.at].fetch
            if isinstance(outcome, QuireError):
                self.failed = True
                self.results[read.at] = self._refusal(fetch, outcome, read.leader)
            else:
                self.results[read.at] = self._data(fetch, read.leader, outcome)
                self.size += outcome.size
                self._services.metrics.ledger_read_bytes += outcome.size

    async def _read_one(self, read: _Read) -> Fetched | QuireError:
        fetch, leader = self.asked[read.at].fetch, read.leader
        offset = Offset(fetch.offset)
        try:
            if isinstance(leader, Follower):
                position = FetchPosition(offset, fetch.leader_epoch, self._committed)
                fetched = await leader.read(position, read.size_max, at_least_one=read.at_least_one)
            else:
                fetched = await leader.reader.read(
                    offset,
                    read.size_max,
                    at_least_one=read.at_least_one,
                    read_committed=self._committed,
                )
            self._check_codecs(fetched)
        except QuireError as error:
            return error
        return fetched

    def on_news(self, call: Callable[[], None]) -> list[Callable[[], None]]:
        """Call when any partition has more to give; return what cancels the waits."""
        awaited = self._services.partitions.awaited
        waits = [awaited.wait(key, call).cancel for key in dict.fromkeys(self._awaited)]
        for one, leader, data in zip(self.asked, self._leaders, self.results, strict=True):
            if leader is not None:
                bound = data.last_stable_offset if self._committed else data.high_watermark
                above = Offset(max(one.fetch.offset, bound))
                waits.append(leader.on_high_watermark(above, call, read_committed=self._committed))
        return waits

    def _data(
        self, fetch: PartitionFetch, leader: Partition | Follower | None, fetched: Fetched | None
    ) -> PartitionData:
        high = stable = start = UNKNOWN
        if leader is not None:
            high, stable = leader.high_watermark, leader.last_stable_offset
            start = leader.log_start_offset
        return PartitionData(
            fetch.partition,
            0,
            high,
            stable,
            start,
            () if fetched is None else fetched.buffers,
            0 if fetched is None else fetched.size,
            _in_order(fetched) if self._committed else None,
        )

    def _refusal(
        self, fetch: PartitionFetch, error: QuireError, leader: Partition | Follower | None
    ) -> PartitionData:
        code = code_of(error)
        errors = self._services.metrics.fetch_errors
        errors[code] = errors.get(code, 0) + 1
        hint = None
        if isinstance(error, NotLeader) and error.leader is not None:
            hint = (error.leader, error.epoch)
        return self._data(fetch, leader, None)._replace(error_code=code, leader=hint)

    def _check_codecs(self, fetched: Fetched) -> None:
        """Old clients must not be sent zstd, which they would take for garbage."""
        if self._version >= _ZSTD_FROM:
            return
        for _, header in headers(b"".join(fetched.buffers)):
            if header.attributes & CODEC_MASK == Codec.ZSTD:
                raise UnsupportedCompression("zstd needs version 10 of Fetch")


def _in_order(fetched: Fetched | None) -> Sequence[tuple[int, int]]:
    """Return what is aborted as the answer lists it."""
    if fetched is None or not fetched.aborted:
        return ()
    return sorted((each[:2] for each in fetched.aborted), key=itemgetter(1))


def check_epoch(leader: Partition, epoch: int) -> None:
    """Compare the leader epoch a client knows, -1 for none, with ours.

    Raises NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch.
    """
    leader.check_leading()
    if epoch != UNKNOWN and epoch != leader.leader_epoch:
        text = f"{leader.name} is at leader epoch {leader.leader_epoch}, not {epoch}"
        raise FencedLeaderEpoch(text) if epoch < leader.leader_epoch else UnknownLeaderEpoch(text)
