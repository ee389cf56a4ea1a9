"""What a server by TLS awaits of a frame under way: never more than is still to come."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from pathlib import Path

import pytest

from client.node.tls.read_mark import MARK_BYTES_MAX
from client.node.tls.transport import IN_SLICE_BYTES, OUT_SLICE_BYTES, TlsGate, TlsProtocol
from client.wire.frames import WINDOW_BYTES, FrameIntake, make_window
from tests.fakes import certificates
from tests.fakes.broker import until

FRAME_BYTES_MAX = 2 << 20


class Connection(asyncio.Protocol):
    """A connection of frames behind TLS."""

    def __init__(self) -> None:
        self.intake = FrameIntake(FRAME_BYTES_MAX, make_window())
        self.frames: list[bytes] = []
        self.calls = 0
        self.reasons: list[str] = []

    @property
    def missing_bytes(self) -> int:
        return self.intake.missing_bytes

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.intake.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.calls += 1
        self.frames += map(bytes, self.intake.received(nbytes))

    def take_plain(self, _data: memoryview) -> int:
        return 0

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


class Socket(asyncio.Transport):
    """A transport and its socket in one."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "socket": self})
        self.written = b""
        self.mark = 1
        self.marks_set = 0
        self.paused = False
        self.closed = False

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.mark = value
        self.marks_set += 1

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: object) -> None:
        self.written += bytes(data)  # type: ignore[call-overload]

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Watched:
    """A buffer of OpenSSL's that notes the most that it ever held: it never shrinks again."""

    def __init__(self, buffer: ssl.MemoryBIO) -> None:
        self._buffer = buffer
        self.most = 0

    @property
    def pending(self) -> int:
        self.most = max(self.most, self._buffer.pending)
        return self._buffer.pending

    def write(self, data: memoryview) -> int:
        count = self._buffer.write(data)
        self.most = max(self.most, self._buffer.pending)
        return count

    def read(self) -> bytes:
        self.most = max(self.most, self._buffer.pending)
        return self._buffer.read()


class Asked:
    """TLS of a server that notes how often nothing could be read: an exception for each."""

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._tls = tls
        self.in_vain = 0
        self.pending = tls.pending

    def read(self, size: int, buffer: memoryview) -> int:
        try:
            return self._tls.read(size, buffer)  # type: ignore[return-value]
        except ssl.SSLWantReadError:
            self.in_vain += 1
            raise


