"""Whether a topic takes records right now, told by the notes that producers write.

Notes are followed rather than read again, so that looking costs the same at the end of a long run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.integration.rolling_restart import PARTITION_COUNT, LoadProcess, acks_of, reads_of


class Progress:
    """The latest acknowledgements of some producers. Times are those of `time.monotonic`."""

    def __init__(self, producers: Sequence[LoadProcess]) -> None:
        self._at = dict.fromkeys(producers, 0)
        began_s = time.monotonic()
        self._partitions = dict.fromkeys(range(PARTITION_COUNT), began_s)
        self._producers = dict.fromkeys((producer.name for producer in producers), began_s)
        self.count = 0
        """Acknowledged records so far."""

    def look(self) -> None:
        """Take note of what was acknowledged since the last look."""
        for producer, at in self._at.items():
            lines, self._at[producer] = producer.lines_from(at)
            now_s = time.monotonic()
            for ack in acks_of(lines):
                # When it was sent, not when its answer came: it says that this worked since.
                sent_s = now_s - (time.time() - ack.sent_ms / 1000)
                self._partitions[ack.partition] = max(self._partitions[ack.partition], sent_s)
                self._producers[producer.name] = max(self._producers[producer.name], sent_s)
            self.count += len(lines)

    def silent_s(self) -> float:
        """Return for how long some partition, or some producer, has got nowhere."""
        return time.monotonic() - min(*self._partitions.values(), *self._producers.values())

    def silent(self, since_s: float) -> list[str]:
        """Name the producers that sent nothing since then that was acknowledged, and partitions
        that took nothing."""
        silent = [name for name, last_s in self._producers.items() if last_s < since_s]
        return silent + [
            f"partition {number}" for number, last_s in self._partitions.items() if last_s < since_s
        ]


class Seen:
    """What the members of a group have read."""

    def __init__(self, members: Sequence[LoadProcess]) -> None:
        self._at = dict.fromkeys(members, 0)
        self._places: set[tuple[int, int]] = set()

    def look(self) -> int:
        """Return how many different records they have read by now."""
        for member, at in self._at.items():
            lines, self._at[member] = member.lines_from(at)
            self._places.update((read.partition, read.offset) for read in reads_of(lines))
        return len(self._places)
