"""The shell that broker and bookie share: who comes in, what is held, who has to go."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from client.errors import RemoteProtocolError
from client.node.connection_limits import ConnectionLimits
from client.node.framed_server import FramedConnection, FramedServer
from client.wire.frames import FrameIntake

LIMITS = ConnectionLimits(
    connections_max=10,
    connections_per_host_max=2,
    connection_idle_s=600.0,
    frame_timeout_s=30.0,
    unfinished_bytes_max=1000,
    unread_bytes_max=1000,
    unsent_bytes_max=100,
)
FRAME_BYTES_MAX = 1 << 20


class Timer:
    """A call that is due once; nobody makes it by itself."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Listener:
    """What `create_server` returns, with one port."""

    def __init__(self) -> None:
        self.is_closed = False
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 4711)

    def close(self) -> None:
        self.is_closed = True


class Loop:
    """An event loop whose time stands still, and which calls soon what is told to it at once."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.timers: list[Timer] = []
        self.listener = Listener()
        self.options: dict[str, Any] = {}
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def run_soon(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s))
        return self.timers[-1]

    async def create_server(self, make: Any, host: str, port: int, **options: Any) -> Listener:
        self.options = options
        return self.listener


class Wire:
    """A transport that a test looks at."""

    def __init__(self, host: str = "10.0.0.9") -> None:
        self.host = host
        self.written: list[bytes] = []
        self.is_reading = True
        self.high = 0
        self.unread_bytes = 0
        self.ended = ""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self.host, 5000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        assert not self.ended
        self.written.append(data)

    def writelines(self, buffers: list[bytes]) -> None:
        """Nobody takes it."""
        self.unread_bytes += sum(map(len, buffers))

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def is_closing(self) -> bool:
        return self.ended != ""

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class EchoServer(FramedServer["Echo"]):
    """Keeps what it is told."""

    def __init__(self, loop: Any, limits: ConnectionLimits = LIMITS) -> None:
        super().__init__(limits, loop)
        self.events: list[str] = []

    def on_refused(self, connection: Echo, reason: str, *, is_logged: bool) -> None:
        self.events.append(f"refused {connection.host} {reason} {is_logged}")

    def on_cut_off(self, connection: Echo, reason: str) -> None:
        self.events.append(f"cut off {reason}")

    def on_idle(self, connection: Echo) -> None:
        self.events.append(f"idle {connection.host}")


class Echo(FramedConnection):
    """Answers a frame with itself, or keeps it while it is held; `bad` breaks the protocol."""

    def __init__(self, server: EchoServer, **who: bool) -> None:
        super().__init__(server, FrameIntake(FRAME_BYTES_MAX, server.window), **who)
        self.served: list[tuple[list[bytes], int]] = []
        self.waiting: list[bytes] = []
        self.is_held = False
        self.owed = 0
        self.answers: list[bytes] = []

    @property
    def unanswered_count(self) -> int:
        return self.owed

    def fail(self, reason: str) -> None:
        self._server.events.append(f"failed {reason}")
        self.close()

    def _serve(self, frames: list[memoryview], size: int) -> int:
        texts = [bytes(frame) for frame in frames]
        self.served.append((texts, size))
        if b"bad" in texts:
            raise RemoteProtocolError("bad frame")
        if b"bye" in texts:
            self.close()
        if self.is_held:
            self.waiting += texts
            self._set_reading(False)
        else:
            self.answers += texts
        return sum(map(len, self.waiting))

    def release(self) -> None:
        self.is_held = False
        self.answers += self.waiting
        self.waiting = []
        self._set_reading(True)

    def _flush(self) -> None:
        assert self._transport is not None
        for answer in self.answers:
            self._transport.write(answer)
        self.answers = []

    def _drop_waiting(self) -> None:
        super()._drop_waiting()
        self.waiting = []


class World:
    """A server and the peers that a test connects."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.loop = Loop()
        self.server = EchoServer(self.loop, limits)

    def connect(self, host: str = "10.0.0.9", **who: bool) -> tuple[Echo, Wire]:
        connection, wire = Echo(self.server, **who), Wire(host)
        connection.connection_made(wire)  # type: ignore[arg-type]
        return connection, wire

    def pass_time(self, seconds: float) -> None:
        """Let time go by, then sweep."""
        self.loop.now_s += seconds
        self.server._sweep()


