"""Fetch (1), versions 4-18: long polls for whole batches, byte for byte as they were stored.

Behaviour: the answer begins with the batch that holds the asked offset, also if the offset is in
its middle. A fetch for which there is less than `min_bytes` waits for the high watermarks of its
partitions until `max_wait_ms`, and for one that this broker is about to lead to be led
(`awaited_partitions.py`); other errors never wait. Recent batches come from memory without
leaving this call; older ones are read from bookies, and then what was read is the answer,
whatever `min_bytes` says. What only the object store has, and does not give soon, is left out for
now: the answer is empty there, and the next fetch finds it.

The limits of the answer: partitions are served in the order of the request; the first batch of the
first partition with data is included whatever its size, everything else only within both limits,
and within a number of batches, however small they are. Whether an answer waits is decided by what
is there, not by what it holds: only whole batches are sent, so it may never become as large as its
limits. What is in memory is taken at once; what is only on bookies is read afterwards, all of it
concurrently, within the broker's budget for such reads, for which the first of them waits.

A consumer that says in which rack it is may be told to read from a broker there, and then that
broker reads what is sealed for it, though it does not lead (`broker/leadership/followers.py`).

A read_committed consumer gets nothing at or above the last stable offset, waits for that instead,
and is told what is aborted in what it gets: of these records only, by first offset.

A consumer may have a session (`broker/front/core/fetch_sessions.py`): then its requests and the
answers have only what changed. One for which there is no room goes on without, which all clients
accept. From version 13 on topics are named by their ids; one that this broker does not know gets
UNKNOWN_TOPIC_ID.

A partition that is named twice is answered once, as the last of its names asks, and in one piece
with the others of its topic. A request of very many partitions is read, collected and answered some
hundreds in each turn of the loop; one of more than `request_items_max` gets INVALID_REQUEST.

Deviations from Kafka: errors carry the real watermarks where they are known. Brokers do not fetch
from each other, so what followers say in a request is passed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from broker.errors import (
    BrokerError,
    FencedLeaderEpoch,
    FetchSessionError,
    InconsistentTopicId,
    InvalidRequest,
    NotLeader,
    NotReadYet,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedCompression,
)
from broker.faults import code_of
from broker.front.core.fetch_sessions import NO_SESSION, Asked, FetchTurn
from broker.front.dispatch import Channel
from broker.front.endpoints import leader_endpoints
from broker.front.services import Call, Services
from broker.front.throttling import fetched_ms
from broker.leadership.awaited_partitions import Key
from broker.leadership.follower import FetchPosition, Follower
from broker.leadership.followers import Consumer
from broker.partition.partition import Fetched, Partition
from broker.security.rights import READ_TOPIC
from client.errors import QuireError, RemoteProtocolError, TooManyItems
from client.ids import BrokerId, Offset
from client.ledger.core.placement import relation
from client.wire.kafka import fetch as wire
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import CODEC_MASK, Codec, headers
from client.wire.kafka.connection import Buffer, response_head
from client.wire.kafka.fetch import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    FetchRequest,
    PartitionData,
    PartitionFetch,
)
from client.wire.kafka.produce import Topic
from client.wire.steps import STEP_ITEMS, ItemCount, Steps

T = TypeVar("T")

log = logging.getLogger(__name__)

KEY: Final = ApiKey.FETCH
VERSIONS: Final = (wire.VERSION_MIN, wire.VERSION_MAX)
NEEDS: Final = (READ_TOPIC,)

_ERROR_FROM: Final = 7
"""The version from which the answer has an error code of its own."""
_NOT_BEGUN: Final = FetchTurn(())

_ZSTD_FROM: Final = 10
UNKNOWN: Final = -1
_ANSWER_BATCHES_MAX: Final = 50_000
"""Beyond about this many batches, an answer takes none of further partitions: each is a buffer."""
_BATCHES_PER_ITEM: Final = 20
"""Batches that cost as much to collect as a partition."""


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Answer at once, or wait for data; the connection is muted meanwhile."""
    _Fetch(services, call, channel, size).begin(body)


