"""The value types of transaction coordination: settings, states, durable values, requests, effects.

Two protocols are spoken. In the classic one clients name the partitions of a transaction before
they write to them, and a producer keeps its epoch. Since `transaction.version` 2 (KIP-890) a
partition is added by the broker that leads it, and each transaction has an epoch of its own.

Sources: Kafka's TransactionLogKey/Value schemas; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from broker.coordinator.core.coordinator_types import Append, Reply, Ticket
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
