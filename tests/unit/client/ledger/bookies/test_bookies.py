"""Connections to bookies, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeGuard, cast
from unittest.mock import Mock

import pytest

from client.errors import (
    BookieTimeout,
    BookieUnavailable,
    LedgerError,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    TooManyRequests,
    UnauthorizedAccess,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_directory import BookieDirectory
from client.ledger.bookies.bookie_link import InFlight, Link
from client.ledger.bookies.bookies import Bookie, Bookies
from client.ledger.config import LedgerClientConfig
from client.ledger.core.placement import DEFAULT_RACK
from client.ledger.metrics import LedgerStats
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper import protobuf
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from client.wire.frames import FrameIntake, make_window
from tests.fakes.bookies import Fate
from tests.fakes.intake import ServerConnection, serve
from tests.fakes.ledger_cluster import until
from tests.fakes.wire_bookie import WireBookie

LEDGER = LedgerId(3)
KEY = master_key(b"")
CODEC = EntryCodec(LEDGER, DigestType.CRC32C, b"")
QUICK = LedgerClientConfig(
    request_timeout_ms=80, reconnect_delay_min_ms=30, reconnect_delay_max_ms=60
)


class World:
    """One wire bookie and the `Bookies` under test."""

    def __init__(self) -> None:
        self.server = WireBookie()
        self.metadata = MemoryCluster()
        self.made: list[Bookies] = []

    async def connect(self, config: LedgerClientConfig = QUICK) -> Bookie:
        directory = BookieDirectory(self.metadata.session(), "/ledgers")
        bookies = Bookies(directory, config)
        self.made.append(bookies)
        return bookies.bookie(self.server.id)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.server.start()
    yield world
    for bookies in world.made:
        bookies.close()
    await world.server.stop()


def add(entry_id: int = 0, *, recovery: bool = False, key: bytes = KEY) -> AddRequest:
    head, *rest = CODEC.seal(EntryId(entry_id), EntryId(-1), 5, [b"hello"])
    return AddRequest(
        LEDGER, EntryId(entry_id), key, head, recovery=recovery, entry_rest=tuple(rest)
    )


def is_add(request: Request) -> TypeGuard[AddRequest]:
    return isinstance(request, AddRequest)


def hold(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if is_add(request) else Fate.DELIVER


def fence() -> ReadRequest:
    return ReadRequest(LEDGER, LAST_ENTRY, fence=True, master_key=KEY)


def send(bookie: Bookie, request: Request, size: int = 0) -> asyncio.Future[Response | LedgerError]:
    """Send a request; the future must not be done when `request` returns."""
    answer: asyncio.Future[Response | LedgerError] = asyncio.get_running_loop().create_future()

    def on_answer(asked: Request, outcome: Response | LedgerError) -> None:
        assert asked is request
        assert not answer.done(), "answered twice"
        answer.set_result(outcome)

    bookie.request(request, on_answer, size)
    assert not answer.done(), "answered inside the call"
    return answer


async def test_plain_requests_travel_in_v2_the_rest_in_v3(world: World) -> None:
    bookie = await world.connect()
    assert isinstance(await send(bookie, add()), AddResponse)
    read = await send(bookie, ReadRequest(LEDGER, EntryId(0)))
    assert isinstance(read, ReadResponse)
    assert read.entry is not None
    assert CODEC.open(read.entry, EntryId(0)).payload == b"hello"
    assert [call.v2_version for call in world.server.calls] == [2, 2]
    assert isinstance(await send(bookie, ReadLacRequest(LEDGER)), ReadLacResponse)
    assert isinstance(await send(bookie, fence()), ReadResponse)
    assert isinstance(await send(bookie, add(1, recovery=True)), AddResponse)
    assert [call.v2_version for call in world.server.calls[2:]] == [None, None, None]
    assert len(world.server.connections) == 2


async def test_batch_reads_have_a_connection_of_their_own(world: World) -> None:
    """One that breaks on such a request takes no add along, and no add waits behind an answer."""
    bookie = await world.connect()
    for entry_id in range(3):
        await send(bookie, add(entry_id))
    assert len(world.server.connections) == 1
    batch = await send(bookie, BatchReadRequest(LEDGER, EntryId(0), 7, 3, 1 << 20))
    assert isinstance(batch, BatchReadResponse)
    opened = [CODEC.open(raw, EntryId(at)) for at, raw in enumerate(batch.entries)]
    assert [bytes(entry.payload) for entry in opened] == [b"hello"] * 3
    plain, bulk = world.server.connections
    bulk.transport.abort()
    assert isinstance(await send(bookie, add(3)), AddResponse)
    assert not plain.transport.is_closing()
    assert isinstance(
        await send(bookie, BatchReadRequest(LEDGER, EntryId(3), 8, 1, 1 << 20)), BatchReadResponse
    )
    assert len(world.server.connections) == 3


async def test_v3_alone_takes_one_connection(world: World) -> None:
    bookie = await world.connect(LedgerClientConfig(wire_version="v3"))
    for request in (add(), ReadRequest(LEDGER, EntryId(0)), ReadLacRequest(LEDGER), fence()):
        assert not isinstance(await send(bookie, request), LedgerError)
    assert [call.v2_version for call in world.server.calls] == [None] * 4
    assert len(world.server.connections) == 1


async def test_v2_alone_reads_the_lac_off_the_last_entry(world: World) -> None:
    bookie = await world.connect(LedgerClientConfig(wire_version="v2"))
    assert isinstance(await send(bookie, ReadLacRequest(LEDGER)), NoSuchLedger)
    await send(bookie, add())
    answer = await send(bookie, ReadLacRequest(LEDGER))
    assert isinstance(answer, ReadLacResponse)
    assert answer.last_entry is not None
    assert CODEC.open(answer.last_entry, EntryId(0)).lac == -1
    assert {call.v2_version for call in world.server.calls} == {2}


async def test_v2_alone_keeps_fences_and_plain_reads_apart(world: World) -> None:
    """Their answers look alike: they must not meet on one connection."""
    bookie = await world.connect(LedgerClientConfig(wire_version="v2"))
    await send(bookie, add())
    await send(bookie, ReadRequest(LEDGER, LAST_ENTRY))
    await send(bookie, fence())
    await send(bookie, add(1, recovery=True))
    assert len(world.server.connections) == 2
    assert {call.v2_version for call in world.server.calls} == {2}


@pytest.mark.parametrize("strange", ["a..b:3181", f"{'a' * 300}:1", "127.0.0.1:99999"])
async def test_an_address_that_cannot_be_one_is_a_bookie_that_is_unreachable(
    world: World, strange: str
) -> None:
    """Whatever stands in the metadata: its requests must not wait for ever."""
    await world.connect()
    bookie = world.made[0].bookie(BookieId(strange))
    for _ in range(2):
        outcome = await asyncio.wait_for(send(bookie, fence()), 5)
        assert isinstance(outcome, BookieUnavailable)


async def test_racks_come_from_the_settings_or_the_registration(world: World) -> None:
    config = LedgerClientConfig(racks=("b0:3181=/mine", "b1:3181=/mine"))
    store = world.metadata.session()
    info = protobuf.BookieServiceInfoFormat()
    info.properties.add(key="rack", value="/published")
    for name in ("b0:3181", "b2:3181", "b3:3181"):
        data = b"" if name == "b3:3181" else info.SerializeToString()
        await store.create(f"/ledgers/available/{name}", data, make_parents=True)
    bookies = Bookies(BookieDirectory(store, "/ledgers"), config)
    world.made.append(bookies)
    await bookies.start()
    racks = [bookies.rack(BookieId(f"b{number}:3181")) for number in range(4)]
    assert racks == ["/mine", "/mine", "/published", DEFAULT_RACK]


async def test_statuses_become_errors(world: World) -> None:
    bookie = await world.connect()
    assert isinstance(await send(bookie, ReadRequest(LEDGER, EntryId(0))), NoSuchLedger)
    await send(bookie, add())
    assert isinstance(await send(bookie, ReadRequest(LEDGER, EntryId(9))), NoSuchEntry)
    assert isinstance(await send(bookie, add(key=b"x" * 20)), UnauthorizedAccess)
    await send(bookie, fence())
    assert isinstance(await send(bookie, add(1)), LedgerFenced)
    assert isinstance(await send(bookie, add(1, recovery=True)), AddResponse)


async def test_many_requests_are_pipelined(world: World) -> None:
    bookie = await world.connect()
    answers = await asyncio.gather(*(send(bookie, add(entry), 5) for entry in range(200)))
    assert [answer.entry_id for answer in answers if isinstance(answer, AddResponse)] == list(
        range(200)
    )


def unconnected() -> Link:
    frames = FrameIntake(QUICK.frame_bytes_max, make_window())
    return Link(2, QUICK, LedgerStats().bookie(BookieId("b")), lambda _link: None, frames)


async def test_requests_of_one_turn_leave_with_one_write() -> None:
    transport = Mock()
    link = unconnected()
    link.connection_made(transport)
    for entry_id in range(3):
        link.send(InFlight(add(entry_id), lambda _request, _answer: None, 5))
    transport.writelines.assert_not_called()
    await asyncio.sleep(0)
    (call,) = transport.writelines.call_args_list
    sent = serve(ServerConnection(), b"".join(call.args[0]))
    assert [frame.request.entry_id for frame in sent if isinstance(frame.request, AddRequest)] == [
        *range(3)
    ]
    link.abort("over")


class SlowTransport:
    """Holds what is written until its peer takes some of it."""

    def __init__(self) -> None:
        self.held_bytes = 1_000_000
        self.is_aborted = False

    def writelines(self, buffers: list[bytes]) -> None:
        self.held_bytes += sum(map(len, buffers))

    def get_write_buffer_size(self) -> int:
        return self.held_bytes

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("is_taking", [True, False])
async def test_the_clock_stands_still_while_the_bookie_takes_what_was_held_back(
    is_taking: bool,
) -> None:
    """LINK-CLOCK; and LINK-SILENT when it takes nothing more."""
    transport, link = SlowTransport(), unconnected()
    link.connection_made(cast("asyncio.Transport", transport))
    answers: list[Response | LedgerError] = []
    link.send(InFlight(add(), lambda _request, answer: answers.append(answer), 5))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    for _ in range(150 if is_taking else 0):
        transport.held_bytes -= 1
        await asyncio.sleep(0.002)
    assert answers == []
    stalled_s = loop.time()
    await until(lambda: link.is_lost)
    assert loop.time() - stalled_s < 0.3, "a bookie that takes and answers nothing has failed"
    assert transport.is_aborted
    assert isinstance(answers[0], BookieUnavailable)


async def test_an_idle_time_does_not_prolong_the_next_timeout() -> None:
    """LINK-CLOCK: what was answered long ago says nothing."""
    link = unconnected()
    link.connection_made(cast("asyncio.Transport", SlowTransport()))
    first = InFlight(add(1), lambda _request, _answer: None, 5)
    link.send(first)
    link.on_response(first, AddResponse(Status.OK, LEDGER, EntryId(1)))
    await until(lambda: link._timer is None)
    answers: list[Response | LedgerError] = []
    link.send(InFlight(add(2), lambda _request, answer: answers.append(answer), 5))
    sent_s = asyncio.get_running_loop().time()
    await until(lambda: bool(answers))
    assert asyncio.get_running_loop().time() - sent_s < 1.8 * QUICK.request_timeout_ms / 1000


async def test_nothing_leaves_on_a_connection_that_was_cut() -> None:
    answers: list[Response | LedgerError] = []
    transport = Mock()
    link = unconnected()
    link.connection_made(transport)
    link.send(InFlight(add(), lambda _request, answer: answers.append(answer), 5))
    link.abort("cut")
    await asyncio.sleep(0)
    transport.writelines.assert_not_called()
    assert isinstance(answers[0], BookieUnavailable)


async def test_equal_requests_are_all_answered(world: World) -> None:
    bookie = await world.connect()
    answers = await asyncio.gather(*(send(bookie, add(0)) for _ in range(3)))
    assert all(isinstance(answer, AddResponse) for answer in answers)


async def test_everything_under_way_fails_when_the_connection_goes(world: World) -> None:
    bookie = await world.connect()
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    order: list[EntryId] = []
    for entry in (3, 1, 2):
        bookie.request(add(entry), lambda request, answer: order.append(request.entry_id))  # type: ignore[union-attr]
    last = send(bookie, add(7))
    await until(lambda: len(world.server.calls) == 5)
    await world.server.stop()
    assert isinstance(await last, BookieUnavailable)
    assert order == [3, 1, 2], "oldest first"


async def test_reconnects_by_itself_after_a_pause(world: World) -> None:
    bookie = await world.connect()
    await send(bookie, add())
    await world.server.stop()
    while not bookie.is_unreachable:
        assert isinstance(await send(bookie, add(1)), BookieUnavailable)
    assert isinstance(await send(bookie, add(1)), BookieUnavailable), "refused without trying"
    await world.server.start()
    await until(lambda: not bookie.is_unreachable)
    assert isinstance(await send(bookie, add(1)), AddResponse)


async def test_unreachable_is_forgotten_after_the_pause(world: World) -> None:
    await world.server.stop()
    bookie = await world.connect()
    await send(bookie, add())
    assert bookie.is_unreachable
    await asyncio.sleep(0.04)
    assert not bookie.is_unreachable


async def test_requests_wait_while_connecting(world: World) -> None:
    bookie = await world.connect()
    answers = [send(bookie, add(entry)) for entry in range(3)]
    assert all(isinstance(answer, AddResponse) for answer in await asyncio.gather(*answers))
    assert len(world.server.connections) == 1


async def test_a_bookie_nobody_can_locate(world: World) -> None:
    await world.connect()
    bookie = world.made[0].bookie(BookieId("nameless"))
    assert isinstance(await send(bookie, add()), BookieUnavailable)


async def test_silence_cuts_the_connection(world: World) -> None:
    """Nothing at all arrives: everything under way fails, not only the oldest request."""
    bookie = await world.connect()
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    first, second = send(bookie, add(1)), send(bookie, add(2))
    assert isinstance(await first, BookieUnavailable)
    assert second.done()
    world.server.bookie.fate_of = lambda request: Fate.DELIVER
    assert isinstance(await send(bookie, add(3)), AddResponse)


async def test_one_unanswered_request_times_out_alone(world: World) -> None:
    bookie = await world.connect()
    lost = add(1)
    world.server.bookie.fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, AddRequest) and request.entry_id == 1
        else Fate.DELIVER
    )
    answer = send(bookie, lost)
    while not answer.done():
        assert isinstance(await send(bookie, add(2)), AddResponse)
        await asyncio.sleep(0.005)
    assert isinstance(await answer, BookieTimeout)
    assert len(world.server.connections) == 1


NARROW = LedgerClientConfig(
    bookie_in_flight_bytes_max=10, writer_in_flight_bytes_max=10, request_timeout_ms=400
)


async def test_adds_wait_in_order_for_room_in_bytes(world: World) -> None:
    """LINK-ROOM: a full connection makes its writers wait; it fails nothing."""
    bookie = await world.connect(NARROW)
    connecting = [send(bookie, add(entry), 6) for entry in range(3)]
    assert all(isinstance(answer, AddResponse) for answer in await asyncio.gather(*connecting))
    world.server.bookie.fate_of = hold
    waiting = [send(bookie, add(entry), size) for entry, size in ((3, 6), (4, 6), (5, 1), (6, 60))]
    await until(lambda: len(world.server.calls) == 4)
    await asyncio.sleep(0.02)
    assert len(world.server.calls) == 4, "a small one does not overtake a large one"
    read = send(bookie, ReadRequest(LEDGER, EntryId(0)))
    assert isinstance(await read, ReadResponse), "reads carry no bytes there: they need no room"
    world.server.bookie.fate_of = lambda request: Fate.DELIVER
    world.server.answer_held()
    assert all(isinstance(answer, AddResponse) for answer in await asyncio.gather(*waiting))
    stored = [call.request.entry_id for call in world.server.calls if is_add(call.request)]
    assert stored == [0, 1, 2, 3, 4, 5, 6]


async def test_ledgers_that_wait_for_room_take_turns(world: World) -> None:
    """LINK-ROOM: an entry of a quiet ledger does not wait for all of a busy one."""
    bookie = await world.connect(NARROW)
    quiet = LedgerId(LEDGER + 1)
    codec = EntryCodec(quiet, DigestType.CRC32C, b"")
    head, *rest = codec.seal(EntryId(0), EntryId(-1), 5, [b"quiet"])
    await send(bookie, add(), 1)
    world.server.bookie.fate_of = hold
    busy = [send(bookie, add(entry), 10) for entry in range(1, 6)]
    one = send(bookie, AddRequest(quiet, EntryId(0), KEY, head, entry_rest=tuple(rest)), 10)
    await until(lambda: len(world.server.calls) == 2)
    world.server.bookie.fate_of = lambda request: Fate.DELIVER
    world.server.answer_held()
    await asyncio.gather(*busy, one)
    stored = [call.request.ledger_id for call in world.server.calls if is_add(call.request)]
    assert stored.index(quiet) == 3, "after the one under way, and one of those that waited before"
    assert stored.count(LEDGER) == 6


async def test_adds_wait_for_room_and_reads_are_refused(world: World) -> None:
    bookie = await world.connect(LedgerClientConfig(bookie_in_flight_requests_max=2))
    await send(bookie, add())
    answers = [send(bookie, add(entry)) for entry in range(1, 4)]
    refused = send(bookie, ReadRequest(LEDGER, EntryId(0)))
    assert isinstance(await refused, TooManyRequests)
    assert all(isinstance(answer, AddResponse) for answer in await asyncio.gather(*answers))


async def test_what_waits_fails_with_the_connection_and_behind_what_is_under_way(
    world: World,
) -> None:
    """LINK-SILENT: a bookie that answers nothing fails, full connection or not."""
    bookie = await world.connect(NARROW)
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    told: list[int] = []
    answers = [send(bookie, add(entry), 6) for entry in range(1, 4)]
    for entry, answer in enumerate(answers, 1):
        answer.add_done_callback(lambda _, entry=entry: told.append(entry))
    outcomes = await asyncio.wait_for(asyncio.gather(*answers), 2)
    assert all(isinstance(outcome, BookieUnavailable) for outcome in outcomes)
    assert told == [1, 2, 3]


async def test_what_waits_behind_a_request_that_timed_out_is_sent(world: World) -> None:
    bookie = await world.connect(NARROW)
    lost, waiting = add(1), add(2)
    world.server.bookie.fate_of = lambda request: (
        Fate.LOSE_REQUEST if is_add(request) and request.entry_id == 1 else Fate.DELIVER
    )
    await send(bookie, add(0))
    first, second = send(bookie, lost, 10), send(bookie, waiting, 10)
    while not first.done():
        await send(bookie, ReadRequest(LEDGER, EntryId(0)))
        await asyncio.sleep(0.01)
    assert isinstance(await first, BookieTimeout)
    assert isinstance(await second, AddResponse)


async def test_the_clock_of_a_request_starts_when_those_before_it_are_answered(
    world: World,
) -> None:
    """LINK-CLOCK: ten requests that take 40 ms each, and a timeout of 80 ms."""
    bookie = await world.connect()
    await send(bookie, add())
    world.server.bookie.fate_of = hold
    answers = [send(bookie, add(entry)) for entry in range(1, 11)]
    await until(lambda: len(world.server.held) == 10)
    for _ in range(10):
        await asyncio.sleep(0.04)
        world.server.answer_held(1)
    assert all(isinstance(answer, AddResponse) for answer in await asyncio.gather(*answers))
    assert len(world.server.connections) == 1


async def test_rubbish_from_the_bookie_closes_the_connection(world: World) -> None:
    bookie = await world.connect()
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    answer = send(bookie, add(1))
    await until(lambda: len(world.server.calls) == 2)
    world.server.connections[0].transport.write(b"\xff\xff\xff\xff")
    assert isinstance(await answer, BookieUnavailable)


async def test_close_fails_what_is_under_way_and_to_come(world: World) -> None:
    bookie = await world.connect()
    await send(bookie, add())
    world.server.bookie.fate_of = lambda request: Fate.LOSE_REQUEST
    under_way = send(bookie, add(1))
    connecting = send(bookie, fence())
    world.made[0].close()
    assert isinstance(await under_way, BookieUnavailable)
    assert isinstance(await connecting, BookieUnavailable)
    assert isinstance(await send(bookie, add(2)), BookieUnavailable)
