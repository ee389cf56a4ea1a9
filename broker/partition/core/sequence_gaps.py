"""Whether a gap in a producer's sequences may be of the brokers' own making.

Clients send several batches without waiting. When the first of them is refused because the
partition is not led here yet, or any more, and the leadership begins before the next one is
looked at, that one shows a gap although nothing is lost: the client is about to send both again.
OUT_OF_ORDER_SEQUENCE_NUMBER would be wrong then, and harmful. librdkafka answers it with a new
producer epoch, and numbers everything unacknowledged anew, in all partitions: what had survived
without an acknowledgement is stored a second time, and nobody can know it for a duplicate.

So for a while after a leadership began, and for a batch that was refused for want of room, what
follows the gap is refused for the same reason as what is missing. Found by whole-cluster power
losses under librdkafka (`make power-loss`).
"""

from __future__ import annotations

from typing import Final

from broker.partition.core.producer_state import SEQUENCE_MODULUS
from client.ids import ProducerId
from client.wire.kafka.batches.records import BatchHeader

_REMEMBERED_MAX: Final = 1_000


class SequenceGaps:
    """The gaps that this broker may have made in one partition, by what it refused."""

    __slots__ = ("_refused", "_settled_s")

    def __init__(self, settled_s: float) -> None:
        """Until `settled_s` earlier refusals of this broker may explain any gap."""
        self._settled_s = settled_s
        self._refused: dict[ProducerId, tuple[int, int]] = {}
        """Producer -> epoch and first sequence of the batch that there was no room for."""

    def is_settling(self, now_s: float) -> bool:
        """Whether clients may still send what followed a batch refused before we led."""
        return now_s < self._settled_s

    def on_no_room(self, header: BatchHeader) -> None:
        """A batch that continues its producer's sequence was refused."""
        if len(self._refused) >= _REMEMBERED_MAX:
            self._refused.clear()  # the price is an error that clients survive
        self._refused[header.producer_id] = header.producer_epoch, header.base_sequence

    def lacked_room(self, header: BatchHeader, expected: int) -> bool:
        """Whether the batch that is missing before this one is one that we had no room for."""
        return self._refused.get(header.producer_id) == (header.producer_epoch, expected)


def is_gap(first: int, expected: int) -> bool:
    """Whether `first` is ahead of the sequence that should come next, not behind it."""
    return 0 < (first - expected) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2
