"""Very many logins that fail, and honest ones among them.

    QUIRE_FAILED_LOGINS=500000 python -m tests.hostile.attacks failed

Half of them know a user's name, the others make one up; all do SCRAM's whole exchange over a TLS
connection of their own. They come from more addresses than a broker remembers the failures of, and
from a few again and again, whose answers wait ever longer.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Iterator
from typing import Final, cast

from client.wire.kafka.sasl_client import SaslExchange
from client.wire.kafka.sasl_login import LoginRefused, SaslLogin
from ops.bench.spread import percentile
from tests.hostile.attacks.target import Target, until

COUNT: Final = int(os.environ.get("QUIRE_FAILED_LOGINS", "500"))
GROWN_MIB_MAX: Final = 128
"""The most that a broker may grow by: connections under way, and ten thousand addresses."""
_AT_ONCE: Final = 60
_ADDRESSES: Final = 20_000
_STUBBORN: Final = 50
"""One of so many is from one of a few addresses."""
_STUBBORN_ADDRESSES: Final = 4
_HONEST_EVERY_S: Final = 0.5
_SAMPLE_EVERY_S: Final = 1.0
_TIMEOUT_S: Final = 120.0


class _Guess(SaslExchange):
    """A proof that is none, without the work that the right one takes."""

    def answer(self, token: bytes) -> bytes | None:
        nonce = dict(part.split("=", 1) for part in token.decode().split(","))["r"]
        return f"c=biws,r={nonce},p={base64.b64encode(os.urandom(64)).decode()}".encode()


class _Login(asyncio.Protocol):
    """One connection that logs in; `over` has the error, or None if it got in."""

    def __init__(self, login: SaslLogin) -> None:
        self._login = login
        self._received = b""
        self.over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._login.start())

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = 4 + int.from_bytes(self._received[:4], "big")
        if len(self._received) < max(size, 8) or self.over.done():
            return
        frame, self._received = memoryview(self._received)[4:size], self._received[size:]
        try:
            answer = self._login.on_answer(frame)
        except LoginRefused as error:
            self.over.set_result(str(error))
            return
        if answer is None:
            self.over.set_result(None)
        else:
            self._transport.write(answer)

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
        self._context = target.tls()
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
                error = await self._guess(number, address)
            except (OSError, TimeoutError):  # too slow a machine for one of the broker's timeouts
                self.closed += 1
                continue
            assert error is not None and "Authentication failed" in error, error
            self.refused += 1

    async def _guess(self, number: int, address: str) -> str | None:
        mechanism = self._target.settings["sasl.mechanism"]
        user = self._target.settings["sasl.username"] if number % 2 else f"nobody-{number}"
        login = SaslLogin(mechanism, _Guess(mechanism, user, "", f"nonce{number}"))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_TIMEOUT_S):
            transport, made = await loop.create_connection(
                lambda: _Login(login), "127.0.0.1", self._target.port, ssl=self._context,
                local_addr=(address, 0),
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
            self.most_mib = max(self.most_mib, self._target.resident_mib())
            await asyncio.sleep(_SAMPLE_EVERY_S)


async def failed_logins(target: Target, count: int = COUNT) -> str:
    """Let so many logins fail; nobody who knows the password is kept out."""
    before_mib = target.resident_mib()
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
    after_mib = target.resident_mib()
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


async def _has_few_connections(target: Target) -> bool:
    return await target.gauge("quire_broker_connections") < _AT_ONCE // 2