@pytest.fixture
def world() -> World:
    return World()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def deliver(connection: Echo, data: bytes) -> None:
    room = connection.get_buffer(len(data))
    room[: len(data)] = data
    connection.buffer_updated(len(data))


class TestAdmission:
    def test_beyond_a_limit_connections_are_closed_and_it_is_said_now_and_then(
        self, world: World
    ) -> None:
        wires = [world.connect()[1] for _ in range(4)]
        assert [wire.ended for wire in wires] == ["", "", "aborted", "aborted"]
        world.loop.now_s += 10.0
        world.connect()
        reason = "connections_per_host_max is reached"
        assert world.server.events == [
            f"refused 10.0.0.9 {reason} True",
            f"refused 10.0.0.9 {reason} False",
            f"refused 10.0.0.9 {reason} True",
        ]
        assert world.connect("10.0.0.8")[1].ended == ""
        assert world.server.connection_count == 3

    def test_who_is_gone_makes_room_for_another_and_who_was_refused_does_not(
        self, world: World
    ) -> None:
        first, _ = world.connect()
        world.connect()
        refused, _ = world.connect()
        refused.connection_lost(None)
        assert world.connect()[1].ended == "aborted"
        first.connection_lost(None)
        assert world.connect()[1].ended == ""

    def test_a_peer_is_behind_beyond_unsent_bytes_max(self, world: World) -> None:
        assert world.connect()[1].high == LIMITS.unsent_bytes_max

    def test_strangers_keep_out_neither_others_nor_the_clusters_own_nodes(self) -> None:
        world = World(LIMITS._replace(connections_max=8, reserved_max=2))
        for number in range(4):
            world.connect(f"10.0.1.{number}", is_stranger=True)
        assert world.server.events == [
            "refused 10.0.1.3 half of connections_max have not logged in True"
        ]
        for number in range(4):
            world.connect(f"10.0.2.{number}")
        assert world.server.connection_count == 6
        assert world.connect("10.0.3.1", is_own=True)[1].ended == ""

    def test_who_says_who_it_is_makes_room_for_another_stranger(self) -> None:
        world = World(LIMITS._replace(connections_max=2))
        first, _ = world.connect("a", is_stranger=True)
        first.welcome()
        second, _ = world.connect("b", is_stranger=True)
        assert world.server.connection_count == 2
        for one in (first, second):
            one.connection_lost(None)
        assert world.server._quotas.strangers == world.server._quotas.total == 0


class TestStrangers:
    def test_what_they_do_not_finish_cuts_off_none_but_them(self) -> None:
        world = World(LIMITS._replace(strangers_bytes_max=1000))
        honest, honest_wire = world.connect("a")
        deliver(honest, struct.pack(">i", 5000) + bytes(800))
        wires = []
        for number in range(4):
            stranger, wire = world.connect(f"10.0.0.{number}", is_stranger=True)
            deliver(stranger, struct.pack(">i", 5000) + bytes(400))
            wires.append(wire)
        assert honest_wire.ended == ""
        assert "aborted" in [wire.ended for wire in wires]
        assert world.server.strangers.total_bytes <= 1000
        world.pass_time(LIMITS.frame_timeout_s + 1)
        assert world.server.strangers.total_bytes == 0

    def test_who_has_said_who_it_is_counts_with_the_others(self) -> None:
        world = World(LIMITS._replace(strangers_bytes_max=1000))
        one, _ = world.connect(is_stranger=True)
        deliver(one, struct.pack(">i", 500) + bytes(10))
        one.welcome()
        assert world.server.strangers.total_bytes == 0
        deliver(one, bytes(10))
        assert world.server.unfinished.total_bytes > 0


