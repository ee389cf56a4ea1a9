"""Fuzzes a secured cluster over its sockets: TLS handshakes, and what follows them.

    python -m tests.fuzz.sockets [--seconds 60] [--seed N]

A real broker and a real bookie get handshakes of which one flight is mutated, SASL frames that are
mutated under good TLS, mutated TLS records, and any of it cut off or left hanging. Nobody guides
the mutations. What must come of all that: the processes live, no handler fails, nobody who does not
know the password gets in, honest logins work all the time, and when it is over nothing is left of
it: neither handshakes nor connections nor memory.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import ssl
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from client.wire.bookkeeper import v3
from client.wire.bookkeeper.messages import StartTlsRequest
from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.fuzz.judge import Misbehaved
from tests.fuzz.login_targets import SASL_TOKENS
from tests.fuzz.mutate import mutate
from tests.hostile.attacks.target import Target, until
from tests.integration.cluster import LocalCluster

NODES: Final = ("broker-0", "bookie-0")
GROWN_MIB_MAX: Final = 256
_AT_ONCE: Final = 60
_ROUND: Final = 300
"""Connections between two looks at the nodes."""
_PATIENCE_S: Final = 0.1
_HONEST_S_MAX: Final = 60.0
_GONE_S_MAX: Final = 60.0
_FLIGHTS: Final = 3
_FRAMES_MAX: Final = 4
_RECORDS_MAX: Final = 8
_TROUBLE: Final = re.compile(
    r"^.*(?:connection\.broken|Traceback|task\.failed)(?:.*\n){,20}", re.MULTILINE
)
"""In a node's log: a handler has failed."""


