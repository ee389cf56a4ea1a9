"""Produce (0), versions 3-13; 0-2 are advertised and refused.

Behaviour: each partition's batch is checked and given offsets in arrival order before the next
request of the connection is looked at; the answer leaves when every partition is confirmed or
has failed. acks 1 waits like acks -1, for the ledger's ack quorum: there is no weaker copy that
could be acknowledged. With acks 0 there is no answer, and an error closes the connection, the
only signal there is; the request still counts as unanswered until it is confirmed, which is what
holds a fast sender back.

A batch for which its partition has no room waits, and with it everything that the connection sends
after it, in order: nothing further of it is started, and soon nothing further is read. Refusing
it would let the next one overtake it, and a producer without idempotence would then store
them in another order. What has waited in vain when the request's timeout ends, which runs from its
arrival, was not applied and is answered with NOT_ENOUGH_REPLICAS, which clients retry.

Two more things let the rest of a connection wait in order: a request of very many batches is begun
a few hundred in each turn of the loop, and so are the records of a batch read that holds many. All
requests of a broker that take so long share its turns (`client/node/turns.py`). Plain batches are
read as they are appended: the sender pays for each byte. A compressed one may hold a hundred times
its size, so it is inflated and read before, in turns of the loop if it is large. A request has at
most `opened_records_max` compressed records; a batch beyond is refused with MESSAGE_TOO_LARGE,
which makes Java's producer split it.

A batch for a partition that this broker is about to lead waits until it does, for as long as
`leadership/awaited_partitions.py` allows and never longer than the request's timeout; then it is
appended or refused. The rest of the request goes on meanwhile, the connection does not: what the
client sends next comes after it. A client that hangs up meanwhile takes nothing back, just as with
a batch under way.

The first batch of a transaction in a partition is held there, and its producer's next ones behind
it, until the transaction's coordinator has vouched for it; other producers' batches overtake them.

Deviations from Kafka: versions 0-2 are advertised because old librdkafka takes their absence for
"no compression", and close the connection when used. A duplicate of a batch still under way is
answered with the original.

Errors that clients can turn into a new leader carry it as a hint, from version 10 on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopicName,
    LeadershipError,
    NotLeader,
    RequestTimedOut,
    UnknownTopicId,
    UnsupportedCompression,
)
from broker.faults import Code, code_of, message_of
from broker.front.codec_thread import CodecThread, Work
from broker.front.endpoints import leader_endpoints
from broker.front.services import Call, Services
from broker.front.throttling import begin_produce, produced_ms
from broker.leadership.awaited_partitions import Key
from broker.partition.core.batch_checks import (
    CheckedBatch,
    is_recompressed,
    recompressed,
    takes_long,
)
from broker.partition.core.held_batches import ProducerTransaction
from broker.partition.partition import Append, Partition
from broker.security.rights import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from client.errors import QuireError, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.node.logs import AT_WILL
from client.node.turns import Turns
from client.wire.kafka import produce as wire
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import CODEC_AT, CODEC_MASK, Codec
from client.wire.kafka.connection import Buffer, response_head
from client.wire.kafka.produce import NodeEndpoint, PartitionResult, ProduceRequest, Topic
from client.wire.steps import STEP_ITEMS, ItemCount, Steps

if TYPE_CHECKING:
    from broker.front.dispatch import Channel

log = logging.getLogger(__name__)

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (0, wire.VERSION_MAX)
NEEDS: Final = (WRITE_TOPIC, WRITE_TRANSACTIONAL_ID)

_TV2_FROM: Final = 12
"""From this version on the batch itself makes its partition part of the transaction."""
_REFUSALS: Final = (LeadershipError, UnknownTopicId)
"""We do not lead the partition, but may in a moment."""
_TIMEOUT_S_MIN: Final = 0.001
_NOT_STARTED: Final = RequestTimedOut("the batch waited behind others for too long")
_KNOWN_ACKS: Final = (-1, 0, 1)

_ZSTD_FROM: Final = 7

_WORK_BYTES: Final = 16 * 1024
"""Bytes of records whose reading costs as much as a batch that is begun."""

_LEADER_HINT_FROM: Final = 10
_ABORTABLE_FROM: Final = 11
"""The version from which clients know TRANSACTION_ABORTABLE."""
_ABORTABLE: Final = int(Code.transaction_abortable)
_TIMED_OUT: Final = int(Code.request_timed_out)

Row = tuple[int, Partition | None, Append | QuireError]
"""One partition of a request: its index, who leads it, and what becomes of its batch."""

Results = Sequence[tuple[Topic, Sequence[PartitionResult]]]
"""By topic."""


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Append everything in the request; answer when all of it is settled."""
    if call.version < wire.VERSION_MIN:
        raise RemoteProtocolError(f"Produce version {call.version} carries old message formats")
    produce = _Produce(services, call, channel, size)
    items_max = services.config.request_items_max
    request = wire.parse_single(call.version, body) or wire.parse_few(call.version, body, items_max)
    if request is not None:
        produce.begin(request)
        return
    steps = wire.request_steps(call.version, body, items_max)
    try:
        next(steps)
    except StopIteration as stop:
        produce.begin(stop.value)
    else:
        produce.parse_on(steps)