class TestFrames:
    def test_frames_are_served_in_order_and_every_read_is_told(self, world: World) -> None:
        echo, _ = world.connect()
        deliver(echo, framed(b"a") + framed(b"b") + b"\x00")
        deliver(echo, b"\x00\x00\x01")
        deliver(echo, b"c")
        assert echo.served == [([b"a", b"b"], 11), ([], 3), ([b"c"], 1)]

    @pytest.mark.parametrize("data", [framed(b"bad"), struct.pack(">i", -1)])
    def test_who_breaks_the_protocol_fails_once_and_alone(self, world: World, data: bytes) -> None:
        echo, wire = world.connect()
        other, other_wire = world.connect()
        deliver(echo, data)
        deliver(echo, framed(b"more"))
        deliver(other, framed(b"a"))
        assert (wire.ended, other_wire.ended) == ("closed", "")
        assert len(world.server.events) == 1
        assert world.server.events[0].startswith("failed ")
        assert all(b"more" not in frames for frames, _ in echo.served)
        assert other.answers == [b"a"]

    def test_what_came_does_not_begin_nor_count_once_it_is_closed(self, world: World) -> None:
        echo, wire = world.connect()
        echo.answers = [b"an answer"]
        deliver(echo, b"\x00\x00")
        echo.close()
        assert wire.written == [b"an answer"], "what is answered still leaves"
        assert world.server.unfinished.total_bytes == 0
        deliver(echo, framed(b"a"))
        assert echo.served == [([], 2)]
        assert world.server.unfinished.total_bytes == 0
        echo.answers = [b"too late"]
        echo.close()
        assert wire.written == [b"an answer"]

    def test_what_follows_a_frame_that_closed_it_is_not_held(self, world: World) -> None:
        echo, wire = world.connect()
        deliver(echo, framed(b"bye") + b"\x00\x00")
        assert wire.ended == "closed"
        assert world.server.unfinished.total_bytes == 0

    def test_a_lost_connection_holds_nothing(self, world: World) -> None:
        echo, wire = world.connect()
        deliver(echo, framed(b"a") + b"\x00\x00")
        wire.unread_bytes = 500
        echo.pause_writing()
        assert (world.server.unfinished.total_bytes, world.server.unread.total_bytes) == (2, 500)
        echo.connection_lost(None)
        assert (world.server.unfinished.total_bytes, world.server.unread.total_bytes) == (0, 0)
        assert world.server.connection_count == 0
        deliver(echo, framed(b"b"))
        assert echo.served == [([b"a"], 7)]
        echo.close()
        echo.abort()
        assert wire.ended == ""


