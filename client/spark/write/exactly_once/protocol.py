"""How a micro-batch becomes visible once: the steps of the driver and of its tasks.

Each task writes in a transaction of its own and leaves it open. The driver **decides**: in a
transaction of the sink's own id it commits the batch's number as an offset, with the list of the
tasks' transactions as metadata. That one commit is the moment from which the batch counts. Then it
**ends** the listed transactions. Whoever comes later finds the decision and ends them again, which
changes nothing where it was done before.

The rules, each of which a test switches off:

- FENCE: a batch begins by taking over the sink's transactional id. A driver before it, which may
  still run, can decide nothing from then on; so what is decided is known before any task begins.
- SKIP: a batch that is decided is not written again.
- TICKET: two attempts of a task, of whatever run, never have the same transactional id within
  `SLOTS` attempts: the one that is later would abort what the other one has written, after Spark
  accepted it. The epoch of an id that is used for nothing else counts the attempts. Spark's own
  numbers will not do: a stage that is run again numbers its attempts from 0 again.
- EXACT: a transaction is ended by producer id and epoch. One that was taken over meanwhile is
  refused, and its batch is reported as torn, instead of ending another one.
- CHECK: right before the decision every transaction on the list is open.
- HALF-TIME: a batch is decided within half of the transactions' time-out, so that the other half is
  left to end them, by this driver or the next.
- NO-ABORT: an abort, which Spark also asks for when a commit failed, first makes sure that the
  batch is not decided.

Steps are generators: they yield an `Ask` and get its answer, or Refused thrown in. So they run over
real connections (`transport.py`), and in tests one at a time in any order, cut off anywhere.

TV1 is spoken on purpose: there, ending a transaction twice with the same epoch is answered alike,
which the restart of a driver depends on. Every transaction has its own epoch all the same, since it
begins with InitProducerId, so no late request can touch a later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode as Code

from client.pubsub.core import verdicts
from client.pubsub.core.verdicts import Judge, Refused, Verdict
from client.spark.errors import BatchNotCommitted, BatchTorn, SinkTakenOver
from client.spark.splits import TopicPartition
from client.spark.write.exactly_once.decision import Decision, TaskTransaction, decode, encode
from client.wire.kafka.apis import ApiKey

T = TypeVar("T")

TRANSACTION: Final = 1
GROUP: Final = 0
EVERY_BROKER: Final = -1
"""The answer is a list of answers; None: no broker knows the API."""

SLOTS: Final = 32
"""Transactional ids of one task, used in turn."""

_SPEAKS: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
}
_ONGOING: Final = "Ongoing"
_NO_OFFSET: Final = -1


class Ask(NamedTuple):
    """A request to whoever coordinates `key`."""

    kind: int
    key: str
    api: ApiKey
    fields: dict[str, Any]
    codes: Callable[[Any], Iterable[int]]
    judge: Judge

    @property
    def version_max(self) -> int:
        """The newest version that has what is asked."""
        return _SPEAKS[self.api]

    @property
    def is_optional(self) -> bool:
        """Whether the answer is None from brokers that do not know the API."""
        return self.api in (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS)


Steps = Generator[Ask, Any, T]


class Sink(NamedTuple):
    """A sink by what survives restarts."""

    id: str
    topic: str
    """As whose offset decisions are kept; rows may go to others, too."""
    timeout_ms: int
    """Of its transactions."""

    @property
    def driver(self) -> str:
        """The transactional id of its decisions."""
        return f"{self.id}:driver"

    def name(self, one: TaskTransaction) -> str:
        """Return the transactional id of a task's transaction."""
        return f"{self.id}:{one.task}:{one.slot}"

    def ticket(self, task: int) -> str:
        """Return the transactional id whose epochs count the attempts of a task."""
        return f"{self.id}:{task}:ticket"

    def is_task(self, transactional_id: str) -> bool:
        """Whether an id is one of this sink's tasks."""
        return bool(re.fullmatch(re.escape(self.id) + r":\d+:\d+", transactional_id))


class Begun(NamedTuple):
    """A batch that tasks may write, unless it is decided already."""

    producer_id: int
    epoch: int
    """Of the sink's own transactional id."""
    decided: Decision | None
    """The newest decision there is."""
    begun_s: float
    """On the driver's monotonic clock."""

    def is_decided(self, query_id: str, batch_id: int) -> bool:
        """Whether a batch counts already, and is not to be written again."""
        decided = self.decided
        return decided is not None and decided.query_id == query_id and decided.batch_id >= batch_id


