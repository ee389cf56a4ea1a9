"""Scenarios 15 and 16: a bookie's id across sessions, and both wire versions on one ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from client.ids import EntryId, LedgerId
from client.metadata import paths
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import (
    AddRequest,
    ReadLacRequest,
    ReadRequest,
    Request,
    Status,
)
from tests.fakes.bookie_box import KEY, add, envelope, fence, payload_of, read, settle
from tests.unit.bookie.test_bookie import Machine


async def test_a_restart_within_the_session_timeout_waits_for_its_own_node() -> None:
    """15: after kill -9 the node of the old session stands; the new process serves at once,
    keeps the node it did not make, and takes its place when it expires."""
    machine = Machine()
    await machine.start()
    old_session = machine.store.session_id
    machine.disk.kill()
    machine.cluster.kill(machine.store)
    second = machine.make()
    starting = asyncio.create_task(second.start())
    await settle(200)
    node = paths.available_bookie(second.bookie_id, "/ledgers")
    assert await owner(machine, node) == old_session
    assert not second.is_ready
    _, peer = await asyncio.get_running_loop().create_connection(
        lambda: Peer(2), "127.0.0.1", second.port
    )
    assert (await peer.call(add(7, 0))).status is Status.OK
    async with asyncio.timeout(5):
        await starting
    assert await owner(machine, node) == machine.store.session_id
    assert second.is_ready
    await second.stop()


async def owner(machine: Machine, node: str) -> int | None:
    found = await machine.store.exists(node)
    return None if found is None else found.ephemeral_owner


class Peer(asyncio.Protocol):
    """A client that speaks one wire version."""

    def __init__(self, version: Literal[2, 3]) -> None:
        self.wire = ClientConnection(version)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for on_response, response in self.wire.receive_data(data):
            on_response(response)

    async def call(self, request: Request) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.transport.writelines(self.wire.request(request, future.set_result).buffers)
        async with asyncio.timeout(5):
            return await future


@pytest.fixture
async def peers() -> AsyncIterator[tuple[Peer, Peer]]:
    machine = Machine()
    bookie = await machine.start()
    loop = asyncio.get_running_loop()
    found = []
    for version in (2, 3):
        _, peer = await loop.create_connection(
            lambda version=version: Peer(version), "127.0.0.1", bookie.port
        )
        found.append(peer)
    yield found[0], found[1]
    await bookie.stop()


async def test_both_versions_see_one_ledger(peers: tuple[Peer, Peer]) -> None:
    two, three = peers
    for n in range(10):
        writer = (two, three)[n % 2]
        assert (await writer.call(add(7, n, b"%d" % n, lac=n - 1))).status is Status.OK
    for reader in peers:
        for n in range(10):
            found = await reader.call(read(7, n))
            assert (found.status, found.entry_id) == (Status.OK, n)
            assert payload_of(7, found.entry) == b"%d" % n
        last = await reader.call(read(7, -1))
        assert (last.entry_id, payload_of(7, last.entry)) == (-1, b"9")
    assert (await two.call(read(7, 3))).max_lac is None
    assert (await three.call(read(7, 3))).max_lac == 8
    lac = await three.call(ReadLacRequest(LedgerId(7)))
    assert payload_of(7, lac.last_entry) == b"9"


@pytest.mark.parametrize("fencing", [0, 1])
async def test_a_fence_in_one_version_binds_the_other(peers, fencing: int) -> None:
    writer, recoverer = peers[1 - fencing], peers[fencing]
    assert (await writer.call(add(7, 0))).status is Status.OK
    assert (await recoverer.call(fence(7, 0))).status is Status.OK
    assert (await writer.call(add(7, 1))).status is Status.FENCED
    assert (await recoverer.call(add(7, 1, recovery=True))).status is Status.OK
    assert (await recoverer.call(fence(7, 2))).status is Status.NO_ENTRY
    assert (await recoverer.call(fence(8))).status is Status.NO_ENTRY
    assert (await writer.call(add(8, 0))).status is Status.FENCED


@pytest.mark.parametrize("version", [0, 1])
async def test_refusals_in_both_versions(peers, version: int) -> None:
    peer = peers[version]
    await peer.call(add(7, 0))
    assert (await peer.call(read(7, 1))).status is Status.NO_ENTRY
    assert (await peer.call(read(8, 1))).status is Status.NO_LEDGER
    wrong = AddRequest(LedgerId(7), EntryId(1), bytes(20), envelope(7, 1))
    assert (await peer.call(wrong)).status is Status.UNAUTHORIZED
    fencing = ReadRequest(LedgerId(7), EntryId(0), fence=True, master_key=bytes(20))
    assert (await peer.call(fencing)).status is Status.UNAUTHORIZED
    assert (await peer.call(add(7, 1)._replace(master_key=KEY))).status is Status.OK
