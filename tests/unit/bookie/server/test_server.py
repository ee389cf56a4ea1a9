"""Connections: batching of answers, limits, back-pressure, and refusal of malformed bytes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bookie.server.server import BookieServer, RequestLimits, ServerLimits
from bookie.storage.core.ledger_guard import Ledger
from client.ids import EntryId, LedgerId
from client.node.connection_limits import ConnectionLimits
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import (
    AddResponse,
    AuthRequest,
    BookieInfoRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    ReadRequest,
    Status,
    WriteLacRequest,
)
from tests.fakes.bookie_box import BookieBox, add, fence, read, settle

SERVER_LIMITS = ServerLimits(
    connections=ConnectionLimits(
        connections_max=3,
        connections_per_host_max=3,
        connection_idle_s=600.0,
        frame_timeout_s=30.0,
        unfinished_bytes_max=1 << 20,
        unread_bytes_max=1 << 20,
        unsent_bytes_max=1 << 16,
    ),
    frame_bytes_max=10_000,
    requests_in_flight_max=5,
    request_limiter=RequestLimits(1000, 1000, 1000, 1000, others_max=1000),
)


def deliver(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Let bytes arrive as a socket does: as many at a time as there is room for."""
    while data:
        room = protocol.get_buffer(len(data))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]


