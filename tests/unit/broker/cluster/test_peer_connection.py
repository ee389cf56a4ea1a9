"""Asking a peer for a sign of life: one question at a time, shared by who asks meanwhile."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import cast

import pytest

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peer_connection import PeerConnection, connect
from client.ids import BrokerId
from tests.fakes.broker import FakeCloud

ANSWER = struct.pack(">iih", 6, 0x51554952, 0)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def connection() -> AsyncIterator[PeerConnection]:
    made = PeerConnection()
    made.connection_made(Wire())
    yield made
    made.connection_lost(None)


def wire_of(connection: PeerConnection) -> Wire:
    return cast(Wire, connection._transport)


async def test_a_live_broker_answers() -> None:
    cloud = FakeCloud()
    broker = await cloud.start_broker(1)
    info = BrokerInfo(
        id=BrokerId(1), incarnation="i", host="127.0.0.1", port=broker.port, advertised=False
    )
    connection = await connect(info)
    for _ in range(3):
        await asyncio.wait_for(connection.ask(), 5)
    assert not connection.lost.done()
    connection.close()
    await connection.lost
    await cloud.close()


async def test_who_asks_meanwhile_shares_the_next_question(connection: PeerConnection) -> None:
    first, second, third = connection.ask(), connection.ask(), connection.ask()
    assert second is third is not first
    assert len(wire_of(connection).written) == 1
    connection.data_received(ANSWER)
    assert first.done() and not second.done(), "that answer may be older than the question"
    assert len(wire_of(connection).written) == 2
    connection.data_received(ANSWER)
    assert second.done()
    assert len(wire_of(connection).written) == 2
    assert connection.ask() is not second


async def test_an_answer_may_come_in_pieces(connection: PeerConnection) -> None:
    asked = connection.ask()
    for byte in ANSWER:
        assert not asked.done()
        connection.data_received(bytes([byte]))
    assert asked.done()


async def test_a_loss_is_an_answer_to_everybody(connection: PeerConnection) -> None:
    futures = [connection.ask(), connection.ask(), connection.lost]
    connection.connection_lost(None)
    assert all(future.done() for future in futures)
    assert connection.ask().done()


@pytest.mark.parametrize("length", [-1, 1 << 20])
async def test_nonsense_closes_the_connection(connection: PeerConnection, length: int) -> None:
    connection.ask()
    connection.data_received(struct.pack(">i", length))
    assert wire_of(connection).closed


async def test_an_answer_to_nothing_closes_the_connection(connection: PeerConnection) -> None:
    connection.data_received(ANSWER)
    assert wire_of(connection).closed
