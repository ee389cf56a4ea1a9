"""A whole bookie on a memory store: start, serve, stop, start again, refuse, fail."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from bookie.bookie import Bookie, Environment
from bookie.config import BookieConfig
from bookie.errors import DiskFailed, LogIncomplete
from bookie.storage.index.index import Index, IndexFactory
from bookie.storage.ledger_directory import Directory
from client.errors import ConfigError
from client.ids import LedgerId
from client.metadata import paths
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import Request, Status
from tests.fakes.bookie_box import FixedClock, add, fence, read, settle
from tests.fakes.disk import CrashDisk
from tests.fakes.key_values import Contents, MemoryKeyValues
from tests.simulation.machine.volume import Volume


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
    """Volumes, indexes and a metadata store that bookies are started on."""

    def __init__(self, disks: int = 1) -> None:
        self.rng = random.Random(1)
        self.cluster = MemoryCluster(session_timeout_s=0.2)
        self.volumes = [Volume(self.rng) for _ in range(disks)]
        self.volume = self.volumes[0]
        self.index_stores = [Contents(self.rng) for _ in range(disks)]
        self.index_store = self.index_stores[0]

    def make(self, **settings: Any) -> Bookie:
        settings = {"bookie_id": "b1", "host": "127.0.0.1", "port": 0, **settings}
        self.store = self.cluster.session()
        disks = [CrashDisk(volume) for volume in self.volumes]
        self.disk = disks[0]

        def opener(contents: Contents) -> IndexFactory:
            return lambda wipe: Index(MemoryKeyValues(contents, wipe=wipe))

        return Bookie(
            BookieConfig(data_dir=Path("/data"), session_timeout_ms=1000, **settings),
            Environment(
                store=self.store,
                directories=[
                    Directory(f"/data{n}", disk, opener(contents))
                    for n, (disk, contents) in enumerate(zip(disks, self.index_stores, strict=True))
                ],
                clock=FixedClock(),
                rng=self.rng,
                loop=asyncio.get_running_loop(),
            ),
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


async def registered(machine: Machine) -> tuple[list[str], list[str]]:
    writable = await machine.store.children(paths.available("/ledgers"))
    return [n for n in writable if n != "readonly"], await machine.store.children(
        paths.readonly("/ledgers")
    )


async def test_4640_read_only_on_a_full_disk_and_back_by_itself() -> None:
    machine = Machine()
    bookie = await machine.start(disk_check_interval_ms=10, free_bytes_min=1000)
    await machine.store.create(paths.ledger(LedgerId(7)), make_parents=True)
    client = await connect(bookie)
    assert (await client.call(add(7, 0))).status is Status.OK
    assert await registered(machine) == (["b1"], [])
    machine.volume.capacity_bytes = machine.volume.used_bytes + 500
    async with asyncio.timeout(5):
        while await registered(machine) != ([], ["b1"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert bookie.is_ready
    assert bookie.is_read_only
    assert (await client.call(add(7, 1))).status is Status.READ_ONLY
    assert (await client.call(read(7, 0))).status is Status.OK
    machine.volume.capacity_bytes = 1 << 40
    async with asyncio.timeout(5):
        while await registered(machine) != (["b1"], []):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await client.call(add(7, 1))).status is Status.OK
    await bookie.stop()


async def test_starts_read_only_on_a_full_disk() -> None:
    machine = Machine()
    machine.volume.capacity_bytes = 1_000_000
    bookie = await machine.start(free_bytes_min=2_000_000)
    assert await registered(machine) == ([], ["b1"])
    await bookie.stop()


async def test_several_directories_and_the_failure_of_one_then_of_all() -> None:
    machine = Machine(disks=2)
    bookie = await machine.start(disk_check_interval_ms=3_600_000)
    client = await connect(bookie)
    for ledger in range(4):
        assert (await client.call(add(ledger, 0))).status is Status.OK
    assert all(any("log/" in name for name in volume.files) for volume in machine.volumes)
    machine.volumes[1].fail_syncs = 1
    assert (await client.call(add(1, 1))).status is Status.IO_ERROR
    async with asyncio.timeout(5):
        while await registered(machine) != ([], ["b1"]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not bookie.failed.done()
    assert (await client.call(read(2, 0))).status is Status.OK
    machine.volumes[0].fail_syncs = 1
    assert (await client.call(add(2, 1, recovery=True))).status is Status.IO_ERROR
    with pytest.raises(DiskFailed):
        await bookie.failed
    await bookie.stop()
    again = await machine.start()
    client = await connect(again)
    for ledger in range(4):
        assert (await client.call(read(ledger, 0))).status is Status.OK
    await again.stop()


async def test_collects_garbage_while_it_serves() -> None:
    machine = Machine()
    bookie = await machine.start(gc_wait_ms=10)
    client = await connect(bookie)
    assert (await client.call(add(7, 0))).status is Status.OK
    async with asyncio.timeout(5):
        while (await client.call(read(7, 0))).status is not Status.NO_LEDGER:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await bookie.stop()