class Client:
    """One that has shaken hands; what it encrypts is delivered by hand."""

    def __init__(self, files: Path) -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(files / "broker.pem", files / "broker.key")
        self.gate = TlsGate(asyncio.get_running_loop(), handshake_timeout_s=60, handshakes_max=10)
        self.app, self.socket = Connection(), Socket()
        self.is_ready = False
        self.protocol = TlsProtocol(self.gate, server, self.app, self._on_ready)
        self.protocol.connection_made(self.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = ssl.create_default_context(cafile=files / "authority.pem")
        self.tls = trusting.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def _on_ready(self) -> None:
        self.is_ready = True

    async def shake_hands(self, first: bytes = b"", taken: int = 0) -> bytes:
        """`taken`: of what `first` becomes, so much comes with the end of the handshake. Returns
        the rest."""
        rest = b""
        for step in range(2):
            await until(lambda: not self.socket.paused)
            self.incoming.write(self.socket.written)
            self.socket.written = b""
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            flight = self.outgoing.read()
            if step and first:
                behind = self.encrypted(first)
                flight, rest = flight + behind[:taken], behind[taken:]
            self.deliver(flight)
        await until(lambda: self.is_ready)
        return rest

    def encrypted(self, *records: bytes) -> bytes:
        for record in records:
            self.tls.write(record)
        return self.outgoing.read()

    def deliver(self, data: bytes) -> None:
        """Let the server receive bytes."""
        assert not self.socket.paused
        self.gate.window[: len(data)] = data
        self.protocol.buffer_updated(len(data))


@pytest.fixture
async def client(tmp_path: Path) -> Client:
    certificates.write(tmp_path)
    made = Client(tmp_path)
    await made.shake_hands()
    return made


def frame(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(size)


async def test_whole_frames_await_nothing(client: Client) -> None:
    for size in (0, 10, 5_000, 16_000, 150_000):
        client.deliver(client.encrypted(frame(size)))
    assert len(client.app.frames) == 5
    assert client.socket.marks_set == 0, "no system call more than in plain text"


async def test_the_rest_of_a_frame_comes_in_one_piece(client: Client) -> None:
    whole = frame(60_000)
    client.deliver(client.encrypted(whole[:1_000]))
    assert client.socket.mark == len(whole) - 1_000
    client.deliver(client.encrypted(whole[1_000:]))
    assert client.app.frames == [whole[4:]]
    assert client.socket.mark == 1, "a small request is heard of at once"


async def test_a_piece_of_a_record_counts_as_come(client: Client) -> None:
    whole = frame(70_000)
    first, second = client.encrypted(whole[:16_000]), client.encrypted(whole[16_000:])
    client.deliver(first + second[:9_000])
    left = len(second) - 9_000
    assert left - 200 <= client.socket.mark <= left, "all but the heads and tags of records"
    client.protocol.set_reading(False)
    client.protocol.set_reading(True)
    client.protocol.decrypt()
    assert client.socket.mark <= left, "OpenSSL holds that piece, whoever looks"
    client.deliver(second[9_000:])
    assert client.app.frames == [whole[4:]]


async def test_of_a_large_frame_a_part_is_awaited(client: Client) -> None:
    whole = frame(1 << 20)
    client.deliver(client.encrypted(whole[:100]))
    assert client.socket.mark == MARK_BYTES_MAX


async def test_a_length_that_is_not_known_awaits_nothing(client: Client) -> None:
    client.deliver(client.encrypted(frame(90_000)[:3]))
    assert client.socket.mark == 1


async def test_who_does_not_read_awaits_nothing_new(client: Client) -> None:
    client.protocol.set_reading(False)
    client.socket.paused = False  # bytes that were on their way
    client.deliver(client.encrypted(frame(50_000)[:1_000]))
    assert client.socket.marks_set == 0
    assert client.app.calls == 0
    client.protocol.set_reading(True)
    await until(lambda: client.socket.mark > 1)
    assert client.socket.mark == 50_004 - 1_000


@pytest.mark.parametrize("seed", range(40))
async def test_never_more_than_is_still_to_come_of_the_frame(client: Client, seed: int) -> None:
    """Whatever the sizes of frames, of records, and of what is read at a time."""
    rng = random.Random(seed)
    sizes = (0, 7, 900, 16_380, 16_384, 40_000, 70_000, 300_000, 1_000_000)
    stream, ends = b"", []
    for _ in range(rng.randint(1, 8)):
        whole = frame(rng.choice(sizes))
        most = rng.choice((50, 1_040, 16_384, 1 << 20)) if len(whole) < 50_000 else 16_000
        records = [whole[at : at + most] for at in range(0, len(whole), most)]
        stream += client.encrypted(*records)
        ends.append(len(stream))
    at = 0
    while at < len(stream):
        count = rng.choice((1, 5, 22, 700, 16_406, 100_000, WINDOW_BYTES))
        # As the kernel: nothing is said of less than the mark.
        count = max(count, client.socket.mark)
        client.deliver(stream[at : at + count])
        at += count
        under_way = next((end for end in ends if end > at), None)
        if under_way is not None:
            assert client.socket.mark <= max(1, under_way - at)
    assert len(client.app.frames) == len(ends)
    assert client.socket.mark == 1
    assert client.app.reasons == []


async def test_openssl_keeps_little_room_for_what_comes(client: Client) -> None:
    watched = Watched(client.protocol._incoming)
    client.protocol._incoming = watched  # type: ignore[assignment]
    whole = frame(240_000)
    for most in (500, 16_384):
        client.deliver(
            client.encrypted(*(whole[at : at + most] for at in range(0, len(whole), most)))
        )
    assert client.app.frames == [whole[4:]] * 2
    assert client.app.calls <= 6, "a window is passed on whole, not slice by slice"
    assert watched.most <= IN_SLICE_BYTES + (17 << 10)


async def test_openssl_keeps_little_room_for_what_goes(client: Client) -> None:
    watched = Watched(client.protocol._outgoing)
    client.protocol._outgoing = watched  # type: ignore[assignment]
    answer = random.Random(1).randbytes(900_000)
    client.protocol.encrypt([b"head", memoryview(answer), b"end"])
    assert watched.most <= OUT_SLICE_BYTES + (1 << 10)
    client.incoming.write(client.socket.written)
    found = b""
    while len(found) < len(answer) + 7:
        found += client.tls.read(1 << 20)
    assert found == b"head" + answer + b"end"


async def test_a_window_that_is_not_read_is_kept_for_later(client: Client) -> None:
    """It is received into memory that all connections share."""
    whole = frame(200_000)
    client.protocol.set_reading(False)
    client.socket.paused = False  # bytes that were on their way
    client.deliver(client.encrypted(whole))
    client.gate.window[:] = bytes(len(client.gate.window))
    client.protocol.set_reading(True)
    await until(lambda: bool(client.app.frames))
    assert client.app.frames == [whole[4:]]
    assert client.app.reasons == []


async def test_a_connection_that_stops_reading_in_a_window_loses_nothing(client: Client) -> None:
    wholes = [frame(30_000) for _ in range(7)]
    takes = client.app.buffer_updated

    def take_and_stop(nbytes: int) -> None:
        takes(nbytes)
        client.protocol.set_reading(False)

    client.app.buffer_updated = take_and_stop  # type: ignore[method-assign]
    client.deliver(client.encrypted(*wholes))
    client.gate.window[:] = bytes(len(client.gate.window))
    for _ in range(100):
        client.protocol.set_reading(True)
        await asyncio.sleep(0)
    assert client.app.frames == [whole[4:] for whole in wholes]
    assert client.app.reasons == []


async def test_what_is_no_tls_ends_the_connection_wherever_it_comes(client: Client) -> None:
    good = client.encrypted(frame(40_000))
    client.deliver(good + b"\x17\x03\x03\x00\x20" + bytes(32))
    assert client.app.frames == [], "nothing is passed on of what came with it"
    assert len(client.app.reasons) == 1
    assert client.app.reasons[0].startswith("TLS: ")


@pytest.mark.parametrize("cut", [1, 5, 700, 1_046, 16_384, 60_000, WINDOW_BYTES])
async def test_openssl_is_asked_for_whole_records_alone(client: Client, cut: int) -> None:
    asked = Asked(client.protocol._tls)
    client.protocol._tls = asked  # type: ignore[assignment]
    wholes = [frame(size) for size in (90, 1_000, 16_384, 50_000)]
    stream = client.encrypted(*wholes)
    for at in range(0, len(stream), cut):
        client.deliver(stream[at : at + cut])
    assert client.app.frames == [whole[4:] for whole in wholes]
    assert asked.in_vain == 0


@pytest.mark.parametrize("taken", [0, 3, 5, 400, -1])
async def test_what_comes_with_the_end_of_the_handshake_is_read(tmp_path: Path, taken: int) -> None:
    certificates.write(tmp_path)
    client, whole = Client(tmp_path), frame(20_000)
    rest = await client.shake_hands(whole, taken)
    client.deliver(rest)
    assert client.app.frames == [whole[4:]]
    assert client.app.reasons == []


async def test_a_record_that_cannot_be_one_ends_the_connection_before_it_is_whole(
    client: Client,
) -> None:
    client.deliver(client.encrypted(frame(100)) + b"GET / HTTP/1.1")
    assert len(client.app.reasons) == 1
    assert client.app.reasons[0].startswith("TLS: ")