def begin(sink: Sink, now_s: float) -> Steps[Begun]:
    """FENCE: take the sink over, find out what is decided, clear away what is not."""
    answer = yield _init(sink.driver, sink.timeout_ms)
    decided = yield from read_decision(sink)
    yield from _clear(sink, decided)
    return Begun(int(answer.producer_id), int(answer.producer_epoch), decided, now_s)


def read_decision(sink: Sink) -> Steps[Decision | None]:
    """Return the newest decision; waits for one that is being made."""
    answer = yield Ask(
        GROUP,
        sink.id,
        ApiKey.OFFSET_FETCH,
        {
            "group_id": sink.id,
            "topics": [{"name": sink.topic, "partition_indexes": [0]}],
            "require_stable": True,
        },
        lambda found: [
            found.error_code, *(row.error_code for t in found.topics for row in t.partitions)
        ],
        _of_offset_fetch,
    )  # fmt: skip
    for topic in answer.topics:
        for row in topic.partitions:
            if row.committed_offset != _NO_OFFSET:
                return decode(int(row.committed_offset), row.metadata or "")
    return None


def open_transaction(sink: Sink, task: int) -> Steps[TaskTransaction]:
    """TICKET: begin the transaction of one attempt of a task."""
    ticket = yield _init(sink.ticket(task), sink.timeout_ms)
    wanted = TaskTransaction(task, int(ticket.producer_epoch) % SLOTS, -1, -1)
    answer = yield _init(sink.name(wanted), sink.timeout_ms)
    return wanted._replace(producer_id=int(answer.producer_id), epoch=int(answer.producer_epoch))


def enrol(sink: Sink, one: TaskTransaction, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Tell the coordinator where a task is about to write."""
    topics: dict[str, list[int]] = {}
    for at in partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    yield Ask(
        TRANSACTION,
        sink.name(one),
        ApiKey.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": sink.name(one),
            "v3_and_below_producer_id": one.producer_id,
            "v3_and_below_producer_epoch": one.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": some} for topic, some in topics.items()
            ],
        },
        lambda found: [
            row.partition_error_code
            for topic in found.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ],
        verdicts.of_coordinator,
    )


def commit(sink: Sink, begun: Begun, decision: Decision, now_s: float) -> Steps[None]:
    """Decide a batch and end its transactions; one that is decided is only ended.

    Raises BatchNotCommitted and SinkTakenOver: nothing of it will be visible; BatchTorn.
    """
    if begun.is_decided(decision.query_id, decision.batch_id):
        assert begun.decided is not None
        if begun.decided.batch_id == decision.batch_id:
            yield from _finish(sink, begun.decided)
        return
    if not decision.transactions:
        return
    metadata = encode(decision)
    spent_ms = (now_s - begun.begun_s) * 1000
    if spent_ms > sink.timeout_ms / 2:
        raise BatchNotCommitted(
            f"batch {decision.batch_id} took {spent_ms / 1000:.0f} s, more than half of its"
            f" transactions' time-out of {sink.timeout_ms / 1000:g} s: raise option"
            " transactionTimeoutMs (and the brokers' transaction.max.timeout.ms), or make batches"
            " smaller"
        )
    yield from _check(sink, decision)
    yield from _decide(sink, begun, decision, metadata)
    yield from _finish(sink, decision)
    yield from _clear(sink, decision)


def abort(sink: Sink, begun: Begun, decision: Decision) -> Steps[bool]:
    """NO-ABORT: end the transactions of a batch that failed, unless it is decided.

    Return whether they are aborted.
    """
    try:
        yield _init(sink.driver, sink.timeout_ms, begun.producer_id, begun.epoch)
    except Refused:
        return False  # another driver has the sink, and clears it
    decided = yield from read_decision(sink)
    if begun._replace(decided=decided).is_decided(decision.query_id, decision.batch_id):
        return False
    for one in decision.transactions:
        yield from abandon(sink, one)
    return True


def abandon(sink: Sink, one: TaskTransaction) -> Steps[None]:
    """Abort a task's transaction; one that is not there any more is no matter."""
    try:
        yield _end(sink, one, commit=False)
    except Refused:
        return


def _check(sink: Sink, decision: Decision) -> Steps[None]:
    """CHECK: see that every transaction is open. Raises BatchNotCommitted."""
    for one in decision.transactions:
        known = yield from _describe(sink.name(one))
        if known is None:
            continue
        mine = known.error_code == 0 and (int(known.producer_id), int(known.producer_epoch)) == (
            one.producer_id,
            one.epoch,
        )
        if not mine or known.transaction_state != _ONGOING:
            raise BatchNotCommitted(
                f"the transaction of task {one.task} is not open any more"
                f" ({known.transaction_state}): another attempt or an operator ended it"
            )


def _decide(sink: Sink, begun: Begun, decision: Decision, metadata: str) -> Steps[None]:
    identity = {
        "transactional_id": sink.driver,
        "producer_id": begun.producer_id,
        "producer_epoch": begun.epoch,
    }
    row = {
        "partition_index": 0,
        "committed_offset": decision.batch_id,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    try:
        yield Ask(
            TRANSACTION, sink.driver, ApiKey.ADD_OFFSETS_TO_TXN,
            {**identity, "group_id": sink.id}, _one_code, verdicts.of_coordinator,
        )  # fmt: skip
        yield Ask(
            GROUP,
            sink.id,
            ApiKey.TXN_OFFSET_COMMIT,
            {
                **identity,
                "group_id": sink.id,
                "generation_id": -1,
                "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": sink.topic, "partitions": [row]}],
            },
            lambda found: [r.error_code for topic in found.topics for r in topic.partitions],
            verdicts.of_offsets,
        )
        yield Ask(
            TRANSACTION, sink.driver, ApiKey.END_TXN, {**identity, "committed": True}, _one_code,
            verdicts.of_coordinator,
        )  # fmt: skip
    except Refused as error:
        if error.verdict is Verdict.FENCED:
            raise SinkTakenOver(
                f"another query writes with sinkId {sink.id}, or this one was restarted: batch"
                f" {decision.batch_id} of this run does not count ({error})"
            ) from error
        raise BatchNotCommitted(
            f"batch {decision.batch_id} of sink {sink.id} could not be decided: {error}"
        ) from error


