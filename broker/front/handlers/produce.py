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
a few hundred in each turn of the loop, and so are the records of a compacted topic's batch looked
at for their keys, where there are many. All requests of a broker that take so long share its turns
(`client/node/turns.py`). A request has at most `opened_records_max` records looked at; a batch
beyond is refused with MESSAGE_TOO_LARGE, which makes Java's producer split it.

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
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.errors import NotLeader, RequestTimedOut
from broker.faults import message_of
from broker.front.batches.batch_leader import batch_leader
from broker.front.batches.key_checks import KeyChecks
from broker.front.batches.produce_answer import ProduceAnswer, Row, frameless, stored_answer
from broker.front.batches.produce_terms import PRODUCE_NEEDS, ProduceTerms, terms_of
from broker.front.batches.unstarted_batches import (
    NEXT_TURN,
    Batch,
    Obstacle,
    UnstartedBatches,
)
from broker.front.services import Call, Services
from broker.front.throttling import begin_produce, produced_ms
from broker.leadership.awaited_partitions import Key
from broker.partition.core.transactions.verification import ProducerTransaction
from broker.partition.partition import Append, Partition
from client.errors import QuireError, RemoteProtocolError
from client.fast_tuple import new_tuple
from client.node.logs import AT_WILL
from client.wire.kafka import produce as wire
from client.wire.kafka.answer_parts import Topic
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.produce import ProduceRequest
from client.wire.steps import STEP_ITEMS, Steps

if TYPE_CHECKING:
    from broker.front.dispatch import Channel

log = logging.getLogger(__name__)

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (0, wire.VERSION_MAX)
NEEDS: Final = PRODUCE_NEEDS

_TV2_FROM: Final = 12
"""From this version on the batch itself makes its partition part of the transaction."""
_TIMEOUT_S_MIN: Final = 0.001
_NOT_STARTED: Final = RequestTimedOut("the batch waited behind others for too long")


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
        "_answered",
        "_call",
        "_channel",
        "_held",
        "_keys",
        "_muted",
        "_pending",
        "_services",
        "_slot",
        "_stop_parsing",
        "_terms",
        "_ticket",
        "_topics",
        "_unstarted",
        "_work",
    )

    def __init__(self, services: Services, call: Call, channel: Channel, size: int) -> None:
        self._services = services
        self._call = call
        self._channel = channel
        self._terms: ProduceTerms
        """From `begin` on."""
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
        """Batches that wait for room, for their keys or for a turn, or behind such a one."""
        self._stop_parsing: Callable[[], None] | None = None
        self._work = 0
        """What was done in this turn of the loop, in batches."""
        self._keys: KeyChecks | None = None
        """What most requests have none of: a batch whose keys are looked at."""

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
        self._terms = terms_of(services, call, request.acks, request.transactional_id)
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
            name = self._terms.name(batch.topic)
            key = self._services.partitions.awaited_key(name, batch.partition)
            if key is not None:
                self._held.setdefault(key, []).append(batch)

    def _start(self, batch: Batch, *, admitted: bool = False) -> Obstacle | None:
        """Append a batch. Or return what it has to wait for."""
        if self._work >= STEP_ITEMS:
            return NEXT_TURN
        self._work += 1
        rows, at, topic, index, records, transaction = batch
        try:
            leader, records = batch_leader(
                self._services.partitions, self._call.version, self._terms, topic, index, records
            )
            size, admission = len(records), leader.admission
            if not admitted and not admission.has_room(size):
                return leader
            are_keys_checked = False
            if admission.are_keys_required:
                steps = self._check_keys(leader, records)
                if steps is not None:
                    return steps
                are_keys_checked = True
            append = leader.append(
                records, are_keys_checked=are_keys_checked, transaction=transaction
            )
        except QuireError as error:
            if self._keys is not None:
                self._keys.forget()
            rows[at] = (index, None, frameless(error))
            return None
        if self._keys is not None:
            self._keys.forget()
        self._slot.pass_on(size)
        count = append.end_offset - append.base_offset
        self._services.metrics.on_produced(leader.topic.name, count, size)
        rows[at] = (index, leader, append)
        self._pending += 1
        append.on_done(self._on_done)
        return None

    def _check_keys(self, leader: Partition, records: memoryview) -> Steps[int] | None:
        """Look at a batch's keys, unless that is done; return the steps that are left of it."""
        if self._keys is None:
            self._keys = KeyChecks(self._services.config.opened_records_max)
        steps = self._keys.check(leader, records)
        self._work += self._keys.take_work()
        return steps

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

    # --- waiting for room, for keys, for a turn

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
            leader, found = batch_leader(
                self._services.partitions, self._call.version, self._terms, topic, index, records
            )
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
            is_plain = self._terms.acks and not wait_ms
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
        if self._terms.acks == 0:
            if answer.error is not None:
                self._slot.release()
                channel.fail(f"produce with acks 0 failed: {message_of(answer.error)}")
            else:
                channel.answer(self._slot, ())
            return
        channel.answer(self._slot, (yield from answer.encode(results, wait_ms)))
