"""Limits over all connections: what counts, what is refused, and what never is."""

from __future__ import annotations

import pytest

from bookie.core.traffic import Traffic, TrafficLimits, Work, work_of
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.messages import (
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
        (add(7, 0), Work.ADD),
        (read(7, 0), Work.READ),
        (fence(7), Work.READ),
        (BATCH, Work.READ),
        (LONG_POLL, Work.OTHER),
        (ReadLacRequest(L7), Work.OTHER),
        (ForceLedgerRequest(L7), Work.OTHER),
    ],
)
def test_what_counts_as_what(request_: Request, work: Work) -> None:
    assert work_of(request_) is work


def enter(traffic: Traffic, request: Request) -> bool:
    return traffic.enter(work_of(request), request)


def test_adds_and_reads_have_limits_of_their_own() -> None:
    traffic = Traffic(TrafficLimits(2, 1))
    assert enter(traffic, add(7, 0))
    assert enter(traffic, add(7, 1))
    assert not enter(traffic, add(7, 2))
    assert enter(traffic, read(7, 0))
    assert not enter(traffic, BATCH)
    assert (traffic.adds, traffic.reads) == (2, 1)
    traffic.leave(Work.ADD)
    assert enter(traffic, add(7, 2))
    traffic.leave(Work.READ)
    assert enter(traffic, BATCH)


@pytest.mark.parametrize(
    "urgent",
    [
        add(7, 1, recovery=True),
        add(7, 1, high_priority=True),
        fence(7),
        FENCING_BATCH,
        LONG_POLL,
    ],
)
def test_urgent_requests_are_never_refused(urgent: Request) -> None:
    traffic = Traffic(TrafficLimits(1, 1))
    assert enter(traffic, add(7, 0))
    assert enter(traffic, read(7, 0))
    assert enter(traffic, urgent)
    traffic.leave(work_of(urgent))
    assert (traffic.adds, traffic.reads) == (1, 1)
