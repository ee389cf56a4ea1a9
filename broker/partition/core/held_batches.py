"""Batches that wait until a coordinator has verified their transaction.

Data that is appended after its transaction's marker would be a hanging transaction: it is never
ended, and nothing after it becomes stable any more. So the first batch of a transaction is held,
with the next ones of its producer, while the coordinator is asked. One object makes all decisions.

    VERIFY             a producer's batches are held in the order of arrival, under one guard, until
                       the coordinator says that the partition is part of the transaction. Then they
                       are accepted in that order, in the same step as the answer.
    GUARD              the guard becomes void by any marker of the producer that may end what is
                       held, even if there is nothing to write for it, and by the end of the
                       leadership. The answer for a void guard is ignored. Guards are compared by
                       identity, because the next verification may have the same fields. (Kafka's
                       VerificationGuard.)
    NEXT-EPOCH         in TV2 a marker ends transactions of older epochs than its own. So a held
                       batch of the marker's own epoch belongs to the next transaction: it goes on
                       waiting for its coordinator, which answers when the previous one is complete.
    COORDINATOR-EPOCH  the answer of a coordinator with an older epoch than the log has is ignored.
    REFUSED-ORDER      after a batch was refused with an error that its producer retries, none after
                       it is accepted before it: it would begin the producer's sequence.

Refusals are errors that clients retry, unless the coordinator's answer is final. Released batches
go through the ordinary append, which checks epoch and sequence; this module only decides whether
they may.

The model is `tests/model/Transactions.tla`. Source: KIP-890.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from broker.errors import BrokerError, NotEnoughReplicas, Overloaded
from broker.partition.core.producer_state import is_gap
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import BatchHeader

T = TypeVar("T")

_REMEMBERED_MAX: Final = 1_000
HELD_OVERHEAD_BYTES: Final = 1_000
"""Approximate overhead of Python to hold one batch and verify it, in addition to its bytes."""


class ProducerTransaction(NamedTuple):
    """The transaction of a batch, according to the client."""

    transactional_id: str
    is_tv2: bool
    """Each transaction has its own epoch, and the batch itself adds the partition to it (Produce
    from version 12, TxnOffsetCommit from 5). Otherwise the client has added it before."""
    is_verified: bool = False
    """Whether the coordinator has verified it: set by the partition itself for a held batch."""


class VerificationRequest(NamedTuple):
    """Is this partition part of an ongoing transaction of that producer and epoch?"""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    topic: str
    topic_id: UUID
    partition: int
    is_tv2: bool
    """Add the partition to the transaction if needed, and begin the transaction if there is
    none."""


class ProducerView(NamedTuple):
    """A producer of a partition as DescribeProducers returns it; -1: there is no value."""

    producer_id: ProducerId
    epoch: int
    last_sequence: int
    last_seen_ms: int
    coordinator_epoch: int
    """Coordinator epoch of its last marker."""
    open_since: Offset
    """First offset of its transaction that has no marker."""


class OpenTransactionView(NamedTuple):
    """A transaction without a marker, for DescribeProducers and metrics."""

    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    """Coordinator epoch of the producer's last marker in this log; -1: it has none."""
    first_offset: Offset
    started_ms: int
    """When its first batch was accepted."""


