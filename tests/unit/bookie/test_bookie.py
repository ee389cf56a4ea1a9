"""A whole bookie on a memory store: start, serve, stop, start again, refuse, fail."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import DiskFailed, LogIncomplete
from bookie.index import Index
from client.errors import ConfigError
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import Request, Status
from tests.fakes.bookie_box import FixedClock, add, fence, read, settle
from tests.fakes.disk import CrashDisk
from tests.fakes.key_values import Contents, MemoryKeyValues
from tests.simulation.volume import Volume


class Client(asyncio.Protocol):
    """One connection to a bookie."""

    def __init__(self) -> None:
        self.wire = ClientConnection(2)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for on_response, response in self.wire.receive_data(data):
            on_response(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)

    async def call(self, request: Request) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.transport.writelines(self.wire.request(request, future.set_result).buffers)
        async with asyncio.timeout(5):
            return await future


class Machine:
    """A volume, an index and a metadata store that bookies are started on."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.cluster = MemoryCluster(session_timeout_s=0.2)
        self.volume = Volume(self.rng)
        self.index_store = Contents(self.rng)

    def _index(self, wipe: bool) -> Index:
        return Index(MemoryKeyValues(self.index_store, wipe=wipe))

    def make(self, **settings: Any) -> Bookie:
        settings = {"bookie_id": "b1", "host": "127.0.0.1", "port": 0, **settings}
        self.store = self.cluster.session()
        self.disk = CrashDisk(self.volume)
        return Bookie(
            BookieConfig(data_dir=Path("/data"), session_timeout_ms=1000, **settings),
            store=self.store,
            disk=self.disk,
            index_factory=self._index,
            clock=FixedClock(),
            rng=self.rng,
            loop=asyncio.get_running_loop(),
        )

    async def start(self, **settings: Any) -> Bookie:
        bookie = self.make(**settings)
        await init_bookkeeper(self.store, rng=self.rng)
        await bookie.start()
        return bookie


async def connect(bookie: Bookie) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", bookie.port)
    return client


async def test_serves_and_survives_a_graceful_restart() -> None:
    machine = Machine()
    bookie = await machine.start(admin_host="127.0.0.1", admin_port=0)
    assert bookie.is_ready
    assert bookie.admin_port
    assert await machine.store.children(paths.available("/ledgers")) == ["b1", "readonly"]
    client = await connect(bookie)
    assert (await client.call(add(7, 0))).status is Status.OK
    await bookie.stop()
    assert not bookie.is_ready
    await client.lost
    assert await machine.store.children(paths.available("/ledgers")) == ["readonly"]
    again = await machine.start()
    client = await connect(again)
    assert (await client.call(read(7, 0))).status is Status.OK
    assert again.metrics.gauges["is_registered"]() == 1
    assert again.metrics.gauges["is_read_only"]() == 0
    await again.stop()


async def test_the_default_name_is_the_address() -> None:
    machine = Machine()
    bookie = await machine.start(bookie_id=None)
    assert bookie.bookie_id == f"127.0.0.1:{bookie.port}"
    cookie = await machine.store.get(paths.cookie(bookie.bookie_id, "/ledgers"))
    assert bookie.bookie_id.encode() in cookie.data
    await bookie.stop()


async def test_an_empty_disk_under_an_old_id_does_not_start() -> None:
    machine = Machine()
    await (await machine.start()).stop()
    machine.volume.wipe()
    machine.index_store.wipe()
    with pytest.raises(ConfigError, match="known to the cluster"):
        await machine.start()


async def test_a_lost_log_does_not_start() -> None:
    machine = Machine()
    bookie = await machine.start()
    client = await connect(bookie)
    await client.call(add(7, 0))
    await bookie.stop()
    del machine.volume.files["log/0000000001.log"]
    with pytest.raises(LogIncomplete):
        await machine.start()
    await machine.make().stop()


async def test_a_damaged_bookie_registers_as_read_only() -> None:
    machine = Machine()
    bookie = await machine.start()
    client = await connect(bookie)
    await client.call(add(7, 0))
    await client.call(add(7, 1))
    await settle()
    machine.disk.kill()
    machine.index_store.wipe()
    machine.volume.files["log/0000000001.log"].cached[150] ^= 1
    machine.volume.files["log/0000000001.log"].durable[150] ^= 1
    machine.cluster.kill(machine.store)
    again = await machine.start()
    assert await machine.store.children(paths.readonly("/ledgers")) == ["b1"]
    client = await connect(again)
    assert (await client.call(read(7, 5))).status is Status.IO_ERROR
    assert (await client.call(fence(7, 5))).status is Status.IO_ERROR
    await again.stop()


async def test_a_failed_sync_is_told_to_whoever_runs_the_bookie() -> None:
    machine = Machine()
    bookie = await machine.start()
    client = await connect(bookie)
    machine.volume.fail_syncs = 1
    assert (await client.call(add(7, 0))).status is Status.IO_ERROR
    with pytest.raises(DiskFailed):
        await bookie.failed
    assert not bookie.is_ready
    await bookie.stop()