class Fuzzer:
    """All connections of one run. Connection N of a seed always says the same."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._seed = seed
        self._client = ssl.create_default_context(cafile=target.settings["ssl.ca.location"])
        self._frames = _frames()
        self.count = 0
        self.ends: Counter[str] = Counter()
        self.honest_s = 0.0
        """The longest honest login."""

    async def round(self, count: int = _ROUND) -> None:
        """Make so many connections, some at a time, then look at the nodes. Raises Misbehaved."""
        first = self.count
        ahead = iter(range(first, first + count))

        async def some() -> None:
            for number in ahead:
                self.ends[await self._one(random.Random(f"{self._seed} {number}"))] += 1

        honest = asyncio.create_task(self._honest())
        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))
        await honest
        self.count += count
        for node in NODES:
            if found := _TROUBLE.search(self._target.cluster.node_log(node)):
                raise Misbehaved(
                    f"{node}, connections {first} to {self.count} of seed {self._seed}: its log has"
                    f" {found[0][:2000]}"
                )

    async def _honest(self) -> None:
        self.honest_s = max(self.honest_s, await self._target.log_in(_HONEST_S_MAX))

    async def _one(self, rng: random.Random) -> str:
        """Make one connection; return how it ended."""
        is_bookie = rng.random() < 0.3
        port = self._target.bookie_port if is_bookie else self._target.port
        address = f"127.{rng.randrange(16, 32)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0)
            )
        except OSError:
            return "refused"
        peer = _Peer(reader, writer, self._client, rng)
        try:
            if is_bookie:
                await peer.start_tls()
            if not await peer.shake_hands(rng.randrange(_FLIGHTS + 2)):
                return "closed in the handshake"
            await peer.say(self._frames)
            return "answered" if await peer.hear() else "closed or silent"
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError):
            return "closed"
        finally:
            if rng.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()


class _Peer:
    """A client whose TLS is the standard library's, and whose bytes pass through our hands."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        rng: random.Random,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._rng = rng
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def start_tls(self) -> None:
        """Ask a bookie for TLS, mostly in the right words."""
        asked = b"".join(v3.encode_request(StartTlsRequest(), 1))
        self._writer.write(mutate([asked], self._rng) if self._rng.random() < 0.1 else asked)
        async with asyncio.timeout(_PATIENCE_S * 10):
            (size,) = struct.unpack(">I", await self._reader.readexactly(4))
            await self._reader.readexactly(min(size, 1 << 16))

    async def shake_hands(self, wrong: int) -> bool:
        """Shake hands; flight `wrong` is mutated, if there is one of that number."""
        for flight in range(_FLIGHTS):
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            self._send(is_wrong=flight == wrong)
            if is_done:
                return True
            if not await self.hear():
                return False
        return False

    async def say(self, frames: list[bytes]) -> None:
        """Send frames, some of them mutated, in records, one of which may be mutated too."""
        chosen = b"".join(self._rng.choices(frames, k=self._rng.randint(1, _FRAMES_MAX)))
        if self._rng.random() < 0.8:
            chosen = mutate([chosen], self._rng)
        wrong = self._rng.randrange(2 * _RECORDS_MAX)
        size = max(1, len(chosen) // self._rng.randint(1, _RECORDS_MAX))
        for number, at in enumerate(range(0, len(chosen), size)):
            self._tls.write(chosen[at : at + size])
            self._send(is_wrong=number == wrong)
        await self._writer.drain()

    def _send(self, *, is_wrong: bool) -> None:
        data = self._outgoing.read()
        if data:
            self._writer.write(mutate([data], self._rng) if is_wrong else data)

    async def hear(self) -> bool:
        """Take what comes next; return false if nothing came in time, or the end."""
        try:
            async with asyncio.timeout(_PATIENCE_S * (5 if self._rng.random() < 0.1 else 1)):
                data = await self._reader.read(1 << 16)
        except TimeoutError:
            return False
        self._incoming.write(data)
        return bool(data)


def _frames() -> list[bytes]:
    """Return what clients say before they have logged in, and what they may not say then."""
    client = WireClient(None, None)  # type: ignore[arg-type]  # it only makes frames
    names = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "none of these")
    return [
        *(client.frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": name}) for name in names),
        *(client.frame(ApiKey.SASL_AUTHENTICATE, v, {"auth_bytes": token})
          for token in SASL_TOKENS for v in (1, 2)),
        client.frame(ApiKey.API_VERSIONS, 3, {"client_software_name": "f"}),
        client.frame(ApiKey.METADATA, 4, {"topics": None, "allow_auto_topic_creation": True}),
    ]  # fmt: skip


async def fuzz(target: Target, seed: int, goes_on: Callable[[Fuzzer], bool]) -> str:
    """Make rounds as long as `goes_on` says; return what to tell. Raises Misbehaved."""
    pids = target.cluster.pids()
    logins = await target.gauge("quire_broker_logins_total")
    before_mib = {node: target.resident_mib(node) for node in NODES}
    fuzzer, rounds = Fuzzer(target, seed), 0
    target.tried = target.logged_in = 0
    try:
        while goes_on(fuzzer):
            await fuzzer.round()
            rounds += 1
    except TimeoutError as error:
        raise Misbehaved(f"an honest login took over {_HONEST_S_MAX:g} s: {error!r}") from error
    if target.cluster.pids() != pids:
        raise Misbehaved(f"a node ended, within {fuzzer.count} connections of seed {seed}")
    accepted = await target.gauge("quire_broker_logins_total") - logins
    if not target.logged_in <= accepted <= target.tried:
        raise Misbehaved(f"{accepted:.0f} logins, {target.tried} of them honest, seed {seed}")

    async def is_over() -> bool:
        handshakes = await target.gauge("quire_broker_tls_handshakes")
        return not handshakes and await target.gauge("quire_broker_connections") < _AT_ONCE // 2

    try:
        await until(is_over, _GONE_S_MAX)
    except TimeoutError as error:
        raise Misbehaved("handshakes or connections are left") from error
    grown = {node: target.resident_mib(node) - before_mib[node] for node in NODES}
    if max(grown.values()) > GROWN_MIB_MAX:
        raise Misbehaved(f"memory, MiB: {grown}")
    ends = ", ".join(f"{count:,} {end}" for end, count in fuzzer.ends.most_common())
    sizes = ", ".join(f"{node} {mib:+.0f} MiB" for node, mib in grown.items())
    return (
        f"{fuzzer.count:,} connections of seed {seed}: {ends}; {sizes}; the longest of {rounds}"
        f" honest logins took {fuzzer.honest_s * 1000:.0f} ms"
    )


def run(seconds: float, seed: int) -> str:
    """Fuzz a cluster of one's own for so long; return what to tell. Raises Misbehaved."""
    with tempfile.TemporaryDirectory(prefix="quire-fuzz-") as name:
        cluster = LocalCluster(Path(name), brokers=1, flags=("--secure",))
        with cluster:
            end_s = time.monotonic() + seconds
            return asyncio.run(fuzz(Target(cluster), seed, lambda _: time.monotonic() < end_s))


def main() -> int:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sockets")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # of connections that are closed
    try:
        print(run(options.seconds, options.seed), flush=True)
    except Misbehaved as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
