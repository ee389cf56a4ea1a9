"""Very many logins that fail, and honest ones among them.

    QUIRE_FAILED_LOGINS=500000 python -m tests.hostile.attacks failed

Half of them know a user's name, the others make one up. Most do SCRAM's whole exchange on a
listener without TLS, which costs them least; some come over TLS, and some send a password (PLAIN),
which costs the broker most. They come from more addresses than a broker remembers the failures of,
and from a few again and again, whose answers wait ever longer.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from client.wire.kafka.apis import ApiKey
from ops.bench.spread import percentile
from tests.fakes.sasl_client import plain
from tests.hostile.attacks.target import Target, until

COUNT: Final = int(os.environ.get("QUIRE_FAILED_LOGINS", "500"))
GROWN_MIB_MAX: Final = 128
"""The most that a broker may grow by: connections under way, and ten thousand addresses."""
_AT_ONCE: Final = 200
_ADDRESSES: Final = 20_000
_STUBBORN: Final = 50
"""One of so many is from one of a few addresses."""
_STUBBORN_ADDRESSES: Final = 4
_TLS_EVERY: Final = 50
_PLAIN_EVERY: Final = 60
_HONEST_EVERY_S: Final = 0.5
_SAMPLE_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 120.0
_HEAD: Final = struct.Struct(">ihhih")
_FAILED: Final = 58
_LATER: Final = 7
_REFUSAL: Final = b"Authentication failed"


def _request(key: ApiKey, body: bytes) -> bytes:
    """Return a frame of version 1 without a client id."""
    return _HEAD.pack(_HEAD.size - 4 + len(body), key, 1, 1, -1) + body


def _token(token: bytes) -> bytes:
    return _request(ApiKey.SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)


class Guess(NamedTuple):
    """One login that fails."""

    mechanism: str
    user: str
    address: str
    is_tls: bool

    def start(self) -> bytes:
        """Return the frames that the broker may have at once: mechanism and first token."""
        name = self.mechanism.encode()
        chosen = _request(ApiKey.SASL_HANDSHAKE, struct.pack(">h", len(name)) + name)
        if self.mechanism == "PLAIN":
            return chosen + _token(plain(self.user, "a guess"))
        return chosen + _token(f"n,,n={self.user},r=nonce".encode())


class _Login(asyncio.Protocol):
    """One connection that logs in; `over` says whether that was refused."""

    def __init__(self, guess: Guess) -> None:
        self._guess = guess
        self._received = b""
        self._answers = 0
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._guess.start())

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < size or self.over.done():
                return
            frame, self._received = self._received[8:size], self._received[size:]
            self._answers += 1
            self._on_answer(frame)

    def _on_answer(self, frame: bytes) -> None:
        """Take an answer without size and id: its code, and what follows that."""
        code = int.from_bytes(frame[:2], "big")
        if self._answers == 1 and not code:
            return  # the mechanism is offered
        is_challenge = self._answers == 2 and self._guess.mechanism != "PLAIN" and not code
        if is_challenge:  # a proof that is none, without the work that the right one takes
            nonce = frame[frame.index(b"r=") : frame.index(b",s=")]
            proof = base64.b64encode(os.urandom(64))
            self._transport.write(_token(b"c=biws," + nonce + b",p=" + proof))
        elif code == _LATER:
            self.over.set_exception(ConnectionResetError("too many of this address wait"))
        else:
            self.over.set_result(code == _FAILED and _REFUSAL in frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectionResetError("closed without an answer"))


def addresses(count: int) -> Iterator[str]:
    """Yield where each of so many logins comes from: loopback, but not 127.0.0.1."""
    for at in range(count):
        if at % _STUBBORN:
            number = at % _ADDRESSES
            yield f"127.{16 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        else:
            yield f"127.8.0.{1 + at // _STUBBORN % _STUBBORN_ADDRESSES}"


class _Storm:
    """All of them, some at a time."""

    def __init__(self, target: Target, count: int) -> None:
        self._target = target
        self._context: ssl.SSLContext = target.tls()
        self._ahead = enumerate(addresses(count))
        self.refused = self.closed = 0
        self.honest_s: list[float] = []
        self.most_mib = 0.0

    async def run(self) -> None:
        """Let them all fail. Raises AssertionError if one gets in, or hears something else."""
        beside = [asyncio.create_task(self._honest()), asyncio.create_task(self._watch())]
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(self._guess_on())
        finally:
            for task in beside:
                task.cancel()
            results = await asyncio.gather(*beside, return_exceptions=True)
        for result in results:
            if not isinstance(result, asyncio.CancelledError) and result is not None:
                raise result

    async def _guess_on(self) -> None:
        for number, address in self._ahead:
            try:
                is_refused = await self._try(self._guess(number, address))
            except (OSError, TimeoutError):  # too slow a machine for one of the broker's timeouts
                self.closed += 1
                continue
            assert is_refused, f"login {number} got in, or heard something else"
            self.refused += 1

    def _guess(self, number: int, address: str) -> Guess:
        settings = self._target.settings
        user = settings["sasl.username"] if number % 2 else f"nobody-{number}"
        # Both of an odd number and of an even one, so that known and unknown users do each of it.
        is_plain = number % _PLAIN_EVERY in (3, _PLAIN_EVERY // 2)
        mechanism = "PLAIN" if is_plain else settings["sasl.mechanism"]
        return Guess(mechanism, user, address, number % _TLS_EVERY in (7, _TLS_EVERY // 2 - 1))

    async def _try(self, guess: Guess) -> bool:
        """Return whether it was refused."""
        target, context = self._target, self._context if guess.is_tls else None
        port = target.port if context else target.plain_port
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_TIMEOUT_S):
            transport, made = await loop.create_connection(
                lambda: _Login(guess), "127.0.0.1", port, ssl=context,
                local_addr=(guess.address, 0),
            )  # fmt: skip
            try:
                return await made.over
            finally:
                transport.abort()

    async def _honest(self) -> None:
        while True:
            self.honest_s.append(await self._target.log_in())
            await asyncio.sleep(_HONEST_EVERY_S)

    async def _watch(self) -> None:
        while True:
            self.most_mib = max(self.most_mib, await _own_mib(self._target))
            await asyncio.sleep(_SAMPLE_EVERY_S)


async def failed_logins(target: Target, count: int = COUNT) -> str:
    """Let so many logins fail; nobody who knows the password is kept out."""
    before_mib = await _own_mib(target)
    refused = await target.gauge("quire_broker_logins_refused_total")
    lines = target.log_lines("login.refused")
    storm = _Storm(target, count)
    began_s = time.monotonic()
    await storm.run()
    took_s = time.monotonic() - began_s
    assert storm.refused > storm.closed, f"{storm.closed} of {count} had no answer"
    counted = await target.gauge("quire_broker_logins_refused_total") - refused
    assert storm.refused <= counted <= count, f"{storm.refused} and {counted:.0f}"
    await until(lambda: _has_few_connections(target), 60)
    await target.log_in()
    after_mib = await _own_mib(target)
    most_mib = max(storm.most_mib, after_mib)
    assert most_mib - before_mib < GROWN_MIB_MAX, f"{most_mib - before_mib:.0f} MiB more"
    honest_ms = sorted(1000 * each for each in storm.honest_s)
    return (
        f"{storm.refused:,} failed logins, {count / took_s:.0f}/s, {storm.closed} closed before;"
        f" the broker had {before_mib:.0f} MiB before, {most_mib:.0f} at most,"
        f" {after_mib:.0f} after; {target.log_lines('login.refused') - lines} log lines;"
        f" {len(honest_ms)} honest logins took p50 {percentile(honest_ms, 0.5):.0f},"
        f" p99 {percentile(honest_ms, 0.99):.0f} ms"
    )


async def _own_mib(target: Target) -> float:
    """Return what a broker has in memory without records: the honest producer's are cached."""
    return target.resident_mib() - await target.gauge("quire_broker_tail_cache_bytes") / (1 << 20)


async def _has_few_connections(target: Target) -> bool:
    return await target.gauge("quire_broker_connections") < _AT_ONCE // 2