class TestHeldBytes:
    def test_a_part_of_a_frame_and_frames_that_wait_count(self, world: World) -> None:
        echo, wire = world.connect()
        echo.is_held = True
        deliver(echo, framed(b"0123456789") + b"\x00\x00")
        assert world.server.unfinished.total_bytes == 12
        assert not echo.is_reading
        assert not wire.is_reading
        echo.release()
        assert world.server.unfinished.total_bytes == 2
        assert wire.is_reading
        deliver(echo, b"\x00\x01a")
        assert world.server.unfinished.total_bytes == 0

    def test_an_unfinished_frame_is_cut_off_after_its_time(self, world: World) -> None:
        echo, wire = world.connect()
        deliver(echo, b"\x00\x00")
        world.pass_time(29.0)
        deliver(echo, b"\x00")
        assert wire.ended == "", "another byte is no progress, and it is not overdue"
        world.pass_time(1.0)
        assert wire.ended == "aborted"
        assert world.server.events == [
            "cut off unfinished request for longer than frame_timeout_ms"
        ]

    def test_each_frame_has_its_own_time(self, world: World) -> None:
        echo, wire = world.connect()
        for _ in range(5):
            deliver(echo, framed(b"a")[:3])
            world.pass_time(29.0)
            deliver(echo, framed(b"a")[3:])
        deliver(echo, framed(b"a")[:3])
        for _ in range(5):
            world.pass_time(29.0)
            deliver(echo, framed(b"a")[3:] + framed(b"a")[:3])
        assert wire.ended == ""

    def test_memory_that_waits_for_a_large_frame_counts(self) -> None:
        world = World(LIMITS._replace(unfinished_bytes_max=1 << 20))
        echo, _ = world.connect()
        deliver(echo, framed(bytes(200_000))[:50_000])
        assert world.server.unfinished.total_bytes == len(framed(bytes(200_000)))

    def test_who_is_not_read_is_not_to_blame(self, world: World) -> None:
        echo, wire = world.connect()
        echo.is_held = True
        deliver(echo, framed(b"a") + b"\x00\x00")
        world.pass_time(100.0)
        assert wire.ended == ""
        echo.release()
        world.pass_time(29.0)
        assert wire.ended == ""
        world.pass_time(1.0)
        assert wire.ended == "aborted"

    def test_all_unfinished_frames_together_are_bounded(self, world: World) -> None:
        wires = []
        for number in range(3):
            echo, wire = world.connect(f"10.0.0.{number}")
            deliver(echo, framed(bytes(1000))[:400])
            world.loop.now_s += 1.0
            wires.append(wire)
        assert [wire.ended for wire in wires] == ["aborted", "", ""], "the oldest goes"
        assert world.server.unfinished.total_bytes == 800
        assert world.server.events == ["cut off unfinished requests exceed unfinished_bytes_max"]

    def test_unread_answers_are_cut_off_after_the_idle_time(self, world: World) -> None:
        echo, wire = world.connect()
        wire.unread_bytes = 500
        echo.owed = 1
        echo.pause_writing()
        world.pass_time(599.0)
        assert wire.ended == ""
        world.pass_time(1.0)
        assert wire.ended == "aborted"
        assert world.server.events == ["cut off unread answers for longer than connection_idle_ms"]

    def test_what_is_written_to_one_that_is_behind_counts_at_once(self, world: World) -> None:
        echo, wire = world.connect()
        echo._write([bytes(100)])
        assert world.server.unread.total_bytes == 0
        assert world.server.unsent_bytes == 100
        echo.pause_writing()
        echo._write([bytes(100), bytes(700)])
        assert world.server.unread.total_bytes == 900
        echo._write([bytes(101)])
        assert wire.ended == "", "not within the call that writes"
        world.loop.run_soon()
        assert wire.ended == "aborted"
        assert world.server.events == ["cut off unread answers exceed unread_bytes_max"]

    def test_in_a_crowd_less_is_unread_so_that_what_is_not_counted_has_a_limit(
        self, world: World
    ) -> None:
        crowd = [world.connect(f"10.0.0.{number}") for number in range(10)]
        assert {wire.high for _, wire in crowd} == {50}
        assert 2 * 50 * len(crowd) <= LIMITS.unread_bytes_max < 2 * 100 * len(crowd)
        crowd[9][1].close()
        for echo, _ in crowd[3:]:
            echo.connection_lost(None)
        assert [wire.high for _, wire in crowd[:3]] == [50, 50, 50], "nor does one more change it"
        crowd[2][0].connection_lost(None)
        assert [wire.high for _, wire in crowd[:2]] == [100, 100]

    def test_who_reads_again_is_forgiven(self, world: World) -> None:
        echo, wire = world.connect()
        wire.unread_bytes = 500
        echo.owed = 1
        echo.pause_writing()
        world.pass_time(599.0)
        echo.resume_writing()
        assert world.server.unread.total_bytes == 0
        world.pass_time(1.0)
        assert wire.ended == ""
        assert world.server.unread.total_bytes == 0

    def test_all_unread_answers_together_are_bounded(self, world: World) -> None:
        wires = []
        for number in range(3):
            echo, wire = world.connect(f"10.0.0.{number}")
            wire.unread_bytes = 400
            echo.pause_writing()
            world.loop.now_s += 1.0
            wires.append(wire)
            assert wires[0].ended == "", "never while a transport is calling"
            world.loop.run_soon()
        assert [wire.ended for wire in wires] == ["aborted", "", ""]
        assert world.server.events == ["cut off unread answers exceed unread_bytes_max"]

    def test_what_stays_unread_is_looked_at_now_and_then(self, world: World) -> None:
        echo, wire = world.connect()
        wire.unread_bytes = 400
        echo.pause_writing()
        wire.unread_bytes = 900
        world.pass_time(1.0)
        assert world.server.unread.total_bytes == 900


