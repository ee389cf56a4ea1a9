"""One transactional id: what is stored of it, and what each request does to it.

Two protocols are spoken. In the classic one clients name the partitions of a transaction before
they write to them, and a producer keeps its epoch. Since `transaction.version` 2 (TV2) a partition
is added by the broker that leads it, and each transaction has an epoch of its own.

Every function takes the id as stored and returns a decision: values to store and what to answer
once they are durable (`Write`), an answer without a change (`Answer`), or that a new producer id is
needed first (`NeedsProducerId`; call again with one). A function that raises has changed nothing.
Ids with a change under way are not asked: `transaction_shard` sees to that.

    becomes          from
    Empty            Empty, CompleteCommit, CompleteAbort; a new id
    Ongoing          Empty, Ongoing, CompleteCommit, CompleteAbort
    PrepareCommit    Ongoing                                          the decision
    PrepareAbort     Ongoing; with TV2 also Empty, Complete*          the decision
    CompleteCommit   PrepareCommit
    CompleteAbort    PrepareAbort
    (tombstone)      Empty, CompleteCommit, CompleteAbort

InitProducerId. `expected` is what the client has already:

    stored           no expected     current             last epoch       another
    none             new id, 0       new id, 0           new id, 0        new id, 0
    Empty, Complete* epoch + 1       epoch + 1           the same again   fenced
    - exhausted      new id, 0       new id, 0           the same again   fenced
    Ongoing          fence, busy     fence, busy         fenced           fenced
    Prepare*         busy            busy                busy             fenced

AddPartitions: another producer id is no mapping, another epoch fenced, Prepare* busy; otherwise
Ongoing. If it is that and has the partitions, *again* in the classic protocol; with TV2 nothing is
written, for the epoch says which transaction is meant.

EndTxn, classic (TV0, TV1); another epoch is fenced:

    stored           commit          abort
    Ongoing          PrepareCommit   PrepareAbort
    Empty            invalid         invalid
    PrepareCommit    busy            invalid
    PrepareAbort     invalid         busy
    CompleteCommit   again           invalid
    CompleteAbort    invalid         again

*Again* is done as well, but what is stored is stored once more first (PROVEN). In the classic
protocol all transactions of a producer look alike, so a coordinator that was taken over and has not
heard takes the end, or the first partition, of the next transaction for what it has seen already:
its log has to confirm that it still leads. Otherwise the data of the next transaction would join
this one before its marker, or be told that it belongs to none.

EndTxn with an epoch per transaction (TV2) is `_END_TV2`. A request is the *retry* of one that ended
the transaction if its epoch is the one before the stored one: its answer was lost.

*Busy* is CONCURRENT_TRANSACTIONS, after which clients ask again. *Fence* aborts under an epoch that
nobody holds. An epoch belongs to the last incarnation only (`last_epoch`): it is forgotten as soon
as its successor is used or fenced, so a late request cannot pass for a retry.

A commit whose transaction the coordinator aborted itself meanwhile (its time was over) is answered
PRODUCER_FENCED: Kafka 4.3 says INVALID_TXN_STATE, which ends applications that survive the other.

Sources: Kafka's TransactionLogKey/Value schemas; KIP-98, KIP-360 (epochs), KIP-890 (TV2);
KAFKA-20785 on the last rule.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import Append, Reply, Ticket
from broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    ProducerFenced,
    TransactionAbortable,
)
from client.errors import ConfigError
from client.ids import ConnectionId, ProducerId

NO_PRODUCER_ID: Final = ProducerId(-1)
NO_EPOCH: Final = -1
NO_TIME: Final = -1

EPOCH_LAST: Final = 32_766
"""The last epoch that a client is given: a producer id with this one or the next is exhausted."""
EPOCH_FENCED: Final = 32_767
"""An epoch that only fences: no client holds it."""


class TransactionState(enum.IntEnum):
    """Where a transactional id stands; the numbers are what records hold."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expiring. Never stored: a tombstone is."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's name for an abort under way that the coordinator decided. Never stored, and no id is
    ever in it here, because the fence and PREPARE_ABORT are one record."""


STATE_NAMES: Final[Mapping[TransactionState, str]] = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""What tools compare literally."""

PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""Decided: markers are on their way to the partitions."""

SETTLED: Final = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
)
"""No transaction is open."""


class TransactionVersion(enum.IntEnum):
    """Which protocol a client speaks, by the number of the feature `transaction.version`."""

    TV0 = 0
    """The classic protocol; what is stored for it."""
    TV1 = 1
    """The same protocol; only the encoding of records is newer."""
    TV2 = 2
    """An epoch per transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Limits and delays of transaction coordinators; Kafka's defaults where it has them."""

    transaction_timeout_max_ms: int = 900_000
    """Longest timeout that a producer may ask for. Higher: its readers may wait for longer."""
    transactional_id_expiration_ms: int = 7 * 86_400_000
    """How long an id without a transaction is remembered after its last use."""
    expiry_interval_ms: int = 3_600_000
    """How often unused ids are looked for."""
    timeout_interval_ms: int = 10_000
    """How often transactions that ran out of time are looked for; after a takeover, the first
    time only after a whole interval, because clients could not reach us before."""
    transactional_ids_max: int = 1_000_000
    """Ids in one partition; more are refused until some have expired. About 1 KB of memory each."""
    transaction_partitions_max: int = 10_000
    """Partitions of one transaction: its state is one record, which has to fit an entry."""
    parked_requests_max: int = 1_000
    """Requests of one partition's clients that wait until markers are written; more are told to
    ask again."""
    parked_ms_max: int = 5_000
    """How long a request waits so, before its client is told to ask again."""
    complete_linger_ms: int = 250
    """How long Complete* waits for the next value of its id, twice that at most. Higher: an id that
    is used now and then costs fewer entries, and a takeover writes more markers again."""
    retry_ms: int = 100
    """Pause before a record that the log refused is appended again."""

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        if (
            min(
                self.transaction_timeout_max_ms,
                self.transactional_id_expiration_ms,
                self.expiry_interval_ms,
                self.timeout_interval_ms,
                self.transactional_ids_max,
                self.transaction_partitions_max,
                self.parked_ms_max,
                self.complete_linger_ms,
                self.retry_ms,
            )
            <= 0
            or self.parked_requests_max < 0
        ):
            raise ConfigError("limits and intervals of transactions must be positive")


# --- durable values: what the log holds, and nothing else survives a fail-over ---------------


class ProducerIdAndEpoch(NamedTuple):
    """What a transactional producer was given, and says with every request."""

    producer_id: ProducerId
    epoch: int


class TransactionPartition(NamedTuple):
    """A partition of a transaction. A topic that is created again is another one."""

    topic: str
    topic_id: UUID | None
    """None: the record was written by Kafka, which stores names only."""
    partition: int


def in_order(partitions: list[TransactionPartition]) -> tuple[TransactionPartition, ...]:
    """Return partitions sorted, each once."""
    return tuple(sorted(dict.fromkeys(partitions), key=_order))


def _order(one: TransactionPartition) -> tuple[str, bytes, int]:
    return one.topic, b"" if one.topic_id is None else one.topic_id.bytes, one.partition


class TransactionMetadata(NamedTuple):
    """A transactional id as stored."""

    producer_id: ProducerId
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: tuple[TransactionPartition, ...] = ()
    """Sorted, each once."""
    updated_ms: int = NO_TIME
    start_ms: int = NO_TIME
    """When the transaction began; -1 before the first of an incarnation."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Whom `producer_id` replaced when the epochs of that one were exhausted."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """Who replaces `producer_id` once the markers are written."""
    version: TransactionVersion = TransactionVersion.TV0
    """The protocol of the last transaction."""
    next_epoch: int = NO_EPOCH
    """Kafka's field of a transaction in two phases; kept as it was read."""
    last_epoch: int = NO_EPOCH
    """The epoch that this incarnation had before its present one. A request that says it is the
    retry of one whose answer was lost. -1: there is none, or it was fenced."""
    number: int = 0
    """Counts the transactions of the id; for events and lists, not for safety."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """Who may act at present."""
        return ProducerIdAndEpoch(self.producer_id, self.epoch)


class Client(NamedTuple):
    """Whoever uses a transactional id, for operators."""

    client_id: str
    host: str


# --- requests ---------------------------------------------------------------------------------


class InitProducerId(NamedTuple):
    """An InitProducerId request with a transactional id."""

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    """v3+: what the client has already, -1 both if it starts anew."""
    connection: ConnectionId | None = None
    client: Client | None = None

    @property
    def expected(self) -> ProducerIdAndEpoch | None:
        """Whom the client believes to be, None if it starts anew."""
        if self.producer_id == NO_PRODUCER_ID:
            return None
        return ProducerIdAndEpoch(self.producer_id, self.epoch)


class AddPartitions(NamedTuple):
    """One transaction of an AddPartitionsToTxn request, or an AddOffsetsToTxn."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TransactionPartition, ...]
    version: TransactionVersion = TransactionVersion.TV0
    """TV2 if a broker asks for a client that wrote to the partitions."""
    connection: ConnectionId | None = None
    """None: another broker asks."""
    client: Client | None = None


