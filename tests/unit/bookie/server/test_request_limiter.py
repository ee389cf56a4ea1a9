"""Limits over all connections: what counts, what is refused, and what never is."""

from __future__ import annotations

import pytest

from bookie.server.server import (
    RequestKind,
    RequestLimiter,
    RequestLimits,
    request_kind_of,
)
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import (
    AuthRequest,
    BatchReadRequest,
    ForceLedgerRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
)
from tests.fakes.bookie_box import KEY, add, fence, read

L7 = LedgerId(7)
BATCH = BatchReadRequest(L7, EntryId(0), 1, 5, 1000)
FENCING_BATCH = BATCH._replace(fence=True, master_key=KEY)
LONG_POLL = ReadRequest(L7, EntryId(0), previous_lac=EntryId(3), timeout_ms=1000)


@pytest.mark.parametrize(
    ("request_", "work"),
    [
        (add(7, 0), RequestKind.ADD),
        (read(7, 0), RequestKind.READ),
        (fence(7), RequestKind.READ),
        (BATCH, RequestKind.READ),
        (LONG_POLL, RequestKind.POLL),
        (LONG_POLL._replace(fence=True, master_key=KEY), RequestKind.READ),
        (ReadLacRequest(L7), RequestKind.OTHER),
        (ForceLedgerRequest(L7), RequestKind.OTHER),
    ],
)
def test_what_counts_as_what(request_: Request, work: RequestKind) -> None:
    assert request_kind_of(request_) is work


def enter(request_limiter: RequestLimiter, request: Request) -> bool:
    return request_limiter.enter(request_kind_of(request), request)


def test_adds_and_reads_have_limits_of_their_own() -> None:
    request_limiter = RequestLimiter(RequestLimits(2, 1, 3, 2, others_max=1000))
    assert enter(request_limiter, add(7, 0))
    assert enter(request_limiter, add(7, 1))
    assert not enter(request_limiter, add(7, 2))
    assert enter(request_limiter, read(7, 0))
    assert not enter(request_limiter, BATCH)
    assert (request_limiter.adds, request_limiter.reads) == (2, 1)
    request_limiter.leave(RequestKind.ADD)
    assert enter(request_limiter, add(7, 2))
    request_limiter.leave(RequestKind.READ)
    assert enter(request_limiter, BATCH)


@pytest.mark.parametrize(
    "urgent",
    [
        add(7, 1, recovery=True),
        add(7, 1, high_priority=True),
        fence(7),
        FENCING_BATCH,
    ],
)
def test_urgent_requests_are_never_refused(urgent: Request) -> None:
    request_limiter = RequestLimiter(RequestLimits(1, 1, 1, 1, others_max=1000))
    assert enter(request_limiter, add(7, 0))
    assert enter(request_limiter, read(7, 0))
    assert enter(request_limiter, urgent)
    request_limiter.leave(request_kind_of(urgent))
    assert (request_limiter.adds, request_limiter.reads) == (1, 1)


def test_long_polls_have_a_limit_of_their_own_and_one_per_connection() -> None:
    request_limiter = RequestLimiter(
        RequestLimits(1, 1, polls_max=3, polls_per_connection_max=2, others_max=1000)
    )
    assert request_limiter.enter_poll(0)
    assert request_limiter.enter_poll(1)
    assert not request_limiter.enter_poll(2), "this connection has enough"
    assert request_limiter.enter_poll(0)
    assert not request_limiter.enter_poll(0), "so have all together"
    request_limiter.leave(RequestKind.POLL, 3)
    assert request_limiter.polls == 0
    assert enter(request_limiter, read(7, 0)), "they are no reads"


def test_what_is_neither_has_a_limit_too() -> None:
    request_limiter = RequestLimiter(RequestLimits(1, 1, 1, 1, others_max=2))
    force = ForceLedgerRequest(LedgerId(7))
    assert enter(request_limiter, force)
    assert enter(request_limiter, force)
    assert not enter(request_limiter, force)
    assert enter(request_limiter, read(7, 0)), "they are no reads"
    assert enter(request_limiter, AuthRequest("plugin", b"")), "answered at once"
    request_limiter.leave(RequestKind.OTHER)
    assert enter(request_limiter, force)
    assert request_limiter.others == 2