class TestSweep:
    def test_a_silent_connection_is_closed_once(self, world: World) -> None:
        _, wire = world.connect()
        world.pass_time(600.0)
        assert wire.ended == ""
        world.pass_time(1.0)
        world.pass_time(15.0)
        assert wire.ended == "closed"
        assert world.server.events == ["idle 10.0.0.9"]

    def test_who_is_owed_an_answer_or_was_heard_is_not_idle(self, world: World) -> None:
        owed, owed_wire = world.connect()
        owed.owed = 1
        heard, heard_wire = world.connect()
        world.loop.now_s += 600.0
        deliver(heard, framed(b"a"))
        world.pass_time(1.0)
        assert (owed_wire.ended, heard_wire.ended) == ("", "")

    def test_a_closed_connection_whose_answers_are_not_read_has_to_go(self, world: World) -> None:
        echo, wire = world.connect()
        echo.close()
        world.pass_time(30.0)
        assert wire.ended == "closed"
        world.pass_time(1.0)
        assert wire.ended == "aborted"

    @pytest.mark.parametrize(
        ("idle_s", "frame_timeout_s", "expected_s"),
        [(600.0, 30.0, 15.0), (10.0, 30.0, 5.0), (600.0, 8.0, 4.0)],
    )
    async def test_it_comes_often_enough_for_the_shortest_time(
        self, idle_s: float, frame_timeout_s: float, expected_s: float
    ) -> None:
        limits = LIMITS._replace(connection_idle_s=idle_s, frame_timeout_s=frame_timeout_s)
        world = World(limits)
        await world.server.listen(lambda: Echo(world.server), "127.0.0.1", 0)
        world.server._sweep()
        assert [timer.delay_s for timer in world.loop.timers] == [expected_s] * 2


class TestListening:
    async def test_listens_and_says_where(self, world: World) -> None:
        make = lambda: Echo(world.server)  # noqa: E731
        assert await world.server.listen(make, "127.0.0.1", 0, backlog=7) == 4711
        assert world.loop.options == {"backlog": 7}

    async def test_close_ends_everything_and_sends_what_is_answered(self, world: World) -> None:
        await world.server.listen(lambda: Echo(world.server), "127.0.0.1", 0)
        echo, wire = world.connect()
        deliver(echo, framed(b"a"))
        world.server.close_all()
        assert world.loop.listener.is_closed
        assert world.loop.timers[-1].is_cancelled
        assert (wire.written, wire.ended) == ([b"a"], "closed")

    def test_close_without_listening(self, world: World) -> None:
        world.server.close_all()
        assert not world.loop.listener.is_closed  # it was never there

    async def test_a_connection_that_is_closing_is_neither_paused_nor_resumed(
        self, world: World
    ) -> None:
        """Loops differ in what they say to that."""
        echo, wire = world.connect()
        wire.ended = "by the peer"
        echo.is_held = True
        deliver(echo, framed(b"a"))
        assert wire.is_reading
        assert echo.is_reading
