"""State of idempotent producers: sequence checks, duplicate detection, and gaps of our own making.

Rule: each batch once, in order. The state is a fold over the log in the order of acceptance, and
includes unconfirmed batches: a batch is checked against what was accepted before it, not against
what is durable. Nothing is ever rolled back: a leader whose append fails resigns, and its successor
folds the recovered log again. So a record that survived without having been acknowledged counts as
written, and its retry is recognized as a duplicate.

Per producer id: the epoch, and the last five batches as (first sequence, last sequence, base
offset). Sequences count records and wrap from 2^31-1 to 0.

    unknown producer       any sequence (its state may have expired, or been trimmed)
    older epoch            refused
    newer epoch            must begin with sequence 0; the window is cleared
    same epoch             exactly a batch of the window: a duplicate, answered with its offset
                           the sequence after the last one: accepted
                           anything else: out of order
    no sequence            a coordinator's own batch, or a marker: only its epoch counts

A producer with an open transaction is never forgotten, however long it is idle.

Source: KIP-98, Kafka's `ProducerAppendInfo`.

A gap in a producer's sequences may be caused by refusals of the brokers (`SequenceGaps`). Clients
send several batches without waiting. If the first one is refused because the partition is not led
here yet, or no longer, and the leadership begins before the next one is checked, that one shows a
gap although nothing is lost: the client is about to resend both. OUT_OF_ORDER_SEQUENCE_NUMBER would
be wrong then, and harmful: librdkafka reacts with a new producer epoch, and renumbers everything
unacknowledged in all partitions. Batches that had survived without an acknowledgement are then
stored a second time, and cannot be recognized as duplicates.

So for a while after a leadership began, and after a batch was refused for lack of room, a batch
after the gap is refused for the same reason as the missing one. Found by power losses of whole
clusters under librdkafka (`make power-loss`). Of a producer that the log does not know yet, any
sequence would be accepted: there a batch would overtake the one that had no room.

A log that was never led before is different: no earlier leadership can have refused anything, only
this broker, before it began. So it remembers what it refused (`RefusedBatches`), and only that
explains a gap there. Otherwise a producer that goes on counting after its topic was deleted and
made again, as Java's does, would be refused for the whole time although nothing is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from broker.errors import InvalidProducerEpoch, OutOfOrderSequence
from client.errors import LogCorrupt
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import BatchHeader

WINDOW_BATCHES: Final = 5
"""A producer has at most five requests in flight, so a retry is one of the last five batches."""

SEQUENCE_MODULUS: Final = 1 << 31

UNKNOWN_EPOCH: Final = -1
"""Epoch of an unknown producer."""

_REMEMBERED_MAX: Final = 1_000
"""Producers whose refused batches are remembered."""

_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhqb")
_BATCH: Final = struct.Struct(">iiqq")


class AcceptedBatch(NamedTuple):
    """One batch of a producer's window."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    timestamp_ms: int
    """Timestamp in the batch's answer: set by the broker, or -1."""

    @property
    def next_offset(self) -> Offset:
        """Offset after its last record: sequences and offsets count the same records."""
        count = (self.last_sequence - self.first_sequence) % SEQUENCE_MODULUS + 1
        return Offset(self.base_offset + count)


class _Producer:
    """Epoch, window and last activity of one producer id."""

    __slots__ = ("epoch", "last_seen_ms", "window")

    def __init__(self, epoch: int, last_seen_ms: int) -> None:
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms
        self.window: list[AcceptedBatch] = []


