"""One bookie as a process, without a cluster around it, and a client that keeps adds in flight."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import Request, Status
from ops.child import LEASH
from ops.ports import pick_free
from tests.fakes.bookie_box import add, payload_of, read
from tests.integration.cluster import ROOT

LEDGER = 7
IN_FLIGHT = 200


class Peer(asyncio.Protocol):
    """A client connection to the bookie."""

    def __init__(self) -> None:
        self.wire = ClientConnection(2)
        self.lost = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for on_response, response in self.wire.receive_data(data):
            on_response(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()

    def send(self, request: Request, on_response: Any) -> None:
        self.transport.writelines(self.wire.request(request, on_response).buffers)

    async def call(self, request: Request) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(request, future.set_result)
        async with asyncio.timeout(20):
            return await future


class BookieProcess:
    """One bookie's data directory and the process that serves it."""

    def __init__(self, folder: Path, zookeeper: str, root: str) -> None:
        self.folder = folder
        self.port, self.admin_port = pick_free(2)
        self.root = root
        self.data = folder / "data"
        self.flags = [
            "--host=127.0.0.1",
            f"--port={self.port}",
            f"--admin-port={self.admin_port}",
            f"--zookeeper={zookeeper}",
            f"--ledgers-root={root}",
            "--session-timeout-ms=2000",
            "--free-bytes-min=0",
            "--checkpoint-bytes=100000",
        ]
        self.log_path = folder / "bookie.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        where = f"--data-dir={self.data}"
        command = [sys.executable, "-m", "bookie", where, *self.flags, *flags]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def signal(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    async def connect(self) -> Peer:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while True:
                try:
                    _, peer = await loop.create_connection(Peer, "127.0.0.1", self.port)
                    return peer
                except OSError:
                    assert self.process is not None
                    assert self.process.poll() is None, self.log_path.read_text()
                    await asyncio.sleep(0.05)

    def is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self.admin_port}/api/v1/bookie/is_ready"
        try:
            return urllib.request.urlopen(url, timeout=5).status == 200
        except urllib.error.HTTPError:
            return False

    async def exit_code(self) -> int:
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, 30)


class Load:
    """Adds to one ledger, always some of them in flight; remembers what was acknowledged.

    Payloads are made of the entry id, so nobody has to keep them. A refused add is sent again
    after a while, as a client with patience would.
    """

    def __init__(self, *, may_fail: bool = False) -> None:
        self.acknowledged: list[int] = []
        self.refused = 0
        self._may_fail = may_fail
        self._next = 0
        self._wanted = 0
        self._enough = asyncio.Event()

    def run(self, peer: Peer) -> None:
        """Begin on a new connection; ends with it."""
        for _ in range(IN_FLIGHT):
            self._send(peer, self._take())

    async def more(self, count: int) -> None:
        """Wait for so many further acknowledgements."""
        self._wanted = len(self.acknowledged) + count
        self._enough.clear()
        async with asyncio.timeout(60):
            await self._enough.wait()

    async def check(self, peer: Peer, entries: list[int] | None = None) -> None:
        """Read back what was acknowledged, or some of it."""
        for entry in self.acknowledged if entries is None else entries:
            found = await peer.call(read(LEDGER, entry))
            assert found.status is Status.OK, (entry, found.status)
            assert payload_of(LEDGER, found.entry) == payload(entry), entry

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    def _send(self, peer: Peer, entry: int) -> None:
        if not peer.lost.is_set():
            request = add(LEDGER, entry, payload(entry), lac=max(-1, entry - IN_FLIGHT))
            peer.send(request, lambda response: self._answered(peer, entry, response))

    def _answered(self, peer: Peer, entry: int, response: Any) -> None:
        if response.status is not Status.OK:
            assert self._may_fail, response
            assert response.status in (Status.IO_ERROR, Status.READ_ONLY), response
            self.refused += 1
            asyncio.get_running_loop().call_later(0.05, self._send, peer, entry)
            return
        self.acknowledged.append(entry)
        if len(self.acknowledged) >= self._wanted:
            self._enough.set()
        self._send(peer, self._take())


def payload(entry: int) -> bytes:
    """Return what `Load` writes."""
    rng = random.Random(entry)
    return rng.randbytes(rng.randrange(1, 3000))
