"""How long a bookie with much data takes to serve again, after kill -9 under load and a stop.

    python -m ops.bench.bookie_startup --folder DIR [--gigabytes 10] [--entry-bytes 4096]

Fills one bookie over the wire (a ZooKeeper server is started beside it), then kills and starts
it several times. A start ends with the first entry read back over a new connection; the Python
interpreter's own start is part of it. Everything stays in DIR, so `--starts-only` measures again
without filling. Figures go to stdout as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from client.ids import NO_ENTRY, EntryId, LedgerId
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import AddRequest, ReadRequest, Request, Status
from ops import zookeeper
from ops.child import Child
from ops.java import find_java
from ops.ports import pick_free

_HOST: Final = "127.0.0.1"
_IN_FLIGHT: Final = 2000
_ROUNDS: Final = 3
_LOAD_S: Final = 5.0
"""How long adds go on before each kill."""


class _Peer(asyncio.Protocol):
    """One connection to the bookie."""

    def __init__(self) -> None:
        self._wire = ClientConnection(2)
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for on_response, response in self._wire.receive_data(data):
            on_response(response)

    def close(self) -> None:
        self._transport.close()

    def send(self, request: Request, on_response: Callable[[Any], None]) -> None:
        """Send a request; `on_response` gets the answer."""
        self._transport.writelines(self._wire.request(request, on_response).buffers)


class _Filler:
    """Adds entries, round robin over the ledgers, a fixed number of them in flight."""

    def __init__(self, entry_bytes: int, ledger_count: int) -> None:
        self._payload = random.SystemRandom().randbytes(entry_bytes)
        self._codecs = [
            EntryCodec(LedgerId(number), DigestType.CRC32C, b"") for number in range(ledger_count)
        ]
        self._key = master_key(b"")
        self.sent = 0
        self.acknowledged = 0

    async def run(self, peer: _Peer, until: Callable[[], bool]) -> None:
        """Add until told to stop and all answers are there."""
        idle = asyncio.get_running_loop().create_future()
        in_flight = 0

        def on_answer(response: Any) -> None:
            nonlocal in_flight
            assert response.status is Status.OK, response
            self.acknowledged += 1
            in_flight -= 1
            if not until():
                send()
            elif not in_flight and not idle.done():
                idle.set_result(None)

        def send() -> None:
            nonlocal in_flight
            in_flight += 1
            entry, number = divmod(self.sent, len(self._codecs))
            self.sent += 1
            codec = self._codecs[number]
            first, *rest = codec.seal(EntryId(entry), NO_ENTRY, 0, [self._payload])
            request = AddRequest(codec.ledger_id, EntryId(entry), self._key, first)
            peer.send(request._replace(entry_rest=tuple(rest)), on_answer)

        for _ in range(_IN_FLIGHT):
            send()
        await idle


class _Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder: Path = options.folder
        self._port, self._zookeeper_port = pick_free(2)
        self._zookeeper = zookeeper.make_server(
            find_java(),
            folder=self._folder / "zookeeper",
            log_path=self._folder / "zookeeper.log",
            port=self._zookeeper_port,
        )
        self._bookie = Child(
            "bookie",
            [
                *(sys.executable, "-m", "bookie", f"--data-dir={self._folder / 'data'}"),
                *(f"--host={_HOST}", f"--port={self._port}", "--bookie-id=bench"),
                *(f"--zookeeper={_HOST}:{self._zookeeper_port}", "--session-timeout-ms=2000"),
                *("--gc-wait-ms=86400000", "--disk-usage-threshold=0.999", *options.flag),
            ],
            log_path=self._folder / "bookie.log",
        )
        self._filler = _Filler(options.entry_bytes, options.ledgers)

    async def run(self) -> dict[str, Any]:
        """Fill, kill, start; return the figures."""
        await self._zookeeper.start()
        while not await zookeeper.answers(_HOST, self._zookeeper_port):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        store = ZooKeeperStore(f"{_HOST}:{self._zookeeper_port}")
        await store.start()
        await init_bookkeeper(store, rng=random.SystemRandom())
        await store.close()
        figures: dict[str, Any] = {}
        try:
            _, peer = await self._start()
            if not self._options.starts_only:
                figures["fill_s"] = await self._fill(peer)
            figures["data_gigabytes"] = round(self._data_bytes() / 1e9, 2)
            figures["entries"] = self._filler.acknowledged
            figures["after_kill_9_under_load_s"] = [
                await self._restart(peer_of, signal.SIGKILL)
                for peer_of in [peer, *[None] * (_ROUNDS - 1)]
            ]
            figures["after_stop_s"] = [
                await self._restart(None, signal.SIGTERM) for _ in range(_ROUNDS)
            ]
        finally:
            await self._bookie.stop(30)
            await self._zookeeper.stop(10)
        return figures

    async def _fill(self, peer: _Peer) -> float:
        wanted = int(self._options.gigabytes * 1e9 / self._options.entry_bytes)
        began_s = time.monotonic()
        await self._filler.run(peer, lambda: self._filler.sent >= wanted)
        return round(time.monotonic() - began_s, 1)

    async def _restart(self, peer: _Peer | None, signal_number: int) -> float:
        """Add for a while, end the process, start it; return how long the start took."""
        peer = peer or await self._connect()
        if signal_number == signal.SIGKILL:
            stop_s = time.monotonic() + _LOAD_S
            loading = asyncio.create_task(self._filler.run(peer, lambda: False))
            await asyncio.sleep(stop_s - time.monotonic())
            loading.cancel()
        self._bookie.send(signal_number)
        await self._bookie.wait()
        took_s, peer = await self._start()
        peer.close()
        click.echo(f"{signal.Signals(signal_number).name}: {took_s:.2f} s", err=True)
        return round(took_s, 2)

    async def _start(self) -> tuple[float, _Peer]:
        """Start the bookie; return after the first answer to a read."""
        began_s = time.monotonic()
        await self._bookie.start()
        peer = await self._connect()
        answered = asyncio.get_running_loop().create_future()
        peer.send(ReadRequest(LedgerId(0), EntryId(0)), answered.set_result)
        await answered
        return time.monotonic() - began_s, peer

    async def _connect(self) -> _Peer:
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, peer = await loop.create_connection(_Peer, _HOST, self._port)
            except OSError:
                if not self._bookie.running:
                    raise SystemExit("\n".join(self._bookie.last_lines())) from None
                await asyncio.sleep(0.01)
            else:
                return peer

    def _data_bytes(self) -> int:
        data = self._folder / "data"
        return sum(file.stat().st_blocks * 512 for file in data.rglob("*") if file.is_file())


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.bookie_startup")
    parser.add_argument("--folder", type=Path, required=True, help="where everything goes")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="how much data")
    parser.add_argument("--entry-bytes", type=int, default=4096, help="payload of an entry")
    parser.add_argument("--ledgers", type=int, default=1000, help="how many ledgers")
    parser.add_argument("--starts-only", action="store_true", help="the folder is filled already")
    parser.add_argument("--flag", action="append", default=[], help="further flag of the bookie")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    figures = asyncio.run(_Bench(options).run())
    settings = {"entry_bytes": options.entry_bytes, "ledgers": options.ledgers}
    click.echo(json.dumps({**settings, "cpus": os.cpu_count(), **figures}))


if __name__ == "__main__":
    main()
