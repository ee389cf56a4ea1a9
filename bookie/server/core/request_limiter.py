"""How many requests a bookie works on at a time, over all of its connections.

    adds, reads       counted; beyond a limit the next ones are refused: "too many requests"
    urgent ones       recovery adds, adds marked so, fencing reads: counted, never refused, because
                      an overloaded cluster must still be able to recover its ledgers
    long polls        counted, of a connection and of all: each is small, but waits for long
    anything else     explicit LACs, forces, lists of entries: counted; beyond a limit refused, too
    trifles           what is answered at once: not counted

A refused add is sent again after a pause (rule ADD-BUSY; Apache BookKeeper's writers replace the
bookie instead), a refused read makes its reader ask another one, so the limits are far above what a
busy bookie has in hand; what makes writers wait without a refusal is in `backlog.py`.

Sources: Apache BookKeeper `maxAddsInProgressLimit`, `maxPendingReadRequestsPerThread`.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from client.wire.bookkeeper.messages import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    ReadRequest,
    Request,
    StartTlsRequest,
    UnknownRequest,
)

_TRIFLES: Final = (AuthRequest, StartTlsRequest, UnknownRequest)


class RequestKind(enum.Enum):
    """What a request counts as."""

    ADD = "add"
    READ = "read"
    POLL = "poll"
    OTHER = "other"
    TRIFLE = "trifle"


class RequestLimits(NamedTuple):
    """Requests worked on at a time."""

    adds_max: int
    reads_max: int
    polls_max: int
    polls_per_connection_max: int
    others_max: int


def request_kind_of(request: Request) -> RequestKind:
    """Return what a request counts as."""
    if type(request) is AddRequest:
        return RequestKind.ADD
    if type(request) is ReadRequest:
        is_poll = request.previous_lac is not None and not request.fence
        return RequestKind.POLL if is_poll else RequestKind.READ
    if type(request) is BatchReadRequest:
        return RequestKind.READ
    return RequestKind.TRIFLE if isinstance(request, _TRIFLES) else RequestKind.OTHER


def is_urgent(request: Request) -> bool:
    """Whether a request is never refused."""
    if isinstance(request, AddRequest):
        return request.recovery or request.high_priority
    return isinstance(request, ReadRequest | BatchReadRequest) and request.fence


class RequestLimiter:
    """The count. Every request that entered leaves, once."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self.adds = 0
        self.reads = 0
        self.polls = 0
        self.others = 0

    @property
    def adds_left(self) -> int:
        """How many more adds may enter, whatever they are."""
        return self._limits.adds_max - self.adds

    def enter(self, work: RequestKind, request: Request) -> bool:
        """Count a request in; False if it is to be refused, and is not counted."""
        if work is RequestKind.ADD:
            if self.adds >= self._limits.adds_max and not is_urgent(request):
                return False
            self.adds += 1
        elif work is RequestKind.READ:
            if self.reads >= self._limits.reads_max and not is_urgent(request):
                return False
            self.reads += 1
        elif work is RequestKind.OTHER:
            if self.others >= self._limits.others_max:
                return False
            self.others += 1
        return True

    def enter_poll(self, of_connection: int) -> bool:
        """Count in a long poll of a connection that has this many; False if it is to be refused."""
        limits = self._limits
        if self.polls >= limits.polls_max or of_connection >= limits.polls_per_connection_max:
            return False
        self.polls += 1
        return True

    def enter_adds(self, count: int) -> None:
        """Count in adds that there is room for."""
        self.adds += count

    def leave(self, work: RequestKind, count: int = 1) -> None:
        """Requests are answered."""
        if work is RequestKind.ADD:
            self.adds -= count
        elif work is RequestKind.READ:
            self.reads -= count
        elif work is RequestKind.POLL:
            self.polls -= count
        elif work is RequestKind.OTHER:
            self.others -= count
