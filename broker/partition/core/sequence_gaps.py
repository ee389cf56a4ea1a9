"""Tells whether a gap in a producer's sequences may be caused by refusals of the brokers.

Clients send several batches without waiting. If the first one is refused because the partition is
not led here yet, or no longer, and the leadership begins before the next one is checked, that one
shows a gap although nothing is lost: the client is about to resend both.
OUT_OF_ORDER_SEQUENCE_NUMBER would be wrong then, and harmful: librdkafka reacts with a new producer
epoch, and renumbers everything unacknowledged in all partitions. Batches that had survived without
an acknowledgement are then stored a second time, and cannot be recognized as duplicates.

So for a while after a leadership began, and after a batch was refused for lack of room, a batch
after the gap is refused for the same reason as the missing one. Found by power losses of whole
clusters under librdkafka (`make power-loss`).
"""

from __future__ import annotations

from typing import Final

from broker.partition.core.producer_state import SEQUENCE_MODULUS
from client.ids import ProducerId
from client.wire.kafka.batches.records import BatchHeader

_REMEMBERED_MAX: Final = 1_000


class SequenceGaps:
    """Gaps in one partition that refusals of this broker may explain."""

    __slots__ = ("_refused", "_settled_s")

    def __init__(self, settled_s: float) -> None:
        """`settled_s`: until then, by the loop's clock, any gap may be explained by refusals."""
        self._settled_s = settled_s
        self._refused: dict[ProducerId, tuple[int, int]] = {}
        """Producer -> epoch and first sequence of the batch that had no room."""

    def is_settling(self, now_s: float) -> bool:
        """Whether clients may still send batches that follow one refused before we led."""
        return now_s < self._settled_s

    def on_no_room(self, header: BatchHeader) -> None:
        """A batch was refused for lack of room."""
        if len(self._refused) >= _REMEMBERED_MAX:
            self._refused.clear()  # at worst clients get an error that they recover from
        self._refused[header.producer_id] = header.producer_epoch, header.base_sequence

    def lacked_room(self, header: BatchHeader, expected: int) -> bool:
        """Whether the batch missing before this one was refused for lack of room."""
        return self._refused.get(header.producer_id) == (header.producer_epoch, expected)


def is_gap(first: int, expected: int) -> bool:
    """Whether `first` is ahead of the expected sequence, not behind it."""
    return 0 < (first - expected) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
