"""`python -m ops.bench.micro.tls_cost [MB [ROUNDS]]`: what TLS costs a server's front, by itself.

A server as broker and bookie have one (`client/node/framed_server.py`), which answers each request
at once, receives requests from another process, in plain text and by TLS in turns. Counted are its
own CPU for each GB and how often the loop called it. The client sends its requests one behind the
other as Kafka's clients do: in plain text with one system call for each, by TLS with a record and a
system call for each 16 KiB, and where the client keeps a request in pieces, for each piece:
librdkafka does so with most records of a batch.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import uvloop

from client.node.connection_limits import ConnectionLimits
from client.node.framed_server import FramedConnection, FramedServer
from client.node.process import keep_freed_memory
from client.node.tls.transport import TlsGate, TlsProtocol
from client.security.tls_contexts import server_context
from client.wire.frames import LENGTH_BYTES, FrameIntake
from ops.security.certificates import issue, make_authority

_HOST: Final = "127.0.0.1"
_MB: Final = 300
_ROUNDS: Final = 5
_FRAME_BYTES_MAX: Final = 8 << 20
_OUTSTANDING_BYTES: Final = 4 << 20
_ANSWER: Final = bytes(64)
_LIMITS: Final = ConnectionLimits(
    connections_max=10,
    connections_per_host_max=10,
    connection_idle_s=600.0,
    frame_timeout_s=60.0,
    unfinished_bytes_max=256 << 20,
    unread_bytes_max=256 << 20,
    unsent_bytes_max=1 << 20,
)


class Case(NamedTuple):
    """What a client sends."""

    name: str
    request_bytes: int
    pieces: tuple[int, ...]
    """Sizes of what is given to OpenSSL at a time, again and again until the request is whole."""


CASES: Final = (
    Case("150 B, one at a time", 150, (150,)),
    Case("16 KiB", 16_600, (16_600,)),
    Case("16 KiB, head and value of each record apart", 16_600, (9, 1_024)),
    Case("1 MB", 1_000_100, (1_000_100,)),
    Case("1 MB, a third of it in such pieces", 1_000_100, (9, 1_024) * 16 + (32_768,)),
)


class Cost(NamedTuple):
    """What one run came to."""

    cpu_s: float
    wall_s: float
    calls: int
    """How often the loop handed over bytes."""
    requests: int


class _Front(FramedServer["_Connection"]):
    def __init__(self) -> None:
        super().__init__(_LIMITS, asyncio.get_running_loop())
        self.calls = 0
        self.began = (0.0, 0.0, 0)
        self.requests = 0

    def on_refused(self, connection: _Connection, reason: str, *, is_logged: bool) -> None:
        raise AssertionError(reason)

    def on_cut_off(self, connection: _Connection, reason: str) -> None:
        raise AssertionError(reason)

    def on_idle(self, connection: _Connection) -> None:
        """Cannot be."""


class _Connection(FramedConnection):
    _server: _Front

    def __init__(self, server: _Front) -> None:
        super().__init__(server, FrameIntake(_FRAME_BYTES_MAX, server.window))

    def on_secured(self) -> None:
        """The handshake is done."""

    @property
    def unanswered_count(self) -> int:
        """Requests whose answers are owed."""
        return 0

    def fail(self, reason: str) -> None:
        """Close the connection because of what the peer sent."""
        raise AssertionError(reason)

    def _serve(self, frames: list[memoryview], size: int) -> int:
        server = self._server
        if frames:
            if not server.requests:
                server.began = (time.process_time(), time.monotonic(), server.calls)
            server.requests += len(frames)
            self._write([_ANSWER] * len(frames))
        return 0

    def _flush(self) -> None:
        """Nothing waits."""


class _CountedTls(TlsProtocol):
    server: _Front

    def buffer_updated(self, nbytes: int) -> None:
        self.server.calls += 1
        super().buffer_updated(nbytes)


class _CountedPlain(_Connection):
    def buffer_updated(self, nbytes: int) -> None:
        self._server.calls += 1
        super().buffer_updated(nbytes)


async def _run(case: Case, size: int, context: ssl.SSLContext | None, authority: Path) -> Cost:
    server = _Front()
    gate = TlsGate(server.loop, handshake_timeout_s=60, handshakes_max=10)

    def make() -> asyncio.BaseProtocol:
        if context is None:
            return _CountedPlain(server)
        connection = _Connection(server)
        protocol = _CountedTls(gate, context, connection, connection.on_secured)
        protocol.server = server
        return protocol

    port = await server.listen(make, _HOST, 0)
    count = max(1, size // case.request_bytes)
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.bench.micro.tls_cost", "--send", str(port), str(count)),
        *(str(case.request_bytes), str(authority) if context is not None else ""),
        *map(str, case.pieces),
    )
    if await client.wait():
        raise SystemExit("the client failed")
    cpu_s, wall_s, calls = server.began
    server.close_all()
    return Cost(time.process_time() - cpu_s, time.monotonic() - wall_s, server.calls - calls, count)


def _send(arguments: Sequence[str]) -> None:
    """Be the client."""
    port, count, request_bytes = map(int, arguments[:3])
    connection = socket.create_connection((_HOST, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frame = (request_bytes - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big") + bytes(
        request_bytes - LENGTH_BYTES
    )
    pieces: list[bytes | memoryview] = [frame]
    if authority := arguments[3]:
        context = ssl.create_default_context(cafile=authority)
        connection = context.wrap_socket(connection, server_hostname=_HOST)
        sizes = itertools.cycle(map(int, arguments[4:]))
        rest = memoryview(frame)
        pieces = []
        while rest:
            size = next(sizes)
            pieces.append(rest[:size])
            rest = rest[size:]
    outstanding_max = max(1, _OUTSTANDING_BYTES // request_bytes) if request_bytes > 1_000 else 1
    owed = 0
    for _ in range(count):
        for piece in pieces:
            connection.sendall(piece)
        owed += len(_ANSWER)
        while owed >= outstanding_max * len(_ANSWER):
            owed -= len(connection.recv(64 << 10))
    while owed:
        owed -= len(connection.recv(64 << 10))
    connection.close()


def _table(case: Case, plain: Sequence[Cost], secured: Sequence[Cost], size: int) -> None:
    def middle(costs: Sequence[Cost], of: Callable[[Cost], float]) -> float:
        return statistics.median(map(of, costs))

    ratios = [one.cpu_s / other.cpu_s for one, other in zip(secured, plain, strict=True)]
    for name, costs in (("plain text", plain), ("TLS", secured)):
        requests = costs[0].requests
        moved = requests * case.request_bytes
        click.echo(
            f"| {case.name} | {name} | {middle(costs, lambda c: c.cpu_s) / moved * 1e9:.2f}"
            f" | {middle(costs, lambda c: c.cpu_s) / requests * 1e6:.1f}"
            f" | {middle(costs, lambda c: c.calls) / moved * 1e9:,.0f}"
            f" | {moved / middle(costs, lambda c: c.wall_s) / 1e6:,.0f}"
            f" | {statistics.median(ratios) if name == 'TLS' else 1:.2f} |"
        )


async def _main(size: int, rounds: int, cases: Sequence[Case]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files, now = Path(folder), datetime.datetime.now(datetime.UTC)
        make_authority(files, now)
        issue(files, "server", [_HOST], now)
        context = server_context(
            "micro", files / "server.pem", files / "server.key", version_min="1.2"
        )
        authority = files / "ca.pem"
        click.echo(
            "| sent | by | CPU s per GB | CPU µs per request | calls per GB | MB/s | times |"
        )
        click.echo("|---|---|---|---|---|---|---|")
        for case in cases:
            of_case = min(size, 20_000 * case.request_bytes)
            plain, secured = [], []
            for _ in range(rounds):
                plain.append(await _run(case, of_case, None, authority))
                secured.append(await _run(case, of_case, context, authority))
            _table(case, plain, secured, of_case)


def main() -> None:
    """Measure, and print."""
    if sys.argv[1:2] == ["--send"]:
        _send(sys.argv[2:])
        return
    keep_freed_memory()
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else _MB
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else _ROUNDS
    chosen = [CASES[int(index)] for index in sys.argv[3:]] or CASES
    uvloop.run(_main(megabytes * 1_000_000, rounds, chosen))


if __name__ == "__main__":
    main()
