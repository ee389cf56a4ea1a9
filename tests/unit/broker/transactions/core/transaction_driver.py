"""A transaction shard with its log, its producer ids and its markers by hand."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from broker.coordinator.core.connection_order import ConnectionOrder
from broker.coordinator.core.coordinator_types import Append, LogRecord, Now, Reply, Ticket, Token
from broker.errors import BrokerError
from broker.transactions.core.transaction import (
    AddPartitions,
    AllocateProducerId,
    EndTransaction,
    InitProducerId,
    MarkerWritten,
    ProducerIdAndEpoch,
    ShardEffects,
    TransactionConfig,
    TransactionEvent,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    TransactionVersion,
    WriteMarkers,
)
from broker.transactions.core.transaction_records import (
    TransactionEntry,
    decode,
    transaction_record,
)
from broker.transactions.core.transaction_shard import TransactionShard
from client.ids import ConnectionId, ProducerId

TV0, TV1, TV2 = TransactionVersion
EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)

ID = "tx"
TOPIC_ID = UUID(int=7)
P0, P1, P2 = (TransactionPartition("t", TOPIC_ID, index) for index in range(3))
PID = ProducerId(100)
PREVIOUS = ProducerId(99)
NEW = ProducerId(1000)
"""The first producer id that is allocated."""
TIMEOUT_MS = 60_000


def producer(producer_id: int, epoch: int) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(ProducerId(producer_id), epoch)


FIRST = producer(NEW, 0)
"""What the first `init` gives."""


class Bench:
    """`slow`: appends wait for `finish` or `refuse`; `short`: so do producer ids."""

    def __init__(self, *, accepted_before: int = -1, **config: int) -> None:
        self.now = Now(1000.0, 10**12)
        self.log: list[LogRecord] = []
        self.replies: dict[Token, object] = {}
        self.held: list[Append] = []
        self.allocations: list[Ticket] = []
        self.markers: list[WriteMarkers] = []
        self.events: list[TransactionEvent] = []
        self.slow = False
        self.short = False
        self.config = TransactionConfig(**config)
        self.next_producer_id = NEW
        self._last_token = 0
        self.accepted_before = ConnectionId(accepted_before)
        self.shard = self._new_shard()
        self.perform(self.shard.loaded(self.now))

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(self.config, ConnectionOrder(self.accepted_before))

    # --- the log ------------------------------------------------------------------------------

    def store(self, value: TransactionMetadata | None, transactional_id: str = ID) -> None:
        """Put a value into the log before the shard is loaded."""
        self.log.append(transaction_record(transactional_id, value))

    def load(self) -> None:
        """Take over: forget everything but the log."""
        self.held.clear()
        self.allocations.clear()
        self.markers.clear()
        self.shard = self._new_shard()
        for record in self.log:
            self.shard.replay(record)
        self.perform(self.shard.loaded(self.now))

    def perform(self, effects: ShardEffects) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self.held.append(effect)
                    if not self.slow:
                        self.finish()
                case Reply(token, result):
                    assert token not in self.replies, "answered twice"
                    self.replies[token] = result
                case AllocateProducerId(ticket):
                    self.allocations.append(ticket)
                    if not self.short:
                        self.allocate()
                case WriteMarkers():
                    self.markers.append(effect)
                case TransactionEvent():
                    self.events.append(effect)
        self.shard.view.check()

    def finish(self, count: int = 1) -> None:
        """The next appends are durable."""
        for _ in range(count):
            append = self.held.pop(0)
            self.log += append.records
            for record in append.records:
                self.shard.replay(record)
            self.perform(self.shard.on_stored(append.ticket, self.now))

    def refuse(self, error: BrokerError) -> None:
        """The next append is not in the log."""
        self.perform(self.shard.on_store_failed(self.held.pop(0).ticket, error, self.now))

    def allocate(self, error: BrokerError | None = None) -> None:
        """The next producer id is there, or it cannot be had."""
        ticket = self.allocations.pop(0)
        outcome: ProducerId | BrokerError = self.next_producer_id if error is None else error
        if error is None:
            self.next_producer_id = ProducerId(self.next_producer_id + 1)
        self.perform(self.shard.requests.on_producer_id(ticket, outcome, self.now))

    # --- requests -----------------------------------------------------------------------------

    def ask(self, start: Callable[[Token, Now], ShardEffects]) -> Token:
        self._last_token += 1
        token = Token(self._last_token)
        try:
            self.perform(start(token, self.now))
        except BrokerError as error:
            self.replies[token] = error
        self.shard.view.check()
        return token

    def init(
        self,
        expected: ProducerIdAndEpoch | None = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
        connection: int | None = None,
    ) -> Token:
        had = (ProducerId(-1), -1) if expected is None else expected
        request = InitProducerId(transactional_id, timeout_ms, *had, connection=number(connection))
        return self.ask(lambda *rest: self.shard.requests.init_producer_id(request, *rest))

    def add(
        self,
        who: ProducerIdAndEpoch,
        *partitions: TransactionPartition,
        version: TransactionVersion = TV0,
        transactional_id: str = ID,
        connection: int | None = None,
    ) -> Token:
        request = AddPartitions(
            transactional_id, who, partitions or (P0,), version, number(connection)
        )
        return self.ask(lambda *rest: self.shard.requests.add_partitions(request, *rest))

    def end(
        self,
        who: ProducerIdAndEpoch,
        *,
        is_commit: bool = True,
        version: TransactionVersion = TV0,
        transactional_id: str = ID,
        connection: int | None = None,
    ) -> Token:
        request = EndTransaction(transactional_id, who, is_commit, version, number(connection))
        return self.ask(lambda *rest: self.shard.requests.end_transaction(request, *rest))

    # --- markers, time ------------------------------------------------------------------------

    def confirm(self, *partitions: TransactionPartition) -> None:
        """Some markers of the newest decision are written; without partitions all."""
        decided = self.markers[-1]
        written = [
            MarkerWritten(decided.transactional_id, decided.number, decided.producer, one)
            for one in partitions or decided.partitions
        ]
        self.perform(self.shard.on_marker_written(written, self.now))

    def advance(self, seconds: float) -> None:
        """Let time pass, with all deadlines on the way."""
        end_s = self.now.s + seconds
        while (due_s := self.shard.next_deadline()) is not None and due_s <= end_s:
            self.now = Now(
                max(due_s, self.now.s), self.now.ms + round(max(due_s - self.now.s, 0) * 1000)
            )
            self.perform(self.shard.on_deadline(self.now))
        self.now = Now(end_s, self.now.ms + round((end_s - self.now.s) * 1000))

    def linger(self) -> None:
        """Let Complete* go into the log."""
        self.advance(2 * self.config.complete_linger_ms / 1000)

    @property
    def stored(self) -> TransactionMetadata:
        found = self.shard.view.describe(ID)
        assert found is not None
        return found


def number(connection: int | None) -> ConnectionId | None:
    return None if connection is None else ConnectionId(connection)


def ongoing(version: TransactionVersion = TV0, **config: int) -> Bench:
    """A transaction of P0 and P1 that is open."""
    bench = Bench(**config)
    bench.init()
    bench.add(FIRST, P0, P1, version=version)
    assert bench.stored.state is ONGOING
    return bench


def states(records: list[LogRecord]) -> list[TransactionState | None]:
    """Return the state that each record stores; None: the id is forgotten."""
    found = []
    for record in records:
        entry = decode(*record)
        assert isinstance(entry, TransactionEntry)
        found.append(None if entry.metadata is None else entry.metadata.state)
    return found
