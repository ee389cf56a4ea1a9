"""The ledger client on real bookies: loopback TCP, real disks, in-memory metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bookie.__main__ import open_directory
from bookie.bookie import Bookie, Environment
from bookie.config import BookieConfig
from client.errors import LedgerError, LedgerFenced
from client.ids import EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.under_replication import read_mark
from client.metadata.bookkeeper import init_bookkeeper
from client.metadata.memory import MemoryCluster, MemoryStore
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from tests.fakes.clock import FakeClock
from tests.fakes.ledger_cluster import Outcomes, until

pytestmark = pytest.mark.smoke


class Storage:
    """Real bookies in this process, sharing in-memory metadata."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metadata = MemoryCluster()
        self.running: dict[str, Bookie] = {}
        self.sessions: dict[str, MemoryStore] = {}
        self.clients: list[LedgerClient] = []

    async def start_bookie(self, name: str, rack: str | None = None) -> None:
        config = BookieConfig(
            data_dir=self.directory / name,
            host="127.0.0.1",
            port=0,
            bookie_id=name,
            rack=rack,
            free_bytes_min=0,
            disk_usage_threshold=1.0,
            reader_threads=1,
        )
        store = self.metadata.session()
        environment = Environment(
            store=store,
            directories=[open_directory(config, config.data_dir)],
            clock=FakeClock(),
            rng=random.Random(name),
            loop=asyncio.get_running_loop(),
        )
        bookie = Bookie(config, environment)
        await bookie.start()
        self.running[name] = bookie
        self.sessions[name] = store

    async def stop_bookie(self, name: str) -> None:
        await self.running.pop(name).stop()
        await self.sessions.pop(name).close()

    async def client(self, **settings: Any) -> LedgerClient:
        client = LedgerClient(
            self.metadata.session(),
            rng=random.Random(len(self.clients)),
            clock=FakeClock(),
            config=LedgerClientConfig(**settings),
        )
        await client.start()
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            await client.close()
        for name in list(self.running):
            await self.stop_bookie(name)


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    storage = Storage(tmp_path)
    await init_bookkeeper(storage.metadata.session(), rng=random.Random(0))
    for name in ("b0", "b1", "b2"):
        await storage.start_bookie(name)
    yield storage
    await storage.stop()


def payload_of(number: int) -> bytes:
    return b"%d " % number * (number % 50 + 1)


@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_a_ledgers_whole_life(storage: Storage, digest_type: DigestType) -> None:
    """Create, add, lose a bookie, be fenced, be recovered, be read, be deleted."""
    await storage.start_bookie("b3")
    first, second = await storage.client(), await storage.client()
    writer = await first.create(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        digest_type=digest_type,
        password=b"secret",
    )
    outcomes = Outcomes(writer)
    for number in range(1500):
        outcomes.add(payload_of(number))
    await until(lambda: len(outcomes.told) == 1500)
    lost = writer.metadata.last_fragment.ensemble[1]
    await storage.stop_bookie(lost)
    for number in range(1500, 3000):
        outcomes.add(payload_of(number))
    await until(lambda: len(outcomes.told) == 3000)
    assert outcomes.errors == []
    assert lost not in writer.metadata.last_fragment.ensemble
    reader = await second.recover(writer.ledger_id, password=b"secret")
    assert reader.last_entry == 2999
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")
    found = [bytes(entry.payload) async for entry in reader.entries()]
    assert found == [payload_of(number) for number in range(3000)]
    assert reader.length == sum(map(len, found))
    await second.delete(writer.ledger_id)
    assert [ledger_id async for ledger_id in second.ledgers()] == []


async def test_ten_thousand_adds_with_one_bookie_of_three_gone(storage: Storage) -> None:
    """Nobody can replace it: writes go on with two of three, and take it back when it returns."""
    client = await storage.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    outcomes = Outcomes(writer)
    for number in range(10_000):
        outcomes.add(payload_of(number))
        if number % 500 == 499:
            await until(lambda: writer.progress.in_flight_bytes < 100_000)
        if number == 4_999:
            await storage.stop_bookie("b1")
    await until(lambda: len(outcomes.told) == 10_000)
    assert outcomes.errors == []
    assert writer.suspended == ["b1"]
    await storage.start_bookie("b1")

    async def probe() -> None:
        while writer.suspended:
            await writer.append(b"probe")

    await asyncio.wait_for(probe(), 30)
    await writer.close()
    await until(lambda: writer.progress.is_settled)
    reader = await client.open(writer.ledger_id)
    found = [bytes(entry.payload) async for entry in reader.entries(last=EntryId(9_999))]
    assert found == [payload_of(number) for number in range(10_000)]
    await client.close()
    mark = await read_mark(storage.metadata.session(), writer.ledger_id)
    assert mark is not None
    assert mark.bookies == ("b1",), "what it missed is for auto recovery"


@pytest.mark.parametrize("wire_version", ["both", "v2", "v3"])
async def test_every_wire_version_does_it_all(storage: Storage, wire_version: str) -> None:
    """Write, follow while open, fence, recover and read."""
    first = await storage.client(wire_version=wire_version, long_poll_ms=200)
    second = await storage.client(wire_version=wire_version, long_poll_ms=200)
    writer = await first.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
    await writer.append(b"one")
    reader = await second.open(writer.ledger_id)
    waiting = asyncio.ensure_future(reader.wait(EntryId(0)))
    await writer.append(b"two")
    await writer.append(b"three")
    assert await asyncio.wait_for(waiting, 30) >= 1
    recovered = await second.recover(writer.ledger_id)
    found = [bytes(entry.payload) async for entry in recovered.entries()]
    assert found == [b"one", b"two", b"three"]
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")