class Wire(asyncio.Transport):
    """A transport that a test looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_reading = True
        self.unread_bytes = 0
        self.is_closed = False
        self.is_aborted = False
        self.protocol: asyncio.BufferedProtocol | None = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("10.0.0.9", 5000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == SERVER_LIMITS.connections.unsent_bytes_max

    def writelines(self, buffers) -> None:
        self.writes.append(b"".join(buffers))

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def answers(self) -> list:
        data = memoryview(b"".join(self.writes))
        found = []
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            frame = data[4:size]
            is_v3 = frame[0] == v3.FIRST_BYTE
            found.append(v3.decode_response(frame)[1] if is_v3 else v2.decode_response(frame))
            data = data[size:]
        return found


def serve(box: BookieBox, limits: ServerLimits = SERVER_LIMITS) -> BookieServer:
    return BookieServer(
        box.handlers,
        box.backlog,
        limits,
        loop=asyncio.get_running_loop(),
        metrics=box.metrics,
    )


async def connect(server: BookieServer) -> tuple[asyncio.Protocol, Wire]:
    """Let the server make a protocol as it would for a real connection."""
    made: list[asyncio.Protocol] = []

    class Loop:
        def __getattr__(self, name: str):
            return getattr(asyncio.get_running_loop(), name)

        async def create_server(self, factory, host: str, port: int):
            made.append(factory())
            listening = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, "127.0.0.1", 0
            )
            listening.close()
            return _Listening()

    class _Listening:
        class _Socket:
            def getsockname(self) -> tuple[str, int]:
                return ("127.0.0.1", 4711)

        sockets = (_Socket(),)

        def close(self) -> None:
            pass

    real, server.loop = server.loop, Loop()  # type: ignore[assignment]
    assert await server.start("127.0.0.1", 0) == 4711
    server.loop = real
    wire = Wire()
    made[0].connection_made(wire)
    return made[0], wire


def frames(*requests) -> bytes:
    return b"".join(b"".join(v2.encode_request(request)) for request in requests)


async def test_answers_of_one_group_leave_with_one_write() -> None:
    box = BookieBox()
    protocol, wire = await connect(serve(box))
    deliver(protocol, frames(*(add(7, n) for n in range(5))))
    assert wire.writes == []
    await settle()
    assert len(wire.writes) == 1
    assert [(answer.status, answer.entry_id) for answer in wire.answers()] == [
        (Status.OK, n) for n in range(5)
    ]


ROOMY = SERVER_LIMITS._replace(
    frame_bytes_max=1 << 20,
    requests_in_flight_max=10_000,
    request_limiter=RequestLimits(10_000, 10_000, 1000, 1000, others_max=1000),
)


async def test_of_very_many_requests_some_are_begun_in_each_turn_of_the_loop() -> None:
    box = BookieBox()
    server = serve(box, ROOMY)
    protocol, wire = await connect(server)
    other, others_wire = await connect(server)
    deliver(protocol, frames(*(read(9, n) for n in range(1200))))
    assert not wire.is_reading, "what is not begun is enough to wait"
    assert server.unfinished.total_bytes > 0
    deliver(other, frames(read(9, 7)))
    await asyncio.sleep(0)
    assert [answer.entry_id for answer in others_wire.answers()] == [7]
    assert len(wire.answers()) < 1200
    await settle()
    assert [answer.entry_id for answer in wire.answers()] == list(range(1200))
    assert wire.is_reading
    assert server.unfinished.total_bytes == 0


async def test_adds_in_slices_are_stored_in_their_order() -> None:
    box = BookieBox()
    protocol, wire = await connect(serve(box, ROOMY))
    deliver(protocol, frames(*(add(7, n) for n in range(1100)), read(7, 1099)))
    await settle()
    answers = wire.answers()
    assert {answer.status for answer in answers} == {Status.OK}
    added = [answer.entry_id for answer in answers if isinstance(answer, AddResponse)]
    assert (added, len(answers)) == ([*range(1100)], 1101)


async def test_malformed_bytes_behind_many_requests_close_the_connection_later() -> None:
    box = BookieBox()
    server = serve(box, ROOMY)
    protocol, wire = await connect(server)
    deliver(
        protocol, frames(*(read(9, n) for n in range(600))) + b"\x00\x00\x00\x04\xff\xff\xff\xff"
    )
    assert not wire.is_aborted
    await settle()
    assert wire.is_aborted
    assert server.unfinished.total_bytes == 0


async def test_who_waits_when_the_bookie_stops_is_not_begun() -> None:
    box = BookieBox()
    server = serve(box, ROOMY)
    protocol, wire = await connect(server)
    deliver(protocol, frames(*(read(9, n) for n in range(600))))
    server.stop_reading()
    await settle()
    assert len(wire.answers()) == 500


async def test_both_versions_on_one_connection() -> None:
    box = BookieBox()
    protocol, wire = await connect(serve(box))
    deliver(protocol, frames(add(7, 0)))
    await settle()
    request = b"".join(v3.encode_request(ReadLacRequest(add(7, 0).ledger_id), 5))
    for position in range(len(request)):
        deliver(protocol, request[position : position + 1])
    deliver(protocol, frames(AuthRequest("x", b"")))
    await settle()
    added, authenticated, lac = wire.answers()
    assert added.status is lac.status is Status.OK
    assert authenticated.plugin == "AuthDisabledPlugin"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (10_001).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        bytes(4),
        b"\x00\x00\x00\x04\x02\x63\x00\x00",
    ],
)
async def test_malformed_bytes_close_that_connection_only(data: bytes, caplog) -> None:
    box = BookieBox()
    server = serve(box)
    bad, bad_wire = await connect(server)
    good, good_wire = await connect(server)
    deliver(bad, data)
    assert bad_wire.is_aborted
    deliver(bad, frames(add(7, 1)))
    bad.connection_lost(None)
    deliver(good, frames(add(7, 0)))
    await settle()
    assert [answer.status for answer in good_wire.answers()] == [Status.OK]
    assert not good_wire.is_aborted
    ours = [record for record in caplog.records if record.name == "bookie.server.server"]
    assert len(ours) == 1
    assert "connection.refused peer=10.0.0.9 reason=" in ours[0].getMessage()
    assert ours[0].__dict__["at_will"], "who comes again and again does not fill the log"
    assert box.metrics.refused_connections == 1
    assert await box.status(read(7, 1)) is Status.NO_ENTRY


async def test_too_many_connections_are_closed(caplog) -> None:
    box = BookieBox()
    server = serve(box)
    wires = [await connect(server) for _ in range(4)]
    assert [wire.is_aborted for _, wire in wires] == [False, False, False, True]
    wires[3][0].connection_lost(None)
    wires[0][0].connection_lost(None)
    _, wire = await connect(server)
    assert not wire.is_aborted
    assert box.metrics.gauges["connections"]() == 3


async def test_too_many_unanswered_requests_stop_reading() -> None:
    box = BookieBox()
    box.disk.hold = True
    protocol, wire = await connect(serve(box))
    deliver(protocol, frames(*(add(7, n) for n in range(5))))
    assert wire.is_reading
    deliver(protocol, frames(add(7, 5)))
    assert not wire.is_reading
    await settle()
    box.disk.release()
    await settle()
    assert wire.is_reading
    assert len(wire.answers()) == 6


async def test_a_client_that_does_not_read_is_not_read() -> None:
    protocol, wire = await connect(serve(BookieBox()))
    protocol.pause_writing()
    assert not wire.is_reading
    protocol.resume_writing()
    assert wire.is_reading


async def test_a_busy_storage_stops_reading_everybody() -> None:
    box = BookieBox(pending_bytes_max=1000)
    box.disk.hold = True
    server = serve(box)
    one, one_wire = await connect(server)
    two, two_wire = await connect(server)
    deliver(one, frames(add(7, 0, bytes(2000))))
    deliver(two, frames(read(7, 0)))
    assert not one_wire.is_reading
    assert not two_wire.is_reading
    await settle()
    assert len(two_wire.answers()) == 1
    box.disk.release()
    await settle()
    assert one_wire.is_reading
    assert two_wire.is_reading


async def test_answers_to_a_lost_connection_are_dropped() -> None:
    box = BookieBox()
    protocol, wire = await connect(serve(box))
    deliver(protocol, frames(add(7, 0)))
    protocol.connection_lost(None)
    await settle()
    assert wire.writes == []
    assert await box.status(read(7, 0)) is Status.OK


async def test_stop_writes_what_is_answered_and_closes() -> None:
    box = BookieBox()
    server = serve(box)
    protocol, wire = await connect(server)
    deliver(protocol, frames(read(7, 0)))
    server.stop()
    assert wire.is_closed
    assert [answer.status for answer in wire.answers()] == [Status.NO_LEDGER]
    await settle()
    assert len(wire.writes) == 1


async def test_what_is_in_flight_is_answered_before_the_end() -> None:
    box = BookieBox()
    box.disk.hold = True
    server = serve(box)
    protocol, wire = await connect(server)
    deliver(protocol, frames(add(7, 0)))
    await settle()
    server.stop_reading()
    assert not wire.is_reading
    draining = asyncio.create_task(box.storage.drain())
    await settle()
    assert not draining.done()
    box.disk.release()
    await draining
    server.stop()
    assert [answer.status for answer in wire.answers()] == [Status.OK]
    assert not wire.is_reading


async def test_stop_without_start() -> None:
    serve(BookieBox()).stop()


async def test_over_a_real_socket(caplog) -> None:
    caplog.set_level(logging.INFO)
    server = serve(BookieBox())
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(frames(add(7, 0)))
    async with asyncio.timeout(5):
        answer = await reader.readexactly(28)
    assert v2.decode_response(memoryview(answer)[4:]) == (Status.OK, 7, 0)
    server.stop()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


async def test_one_connections_surplus_is_refused() -> None:
    """A few bytes can bring more requests than a connection may have; they are never kept."""
    box = BookieBox()
    box.disk.hold = True
    protocol, wire = await connect(serve(box))
    deliver(protocol, frames(*(add(7, n) for n in range(12)), fence(7), read(7, 0)))
    await settle()
    refused = wire.answers()
    assert [(answer.status, answer.entry_id) for answer in refused] == [
        (Status.TOO_MANY_REQUESTS, 10),
        (Status.TOO_MANY_REQUESTS, 11),
        (Status.TOO_MANY_REQUESTS, 0),
    ]
    assert box.metrics.refused_requests == 3
    assert box.metrics.refused_adds == 2
    box.disk.release()
    await settle()
    box.disk.release()
    await settle()
    assert len(wire.answers()) == 14
    assert wire.is_reading


@pytest.mark.parametrize("version", [2, 3])
async def test_beyond_the_total_limits_requests_are_refused_in_both_versions(version: int) -> None:
    box = BookieBox()
    box.disk.hold = True
    server = serve(
        box, SERVER_LIMITS._replace(request_limiter=RequestLimits(3, 1, 9, 9, others_max=1000))
    )
    one, one_wire = await connect(server)
    two, two_wire = await connect(server)

    def encoded(*requests) -> bytes:
        if version == 2:
            return frames(*requests)
        return b"".join(b"".join(v3.encode_request(each, 9)) for each in requests)

    deliver(one, encoded(add(7, 0), add(7, 1), add(7, 2)))
    deliver(two, encoded(add(8, 0), add(8, 1, recovery=True), fence(7), read(7, 0)))
    await settle()
    assert one_wire.writes == []
    assert [answer.status for answer in two_wire.answers()] == [Status.TOO_MANY_REQUESTS] * 2
    gauges = {name: value() for name, value in box.metrics.gauges.items()}
    assert (gauges["adds_in_progress"], gauges["reads_in_progress"]) == (4, 1)
    for _ in range(2):
        box.disk.release()
        await settle()
    assert (server.request_limiter.adds, server.request_limiter.reads) == (0, 0)
    assert [answer.status for answer in one_wire.answers()] == [Status.OK] * 3
    assert box.metrics.add_seconds.by_success[True].all.count == 4
    assert box.metrics.read_seconds.by_success[True].all.count == 1
    # The limits are limits of the moment.
    deliver(two, encoded(add(8, 2)))
    await settle()
    box.disk.release()
    await settle()
    assert two_wire.answers()[-1].status is Status.OK


async def test_requests_of_a_lost_connection_leave_the_total() -> None:
    box = BookieBox()
    box.disk.hold = True
    server = serve(box)
    protocol, _ = await connect(server)
    deliver(protocol, frames(add(7, 0)))
    protocol.connection_lost(None)
    assert server.request_limiter.adds == 1
    await settle()
    box.disk.release()
    await settle()
    assert server.request_limiter.adds == 0


async def test_while_the_disk_is_behind_connections_take_turns() -> None:
    """Each time the disk has caught up one chunk may be enough for everybody to wait again."""
    box = BookieBox(pending_bytes_max=1000)
    box.disk.hold = True
    server = serve(box)
    served: list[int] = []
    connections = [await connect(server) for _ in range(3)]
    for number, (_, wire) in enumerate(connections):
        resume = wire.resume_reading
        wire.resume_reading = lambda n=number, r=resume: (served.append(n), r())  # type: ignore
    for turn in range(4):
        first = served[0] if served else 0
        served.clear()
        protocol, _ = connections[first]
        deliver(protocol, frames(add(7, turn, bytes(2000))))
        assert not any(wire.is_reading for _, wire in connections)
        await settle()
        box.disk.release()
        await settle()
        assert served[0] == (first + 1) % 3
        assert served[-1] == first


async def test_a_new_connection_waits_while_the_disk_is_behind() -> None:
    box = BookieBox(pending_bytes_max=1000)
    box.disk.hold = True
    server = serve(box)
    protocol, _ = await connect(server)
    deliver(protocol, frames(add(7, 0, bytes(2000))))
    _, wire = await connect(server)
    await settle()
    assert not wire.is_reading
    box.disk.release()
    await settle()
    assert wire.is_reading


def polls(count: int) -> bytes:
    asked = ReadRequest(
        LedgerId(7), EntryId(-1), previous_lac=EntryId(50), timeout_ms=60_000, piggyback=True,
        master_key=bytes(500),
    )  # fmt: skip
    return b"".join(b"".join(v3.encode_request(asked, n)) for n in range(count))


async def box_with_a_ledger(server: BookieServer, box: BookieBox) -> None:
    await box.call(add(7, 0))
    await settle()
    assert server.request_limiter.polls == 0


async def test_long_polls_end_with_their_connection() -> None:
    box = BookieBox()
    server = serve(box)
    await box_with_a_ledger(server, box)
    lost, _ = await connect(server)
    stays, stays_wire = await connect(server)
    deliver(lost, polls(3))
    deliver(stays, polls(1))
    await settle()
    found: list[Ledger | None] = []
    box.storage.reads.with_ledger(LedgerId(7), lambda _, ledger: found.append(ledger))
    (ledger,) = found
    assert ledger is not None
    assert len(ledger.lac_waiters or ()) == 4
    assert box.metrics.gauges["long_polls"]() == 4
    lost.connection_lost(None)
    assert len(ledger.lac_waiters or ()) == 1
    assert box.metrics.gauges["long_polls"]() == 1
    assert lost.unanswered_count == 0
    await box.call(add(7, 99, lac=60))
    await settle()
    (answer,) = stays_wire.answers()
    assert answer.max_lac == 60
    assert box.metrics.gauges["long_polls"]() == 0
    assert stays.unanswered_count == 0


@pytest.mark.parametrize(("of_all", "of_one"), [(4, 9), (9, 4)])
async def test_long_polls_beyond_a_limit_are_refused(of_all: int, of_one: int) -> None:
    box = BookieBox()
    server = serve(
        box,
        SERVER_LIMITS._replace(
            request_limiter=RequestLimits(9, 9, of_all, of_one, others_max=1000)
        ),
    )
    await box_with_a_ledger(server, box)
    protocol, wire = await connect(server)
    deliver(protocol, polls(6))
    await settle()
    assert [answer.status for answer in wire.answers()] == [Status.TOO_MANY_REQUESTS] * 2
    assert box.metrics.refused_requests == 2
    assert box.metrics.gauges["long_polls"]() == 4


async def test_a_parked_poll_keeps_only_what_is_small() -> None:
    box = BookieBox()
    server = serve(box)
    await box_with_a_ledger(server, box)
    kept: list[ReadRequest] = []
    serve_poll = box.handlers.poll

    def poll(request: ReadRequest, reply, parked) -> None:
        kept.append(request)
        kept.append(reply.args[0].request)
        serve_poll(request, reply, parked)

    box.handlers.poll = poll  # type: ignore[method-assign]
    protocol, _ = await connect(server)
    deliver(protocol, polls(1))
    assert [request.master_key for request in kept] == [None, None]


async def test_forces_beyond_the_total_limit_are_refused() -> None:
    box = BookieBox()
    box.disk.hold = True
    limits = RequestLimits(9, 9, 9, 9, others_max=1)
    server = serve(box, SERVER_LIMITS._replace(request_limiter=limits))
    protocol, wire = await connect(server)
    deliver(protocol, frames(add(7, 0)))
    requests = (
        WriteLacRequest(LedgerId(7), EntryId(0), bytes(20), b"lac"),
        ReadLacRequest(LedgerId(7)),
        ForceLedgerRequest(LedgerId(7)),
        ListEntriesRequest(LedgerId(7)),
        BookieInfoRequest(total_capacity=True, free_space=True),
    )
    server.request_limiter.others = 1
    for number, request in enumerate(requests, 1):
        deliver(protocol, b"".join(v3.encode_request(request, number)))
    await settle()
    refused = [answer.status for answer in wire.answers()]
    assert refused == [Status.TOO_MANY_REQUESTS] * 5
    assert box.metrics.gauges["other_requests"]() == 1
    assert box.metrics.refused_requests == 5