class _Fetch:
    """One request under way."""

    __slots__ = (
        "_call",
        "_cancel_turn",
        "_cancels",
        "_channel",
        "_loop",
        "_may_wait",
        "_muted",
        "_request",
        "_retry_planned",
        "_services",
        "_slot",
        "_task",
        "_timer",
        "_turn",
    )

    _request: FetchRequest

    def __init__(self, services: Services, call: Call, channel: Channel, size: int) -> None:
        self._services = services
        self._call = call
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._slot = channel.open(KEY, size)
        self._turn = _NOT_BEGUN
        self._cancel_turn: Callable[[], None] = _nothing
        """Of the turn that this request waits for."""
        self._cancels: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry_planned = False
        self._muted = False
        self._may_wait = False

    def begin(self, body: memoryview) -> None:
        """Read the request and make the first attempt. Raises RemoteProtocolError."""
        items_max = self._services.config.request_items_max
        self._take(wire.request_steps(self._call.version, body, items_max), self._on_request)

    def _take(self, steps: Steps[T], call: Callable[[T], None]) -> None:
        """Take a step now, and the others a turn each; call with what they return."""
        try:
            next(steps)
        except StopIteration as stop:
            call(stop.value)
            return
        except TooManyItems as error:
            if self._call.version < _ERROR_FROM:
                raise
            self._refuse(InvalidRequest(str(error)))
            return
        self._mute()
        self._cancel_turn = self._services.turns.on_turn(partial(self._take_more, steps, call))

    def _take_more(self, steps: Steps[T], call: Callable[[T], None]) -> None:
        try:
            self._take(steps, call)
        except RemoteProtocolError as error:
            self._slot.release()
            self._channel.fail(str(error))
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()

    def _on_request(self, request: FetchRequest) -> None:
        self._request = request
        topics = request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:  # what most of them ask for
            self._on_asked((Asked(topics[0].topic, topics[0].partitions[0]),))
        else:
            self._take(_asked(request), self._on_asked)

    def _on_asked(self, asked: Sequence[Asked]) -> None:
        request = self._request
        if request.session_epoch == NO_SESSION and not request.session_id:
            self._turn = FetchTurn(asked)
        else:
            try:
                self._turn = self._services.fetch_sessions.begin(
                    request.session_id,
                    request.session_epoch,
                    asked,
                    request.forgotten,
                    by_id=self._call.version >= wire.TOPIC_IDS_FROM,
                    now_s=self._loop.time(),
                )
            except FetchSessionError as error:
                self._refuse(error)
                return
        self._attempt(may_wait=request.wait_ms_max > 0)

    def _attempt(self, *, may_wait: bool) -> None:
        self._may_wait = may_wait
        self._slot.split_s = self._services.metrics.now_s()
        found = FetchRound(self._services, self._request, self._turn.asked, self._call)
        self._take(found.collect(), lambda _: self._on_collected(found))

    def _on_collected(self, found: FetchRound) -> None:
        if found.needs_reading:
            self._mute()
            self._task = self._loop.create_task(self._read(found), name="fetch")
        elif self._may_wait and found.asked and not found.failed and not found.is_enough:
            self._wait(found)
        else:
            self._answer(found)

    async def _read(self, found: FetchRound) -> None:
        try:
            await found.read()
            self._task = None
            if found.read_bytes:
                self._slot.on_gone = partial(self._services.reading.give, found.read_bytes)
            if found.size or found.failed or not self._may_wait:
                self._answer(found)
            else:
                self._wait(found)
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()

    def _wait(self, found: FetchRound) -> None:
        """Park until a high watermark moves, a leadership ends, or the time is up."""
        self._mute()
        if self._timer is None:
            self._timer = self._loop.call_later(self._request.wait_ms_max / 1000, self._expire)
        self._cancels = found.on_news(self._on_news)

    def _on_news(self) -> None:
        """Look again, once for all partitions that moved in this turn of the loop."""
        if not self._retry_planned:
            self._retry_planned = True
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        self._retry_planned = False
        if self._cancels:  # neither expired nor lost meanwhile
            self._stop_waiting()
            self._attempt(may_wait=True)

    def _expire(self) -> None:
        self._may_wait = False  # for a collecting or a reading that is under way
        if self._cancels:
            self._stop_waiting()
            self._attempt(may_wait=False)

    def _stop_waiting(self) -> None:
        for cancel in self._cancels:
            cancel()
        self._cancels = []

    def _mute(self) -> None:
        if not self._muted:
            self._muted = True
            self._channel.mute()
            self._channel.on_lost(self._on_lost)

    def _break(self) -> None:
        log.exception("fetch.failed client=%s", self._call.client_id)
        self._slot.release()
        self._channel.fail("fetch failed")

    def _on_lost(self) -> None:
        self._stop_waiting()
        self._cancel_turn()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._slot.release()

    def _refuse(self, error: BrokerError) -> None:
        """Answer that nothing was fetched."""
        steps = wire.response_steps(self._call.version, (), error_code=code_of(error))
        self._take(steps, self._send)

    def _answer(self, found: FetchRound) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._take(self._answer_steps(found), self._send)

    def _answer_steps(self, found: FetchRound) -> Steps[tuple[list[Buffer], int]]:
        services, version = self._services, self._call.version
        session_id, told = yield from services.fetch_sessions.finish(
            self._turn, found.results, self._loop.time()
        )
        by_topic: dict[Topic, list[PartitionData]] = {}
        leaders: dict[int, None] = {}
        for topic, data in told:
            by_topic.setdefault(topic, []).append(data)
            if data.size:
                found.count_fetched(topic, data.size)
            elif data.leader is not None:
                leaders[data.leader[0]] = None
        endpoints = leader_endpoints(services, leaders, self._call.peer) if leaders else ()
        topics = list(by_topic.items())
        wait_ms = fetched_ms(services, self._call, self._slot, found.size)
        steps = wire.response_steps(
            version, topics, endpoints, session_id=session_id, throttle_ms=wait_ms
        )
        return (yield from steps)

    def _send(self, built: tuple[list[Buffer], int]) -> None:
        body, size = built
        call = self._call
        head = response_head(KEY, call.version, call.correlation_id, size)
        self._channel.answer(self._slot, [head, *body])
        if self._muted:
            self._channel.on_lost(None)
            self._channel.unmute()


