"""Writes the dead letters of share groups, until they are written.

A record that is rejected, or comes back for the last time, is ARCHIVING when that is durable in its
partition's log (ARCHIVING-FIRST). Then its dead letter goes to the topic that its group names, to
the partition with its partition's number (modulo how many there are), as in Kafka; when that is
durable, too, the record is ARCHIVED (LETTER-FIRST). A topic that refuses is tried again, later and
later, for as long as it takes: Kafka gives the record up after five times. What waits is shown
(`rows`), and whoever takes the partition over goes on.

    LETTER-ONCE  Letters are numbered, so what is sent again is stored once
                 (`broker/front/core/dead_letters.py`). Only a leader that is replaced between the
                 two steps leaves a letter that its successor writes again; so does a topic that
                 stored a batch, whose answer was lost, and then forgot the producer, or had its
                 `max.message.bytes` lowered below that batch. Both letters name the same record.
    ONE-FOR-ALL  One group of one partition waits for nobody else's topic. At most `ROUNDS_MAX` of
                 them read and send at once, within the budget for reads.

What cannot be read any more, or fits no batch of the topic, gets a letter that has headers only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.errors import (
    LeaderNotAvailable,
    OffsetOutOfRange,
    PeerUnanswered,
    TopicExists,
    UnknownTopicId,
)
from broker.faults import Code, code_of, message_of
from broker.front.core import dead_letters as core
from broker.front.core.dead_letters import Letter, Numbers, Source
from broker.front.services import Services
from broker.front.shares.dead_letter_messages import DEAD_LETTERS, LetterAnswer, LetterBatch
from broker.link.link_services import LinkServices
from broker.link.links import Links
from broker.partition.core.shares.share_partition import SharePartition
from broker.partition.core.shares.share_updates import RecordState, StoredRange
from broker.partition.leading.partition_shares import settled
from broker.partition.partition import Partition
from client.errors import QuireError, RemoteProtocolError
from client.ids import Offset
from client.node import background
from client.node.logs import AT_WILL
from client.wire.kafka.batches.record_scan import records_from
from client.wire.kafka.batches.records import Record, build_batch, headers

_LOG = logging.getLogger(__name__)

LANE: Final = "dead letters"
ROUNDS_MAX: Final = 4
"""How many groups of partitions read and send at once."""
LETTERS_MAX: Final = 1_000
"""In one batch."""
_READ_BYTES_MAX: Final = 1 << 20
_BATCH_BYTES_MAX: Final = 1 << 20
"""Of a batch with more than one letter."""
_BATCH_HEAD_BYTES: Final = 100
_HEADERS_MAX: Final = 1_000
_ASK_S_MAX: Final = 10.0
_STORE_S_MAX: Final = 4.0
"""How long an append may take; links give up after 5 s."""
_PAUSE_S: Final = 1.0, 30.0
_JITTER: Final = 0.2
_SEQUENCE_CODES: Final = (
    Code.out_of_order_sequence_number, Code.invalid_producer_epoch, Code.unknown_producer_id,
    Code.duplicate_sequence_number,
)  # fmt: skip
_TEXT_MAX: Final = 500


class WaitingRow(NamedTuple):
    """Adjacent records that wait for their dead letters."""

    partition: Partition
    first: int
    last: int
    deliveries: int
    reason: str
    attempts: int
    """Since the last letter of this partition was written."""
    problem: str
    """What came of the last of them; empty: nothing yet."""
    next_ms: int | None
    """When the next one is due; None: one is under way."""


class DeadLetters:
    """The dead letters of the partitions that this broker leads."""

    def __init__(self, services: Services, links: Links) -> None:
        self.services = services
        self.links = links
        self.rounds = asyncio.Semaphore(ROUNDS_MAX)
        self._burials: dict[tuple[UUID, int, str], Burial] = {}

    def serve(self, link: LinkServices) -> None:
        """Store what other brokers send."""
        link.serve(DEAD_LETTERS, self._store)

    def tell(self, topic: str, index: int) -> None:
        """Records of a partition wait."""
        partition = self.services.partitions.find(topic, index)
        if partition is not None:
            self.on_opened(partition)

    def on_opened(self, partition: Partition) -> None:
        """Begin with whatever waits in a partition that is led here."""
        if not partition.has_shares:
            return
        for share in partition.shares.states:
            if not share.archiving(1):
                continue
            key = partition.topic.topic_id, partition.index, share.group_id
            burial = self._burials.get(key)
            if burial is None or burial.partition is not partition:
                burial = self._burials[key] = Burial(self, partition, share.group_id)
            burial.begin()

    def on_closed(self, partition: Partition) -> None:
        """It is led here no longer."""
        for key in [key for key, one in self._burials.items() if one.partition is partition]:
            self._burials.pop(key).end()

    def close(self) -> None:
        """Stop, wherever it is: others go on."""
        for burial in self._burials.values():
            burial.end()

    @property
    def waiting(self) -> int:
        """How many records wait for their dead letters."""
        led = [one for one in self.services.partitions if one.has_shares]
        return sum(share.counts().archiving for one in led for share in one.shares.states)

    def rows(self, group_id: str) -> list[WaitingRow]:
        """Return what waits of a group here."""
        found = []
        for partition in self.services.partitions:
            share = partition.shares.states.get(group_id) if partition.has_shares else None
            if share is None:
                continue
            burial = self._burials.get((partition.topic.topic_id, partition.index, group_id))
            told = (0, "", None) if burial is None else burial.told
            for one in share.whole().ranges:
                if one.state is RecordState.ARCHIVING:
                    (letter,) = core.letters_of([one._replace(last=one.first)])
                    found.append(
                        WaitingRow(
                            partition, one.first, one.last, letter.deliveries, letter.message, *told
                        )
                    )
        return found

    async def target(self, name: str) -> TopicInfo:
        """Return the topic that letters go to, made if it may be.

        Raises InvalidTopicName, PolicyViolation, UnknownTopicOrPartition; what the creation of a
        topic raises.
        """
        config, topics = self.services.config, self.services.cluster.topics
        may_create = config.errors_deadletterqueue_auto_create_topics_enable
        prefix = config.errors_deadletterqueue_topic_name_prefix
        core.check_target(name, prefix, topics.get(name), may_create=may_create)
        found = topics.get(name)
        if found is not None:
            return found
        try:
            return await self.services.topics.create(
                name, config={core.SWITCH: "true", "message.timestamp.type": "CreateTime"}
            )
        except TopicExists as error:
            raise LeaderNotAvailable(f"topic {name!r} was just created") from error

    async def send(self, topic: TopicInfo, index: int, batch: bytes) -> LetterAnswer:
        """Have letters stored. Raises LeaderNotAvailable, PeerError."""
        broker = self.services.cluster.preferred_leader(topic, index)
        if broker is None:
            raise LeaderNotAvailable(f"{topic.name}-{index} has no leader")
        request = LetterBatch(topic.topic_id, index, batch)
        try:
            async with asyncio.timeout(_ASK_S_MAX):
                return await self.links.ask(broker, DEAD_LETTERS, request, LANE)
        except TimeoutError:
            raise PeerUnanswered(f"broker {broker} has not answered") from None

    async def _store(self, _sender: int, request: LetterBatch) -> LetterAnswer:
        try:
            async with asyncio.timeout(_STORE_S_MAX):
                await self._append(request)
        except TimeoutError:
            return LetterAnswer(int(Code.request_timed_out), "not confirmed in time")
        except QuireError as error:
            return LetterAnswer(code_of(error), message_of(error)[:_TEXT_MAX])
        return LetterAnswer(int(Code.none))

    async def _append(self, request: LetterBatch) -> None:
        topic = self.services.cluster.topic_by_id.get(request.topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {request.topic_id}")
        partition = self.services.partitions.leader(topic.name, request.partition)
        partition.check_leading()
        admission = partition.admission
        batch = await self.services.codecs.as_wanted(request.batch, admission.limits)
        if not admission.has_room(len(batch)):
            has_room = asyncio.Event()
            cancel = admission.on_room(len(batch), has_room.set)
            try:
                await has_room.wait()
            finally:
                cancel()
        await settled(partition.append(batch))


class Burial:
    """The dead letters of one group in one partition, under one leader."""

    def __init__(self, owner: DeadLetters, partition: Partition, group_id: str) -> None:
        self.partition = partition
        self._owner = owner
        self._services = owner.services
        self._source = Source(partition.topic.name, partition.index, group_id)
        self._task: asyncio.Task[None] | None = None
        self._window: SharePartition | None = None
        """The one that the next two are about."""
        self._numbers: Numbers | None = None
        self._stored: Sequence[StoredRange] = ()
        """What has its letters, and the log does not say so yet."""
        self._letters_max, self._has_headers_only = LETTERS_MAX, False
        self._attempts, self._problem = 0, ""
        self._next_ms: int | None = None

    @property
    def told(self) -> tuple[int, str, int | None]:
        """Attempts, the last problem, and when the next attempt is due."""
        return self._attempts, self._problem, self._next_ms

    def begin(self) -> None:
        """Write, unless that is under way."""
        if self._task is None or self._task.done():
            self._task = background.begin(self._run(), f"dead-letters {self._source.group_id}")

    def end(self) -> None:
        """The leadership is over."""
        if self._task is not None:
            self._task.cancel()

    def _share(self) -> SharePartition | None:
        """Return the group's window, if anything in it waits, and this broker leads."""
        if not self.partition.is_open:
            return None
        share = self.partition.shares.states.get(self._source.group_id)
        return share if share is not None and share.archiving(1) else None

    async def _run(self) -> None:
        while (share := self._share()) is not None:
            try:
                async with self._owner.rounds:
                    await self._round(share)
            except QuireError as error:
                await self._pause(error)
            else:
                self._attempts, self._problem = 0, ""

    async def _pause(self, error: QuireError) -> None:
        services = self._services
        services.metrics.dead_letter_failures += 1
        least, most = _PAUSE_S
        pause_s = min(least * 2 ** min(self._attempts, 10), most)
        pause_s *= 1 + _JITTER * (2 * services.rng.random() - 1)
        self._attempts += 1
        self._problem = message_of(error)[:_TEXT_MAX]
        self._next_ms = services.clock.now_ms() + int(pause_s * 1000)
        _LOG.warning(
            "share.dead_letters_refused group=%r topic=%s partition=%d attempts=%d pause_s=%.1f"
            " error=%r",
            self._source.group_id, self._source.topic, self._source.partition, self._attempts,
            pause_s, self._problem, extra=AT_WILL,
        )  # fmt: skip
        await asyncio.sleep(pause_s)
        self._next_ms = None

    async def _round(self, share: SharePartition) -> None:
        """Write some letters. Raises QuireError: try again."""
        if share is not self._window:  # the group has begun elsewhere
            self._window, self._numbers, self._stored = share, None, ()
        if not self._stored:
            self._stored = await self._written(share)
        if self.partition.shares.states.get(share.group_id) is not share:
            return
        archived = self.partition.shares.archive(share, self._stored)
        self._stored = ()
        if archived is not None:
            await settled(archived)

    async def _written(self, share: SharePartition) -> Sequence[StoredRange]:
        """Return what has its letters now."""
        services, source = self._services, self._source
        settings = services.shares.configs.settings(source.group_id)
        target = await self._owner.target(settings.letters_topic)
        place = target.topic_id, source.partition % target.partition_count, settings.copies_records
        numbers = self._numbers
        if numbers is None or numbers.place != place or numbers.are_spent:
            numbers = self._numbers = Numbers(place, await services.producer_ids.take())
        size_max = 2 * (_READ_BYTES_MAX + _BATCH_BYTES_MAX)
        await services.reading.acquire(size_max)
        try:
            ranges = numbers.attempted or share.archiving(self._letters_max)
            batch, ranges = await self._batch(ranges, numbers, target, copies=place[2])
            numbers.attempted = ranges
            answer = await self._owner.send(target, place[1], batch)
        finally:
            services.reading.give(size_max)
        if answer.code:
            self._on_refused(answer, ranges)
            raise PeerUnanswered(f"{target.name}-{place[1]}: {answer.text}")
        numbers.on_stored()
        self._letters_max, self._has_headers_only = LETTERS_MAX, False
        services.metrics.dead_letters += sum(last - first + 1 for first, last, *_ in ranges)
        return ranges

    def _on_refused(self, answer: LetterAnswer, ranges: Sequence[StoredRange]) -> None:
        """The leader has said what is wrong: whether the next attempt has to be the same."""
        assert self._numbers is not None
        if answer.code in (Code.message_too_large, Code.record_list_too_large):
            count = sum(last - first + 1 for first, last, *_ in ranges)
            self._letters_max, self._has_headers_only = max(1, count // 2), count == 1
            self._numbers.on_refused()
        elif answer.code in _SEQUENCE_CODES:
            self._numbers = None

    async def _batch(
        self, ranges: Sequence[StoredRange], numbers: Numbers, target: TopicInfo, *, copies: bool
    ) -> tuple[bytes, Sequence[StoredRange]]:
        """Return a batch of letters, and which records they are about: all if they were attempted
        before, else as many as fit."""
        letters = list(core.letters_of(ranges))
        originals: Mapping[Offset, Record] = {}
        is_again = bool(numbers.attempted)
        if copies:
            read = Originals(self._services, self.partition)
            letters = await read.all_of(letters, in_full=is_again)
            originals = read.found
        now_ms = self._services.clock.now_ms()
        one_max = target.config.max_message_bytes - _BATCH_HEAD_BYTES
        records: list[Record] = []
        size = 0
        for letter in letters:
            record = core.dead_letter(self._source, letter, originals.get(letter.offset), now_ms)
            if core.size_of(record) > one_max or self._has_headers_only:
                record = core.dead_letter(self._source, letter, None, now_ms)
            size += core.size_of(record)
            if records and not is_again and size > min(one_max, _BATCH_BYTES_MAX):
                break
            records.append(record)
        batch = build_batch(
            records,
            producer_id=numbers.producer_id,
            producer_epoch=0,
            base_sequence=numbers.sequence,
        )
        return batch, _first(ranges, len(records))


class Originals:
    """Reads the records that letters are about."""

    def __init__(self, services: Services, partition: Partition) -> None:
        self.found: dict[Offset, Record] = {}
        self._services = services
        self._partition = partition

    async def all_of(self, letters: list[Letter], *, in_full: bool) -> list[Letter]:
        """Read the records of letters, unless `in_full` about 1 MiB of them; return those letters
        whose records were looked for.

        Raises LogReadFailed, NotLeader: nobody knows what they are, at the moment.
        """
        size = count = 0
        while count < len(letters) and (in_full or size < _READ_BYTES_MAX):
            at = letters[count].offset
            try:
                fetched = await self._partition.reader.read(
                    at, _READ_BYTES_MAX, at_least_one=True, read_committed=False
                )
            except OffsetOutOfRange:
                count += 1  # trimmed
                continue
            size += fetched.size
            until = max(int(fetched.next_offset), at + 1)
            wanted = {one.offset for one in letters[count:] if one.offset < until}
            await self._take(b"".join(fetched.buffers), wanted)
            count += len(wanted)
        return letters[:count]

    async def _take(self, data: bytes, wanted: set[Offset]) -> None:
        try:
            for at, header in headers(data):
                here = [one for one in wanted if header.base_offset <= one < header.next_offset]
                if not here or header.is_control:
                    continue
                batch, first = data[at : at + header.size], min(here)
                count = max(here) - first + 1
                steps = records_from(batch, first, count, _HEADERS_MAX)
                try:
                    some = await self._services.turns.run(steps)
                except RemoteProtocolError:
                    continue  # damaged: its letters have headers only
                self.found.update((one.offset, one) for one in some if one.offset in wanted)
        except RemoteProtocolError:
            return


def _first(ranges: Sequence[StoredRange], count: int) -> list[StoredRange]:
    """Return the ranges of the first `count` records."""
    found = []
    for one in ranges:
        if count <= 0:
            break
        last = min(int(one.last), one.first + count - 1)
        found.append(one._replace(last=Offset(last)))
        count -= last - one.first + 1
    return found
