"""The vocabulary of ids: one NewType per kind of number, so an offset is never an entry id.

Covers id types and the three small seams (`Clock`, `Rng`) that keep wall time and randomness out
of protocol code, so that the same code runs under simulation.
"""

from __future__ import annotations

from typing import Final, NewType, Protocol

LedgerId = NewType("LedgerId", int)
"""Id of a ledger, 0 <= id < 2^63, unique in one BookKeeper cluster."""

EntryId = NewType("EntryId", int)
"""Position of an entry in its ledger, from 0. -1 means "no entry yet" (`NO_ENTRY`)."""

BookieId = NewType("BookieId", str)
"""Name a bookie registers under; by default its `host:port`."""

Offset = NewType("Offset", int)
"""Position of a record in a topic partition, from 0."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Grows by one with every successful open of a partition."""

BrokerId = NewType("BrokerId", int)
"""Kafka node id of a broker."""

ProducerId = NewType("ProducerId", int)
"""Kafka producer id; -1 means the producer is not idempotent."""

ConnectionId = NewType("ConnectionId", int)
"""Grows with every connection that a broker accepts."""

NO_LEDGER: Final = LedgerId(-1)
"""No ledger has this id."""
NO_ENTRY: Final = EntryId(-1)


class Clock(Protocol):
    """Source of wall-clock time. Intervals use the event loop's `time()` instead."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        ...


class Rng(Protocol):
    """Source of randomness; `random.Random` and `random.SystemRandom` satisfy it."""

    def random(self) -> float:
        """Return a float in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """Return an int in [0, stop)."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """Return an int of k random bits."""
        ...