def _asked(request: FetchRequest) -> Steps[Sequence[Asked]]:
    """Return the partitions that a request asks for, each once: the last one counts, in the place
    of the first, as Kafka has it."""
    found: dict[tuple[Topic, int], Asked] = {}
    items = ItemCount()
    for topic in request.topics:
        for fetch in topic.partitions:
            if items.is_step_over():
                yield
            found[topic.topic, fetch.partition] = Asked(topic.topic, fetch)
    return list(found.values())


def _nothing() -> None:
    """There is no turn to take back."""


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
        "_size_max",
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
        self._size_max = min(request.bytes_max, services.config.fetch_bytes_max)
        self._left = self._size_max

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

    @property
    def is_enough(self) -> bool:
        """Whether the answer need not wait for more: there are `bytes_min` bytes.

        As Kafka counts: what is there, up to each partition's own limit, though a batch of it may
        not fit into the answer any more; and nobody waits for more than an answer may hold.
        """
        wanted = min(self._request.bytes_min, self._size_max)
        if self.size >= wanted:
            return True
        there = 0
        for one, leader, data in zip(self.asked, self._leaders, self.results, strict=True):
            if leader is not None:
                offset, size_max = Offset(one.fetch.offset), max(0, one.fetch.bytes_max)
                size = leader.reader.size_from(offset, size_max, read_committed=self._committed)
                there += max(data.size, size)  # the first batch may be larger than its limit
                if there >= wanted:
                    return True
        return False

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
        except NotReadYet:  # no error: consumers ask again, and by then it is there
            return Fetched([], offset, 0)
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