class Guard:
    """One verification by a coordinator. Compared by identity."""

    __slots__ = ("producer_epoch", "producer_id")

    def __init__(self, producer_id: ProducerId, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class Released(NamedTuple, Generic[T]):
    """Batches that are no longer held: accept them now, or refuse them with `error`."""

    batches: tuple[T, ...]
    error: BrokerError | None = None


class _Held(Generic[T]):
    """The batches held under one guard."""

    __slots__ = ("batches", "first_sequence", "guard", "size_bytes")

    def __init__(self, guard: Guard, first_sequence: int) -> None:
        self.guard = guard
        self.first_sequence = first_sequence
        self.batches: list[T] = []
        self.size_bytes = 0


class HeldBatches(Generic[T]):
    """All held batches of one partition; `T` is the caller's object for one of them.

    `size_bytes_max` bounds the batches of all producers together, plus `overhead_bytes` for each.
    """

    __slots__ = ("_held", "_name", "_overhead_bytes", "_refused", "_size_bytes_max", "size_bytes")

    def __init__(
        self, name: str, *, size_bytes_max: int, overhead_bytes: int = HELD_OVERHEAD_BYTES
    ) -> None:
        self._name = name
        self._size_bytes_max = size_bytes_max
        self._overhead_bytes = overhead_bytes
        self.size_bytes = 0
        """Size of all held batches, with the overhead."""
        self._held: dict[ProducerId, _Held[T]] = {}
        self._refused: dict[ProducerId, tuple[int, int]] = {}
        """Producer -> epoch, and sequence of the first batch that must be resent."""

    def __len__(self) -> int:
        return sum(len(held.batches) for held in self._held.values())

    def __contains__(self, producer_id: ProducerId) -> bool:
        """Whether batches of the producer are held, so that its next ones must be, too."""
        return producer_id in self._held

    def hold(self, header: BatchHeader, batch: T) -> Guard | None:
        """Hold a batch; return the guard if a new verification has to be started.

        Raises NotEnoughReplicas and Overloaded, which clients retry; the batch is not held then.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        self._check_order(header)
        held = self._held.get(producer_id)
        if held is not None and held.guard.producer_epoch != epoch:
            raise NotEnoughReplicas(
                f"{self._name}: a batch of producer {producer_id} with epoch"
                f" {held.guard.producer_epoch} is being verified by its coordinator"
            )
        size = header.size + self._overhead_bytes
        if self.size_bytes and self.size_bytes + size > self._size_bytes_max:
            self._remember(producer_id, epoch, header.base_sequence)
            raise Overloaded(f"{self._name} holds {self.size_bytes} bytes of unverified batches")
        is_new = held is None
        if held is None:
            held = self._held[producer_id] = _Held(Guard(producer_id, epoch), header.base_sequence)
        elif is_gap(held.first_sequence, header.base_sequence):
            held.first_sequence = header.base_sequence
        held.batches.append(batch)
        held.size_bytes += size
        self.size_bytes += size
        if self._refused.get(producer_id) == (epoch, header.base_sequence):
            del self._refused[producer_id]
        return held.guard if is_new else None

    def on_verified(
        self, guard: Guard, coordinator_epoch: int, known_coordinator_epoch: int
    ) -> Released[T]:
        """The coordinator has verified a transaction. Accept the released batches at once, in
        order.

        `known_coordinator_epoch`: the newest in this log (`OpenTransactions.coordinator_epoch`).
        """
        if coordinator_epoch < known_coordinator_epoch:
            return self.on_refused(
                guard,
                NotEnoughReplicas(
                    f"{self._name}: the coordinator of producer {guard.producer_id} answered with"
                    f" epoch {coordinator_epoch}, but the log has epoch {known_coordinator_epoch}"
                ),
            )
        held = self._take(guard)
        return Released(()) if held is None else Released(tuple(held.batches))

    def on_refused(self, guard: Guard, error: BrokerError) -> Released[T]:
        """The coordinator refuses, or does not answer: all held batches of the producer get
        `error`."""
        held = self._take(guard)
        if held is None:
            return Released((), error)
        if error.retriable:
            self._remember(guard.producer_id, guard.producer_epoch, held.first_sequence)
        return Released(tuple(held.batches), error)

    def on_not_accepted(self, header: BatchHeader) -> None:
        """A released batch could not be accepted now; its producer will resend it."""
        self._remember(header.producer_id, header.producer_epoch, header.base_sequence)

    def on_marker(
        self, producer_id: ProducerId, producer_epoch: int, *, is_tv2: bool
    ) -> Released[T]:
        """A marker of the producer arrived, whatever its outcome: the guard becomes void if it may
        be for the transaction that the marker ends.

        `is_tv2`: the marker's epoch is the one after its transaction's.
        """
        held = self._held.get(producer_id)
        error = NotEnoughReplicas(
            f"{self._name}: a transaction of producer {producer_id} ended during the verification"
        )
        if held is None or producer_epoch < held.guard.producer_epoch + is_tv2:
            return Released((), error)
        return self.on_refused(held.guard, error)

    def drain(self) -> tuple[T, ...]:
        """The leadership has ended: remove and return everything, in order; all guards are void."""
        everything = tuple(batch for held in self._held.values() for batch in held.batches)
        self._held.clear()
        self._refused.clear()
        self.size_bytes = 0
        return everything

    def _take(self, guard: Guard) -> _Held[T] | None:
        """Remove what is held under a guard; None if the guard is void."""
        held = self._held.get(guard.producer_id)
        if held is None or held.guard is not guard:
            return None
        del self._held[guard.producer_id]
        self.size_bytes -= held.size_bytes
        return held

    def _check_order(self, header: BatchHeader) -> None:
        """Raise NotEnoughReplicas if a batch before this one was refused and must be resent."""
        epoch, sequence = self._refused.get(header.producer_id, (header.producer_epoch, -1))
        if epoch != header.producer_epoch:
            if epoch < header.producer_epoch:
                del self._refused[header.producer_id]
            return
        if sequence >= 0 and is_gap(header.base_sequence, sequence):
            raise NotEnoughReplicas(
                f"{self._name}: producer {header.producer_id} must resend sequence {sequence} first"
            )

    def _remember(self, producer_id: ProducerId, epoch: int, sequence: int) -> None:
        known = self._refused.get(producer_id)
        if known is not None and known[0] == epoch and not is_gap(known[1], sequence):
            return  # an earlier batch of this epoch must be resent first anyway
        if len(self._refused) >= _REMEMBERED_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[producer_id] = epoch, sequence