async def test_a_tail_sees_every_entry_of_an_open_ledger(storage: Storage) -> None:
    """With an explicit LAC the last one before a pause is seen, too."""
    client = await storage.client(explicit_lac_interval_ms=50)
    writer = await client.create()
    reader = await (await storage.client()).open(writer.ledger_id)
    seen: list[bytes] = []

    async def follow() -> None:
        async for entry in reader.tail():
            seen.append(bytes(entry.payload))

    following = asyncio.ensure_future(follow())
    sent = [payload_of(number) for number in range(300)]
    for number, payload in enumerate(sent):
        await writer.submit(payload)
        if number % 100 == 99:
            await until(lambda wanted=number + 1: len(seen) == wanted)
    await writer.close()
    await asyncio.wait_for(following, 30)
    assert seen == sent


async def test_chosen_entry_ids_come_out_in_order(storage: Storage) -> None:
    client = await storage.client()
    writer = await client.create(ledger_id=LedgerId(4711))
    numbers = list(range(500))
    random.Random(3).shuffle(numbers)
    for number in numbers:
        await writer.submit(payload_of(number), entry_id=EntryId(number))
    await writer.flush()
    await writer.close()
    reader = await client.open(LedgerId(4711))
    found = [bytes(entry.payload) async for entry in reader.entries()]
    assert found == [payload_of(number) for number in range(500)]
    assert reader.length == sum(map(len, found))


async def test_copies_spread_over_the_racks_that_bookies_publish(storage: Storage) -> None:
    for name, rack in (("b3", "/east"), ("b4", "/east"), ("b5", "/west")):
        await storage.start_bookie(name, rack)
    racks = {"b0": "/north", "b1": "/north", "b2": "/north", "b5": "/west"}
    client = await storage.client(racks=("b0=/north", "b1=/north", "b2=/north"))
    for _ in range(5):
        writer = await client.create()
        used = {racks.get(b, "/east") for b in writer.metadata.last_fragment.ensemble}
        assert used == {"/north", "/east", "/west"}


async def test_everything_survives_a_restart_of_all_bookies(storage: Storage) -> None:
    client = await storage.client()
    writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=2)
    for number in range(100):
        await writer.append(payload_of(number))
    for name in ("b0", "b1", "b2"):
        await storage.stop_bookie(name)
    for name in ("b0", "b1", "b2"):
        await storage.start_bookie(name)
    reader = await (await storage.client()).recover(writer.ledger_id)
    found = [bytes(entry.payload) async for entry in reader.entries()]
    assert found == [payload_of(number) for number in range(100)]
    with pytest.raises(LedgerError):
        await writer.append(b"fenced before the connections came back")


async def test_16_v2_and_v3_clients_on_one_ledger(storage: Storage) -> None:
    """Scenario 16. Our writer speaks v2 and recovers in v3; a foreign client speaks v3 only."""
    client = await storage.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"from v2")
    codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"")
    foreign = [await V3Client.connect(storage.running[name].port) for name in ("b0", "b1", "b2")]
    for bookie in foreign:
        answer = await bookie.ask(ReadRequest(writer.ledger_id, EntryId(0)))
        assert isinstance(answer, ReadResponse)
        assert answer.entry is not None
        assert codec.open(answer.entry, EntryId(0)).payload == b"from v2"
    head, *rest = codec.seal(EntryId(1), EntryId(0), 14, [b"from v3"])
    add = AddRequest(writer.ledger_id, EntryId(1), master_key(b""), head, entry_rest=tuple(rest))
    for bookie in foreign[:2]:
        assert await bookie.ask(add) == AddResponse(Status.OK, writer.ledger_id, EntryId(1))
    writer.abandon()
    reader = await client.recover(writer.ledger_id)
    found = await reader.read(EntryId(0), EntryId(1))
    assert [bytes(entry.payload) for entry in found] == [b"from v2", b"from v3"]
    late = await foreign[2].ask(add._replace(entry_id=EntryId(1)))
    assert isinstance(late, AddResponse)
    assert late.status is Status.FENCED
    for bookie in foreign:
        bookie.close()


class V3Client(asyncio.Protocol):
    """A client that only speaks v3, one request at a time, as a Java one would by default."""

    def __init__(self) -> None:
        self._matcher = ClientConnection(3)
        self._transport: asyncio.WriteTransport

    @classmethod
    async def connect(cls, port: int) -> V3Client:
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(cls, "127.0.0.1", port)
        client._transport = transport
        return client

    async def ask(self, request: Request) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._transport.writelines(self._matcher.request(request, answer.set_result).buffers)
        return await answer

    def data_received(self, data: bytes) -> None:
        for on_response, response in self._matcher.receive_data(data):
            on_response(response)

    def close(self) -> None:
        self._transport.close()


async def test_ledger_ids_of_many_clients_differ(storage: Storage) -> None:
    clients = [await storage.client() for _ in range(4)]
    writers = await asyncio.gather(
        *(client.create(ensemble_size=3, write_quorum=3, ack_quorum=2) for client in clients * 5)
    )
    ids: list[LedgerId] = sorted(writer.ledger_id for writer in writers)
    assert len(set(ids)) == 20
    assert [ledger_id async for ledger_id in clients[0].ledgers()] == ids