class ProducerState:
    """All producers of one partition. `producer_count_max` bounds memory and snapshots."""

    __slots__ = ("_expiration_ms", "_on_forgotten", "_pinned", "_producer_count_max", "_producers")

    def __init__(
        self,
        *,
        expiration_ms: int = 86_400_000,
        producer_count_max: int = 20_000,
        pinned: Container[ProducerId] = (),
        on_forgotten: Callable[[ProducerId], None] = lambda _: None,
    ) -> None:
        """`pinned`: producers that must not be forgotten now. `on_forgotten` is called for each
        that is."""
        self._expiration_ms = expiration_ms
        self._producer_count_max = producer_count_max
        self._pinned = pinned
        self._on_forgotten = on_forgotten
        self._producers: dict[ProducerId, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: ProducerId) -> bool:
        return producer_id in self._producers

    def epoch(self, producer_id: ProducerId) -> int:
        """Return the producer's epoch in the log, or UNKNOWN_EPOCH."""
        producer = self._producers.get(producer_id)
        return UNKNOWN_EPOCH if producer is None else producer.epoch

    def check_epoch(self, header: BatchHeader) -> None:
        """Raise InvalidProducerEpoch if a newer instance of the producer has written."""
        known = self.epoch(header.producer_id)
        if header.producer_epoch < known:
            raise InvalidProducerEpoch(
                header.producer_id, f"epoch {header.producer_epoch} after {known}"
            )

    def find_repeated(self, header: BatchHeader) -> AcceptedBatch | None:
        """Return the batch of the same epoch that this one repeats exactly, if it is still in the
        window; None does not mean that this one may be accepted."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first = header.base_sequence
        last = (first + header.last_offset_delta) % SEQUENCE_MODULUS
        for batch in producer.window:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def find_duplicate(self, header: BatchHeader) -> AcceptedBatch | None:
        """Check an idempotent batch: return the batch that it repeats; None: accept it.

        Raises InvalidProducerEpoch, OutOfOrderSequence. Changes nothing.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            if header.producer_epoch < producer.epoch:
                raise InvalidProducerEpoch(
                    header.producer_id, f"epoch {header.producer_epoch} after {producer.epoch}"
                )
            if first > 0:
                raise OutOfOrderSequence(
                    header.producer_id,
                    f"new epoch {header.producer_epoch} begins with sequence {first}, expected 0",
                    first=first,
                    expected=0,
                )
            return None
        last = (first + header.last_offset_delta) % SEQUENCE_MODULUS
        for batch in producer.window:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        expected = next_sequence(producer.window[-1].last_sequence) if producer.window else 0
        if first != expected and first >= 0:
            raise OutOfOrderSequence(
                header.producer_id,
                f"sequence {first}, expected {expected}",
                first=first,
                expected=expected,
            )
        return None

    def accept(
        self, header: BatchHeader, base_offset: Offset, now_ms: int, timestamp_ms: int = -1
    ) -> None:
        """Record a batch that was appended, or found in the log, at `base_offset`."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._add(header.producer_id, header.producer_epoch, now_ms)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.window.clear()
        producer.last_seen_ms = now_ms
        if header.base_sequence < 0:
            return
        last = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
        if len(producer.window) == WINDOW_BATCHES:
            del producer.window[0]
        producer.window.append(AcceptedBatch(header.base_sequence, last, base_offset, timestamp_ms))

    def on_marker(self, producer_id: ProducerId, epoch: int, now_ms: int) -> None:
        """A marker of the producer was accepted, or found in the log: it may begin a new epoch, and
        counts as activity."""
        producer = self._producers.get(producer_id)
        if producer is None:
            self._add(producer_id, epoch, now_ms)
            return
        producer.last_seen_ms = now_ms
        if producer.epoch < epoch:
            producer.epoch = epoch
            producer.window.clear()

    def expire(self, now_ms: int) -> int:
        """Forget producers that were idle for the expiration time; return how many."""
        horizon = now_ms - self._expiration_ms
        pinned = self._pinned
        silent = [
            key
            for key, value in self._producers.items()
            if value.last_seen_ms <= horizon and key not in pinned
        ]
        self._forget(silent)
        return len(silent)

    def encode(self) -> bytes:
        """Return the state as bytes: the count, then each producer's fixed part and window."""
        parts = [_COUNT.pack(len(self._producers))]
        for producer_id, producer in self._producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id, producer.epoch, producer.last_seen_ms, len(producer.window)
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in producer.window)
        return b"".join(parts)

    def restore(self, data: memoryview) -> memoryview:
        """Replace the state by an encoded one; return the bytes after it. Raises LogCorrupt."""
        self._producers.clear()
        try:
            (count,) = _COUNT.unpack_from(data)
            at = _COUNT.size
            for _ in range(count):
                producer_id, epoch, last_seen_ms, batch_count = _PRODUCER.unpack_from(data, at)
                at += _PRODUCER.size
                producer = self._producers[producer_id] = _Producer(epoch, last_seen_ms)
                for _ in range(batch_count):
                    producer.window.append(AcceptedBatch._make(_BATCH.unpack_from(data, at)))
                    at += _BATCH.size
        except struct.error as error:
            raise LogCorrupt(f"producer snapshot of {len(data)} bytes is truncated") from error
        return data[at:]

    def last_batches(self) -> Iterator[tuple[ProducerId, int, int, int]]:
        """Iterate over (producer id, epoch, last sequence or -1, time of last activity in ms)."""
        for producer_id, producer in self._producers.items():
            window = producer.window
            last = window[-1].last_sequence if window else -1
            yield producer_id, producer.epoch, last, producer.last_seen_ms

    def windows(self) -> Iterator[tuple[ProducerId, int, tuple[AcceptedBatch, ...]]]:
        """Iterate over (producer id, epoch, window), for tests and descriptions."""
        for producer_id, producer in self._producers.items():
            yield producer_id, producer.epoch, tuple(producer.window)

    def _add(self, producer_id: ProducerId, epoch: int, now_ms: int) -> _Producer:
        if len(self._producers) >= self._producer_count_max:
            self._evict()
        producer = self._producers[producer_id] = _Producer(epoch, now_ms)
        return producer

    def _evict(self) -> None:
        """Drop the tenth that was idle longest, so that eviction is rare and cheap on average."""
        pinned = self._pinned
        free = [key for key in self._producers if key not in pinned]
        free.sort(key=lambda key: self._producers[key].last_seen_ms)
        self._forget(free[: max(1, len(self._producers) // 10)])

    def _forget(self, producer_ids: list[ProducerId]) -> None:
        for producer_id in producer_ids:
            del self._producers[producer_id]
            self._on_forgotten(producer_id)


def next_sequence(sequence: int) -> int:
    """Return the sequence after `sequence`: 2^31-1 is followed by 0."""
    return (sequence + 1) % SEQUENCE_MODULUS


class SequenceGaps:
    """Gaps in one partition that refusals of this broker may explain."""

    __slots__ = ("_follows_refused", "_refused", "_settled_s")

    def __init__(
        self,
        settled_s: float,
        follows_refused: Callable[[BatchHeader, float], bool] = lambda _header, _now_s: False,
    ) -> None:
        """`settled_s`: until then, by the loop's clock, any gap may be explained by refusals.

        `follows_refused`: whether, at a time of the loop's clock, it is known that a batch before
        this one was refused here before we led.
        """
        self._settled_s = settled_s
        self._follows_refused = follows_refused
        self._refused: dict[ProducerId, tuple[int, int]] = {}
        """Producer -> epoch and first sequence of the oldest batch that had no room, until one of
        the producer is accepted."""

    def may_follow_refused(self, header: BatchHeader, now_s: float) -> bool:
        """Whether the batches missing before this one may have been refused before we led."""
        return now_s < self._settled_s or self._follows_refused(header, now_s)

    def on_no_room(self, header: BatchHeader) -> None:
        """A batch was refused for lack of room."""
        refused, first = self._refused, header.base_sequence
        epoch, oldest = refused.get(header.producer_id, (header.producer_epoch, first))
        if epoch != header.producer_epoch or is_gap(oldest, first):
            oldest = first
        if len(refused) >= _REMEMBERED_MAX:
            refused.clear()  # at worst clients get an error that they recover from
        refused[header.producer_id] = header.producer_epoch, oldest

    def on_accepted(self, producer_id: ProducerId) -> None:
        """A batch was accepted: nothing is missing before it."""
        if self._refused:
            self._refused.pop(producer_id, None)

    def lacked_room(self, header: BatchHeader) -> bool:
        """Whether a batch before this one was refused for lack of room, and is still missing."""
        epoch, oldest = self._refused.get(header.producer_id, (header.producer_epoch + 1, 0))
        return epoch == header.producer_epoch and is_gap(header.base_sequence, oldest)


class RefusedBatches:
    """What one broker refused of late because it did not lead the partition; for all partitions.

    Topics are named as the request did, by name or id.
    """

    __slots__ = ("_batches", "_kept_s")

    def __init__(self, kept_s: float) -> None:
        """`kept_s`: how long clients may take to send the refused batches again."""
        self._kept_s = kept_s
        self._batches: dict[tuple[str | UUID, int, ProducerId], tuple[int, int, float]] = {}
        """Producer epoch, lowest refused sequence, time of the last refusal; oldest first."""

    def note(self, topic: str | UUID, index: int, header: BatchHeader, now_s: float) -> None:
        """A batch was refused; only those of idempotent producers count."""
        if header.producer_id < 0:
            return
        batches, key = self._batches, (topic, index, header.producer_id)
        epoch, lowest, refused_s = batches.pop(key, (header.producer_epoch, 0, float("-inf")))
        is_first = epoch != header.producer_epoch or now_s >= refused_s + self._kept_s
        if is_first or is_gap(lowest, header.base_sequence):
            lowest = header.base_sequence
        if len(batches) >= _REMEMBERED_MAX:
            del batches[next(iter(batches))]  # at worst a client raises its epoch
        batches[key] = header.producer_epoch, lowest, now_s

    def is_before(self, topic: str | UUID, index: int, header: BatchHeader, now_s: float) -> bool:
        """Whether a batch of the same producer epoch with a lower sequence was refused."""
        found = self._batches.get((topic, index, header.producer_id))
        if found is None:
            return False
        epoch, lowest, refused_s = found
        is_recent = epoch == header.producer_epoch and now_s < refused_s + self._kept_s
        return is_recent and is_gap(header.base_sequence, lowest)


def is_gap(first: int, expected: int) -> bool:
    """Whether `first` is ahead of the expected sequence, not behind it."""
    return 0 < (first - expected) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