class EndTransaction(NamedTuple):
    """An EndTxn request."""

    transactional_id: str
    producer: ProducerIdAndEpoch
    is_commit: bool
    version: TransactionVersion = TransactionVersion.TV0
    """TV2 from version 5 of the API on."""
    connection: ConnectionId | None = None
    client: Client | None = None


# --- effects ----------------------------------------------------------------------------------


class AllocateProducerId(NamedTuple):
    """Take a new producer id; then call `on_producer_id(ticket)`."""

    ticket: Ticket


class WriteMarkers(NamedTuple):
    """Write markers to all these partitions; as they are confirmed, `on_marker_written`."""

    transactional_id: str
    number: int
    producer: ProducerIdAndEpoch
    """Its epoch is the markers'."""
    is_commit: bool
    version: TransactionVersion
    partitions: tuple[TransactionPartition, ...]


class MarkerWritten(NamedTuple):
    """A partition has the marker of a transaction, or was deleted."""

    transactional_id: str
    number: int
    producer: ProducerIdAndEpoch
    partition: TransactionPartition


TIMED_OUT: Final = "transaction.timed_out"
FENCED: Final = "transaction.fenced"
ABORTED: Final = "transaction.aborted_by_operator"
EXPIRED: Final = "transaction.id_expired"


class TransactionEvent(NamedTuple):
    """Something an operator wants to read in the log; carries no protocol meaning."""

    name: str
    transactional_id: str
    number: int
    producer: ProducerIdAndEpoch


ShardEffect = Reply | Append | AllocateProducerId | WriteMarkers | TransactionEvent
ShardEffects = Sequence[ShardEffect]

_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING
_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

ALLOWED_BEFORE: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _EMPTY: SETTLED,
    _ONGOING: SETTLED | {_ONGOING},
    _PREPARE_COMMIT: frozenset((_ONGOING,)),
    _PREPARE_ABORT: SETTLED | {_ONGOING},
    _COMPLETE_COMMIT: frozenset((_PREPARE_COMMIT,)),
    _COMPLETE_ABORT: frozenset((_PREPARE_ABORT,)),
}
"""From which states each can follow."""


def is_allowed(before: TransactionState | None, after: TransactionState) -> bool:
    """Say whether a state may follow another; None: the id is new."""
    if before is None:
        return after is _EMPTY
    return before in ALLOWED_BEFORE[after]


class Write(NamedTuple):
    """Store the value; once it is durable, answer with `result`: a value, or an error."""

    value: TransactionMetadata
    result: object


class Answer(NamedTuple):
    """Nothing changes."""

    result: object


class NeedsProducerId(NamedTuple):
    """Ask again with a new producer id."""


Decision = Write | Answer | NeedsProducerId


# --- InitProducerId ---------------------------------------------------------------------------


def init_producer_id(
    stored: TransactionMetadata | None,
    request: InitProducerId,
    now_ms: int,
    new_id: ProducerId | None = None,
) -> Decision:
    """Begin a new incarnation; the result is a ProducerIdAndEpoch.

    Raises ProducerFenced, ConcurrentTransactions.
    """
    if stored is None:
        if new_id is None:
            return NeedsProducerId()
        first = TransactionMetadata(new_id, 0, request.timeout_ms, _EMPTY, updated_ms=now_ms)
        return Write(first, first.producer)
    expected = request.expected
    if expected is not None and not _is_known(stored, expected):
        raise ProducerFenced(f"{request.transactional_id!r} has a newer producer")
    if stored.state in PREPARED:
        raise ConcurrentTransactions(f"{request.transactional_id!r} is ending a transaction")
    is_current = expected is None or expected == stored.producer
    if stored.state is _ONGOING:
        if not is_current:
            raise ProducerFenced(f"{request.transactional_id!r} has a newer producer")
        return _busy_after(fence(stored, now_ms, new_id), request.transactional_id)
    if is_current:
        return _next_incarnation(stored, request, now_ms, new_id)
    assert expected is not None
    if _is_last(stored, expected):
        return Answer(stored.producer)
    raise ProducerFenced(f"{request.transactional_id!r} has a newer producer")


