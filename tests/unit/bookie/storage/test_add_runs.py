"""Adds that came together: stored as single ones are, and answered with one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.disk_space import AcceptedAdds
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import v3
from client.wire.bookkeeper.messages import AddRequest, AddResponse, Status
from tests.fakes.bookie_box import BookieBox, add, fence, payload_of, read, settle
from tests.fakes.ledger_directories import DirectoryRack
from tests.unit.bookie.server.test_server import SERVER_LIMITS, connect, deliver, frames, serve

OTHER_KEY = bytes(range(20))

places = st.tuples(st.integers(1, 3), st.integers(0, 3))
adds = st.builds(
    lambda place, payload, key, flags: add(*place, payload, **key, **flags),
    places,
    st.binary(max_size=5),
    st.sampled_from([{}, {}, {}, {"key": OTHER_KEY}]),
    st.sampled_from([{}, {}, {}, {"recovery": True}, {"deferred_sync": True}]),
)


def add_run(box: BookieBox, requests: Sequence[AddRequest]) -> list[list[Status]]:
    """Send adds as a connection does that got them together; return where statuses will be."""
    told: list[list[Status]] = [[] for _ in requests]
    first = 0
    while first < len(requests):
        taken: list[int] = []

        def on_done(status: Status, taken: list[int] = taken) -> None:
            for at in taken:
                told[at].append(status)

        count = box.ledger_directories.add_run(requests[first:], on_done)
        assert not any(told[first:]), "nobody is answered before it returns"
        taken += range(first, first + count)
        first += count
        if first < len(requests):
            box.ledger_directories.add(requests[first], told[first].append)
            first += 1
    return told


@pytest.mark.parametrize(
    "other",
    [
        add(9, 0),
        add(8, 1),
        add(7, 2, key=OTHER_KEY),
        add(7, 1)._replace(ledger_id=LedgerId(8)),
        add(7, 1)._replace(entry_id=EntryId(2)),
        add(7, -1),
        add(7, 2)._replace(entry=b"short"),
        add(7, 2, deferred_sync=True),
    ],
    ids=["unknown", "fenced", "key", "ledger id", "entry id", "negative", "short", "deferred"],
)
async def test_a_run_ends_before_what_is_not_ordinary(other: AddRequest) -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    await box.call(add(8, 0))
    await box.call(fence(8))
    answered: list[Status] = []
    assert (
        box.ledger_directories.add_run([add(7, 1), add(7, 2), other, add(7, 3)], answered.append)
        == 2
    )
    assert not answered
    await settle()
    assert answered == [Status.OK]
    assert payload_of(7, (await box.call(read(7, 2))).entry) == b"payload"
    assert (await box.call(read(7, 3))).status is Status.NO_ENTRY
    assert box.ledger_directories.add_run([other], answered.append) == 0


async def test_a_run_ends_where_another_directory_begins() -> None:
    rack = DirectoryRack(2)
    await rack.start()
    for ledger in (6, 7):
        assert await rack.status(add(ledger, 0)) is Status.OK
    assert len({id(rack.ledger_directories.storage_of(LedgerId(ledger))) for ledger in (6, 7)}) == 2
    run = [add(6, 1), add(6, 2), add(7, 1), add(6, 3)]
    assert rack.ledger_directories.add_run(run, lambda _: None) == 2
    assert rack.ledger_directories.add_run(run[2:], lambda _: None) == 1


@given(st.lists(st.lists(adds, max_size=6), max_size=5), st.sampled_from([0, 1, 2, 3]))
def test_a_run_is_as_many_adds(runs: list[list[AddRequest]], fenced: int) -> None:
    async def by(*, together: bool) -> Any:
        box = BookieBox()
        told: list[list[Status]] = []
        await box.call(add(1, 0, b"first"))
        await box.call(add(2, 0, b"first"))
        if fenced:
            await box.call(fence(fenced))
        for run in runs:
            if together:
                told += add_run(box, run)
            else:
                for request in run:
                    told.append([])
                    box.ledger_directories.add(request, told[-1].append)
            await settle()
        box.restart()
        entries = [
            (answer.status, answer.entry and payload_of(ledger, answer.entry))
            for ledger in (1, 2, 3)
            for entry in range(4)
            for answer in [await box.call(read(ledger, entry))]
        ]
        assert all(len(statuses) == 1 for statuses in told)
        return told, entries

    async def both() -> None:
        assert await by(together=True) == await by(together=False)

    asyncio.run(both())


async def test_a_run_is_lost_as_a_whole_when_its_group_finds_no_space() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    box.volume.capacity_bytes = box.volume.used_bytes + 500
    told = add_run(box, [add(7, 1, bytes(400)), add(7, 2, bytes(400))])
    await settle()
    assert told == [[Status.IO_ERROR], [Status.IO_ERROR]]
    assert box.backlog.bytes == 0
    box.volume.capacity_bytes = 1 << 40
    assert (await box.call(read(7, 1))).status is Status.NO_ENTRY


@pytest.mark.parametrize("accept", [AcceptedAdds.PRIORITY, AcceptedAdds.NONE])
async def test_without_room_for_ordinary_adds_each_is_judged(accept: AcceptedAdds) -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    box.storage.accept = accept
    told = add_run(box, [add(7, 1), add(7, 2, recovery=True)])
    await settle()
    urgent = Status.OK if accept is AcceptedAdds.PRIORITY else Status.READ_ONLY
    assert told == [[Status.READ_ONLY], [urgent]]


async def test_the_open_group_counts_requests_not_runs() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    box.disk.hold = True
    add_run(box, [add(7, 1), add(7, 2), add(7, 3)])
    box.ledger_directories.publish(box.metrics)
    assert box.metrics.gauges["open_group_requests"]() == 3
    box.disk.hold = False
    box.disk.release()
    await settle()


@pytest.mark.parametrize("version", [2, 3])
async def test_a_fence_between_adds_stops_those_behind_it(version: int) -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    protocol, wire = await connect(serve(box))
    requests = [add(7, 1), add(7, 2), fence(7, 0), add(7, 3), add(7, 4)]
    if version == 2:
        data = frames(*requests)
    else:
        data = b"".join(
            b"".join(v3.encode_request(request, number)) for number, request in enumerate(requests)
        )
    deliver(protocol, data)
    await settle()
    statuses = {
        answer.entry_id: answer.status
        for answer in wire.answers()
        if isinstance(answer, AddResponse)
    }
    fenced, stored = Status.FENCED, Status.OK
    assert statuses == {1: stored, 2: stored, 3: fenced, 4: fenced}


async def test_adds_beyond_the_limit_are_refused_within_a_run() -> None:
    box = BookieBox()
    await box.call(add(7, 0))
    limits = SERVER_LIMITS._replace(
        requests_in_flight_max=100,
        request_limiter=SERVER_LIMITS.request_limiter._replace(adds_max=2),
    )
    server = serve(box, limits)
    protocol, wire = await connect(server)
    deliver(protocol, frames(add(7, 1), add(7, 2), add(7, 3), add(7, 4, high_priority=True)))
    assert server.request_limiter.adds == 3
    await settle()
    assert {(answer.entry_id, answer.status) for answer in wire.answers()} == {
        (1, Status.OK),
        (2, Status.OK),
        (3, Status.TOO_MANY_REQUESTS),
        (4, Status.OK),
    }
    assert server.request_limiter.adds == 0