def _finish(sink: Sink, decision: Decision) -> Steps[None]:
    """EXACT: end all that is decided. Raises BatchTorn."""
    lost = []
    for one in decision.transactions:
        try:
            yield _end(sink, one, commit=True)
        except Refused as error:
            lost.append(f"task {one.task} ({error})")
    if lost:
        raise BatchTorn(
            f"batch {decision.batch_id} of sink {sink.id} counts, but what these tasks wrote is"
            f" lost: {', '.join(lost)}. Somebody else ended their transactions, or they timed out"
            " while no driver ran (transactionTimeoutMs). failOnDataLoss=false goes on without it"
        )


def _clear(sink: Sink, decided: Decision | None) -> Steps[None]:
    """End open transactions of this sink's tasks: as decided, or by an abort."""
    answers = yield Ask(
        EVERY_BROKER, "", ApiKey.LIST_TRANSACTIONS,
        {"state_filters": [_ONGOING], "producer_id_filters": []}, _one_code,
        verdicts.of_coordinator,
    )  # fmt: skip
    open_ids = {
        str(row.transactional_id)
        for answer in answers or ()
        for row in answer.transaction_states
        if sink.is_task(str(row.transactional_id))
    }
    for one in decided.transactions if decided is not None else ():
        if answers is None or sink.name(one) in open_ids:
            open_ids.discard(sink.name(one))
            try:
                yield _end(sink, one, commit=True)
            except Refused:
                continue  # it was ended, and the id is in use again
    for name in sorted(open_ids):
        try:
            yield _init(name, sink.timeout_ms)
        except Refused:
            continue  # its time-out will end it


def _describe(name: str) -> Steps[Any]:
    """Return what the coordinator knows of an id, with an error code if that is nothing; None: it
    cannot say."""
    answer = yield Ask(
        TRANSACTION, name, ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [name]},
        lambda found: [row.error_code for row in found.transaction_states],
        _of_describe,
    )  # fmt: skip
    if answer is None:
        return None
    (row,) = answer.transaction_states
    return row


def _init(name: str, timeout_ms: int, producer_id: int = -1, epoch: int = -1) -> Ask:
    fields = {
        "transactional_id": name,
        "transaction_timeout": timeout_ms,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
    return Ask(
        TRANSACTION, name, ApiKey.INIT_PRODUCER_ID, fields, _one_code, verdicts.of_coordinator
    )


def _end(sink: Sink, one: TaskTransaction, *, commit: bool) -> Ask:
    fields = {
        "transactional_id": sink.name(one),
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "committed": commit,
    }
    return Ask(
        TRANSACTION, sink.name(one), ApiKey.END_TXN, fields, _one_code, verdicts.of_coordinator
    )


def _one_code(answer: Any) -> list[int]:
    return [answer.error_code]


def _of_offset_fetch(code: int) -> Verdict:
    if code == Code.unstable_offset_commit:
        return Verdict.RETRY
    return verdicts.of_coordinator(code)


def _of_describe(code: int) -> Verdict:
    if code == Code.transactional_id_not_found:
        return Verdict.DONE
    return verdicts.of_coordinator(code)
