"""Handshakes of a server take turns: between two of their steps the loop serves others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from client.node.tls.transport import HANDSHAKE_STEPS, TlsGate, TlsProtocol
from tests.fakes import certificates
from tests.fakes.broker import until

COUNT = 20


class Admitted(asyncio.Protocol):
    """The connection behind the handshake."""

    def __init__(self) -> None:
        self.received = b""
        self.reasons: list[str] = []
        self.plain: list[bytes] = []
        self.missing_bytes = 1
        self._buffer = bytearray(1 << 10)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def take_plain(self, data: memoryview) -> int:
        if bytes(data[:5]) == b"plain" and not self.plain:
            self.plain.append(b"plain")
            return 5
        return 0

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


class FakeSocket(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self, number: int) -> None:
        super().__init__({"peername": (f"10.0.0.{number}", 1)})
        self.written = b""
        self.closed = False
        self.paused = False

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


class Client:
    """One client, whose bytes are carried by hand."""

    def __init__(self, gate: TlsGate, server: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
        self.app, self.socket, self.is_ready = Admitted(), FakeSocket(1), False
        self.protocol = TlsProtocol(gate, server, self.app, self._on_ready)
        self.gate = gate
        self.protocol.connection_made(self.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def _on_ready(self) -> None:
        self.is_ready = True

    def send(self, more: bytes = b"") -> None:
        """Go on with the handshake; let the server receive what that wrote, and more behind it."""
        self.incoming.write(self.socket.written)
        self.socket.written = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        if more:
            self.tls.write(more)
        self.receive(self.outgoing.read())

    def receive(self, data: bytes) -> None:
        """Let the server receive bytes, if it reads."""
        assert not self.socket.paused
        self.gate.window[: len(data)] = data
        self.protocol.buffer_updated(len(data))


@pytest.fixture
async def clients(tmp_path: Path) -> list[Client]:
    certificates.write(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "broker.pem", tmp_path / "broker.key")
    trusting = ssl.create_default_context(cafile=tmp_path / "authority.pem")
    gate = TlsGate(asyncio.get_running_loop(), handshake_timeout_s=60, handshakes_max=1_000)
    return [Client(gate, server, trusting) for _ in range(COUNT)]


def answered(clients: list[Client]) -> int:
    """Count the clients to whom the server has said something since they last sent."""
    return sum(bool(client.socket.written) for client in clients)


def ready(clients: list[Client]) -> int:
    """Count the clients whose handshake is done."""
    return sum(client.is_ready for client in clients)


def paused(client: Client) -> bool:
    """Whether the server lets a client's bytes wait in the socket."""
    return client.socket.paused


@pytest.mark.parametrize("count", [answered, ready])
async def test_a_few_steps_in_a_turn_of_the_loop(
    clients: list[Client], count: Callable[[list[Client]], int]
) -> None:
    for client in clients:
        client.send()
    if count is ready:
        await until(lambda: answered(clients) == COUNT)
        for client in clients:
            client.send()
    seen = [count(clients)]
    for _ in range(2 * COUNT):
        await asyncio.sleep(0)
        seen.append(count(clients))
    assert seen[-1] == COUNT
    assert seen[0] == 0
    assert max(after - before for before, after in itertools.pairwise(seen)) == HANDSHAKE_STEPS


async def test_what_comes_right_behind_the_handshake_is_passed_on(clients: list[Client]) -> None:
    client = clients[0]
    client.send()
    await until(lambda: answered([client]) == 1)
    client.send(b"the first request")
    assert ready([client]) == 0, "both wait for one turn"
    assert paused(client), "and the next bytes in the socket"
    await until(lambda: ready([client]) == 1)
    assert client.app.received == b"the first request"
    assert not paused(client)


@pytest.mark.parametrize("is_together", [True, False])
async def test_plain_text_that_is_meant_so_comes_before_the_handshake(
    clients: list[Client], is_together: bool
) -> None:
    client = clients[0]
    if not is_together:
        client.receive(b"plain")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.receive((b"plain" if is_together else b"") + client.outgoing.read())
    await until(lambda: answered([client]) == 1)
    client.send(b"the first request")
    await until(lambda: ready([client]) == 1)
    assert (client.app.plain, client.app.received) == ([b"plain"], b"the first request")
    assert client.app.reasons == []


@pytest.mark.parametrize("more", [b"plain", b"other"])
async def test_other_plain_text_is_no_handshake(clients: list[Client], more: bytes) -> None:
    client = clients[0]
    client.receive(b"plain" + more)
    assert len(client.app.reasons) == 1 and client.app.reasons[0].startswith("not TLS")


async def test_a_connection_that_reads_nothing_goes_on_so_after_its_turn(
    clients: list[Client],
) -> None:
    client = clients[0]
    client.send()
    client.protocol.set_reading(False)
    await until(lambda: answered([client]) == 1)
    assert paused(client)
    client.protocol.set_reading(True)
    client.send()
    client.protocol.set_reading(False)
    client.protocol.set_reading(True)
    assert paused(client), "its turn is still to come"
    await until(lambda: ready([client]) == 1)
    assert not paused(client)


async def test_who_is_gone_takes_no_turn(clients: list[Client]) -> None:
    for client in clients:
        client.send()
    for client in clients:
        client.protocol.connection_lost(None)
    turns = clients[0].gate.turns
    for _ in range(COUNT):
        await asyncio.sleep(0)
    assert turns.taken == 0
    assert clients[0].gate.handshakes == 0
    assert clients[0].gate.failures == COUNT
