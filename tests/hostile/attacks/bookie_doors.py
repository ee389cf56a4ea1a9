"""Attacks on what stands before a secured bookie: StartTLS on its port, TLS on its HTTP port."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import urllib.request
from collections.abc import Sequence
from typing import Final

from client.ids import EntryId, LedgerId
from client.security.cluster_security import read_cluster_security
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.messages import ReadRequest, StartTlsRequest
from tests.fuzz.mutate import mutate
from tests.hostile.attacks.target import Attack, Target, until
from tests.hostile.bookie_stalls import frames
from tests.integration.memory_crowd import crowd

_CROWD: Final = 1_000
_MANGLED: Final = 400
_GUESSES, _AT_ONCE = 60, 20
_HELLO: Final = bytes.fromhex("16030101ff010001fb0303")
"""How a ClientHello begins, of which no more comes."""
_START: Final = frames([StartTlsRequest()], v3.encode_request)
_READ: Final = frames([ReadRequest(LedgerId(1), EntryId(0))], v2.encode_request)
_UNAUTHORIZED: Final = 102
"""BookKeeper's EUA."""
_GUESS: Final = (
    b"GET /api/v1/bookie/info HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer guess\r\n\r\n"
)
_ADMITTED_WITHIN_S: Final = 30
"""Longer than a handshake may take: those that stall are closed by then."""


def _as_a_node(target: Target) -> ssl.SSLContext:
    """Return the context of the cluster's own programs."""
    return read_cluster_security(target.cluster.data / "security" / "cluster.toml").contexts().get()


async def _is_served(target: Target) -> bool:
    """Whether a program of the cluster gets an answer from the bookie."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", target.bookie_port)
            try:
                writer.write(_START)
                await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                await writer.start_tls(_as_a_node(target), server_hostname="127.0.0.1")
                writer.write(_READ)
                return len(await reader.readexactly(4)) == 4
            finally:
                writer.close()
    return False


async def _stall(target: Target, port: int, says: Sequence[bytes]) -> str:
    """Have a crowd of one address begin, and never go on."""
    loop = asyncio.get_running_loop()
    stalled = []
    for number in range(_CROWD):
        with contextlib.suppress(ConnectionError):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, "127.0.0.1", port, local_addr=("127.0.0.9", 0)
            )
            transport.write(says[number % len(says)])
            stalled.append(transport)
    return f"{len(stalled)} of one address"


async def starts_that_never_end(target: Target) -> str:
    """Connections that ask for TLS, or do not, and whose handshake begins, or not, and stalls."""
    says = (b"", _START, _START + _HELLO, _HELLO, _START[:3])
    said = await _stall(target, target.bookie_port, says)
    await until(lambda: _is_served(target), _ADMITTED_WITHIN_S)
    async with crowd(says, target.bookie_port, _CROWD) as members:
        await until(lambda: _is_served(target), _ADMITTED_WITHIN_S)
    return f"{said}, {len(members)} of many; a broker gets in beside them"


async def starts_that_are_mangled(target: Target) -> str:
    """StartTLS and handshakes that are cut, changed, repeated, or have requests behind them."""
    rng = random.Random(7)
    parts = (_START, _HELLO, _READ, _START + _READ, _START + _START, _START + _HELLO)
    says = []
    for at in range(_MANGLED):
        sent = b"".join(rng.choices(parts, k=rng.randint(1, 3)))
        says.append(mutate([sent], rng) if at % 3 else sent)
    for _ in range(3):
        async with crowd(says, target.bookie_port, _MANGLED):
            await asyncio.sleep(0.2)
    await until(lambda: _is_served(target), _ADMITTED_WITHIN_S)
    return f"{3 * _MANGLED} connections"


async def strangers(target: Target) -> str:
    """Reads in plain text, and in TLS without a certificate: nobody is told anything."""
    served = 0
    for context in [None, target.tls()] * 50:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.bookie_port)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(20):
                if context is not None:
                    writer.write(_START)
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                    await writer.start_tls(context, server_hostname="127.0.0.1")
                writer.write(_READ)
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                served += not _is_refusal(answer)
        writer.close()
    assert not served, f"{served} strangers were served"
    return "100 connections, none served"


def _is_refusal(answer: bytes) -> bool:
    """Whether an answer in version 2 says that who asks may not."""
    return int.from_bytes(answer[4:8]) == _UNAUTHORIZED


async def http_handshakes(target: Target) -> str:
    """Handshakes, and requests, of its HTTP port that never end."""
    port = int(target.cluster.about["bookies"][0]["admin"])
    says = (b"", _HELLO, b"GET / HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01")
    said = await _stall(target, port, says)
    await until(lambda: asyncio.to_thread(_answers, target, port), _ADMITTED_WITHIN_S)
    async with crowd(says, port, _CROWD) as members:
        await asyncio.sleep(0.5)
    await until(lambda: asyncio.to_thread(_answers, target, port), _ADMITTED_WITHIN_S)
    return f"{said}, {len(members)} of many"


async def http_guesses(target: Target) -> str:
    """Wrong tokens at its HTTP port, many at once: few are compared, and all are refused."""
    port = int(target.cluster.about["bookies"][0]["admin"])
    streams = []
    for _ in range(0, _GUESSES, _AT_ONCE):  # an address may have so many handshakes under way
        some = (
            asyncio.open_connection("127.0.0.1", port, ssl=target.tls()) for _ in range(_AT_ONCE)
        )
        streams += await asyncio.gather(*some)
    statuses = await asyncio.gather(*(_guess(*stream) for stream in streams))
    assert set(statuses) <= {401, 429}, statuses
    assert 429 in statuses, "all of them were compared"
    return f"{statuses.count(401)} of {_GUESSES} tokens were compared"


async def _guess(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """Return the status of an answer to a wrong token."""
    async with asyncio.timeout(60):
        writer.write(_GUESS)
        status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


def _answers(target: Target, port: int) -> bool:
    with contextlib.suppress(OSError):
        url = f"https://127.0.0.1:{port}/heartbeat"
        with urllib.request.urlopen(url, context=target.tls(), timeout=5) as answer:
            return int(answer.status) == 200
    return False


ATTACKS: Final = (
    Attack("bookie: tls handshakes that never end", starts_that_never_end, "secured"),
    Attack("bookie: tls handshakes that are mangled", starts_that_are_mangled, "secured"),
    Attack("bookie: strangers", strangers, "secured"),
    Attack("bookie: tls handshakes of the HTTP port that never end", http_handshakes, "secured"),
    Attack("bookie: wrong tokens", http_guesses, "secured"),
)