class _Produce:
    """One request under way."""

    __slots__ = (
        "_acks",
        "_answered",
        "_call",
        "_channel",
        "_checks",
        "_held",
        "_is_checked",
        "_muted",
        "_pending",
        "_services",
        "_slot",
        "_stop_parsing",
        "_ticket",
        "_topics",
        "_transactional_id",
        "_unstarted",
        "_work",
    )

    def __init__(self, services: Services, call: Call, channel: Channel, size: int) -> None:
        self._services = services
        self._call = call
        self._channel = channel
        self._acks = -1
        self._transactional_id: str | None = None
        self._is_checked = False
        """Whether `_check` may find anything; not where everybody may write, and `acks` is known.
        The three are those of the request, from `begin` on."""
        self._slot = channel.open(KEY, size)
        self._topics: list[tuple[Topic, list[Row]]] = []
        self._pending = 1
        """Appends that are not complete, and one for `begin` itself."""
        self._answered = False
        self._ticket = 0
        self._muted = False
        self._held: dict[Key, list[Batch]] = {}
        """Batches whose partition is about to be led."""
        self._unstarted: UnstartedBatches | None = None
        """Batches that wait for room, for their check or for a turn, or behind such a one."""
        self._stop_parsing: Callable[[], None] | None = None
        self._work = 0
        """What was done in this turn of the loop, in batches."""
        self._checks = RecordChecks(
            services.codecs, self._slot.pass_on, services.config.opened_records_max
        )

    def parse_on(self, steps: Steps[ProduceRequest]) -> None:
        """Read the rest of a request of very many partitions, a step in each turn."""
        self._mute()
        self._stop_parsing = self._services.turns.on_turn(partial(self._parse, steps))
        self._channel.on_lost(self._on_lost_unread)

    def _on_lost_unread(self) -> None:
        """The client is gone before its request was read."""
        assert self._stop_parsing is not None
        self._stop_parsing()
        self._slot.release()

    def _parse(self, steps: Steps[ProduceRequest]) -> None:
        try:
            next(steps)
        except StopIteration as stop:
            self._channel.on_lost(None)
            try:
                self.begin(stop.value)
            except Exception:  # the outermost loop of a request: nothing may escape
                self._break()
                return
            if self._unstarted is None and not self._held:
                self._unmute()
        except RemoteProtocolError as error:
            self._slot.release()
            self._channel.fail(str(error))
        else:
            self.parse_on(steps)

    def begin(self, request: ProduceRequest) -> None:
        """Append every batch, in the order of the request."""
        services, call = self._services, self._call
        if services.quotas.is_on:
            begin_produce(services, call, self._slot, self._channel)
        self._acks, self._transactional_id = request.acks, request.transactional_id
        self._is_checked = services.rights.is_on or request.acks not in _KNOWN_ACKS
        transaction: ProducerTransaction | None = None
        if request.transactional_id is not None:
            is_tv2 = call.version >= _TV2_FROM
            transaction = ProducerTransaction(request.transactional_id, is_tv2)
        for topic, partitions in request.topics:
            rows: list[Row] = []
            self._topics.append((topic, rows))
            for index, records in partitions:
                rows.append((index, None, _NOT_STARTED))
                batch: Batch = new_tuple(
                    Batch, (rows, len(rows) - 1, topic, index, records, transaction)
                )
                if self._unstarted is not None:
                    self._unstarted.append(batch)
                elif (obstacle := self._start(batch)) is not None:
                    self._begin_waiting(obstacle, batch)
                elif rows[-1][1] is None:
                    self._hold_back(batch)
        now_s = services.metrics.now_s()
        timeout_s = min(request.timeout_ms, services.config.produce_timeout_max_ms) / 1000
        # What came with it, or before it, may have kept it from beginning.
        timeout_s = max(timeout_s - (now_s - self._slot.arrived_s), _TIMEOUT_S_MIN)
        if self._held:
            self._hold(timeout_s)
        self._pending -= 1
        if not self._pending:
            self._answer()
            return
        self._slot.split_s = now_s
        if request.acks:
            self._ticket = services.deadlines.after(timeout_s, self._on_deadline)

    def _begin_waiting(self, obstacle: Obstacle, batch: Batch) -> None:
        """From this batch on everything waits."""
        self._unstarted = UnstartedBatches(self._services.turns, batch, self._go_on)
        self._pending += 1
        self._wait(self._unstarted, obstacle)

    def _hold_back(self, batch: Batch) -> None:
        """A batch was refused: keep it if its partition is led in a moment."""
        if isinstance(batch.rows[batch.at][2], NotLeader):
            name = self._name(batch.topic)
            key = self._services.partitions.awaited_key(name, batch.partition)
            if key is not None:
                self._held.setdefault(key, []).append(batch)

    def _start(self, batch: Batch, *, admitted: bool = False) -> Obstacle | None:
        """Append a batch. Or return what it has to wait for."""
        if self._work >= STEP_ITEMS:
            return NEXT_TURN
        self._work += 1
        rows, at, topic, index, records, transaction = batch
        checks = self._checks
        try:
            leader, records = self._leader(topic, index, records)
            sent = len(records)
            if checks.form is not None:
                records = checks.new_form()
            size, admission = len(records), leader.admission
            if not admitted and not admission.has_room(size):
                return NoRoom(leader, size)
            obstacle = checks.check(leader, records)
            self._work += checks.work
            checks.work = 0
            if obstacle is not None:
                return obstacle
            append = leader.append(records, checked=checks.checked, transaction=transaction)
        except QuireError as error:
            checks.forget()
            rows[at] = (index, None, frameless(error))
            if records and isinstance(error, _REFUSALS):
                self._services.partitions.note_refused(topic, index, records)
            return None
        checks.forget()
        self._slot.pass_on(sent)
        count = append.end_offset - append.base_offset
        self._services.metrics.on_produced(leader.topic.name, count, sent)
        rows[at] = (index, leader, append)
        self._pending += 1
        append.on_done(self._on_done)
        return None

    def _leader(
        self, topic: Topic, index: int, records: memoryview | None
    ) -> tuple[Partition, memoryview]:
        """Return who takes a batch, and the batch. Raises what can be said without looking into
        it."""
        name = topic if isinstance(topic, str) else self._name(topic)
        if self._is_checked:
            self._check(name)
        leader = self._services.partitions.leader(name, index)
        if leader.topic.internal:
            raise InvalidTopicName(f"topic {name!r} belongs to the brokers")
        if name is not topic and leader.topic.topic_id != topic:
            raise UnknownTopicId(f"{leader.name} was deleted and created again: its id has changed")
        if not records:
            raise InvalidRecord("there is no record batch")
        if (
            self._call.version < _ZSTD_FROM
            and len(records) > CODEC_AT
            and records[CODEC_AT] & CODEC_MASK == Codec.ZSTD
        ):
            raise UnsupportedCompression("zstd needs version 7 of Produce")
        return leader, records

    def _name(self, topic: Topic) -> str:
        """Return a topic's name. Raises UnknownTopicId."""
        if isinstance(topic, str):
            return topic
        known = self._services.cluster.topic_by_id.get(topic)
        if known is None:
            raise UnknownTopicId(f"no topic has the id {topic}")
        return known.name

    def _check(self, topic: str) -> None:
        """Raise InvalidRequiredAcks, or AuthorizationFailed if the client may not write here."""
        if self._acks not in _KNOWN_ACKS:
            raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {self._acks}")
        rights = self._services.rights
        if rights.is_on:
            if self._transactional_id is not None:
                rights.require(self._call.peer, WRITE_TRANSACTIONAL_ID, self._transactional_id)
            rights.require(self._call.peer, WRITE_TOPIC, topic)

    # --- waiting for the leader

    def _hold(self, timeout_s: float) -> None:
        """Wait for partitions, unless too much waits already: then their batches stay refused."""
        awaited = self._services.partitions.awaited
        if not awaited.take(self._slot.request_size):
            self._held = {}
            return
        self._pending += 1
        self._mute()
        for key in self._held:
            awaited.wait(key, partial(self._resume, key), timeout_s)

    def _resume(self, key: Key) -> None:
        """A partition is led, or is not waited for any longer: its batches get their rows."""
        self._work = 0
        try:
            # If the deadline was faster, they were refused, and must not be stored after that.
            for batch in () if self._answered else self._held[key]:
                self._resume_one(batch)
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()
        del self._held[key]
        if self._held:
            return
        self._services.partitions.awaited.give(self._slot.request_size)
        if self._answered:
            self._slot.release()
        self._slot.split_s = self._services.metrics.now_s()
        self._on_waited()

    def _resume_one(self, batch: Batch) -> None:
        if self._unstarted is not None:
            self._unstarted.append(batch)
            return
        obstacle = self._start(batch)
        if obstacle is not None:
            self._begin_waiting(obstacle, batch)

    # --- waiting for room, for a check, for a turn

    def _wait(self, unstarted: UnstartedBatches, obstacle: Obstacle) -> None:
        """Begin nothing further of this connection until the first of them can go on."""
        self._mute()
        self._channel.on_lost(self._on_lost)
        unstarted.wait(obstacle)

    def _go_on(self, admitted: bool) -> None:
        """Begin what waits, in order, as far as nothing is in its way. `admitted`: the first one
        has room."""
        self._work = 0
        unstarted = self._unstarted
        assert unstarted is not None
        try:
            while (batch := unstarted.first) is not None:
                obstacle = self._start(batch, admitted=admitted)
                if obstacle is not None:
                    self._wait(unstarted, obstacle)
                    return
                unstarted.leave()
                admitted = False
            self._on_all_started()
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()

    def _on_all_started(self) -> None:
        """Nothing waits for room any more."""
        self._unstarted = None
        self._channel.on_lost(None)
        self._on_waited()

    def _on_deadline(self) -> None:
        """Answer with what is known; what still waits is not applied."""
        unstarted = self._unstarted
        if unstarted is None or unstarted.first is None:
            self._answer()
            return
        unstarted.stop()
        unstarted.refuse(self._refuse, self._on_refused)

    def _refuse(self, batch: Batch) -> None:
        """Refuse what has waited in vain."""
        rows, at, topic, index, records, _ = batch
        try:
            leader, found = self._leader(topic, index, records)
            rows[at] = (index, None, leader.admission.refusal(found))
        except QuireError as error:
            rows[at] = (index, None, error)

    def _on_refused(self) -> None:
        """Nothing waits any longer."""
        self._answer()
        self._on_all_started()

    def _on_lost(self) -> None:
        """The client is gone: what waits for room is not applied."""
        assert self._unstarted is not None
        self._unstarted.stop()
        self._unstarted = None
        self._answered = True
        self._services.deadlines.cancel(self._ticket)
        if not self._held:
            self._slot.release()

    # --- both

    def _mute(self) -> None:
        if not self._muted:
            self._muted = True
            self._channel.mute()

    def _on_waited(self) -> None:
        """One of the two waits is over: answer if all is settled, and go on with the next
        request if nothing of this one waits any more."""
        self._pending -= 1
        if not self._pending and not self._answered:
            self._answer()
        if self._unstarted is None and not self._held:
            self._unmute()

    def _unmute(self) -> None:
        if self._muted:
            self._muted = False
            self._channel.unmute()

    def _on_done(self, _append: Append) -> None:
        self._pending -= 1
        if not self._pending and not self._answered:
            self._answer()

    def _answer(self) -> None:
        """Answer with what is known: everything, or the deadline has come. Nothing may escape:
        whoever completes an append has others to tell, of other connections."""
        self._answered = True
        if self._ticket:
            self._services.deadlines.cancel(self._ticket)
        try:
            services, slot = self._services, self._slot
            wait_ms = produced_ms(services, self._call, slot) if services.quotas.is_on else 0
            is_plain = self._acks and not wait_ms
            buffers = stored_answer(self._call, self._topics) if is_plain else None
            if buffers is None:
                self._build(self._answer_steps(wait_ms))
            else:
                self._channel.answer(slot, buffers)
        except Exception:  # the outermost loop of a request
            self._break()

    def _build(self, steps: Steps[None]) -> None:
        try:
            next(steps)
            self._services.turns.on_turn(partial(self._build, steps))
        except StopIteration:
            return
        except Exception:  # the outermost loop of a request
            self._break()

    def _break(self) -> None:
        """A bug, or an answer that cannot be encoded: it costs this connection, and no other."""
        failures = self._services.metrics.request_failures
        failures[KEY] = failures.get(KEY, 0) + 1
        log.exception("produce.failed client=%s", self._call.client_id, extra=AT_WILL)
        self._slot.release()
        self._channel.fail("produce failed")

    def _answer_steps(self, wait_ms: int) -> Steps[None]:
        channel, answer = self._channel, ProduceAnswer(self._services, self._call)
        results = yield from answer.results(self._topics)
        if self._acks == 0:
            if answer.error is not None:
                self._slot.release()
                channel.fail(f"produce with acks 0 failed: {message_of(answer.error)}")
            else:
                channel.answer(self._slot, ())
            return
        channel.answer(self._slot, (yield from answer.encode(results, wait_ms)))


