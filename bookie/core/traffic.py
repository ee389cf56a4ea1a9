"""How many requests a bookie works on at a time, over all of its connections.

    adds, reads       counted; beyond a limit the next ones are refused: "too many requests"
    urgent ones       recovery adds, adds marked so, fencing reads: counted, never refused, because
                      an overloaded cluster must still be able to recover its ledgers
    anything else     not counted: long polls wait for hours and cost next to nothing

A refused add costs its writer this bookie, a refused read makes its reader ask another one, so the
limits are far above what a busy bookie has in hand; what makes writers wait instead is in
`backlog.py`. This file is the only home of that count.

Sources: Apache BookKeeper `maxAddsInProgressLimit`, `maxPendingReadRequestsPerThread`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from client.wire.bookkeeper.messages import AddRequest, BatchReadRequest, ReadRequest, Request


class Work(enum.Enum):
    """What a request counts as."""

    ADD = "add"
    READ = "read"
    OTHER = "other"


class TrafficLimits(NamedTuple):
    """Requests worked on at a time."""

    adds_max: int
    reads_max: int


def work_of(request: Request) -> Work:
    """Return what a request counts as."""
    if type(request) is AddRequest:
        return Work.ADD
    if type(request) is ReadRequest:
        return Work.READ if request.previous_lac is None else Work.OTHER
    return Work.READ if type(request) is BatchReadRequest else Work.OTHER


def is_urgent(request: Request) -> bool:
    """Whether a request is never refused."""
    if isinstance(request, AddRequest):
        return request.recovery or request.high_priority
    return isinstance(request, ReadRequest | BatchReadRequest) and request.fence


class Traffic:
    """The count. Every request that entered leaves, once."""

    def __init__(self, limits: TrafficLimits) -> None:
        self._limits = limits
        self.adds = 0
        self.reads = 0

    @property
    def adds_left(self) -> int:
        """How many more adds may enter, whatever they are."""
        return self._limits.adds_max - self.adds

    def enter(self, work: Work, request: Request) -> bool:
        """Count a request in; False if it is to be refused, and is not counted."""
        if work is Work.ADD:
            if self.adds >= self._limits.adds_max and not is_urgent(request):
                return False
            self.adds += 1
        elif work is Work.READ:
            if self.reads >= self._limits.reads_max and not is_urgent(request):
                return False
            self.reads += 1
        return True

    def enter_adds(self, count: int) -> None:
        """Count in adds that there is room for."""
        self.adds += count

    def leave(self, work: Work, count: int = 1) -> None:
        """Requests are answered."""
        if work is Work.ADD:
            self.adds -= count
        elif work is Work.READ:
            self.reads -= count
