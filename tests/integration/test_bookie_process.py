"""`python -m bookie` as a process: kill -9 under load, graceful stop, refusals to start."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.zookeeper import ZooKeeperStore
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import Request, Status
from ops.child import LEASH
from ops.ports import pick_free
from tests.fakes.bookie_box import add, fence, payload_of, read
from tests.integration.cluster import ROOT, RealZooKeeper, wait_until

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
        self.flags = [
            f"--data-dir={folder / 'data'}",
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
        command = [sys.executable, "-m", "bookie", *self.flags, *flags]
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


@pytest.fixture
async def store(zookeeper: RealZooKeeper) -> AsyncIterator[ZooKeeperStore]:
    store = ZooKeeperStore(zookeeper.hosts)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def bookie(
    tmp_path: Path, zookeeper: RealZooKeeper, store: ZooKeeperStore
) -> Iterator[BookieProcess]:
    bookie = BookieProcess(tmp_path, zookeeper.hosts, f"/bookie-{tmp_path.name}")
    yield bookie
    if bookie.process is not None and bookie.process.poll() is None:
        bookie.signal(signal.SIGKILL)


async def load(
    peer: Peer, first: int, acknowledged: dict[int, bytes], enough: asyncio.Event
) -> None:
    """Keep adds in flight until the connection is lost; note those that were acknowledged.

    `enough` is set after 2000 of them.
    """
    count = len(acknowledged)
    rng = random.Random(first)
    next_entry = first

    def send_next() -> None:
        nonlocal next_entry
        entry, payload = next_entry, rng.randbytes(rng.randrange(1, 3000))
        next_entry += 1
        peer.send(add(7, entry, payload, lac=entry - 1), lambda r: answered(entry, payload, r))

    def answered(entry: int, payload: bytes, response: Any) -> None:
        assert response.status is Status.OK
        acknowledged[entry] = payload
        if len(acknowledged) >= count + 2000:
            enough.set()
        send_next()

    for _ in range(IN_FLIGHT):
        send_next()
    await peer.lost.wait()


async def test_nothing_acknowledged_is_lost_by_kill_9(
    bookie: BookieProcess, store: ZooKeeperStore
) -> None:
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    acknowledged: dict[int, bytes] = {}
    for round_number in range(4):
        bookie.start()
        peer = await bookie.connect()
        if round_number == 3:
            break
        for entry, payload in acknowledged.items():
            found = await peer.call(read(7, entry))
            assert payload_of(7, found.entry) == payload
        assert (await peer.call(fence(100 + round_number))).status is Status.NO_ENTRY
        enough = asyncio.Event()
        first = round_number * 1_000_000
        loading = asyncio.create_task(load(peer, first, acknowledged, enough))
        await enough.wait()
        assert bookie.signal(signal.SIGKILL) != 0
        await loading
    for entry, payload in acknowledged.items():
        found = await peer.call(read(7, entry))
        assert found.status is Status.OK, entry
        assert payload_of(7, found.entry) == payload
    for ledger in range(100, 103):
        assert (await peer.call(add(ledger, 0))).status is Status.FENCED
    assert len(acknowledged) >= 6000
    assert "ERROR" not in bookie.log_path.read_text()


async def test_stops_gracefully(bookie: BookieProcess, store: ZooKeeperStore) -> None:
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    bookie.start()
    peer = await bookie.connect()
    assert (await peer.call(add(7, 0, b"kept"))).status is Status.OK
    await asyncio.to_thread(wait_until, bookie.is_ready, "the bookie to be registered")
    node = paths.available_bookie(f"127.0.0.1:{bookie.port}", bookie.root)  # type: ignore[arg-type]
    assert await store.exists(node) is not None
    assert await asyncio.to_thread(bookie.signal, signal.SIGTERM) == 0
    assert await store.exists(node) is None
    bookie.start()
    peer = await bookie.connect()
    assert payload_of(7, (await peer.call(read(7, 0))).entry) == b"kept"
    assert await asyncio.to_thread(bookie.signal, signal.SIGINT) == 0


async def test_refusals_to_start_say_why(bookie: BookieProcess, store: ZooKeeperStore) -> None:
    bookie.start()
    assert await bookie.exit_code() == 2
    assert "initialise it first" in bookie.log_path.read_text()
    await init_bookkeeper(store, rng=random.Random(1), root=bookie.root)
    bookie.start()
    peer = await bookie.connect()
    await peer.call(add(7, 0))

    second = BookieProcess(bookie.folder, "unused", bookie.root)
    second.flags = bookie.flags
    second.start("--port=0")
    assert await second.exit_code() == 2
    assert "in use by another bookie" in bookie.log_path.read_text()
    elsewhere = bookie.folder / "elsewhere"
    second.start(f"--data-dir={elsewhere}", "--bookie-id=other", "--admin-port=0")
    assert await second.exit_code() == 2
    assert "address already in use" in bookie.log_path.read_text()

    assert await asyncio.to_thread(bookie.signal, signal.SIGTERM) == 0
    next((bookie.folder / "data" / "log").iterdir()).unlink()
    bookie.start()
    assert await bookie.exit_code() == 2
    assert "is missing" in bookie.log_path.read_text()
    bookie.start("--no-such-flag")
    assert await bookie.exit_code() == 2
    assert "unknown flag" in bookie.log_path.read_text()
    assert "Traceback" not in bookie.log_path.read_text()