class Recompression(NamedTuple):
    """A checked batch that has to be compressed anew."""

    begin: Callable[[Callable[[], None]], Callable[[], None]]
    """Begins it; calls what it is given once it is over, and returns a function that prevents
    that."""


class RecordChecks:
    """Checks the batches of one request, one after the other."""

    __slots__ = ("_codecs", "_left", "_pass_on", "checked", "form", "work")

    def __init__(
        self, codecs: CodecThread, pass_on: Callable[[int], None], records_max: int
    ) -> None:
        """`pass_on`: counts bytes that are not held for the request any more; negative: more."""
        self._codecs = codecs
        self._pass_on = pass_on
        self._left = records_max
        """Compressed records that may be looked at from now on."""
        self.work = 0
        self.checked: CheckedBatch | None = None
        """The batch whose turn it is, once its check has ended."""
        self.form: memoryview | BaseException | None = None
        """It as it is to be stored, or what went wrong, if it was to be compressed anew."""

    def check(self, leader: Partition, batch: memoryview) -> Steps[None] | Recompression | None:
        """Check a batch that takes long; return what is left to be done, if there is anything.
        Once there is nothing left, `checked` says what is to be appended.

        Raises MessageTooLarge and the rest of the `InvalidRecord` family.
        """
        self.work += len(batch) // _WORK_BYTES
        limits = leader.admission.limits
        wanted = limits.compression
        if wanted is not None and self.form is None and is_recompressed(batch, wanted):
            if self.checked is None and (steps := self._begin_check(leader, batch)) is not None:
                return steps
            assert self.checked is not None, "the check has ended"
            work = partial(recompressed, batch, self.checked, wanted, limits)
            return Recompression(partial(self._recompress, work))
        if self.checked is not None or not takes_long(batch):
            return None
        return self._begin_check(leader, batch)

    def _begin_check(self, leader: Partition, batch: memoryview) -> Steps[None] | None:
        steps = self._run(leader.admission.checking(batch, self._left))
        try:
            next(steps)
        except StopIteration:
            return None
        return steps

    def _run(self, steps: Steps[CheckedBatch]) -> Steps[None]:
        checked = yield from steps
        self.checked = checked
        if checked.header.attributes & CODEC_MASK:
            self._left -= checked.header.record_count
        self.work += checked.body_bytes // _WORK_BYTES

    def _recompress(self, work: Work, then: Callable[[], None]) -> Callable[[], None]:
        def on_done(outcome: tuple[bytes, CheckedBatch] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                self.form = outcome
            else:
                stored, self.checked = outcome
                self._pass_on(-len(stored))
                self.form = memoryview(stored)
            then()

        return self._codecs.begin(work, on_done)

    def new_form(self) -> memoryview:
        """Return the batch as it is to be stored, once it is compressed anew.

        Raises what was raised meanwhile: MessageTooLarge, BatchTooLarge.
        """
        form = self.form
        assert form is not None
        if isinstance(form, BaseException):
            raise form
        return form

    def forget(self) -> None:
        """The next batch comes."""
        self.checked = None
        if self.form is not None:
            if isinstance(self.form, memoryview):
                self._pass_on(len(self.form))
            self.form = None


def stored_answer(
    call: Call, topics: Sequence[tuple[Topic, Sequence[Row]]]
) -> tuple[Buffer, ...] | None:
    """Return the answer to a request whose batches are all stored, as most are, and not many;
    None for any other. It costs a fifth of the general way."""
    if len(topics) != 1 or len(topics[0][1]) != 1:
        return _all_stored_answer(call, topics)
    topic, ((index, leader, outcome),) = topics[0]
    if leader is None or type(outcome) is not Append:
        return None
    if not outcome.completed or outcome.error is not None:
        return None
    body = wire.stored_response(
        call.version,
        topic,
        index,
        outcome.base_offset,
        outcome.log_append_time_ms,
        leader.log_start_offset,
    )
    return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body


def _all_stored_answer(
    call: Call, topics: Sequence[tuple[Topic, Sequence[Row]]]
) -> tuple[Buffer, ...] | None:
    found: list[tuple[Topic, list[tuple[int, int, int, int]]]] = []
    left = STEP_ITEMS - len(topics)
    for topic, rows in topics:
        left -= len(rows)
        if left < 0:
            return None
        results: list[tuple[int, int, int, int]] = []
        found.append((topic, results))
        for index, leader, outcome in rows:
            if leader is None or type(outcome) is not Append or not outcome.completed:
                return None
            if outcome.error is not None:
                return None
            base, set_ms = outcome.base_offset, outcome.log_append_time_ms
            results.append((index, base, set_ms, leader.log_start_offset))
    body = wire.all_stored_response(call.version, found)
    return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body


def frameless(error: QuireError) -> QuireError:
    """Return an error that keeps none of the frames that it, and its causes, were raised through.

    They have the rows that it is put into: cycles, which in a request of very many refused batches
    are so many objects that the collector of cycles would stop the loop for them.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


class ProduceAnswer:
    """The answer to one request."""

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call
        self.error: QuireError | None = None
        """The last that was found."""

    def results(self, topics: Sequence[tuple[Topic, Sequence[Row]]]) -> Steps[Results]:
        """Say what became of every batch by now."""
        version = self._call.version
        items = ItemCount()
        results: list[tuple[Topic, list[PartitionResult]]] = []
        for topic, rows in topics:
            found: list[PartitionResult] = []
            results.append((topic, found))
            for row in rows:
                if items.is_step_over():
                    yield
                found.append(self._result(topic, row, version))
        return results

    def encode(self, results: Results, throttle_ms: int = 0) -> Steps[tuple[Buffer, ...]]:
        """Return the frame."""
        call = self._call
        endpoints = () if self.error is None else self._endpoints(results)
        body = yield from wire.response_steps(call.version, results, endpoints, throttle_ms)
        return response_head(ApiKey.PRODUCE, call.version, call.correlation_id, len(body)), body

    def _result(self, topic: Topic, row: Row, version: int) -> PartitionResult:
        """Say what became of a batch by now."""
        index, leader, outcome = row
        start_offset = -1 if leader is None else leader.log_start_offset
        if isinstance(outcome, Append):
            if outcome.completed and outcome.error is None:
                return PartitionResult(
                    index, 0, outcome.base_offset, outcome.log_append_time_ms, start_offset
                )
            error: QuireError | None = outcome.error
            if error is None:
                self._count(_TIMED_OUT)
                self.error = RequestTimedOut("the append was not confirmed in time")
                return PartitionResult(index, _TIMED_OUT)
        else:
            error = outcome
        code = code_of(error)
        if code == _ABORTABLE and version < _ABORTABLE_FROM:
            code = int(Code.invalid_txn_state)
        self._count(code)
        self.error = error
        hint = None
        if version >= _LEADER_HINT_FROM and isinstance(error, NotLeader):
            hint = self._hint(topic, index, error)
        to_blame = error.record_indexes if isinstance(error, InvalidRecord) else ()
        return PartitionResult(index, code, -1, -1, start_offset, message_of(error), hint, to_blame)

    def _count(self, code: int) -> None:
        errors = self._services.metrics.produce_errors
        errors[code] = errors.get(code, 0) + 1

    def _hint(self, named: Topic, index: int, error: NotLeader) -> tuple[int, int] | None:
        cluster = self._services.cluster
        if isinstance(named, str):
            topic = cluster.topics.get(named)
        else:
            topic = cluster.topic_by_id.get(named)
        if topic is None or error.leader is None or error.leader not in cluster.brokers:
            return None
        return error.leader, cluster.leader_epochs.get(topic, index)

    def _endpoints(self, topics: Results) -> list[NodeEndpoint]:
        if self._call.version < _LEADER_HINT_FROM:
            return []
        leaders = {
            result.leader[0]: None
            for _, results in topics
            for result in results
            if result.leader is not None
        }
        return leader_endpoints(self._services, leaders, self._call.peer)


class Batch(NamedTuple):
    """A batch of the request, and the row in which its outcome belongs."""

    rows: list[Row]
    at: int
    topic: Topic
    partition: int
    records: memoryview | None
    transaction: ProducerTransaction | None


class NextTurn:
    """Nothing but a turn of the loop: many others of the request were begun in this one."""


NEXT_TURN: Final = NextTurn()


class NoRoom(NamedTuple):
    """A partition has no room for a batch."""

    partition: Partition
    size: int
    """Of the batch as it is to be stored."""


Obstacle = NoRoom | Steps[None] | Recompression | NextTurn
"""What a batch waits for: room in its partition, the steps in which its records are read, its new
form, or another turn."""


class UnstartedBatches:
    """The batches of one request, which keep their order."""

    __slots__ = ("_batches", "_cancel", "_go_on", "_turns")

    def __init__(self, turns: Turns, first: Batch, go_on: Callable[[bool], None]) -> None:
        """`go_on` is called when nothing is in the way of the first batch any more; its argument
        says whether the batch has been given room."""
        self._turns = turns
        self._batches = deque([first])
        self._go_on = go_on
        self._cancel: Callable[[], None]
        """From `wait` on."""

    @property
    def first(self) -> Batch | None:
        """The batch whose turn it is."""
        return self._batches[0] if self._batches else None

    def append(self, batch: Batch) -> None:
        """Wait behind all others."""
        self._batches.append(batch)

    def leave(self) -> None:
        """The first batch is begun."""
        self._batches.popleft()

    def wait(self, obstacle: Obstacle) -> None:
        """Call `go_on` once the first batch can be begun."""
        if isinstance(obstacle, NoRoom):
            admission = obstacle.partition.admission
            self._cancel = admission.on_room(obstacle.size, self._on_room)
        elif isinstance(obstacle, Recompression):
            self._cancel = obstacle.begin(partial(self._go_on, False))
        elif isinstance(obstacle, NextTurn):
            self._cancel = self._turns.on_turn(partial(self._go_on, False))
        else:
            self._cancel = self._turns.on_turn(partial(self._on_step, obstacle))

    def stop(self) -> None:
        """Do not call `go_on` any more."""
        self._cancel()

    def refuse(self, refuse: Callable[[Batch], None], then: Callable[[], None]) -> None:
        """Refuse all of them, some in each turn of the loop."""
        batches = self._batches
        for _ in range(min(STEP_ITEMS, len(batches))):
            refuse(batches.popleft())
        if batches:
            self._cancel = self._turns.on_turn(partial(self.refuse, refuse, then))
        else:
            then()

    def _on_room(self) -> None:
        """The first batch has room, or its partition is led no longer."""
        assert self._batches, "who waits for room has a batch to append"
        self._go_on(True)

    def _on_step(self, steps: Steps[None]) -> None:
        """Go on with the check of the first batch."""
        assert self._batches, "a batch that is checked waits"
        try:
            next(steps)
        except StopIteration:
            self._go_on(False)
        except QuireError as error:
            batch = self._batches.popleft()
            batch.rows[batch.at] = (batch.partition, None, frameless(error))
            self._go_on(False)
        else:
            self.wait(steps)