def _busy_after(fenced: TransactionMetadata | None, transactional_id: str) -> Decision:
    if fenced is None:
        return NeedsProducerId()
    busy = ConcurrentTransactions(f"{transactional_id!r} had a transaction open: it is aborted")
    return Write(fenced, busy)


def _next_incarnation(
    stored: TransactionMetadata, request: InitProducerId, now_ms: int, new_id: ProducerId | None
) -> Decision:
    """Go to the next epoch, or the next producer id if this one has none left."""
    # Who says its epoch may repeat the request; who does not begins anew each time.
    last_epoch = NO_EPOCH if request.expected is None else stored.epoch
    value = stored._replace(
        epoch=stored.epoch + 1,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        state=_EMPTY,
        partitions=(),
        start_ms=NO_TIME,
        updated_ms=now_ms,
    )
    if stored.epoch >= EPOCH_LAST:
        if new_id is None:
            return NeedsProducerId()
        value = value._replace(producer_id=new_id, previous_producer_id=stored.producer_id, epoch=0)
    return Write(value, value.producer)


def _is_known(stored: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Say whether a client may have been given this at some time, as far as ids tell."""
    return (
        expected.producer_id == stored.producer_id
        or (expected.producer_id == stored.previous_producer_id and expected.epoch >= EPOCH_LAST)
        or (stored.next_producer_id != NO_PRODUCER_ID
            and expected.producer_id == stored.next_producer_id)
    )  # fmt: skip


def _is_last(stored: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Say whether a client has what this incarnation had before its present epoch."""
    if stored.last_epoch == NO_EPOCH or producer.epoch != stored.last_epoch:
        return False
    if producer.producer_id == stored.producer_id:
        return stored.epoch == stored.last_epoch + 1
    return producer.producer_id == stored.previous_producer_id and stored.epoch == 0


def holds(value: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Say whether a client belongs to the present incarnation: it has its epoch, the one before
    because an answer was lost, or the one that follows when the markers are written."""
    return (
        producer == value.producer
        or _is_last(value, producer)
        or (value.next_producer_id != NO_PRODUCER_ID and producer == successor(value))
    )


def successor(stored: TransactionMetadata) -> ProducerIdAndEpoch:
    """Return what the client is told to go on with after the end of its transaction."""
    if stored.next_producer_id == NO_PRODUCER_ID:
        return stored.producer
    return ProducerIdAndEpoch(stored.next_producer_id, 0)


# --- AddPartitions ----------------------------------------------------------------------------


def add_partitions(
    stored: TransactionMetadata, request: AddPartitions, now_ms: int, *, partitions_max: int
) -> Decision:
    """Add partitions, beginning a transaction if there is none; the result is None.

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, InvalidRequest.
    """
    _check_producer(stored, request.transactional_id, request.producer)
    if stored.state in PREPARED:
        raise ConcurrentTransactions(f"{request.transactional_id!r} is ending a transaction")
    begins = stored.state is not _ONGOING
    wanted = in_order([*stored.partitions, *request.partitions])
    if not begins and len(wanted) == len(stored.partitions):
        is_classic = request.version < TransactionVersion.TV2
        return Write(stored, None) if is_classic else Answer(None)
    if len(wanted) > partitions_max:
        raise InvalidRequest(f"a transaction may have at most {partitions_max} partitions")
    value = stored._replace(
        state=_ONGOING,
        partitions=wanted,
        updated_ms=now_ms,
        start_ms=now_ms if begins else stored.start_ms,
        number=stored.number + 1 if begins else stored.number,
        version=request.version,
        last_epoch=NO_EPOCH,  # whoever begins has its epoch, and needs to retry nothing
    )
    return Write(value, None)


def verify_partitions(
    stored: TransactionMetadata,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: tuple[TransactionPartition, ...],
) -> tuple[BrokerError | None, ...]:
    """Say for each partition whether the open transaction has it: None, or TransactionAbortable.

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions.
    """
    _check_producer(stored, transactional_id, producer)
    if stored.state in PREPARED:
        raise ConcurrentTransactions(f"{transactional_id!r} is ending a transaction")
    known = frozenset(stored.partitions)
    return tuple(
        None
        if one in known
        else TransactionAbortable(f"{one.topic}-{one.partition} is not in the transaction")
        for one in partitions
    )


def _check_producer(
    stored: TransactionMetadata, transactional_id: str, producer: ProducerIdAndEpoch
) -> None:
    current = stored.producer
    if producer.producer_id not in (current.producer_id, successor(stored).producer_id):
        raise InvalidProducerIdMapping(f"{transactional_id!r} has another producer id")
    # EPOCH_FENCED is nobody's: a client that names it guesses.
    if producer not in (current, successor(stored)) or producer.epoch == EPOCH_FENCED:
        raise ProducerFenced(f"{transactional_id!r} has a newer producer")


# --- EndTxn -----------------------------------------------------------------------------------


class _Step(enum.Enum):
    """What an EndTxn does in a state."""

    PREPARE = "write the decision"
    BUMP = "end a transaction without partitions, for its epoch"
    DONE = "it is done: the retry of the request that did it"
    AGAIN = "the same, if this coordinator is one: prove it"
    BUSY = "it is decided, ask again"
    INVALID = "there is nothing to end, or it ended the other way"
    FENCED = "the epoch is not that of a transaction that can end"


class Relation(enum.Enum):
    """How the epoch of a TV2 EndTxn relates to the stored one."""

    CURRENT = "the same"
    RETRY = "the one before, which the client itself has ended"
    ENDED_BY_COORDINATOR = "the one before, which the coordinator has ended"
    OTHER = "any other"


# (commit, abort)
_END_CLASSIC: Final[Mapping[TransactionState, tuple[_Step, _Step]]] = {
    _ONGOING: (_Step.PREPARE, _Step.PREPARE),
    _EMPTY: (_Step.INVALID, _Step.INVALID),
    _PREPARE_COMMIT: (_Step.BUSY, _Step.INVALID),
    _PREPARE_ABORT: (_Step.INVALID, _Step.BUSY),
    _COMPLETE_COMMIT: (_Step.AGAIN, _Step.INVALID),
    _COMPLETE_ABORT: (_Step.INVALID, _Step.AGAIN),
}

_NO: Final = (_Step.FENCED, _Step.FENCED)
_EARLY: Final = (_Step.BUSY, _Step.BUSY)
"""Of the next transaction, which nothing has begun yet: a client that gave up on its first batch.
Kafka says PRODUCER_FENCED, to the only one who can have this epoch."""
_END_TV2: Final[Mapping[Relation, Mapping[TransactionState, tuple[_Step, _Step]]]] = {
    Relation.CURRENT: {
        _ONGOING: (_Step.PREPARE, _Step.PREPARE),
        _EMPTY: (_Step.INVALID, _Step.BUMP),
        _PREPARE_COMMIT: _EARLY,
        _PREPARE_ABORT: _EARLY,
        _COMPLETE_COMMIT: (_Step.INVALID, _Step.BUMP),
        _COMPLETE_ABORT: (_Step.INVALID, _Step.BUMP),
    },
    Relation.RETRY: {
        _ONGOING: _NO,
        _EMPTY: _NO,
        _PREPARE_COMMIT: (_Step.BUSY, _Step.INVALID),
        _PREPARE_ABORT: (_Step.INVALID, _Step.BUSY),
        _COMPLETE_COMMIT: (_Step.DONE, _Step.INVALID),
        _COMPLETE_ABORT: (_Step.INVALID, _Step.DONE),
    },
    Relation.ENDED_BY_COORDINATOR: {
        _ONGOING: _NO,
        _EMPTY: _NO,
        _PREPARE_COMMIT: (_Step.BUSY, _Step.INVALID),
        _PREPARE_ABORT: (_Step.FENCED, _Step.BUSY),
        _COMPLETE_COMMIT: (_Step.DONE, _Step.INVALID),
        _COMPLETE_ABORT: (_Step.FENCED, _Step.DONE),
    },
    Relation.OTHER: dict.fromkeys(ALLOWED_BEFORE, _NO),
}


def end_transaction(
    stored: TransactionMetadata,
    request: EndTransaction,
    now_ms: int,
    new_id: ProducerId | None = None,
) -> Decision:
    """Decide a transaction; the result is the ProducerIdAndEpoch to go on with.

    Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions,
    InvalidTransactionState.
    """
    if request.version < TransactionVersion.TV2:
        _check_producer(stored, request.transactional_id, request.producer)
        row = _END_CLASSIC[stored.state]
    else:
        row = _END_TV2[relation(stored, request)][stored.state]
    step = row[0] if request.is_commit else row[1]
    if step is _Step.DONE:
        return Answer(successor(stored))
    if step is _Step.AGAIN:
        return Write(stored, successor(stored))
    if step is _Step.BUSY:
        raise ConcurrentTransactions(f"{request.transactional_id!r} is ending the transaction")
    if step is _Step.FENCED:
        raise ProducerFenced(f"{request.transactional_id!r} has a newer epoch")
    if step is _Step.INVALID:
        verb = "commit" if request.is_commit else "abort"
        raise InvalidTransactionState(
            request.producer.producer_id,
            f"cannot {verb} the transaction of {request.transactional_id!r} in {stored.state.name}",
        )
    is_commit = request.is_commit and step is _Step.PREPARE
    value = _prepared(stored, now_ms, new_id, is_commit=is_commit, version=request.version)
    return NeedsProducerId() if value is None else Write(value, successor(value))


def relation(stored: TransactionMetadata, request: EndTransaction) -> Relation:
    """Return how a TV2 EndTxn relates to what is stored. Raises InvalidProducerIdMapping."""
    producer = request.producer
    ended_by_tv2 = stored.version >= TransactionVersion.TV2
    is_rotated = (
        ended_by_tv2 and producer == (stored.previous_producer_id, EPOCH_LAST) and stored.epoch == 0
    )
    if is_rotated or (
        ended_by_tv2
        and producer.producer_id == stored.producer_id
        and producer.epoch == stored.epoch - 1
    ):
        by_client = stored.last_epoch == producer.epoch
        return Relation.RETRY if by_client else Relation.ENDED_BY_COORDINATOR
    if producer.producer_id not in (stored.producer_id, successor(stored).producer_id):
        raise InvalidProducerIdMapping(f"{request.transactional_id!r} has another producer id")
    if producer in (stored.producer, successor(stored)) and producer.epoch != EPOCH_FENCED:
        return Relation.CURRENT
    return Relation.OTHER


def fence(
    stored: TransactionMetadata, now_ms: int, new_id: ProducerId | None = None
) -> TransactionMetadata | None:
    """Abort an open transaction by the coordinator's decision, under an epoch that nobody holds.

    None: a new producer id is needed.
    """
    assert stored.state is _ONGOING
    return _prepared(
        stored, now_ms, new_id, is_commit=False, version=stored.version, by_coordinator=True
    )


def _prepared(
    stored: TransactionMetadata,
    now_ms: int,
    new_id: ProducerId | None,
    *,
    is_commit: bool,
    version: TransactionVersion,
    by_coordinator: bool = False,
) -> TransactionMetadata | None:
    """Return the decision as it is stored, None if a new producer id is needed for it."""
    # With TV2 the next epoch fences the transaction's own; a fence is no second one (KAFKA-19367).
    ends_epoch = version >= TransactionVersion.TV2
    epoch = stored.epoch + 1 if ends_epoch or by_coordinator else stored.epoch
    rotates = ends_epoch and stored.epoch >= EPOCH_LAST
    if rotates and new_id is None:
        return None
    assert epoch <= EPOCH_FENCED
    return stored._replace(
        state=_PREPARE_COMMIT if is_commit else _PREPARE_ABORT,
        epoch=epoch,
        last_epoch=stored.epoch if ends_epoch and not by_coordinator else NO_EPOCH,
        next_producer_id=new_id if rotates and new_id is not None else NO_PRODUCER_ID,
        version=version,
        updated_ms=now_ms,
        start_ms=stored.start_ms if stored.state is _ONGOING else now_ms,
    )


# --- markers, time ----------------------------------------------------------------------------


def completed(stored: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return what is stored once every marker is written."""
    is_commit = stored.state is _PREPARE_COMMIT
    assert is_commit or stored.state is _PREPARE_ABORT
    value = stored._replace(
        state=_COMPLETE_COMMIT if is_commit else _COMPLETE_ABORT,
        partitions=(),
        updated_ms=now_ms,
    )
    if stored.next_producer_id == NO_PRODUCER_ID:
        return value
    return value._replace(
        producer_id=stored.next_producer_id,
        previous_producer_id=stored.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=0,
    )


def is_timed_out(stored: TransactionMetadata, now_ms: int) -> bool:
    """Say whether a transaction has been open for longer than its producer asked for."""
    return stored.state is _ONGOING and stored.start_ms + stored.timeout_ms < now_ms


def is_expired(stored: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Say whether an id was not used for this long, and has no transaction."""
    return stored.state in SETTLED and stored.updated_ms + expiration_ms <= now_ms
