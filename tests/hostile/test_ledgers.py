"""Strangers at a bookie: without the ledger's key, and with ids that make no sense."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import time
from typing import Any

import pytest

from client.ids import EntryId, LedgerId
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key
from client.wire.bookkeeper.messages import (
    AddRequest,
    BatchReadRequest,
    Buffer,
    ForceLedgerRequest,
    ReadRequest,
    Status,
    WriteLacRequest,
)
from tests.fakes.bookie_box import BookieBox, add, envelope, fence, payload_of, read, settle
from tests.hostile.fronts import Front, front

WRONG = master_key(b"not the password")
LAC = EntryCodec(LedgerId(7), DigestType.CRC32C, b"").seal_lac(EntryId(0))


async def owned() -> BookieBox:
    """Ledger 7, with one entry."""
    box = BookieBox()
    assert await box.status(add(7, 0)) is Status.OK
    return box


STRANGERS = {
    "an add": add(7, 1, key=WRONG),
    "a recovery add": add(7, 1, key=WRONG, recovery=True),
    "an urgent add": add(7, 1, key=WRONG, high_priority=True),
    "a deferred add": add(7, 1, key=WRONG, deferred_sync=True),
    "a fence": fence(7, key=WRONG),
    "a fence without key": fence(7, key=None),
    "a fencing batch read": BatchReadRequest(LedgerId(7), EntryId(0), 1, 1, 1000, True, WRONG),
    "a LAC": WriteLacRequest(LedgerId(7), EntryId(0), WRONG, LAC),
}


@pytest.mark.parametrize("name", STRANGERS)
async def test_the_wrong_key_changes_nothing(name: str) -> None:
    box = await owned()
    assert await box.status(STRANGERS[name]) is Status.UNAUTHORIZED
    await settle()
    assert await box.status(read(7, 1)) is Status.NO_ENTRY
    assert await box.status(add(7, 1)) is Status.OK
    box.restart()
    assert await box.status(add(7, 2, key=WRONG)) is Status.UNAUTHORIZED
    assert await box.status(add(7, 2)) is Status.OK


def as_entry(ledger: int, entry: int, of_ledger: int, of_entry: int) -> AddRequest:
    """An add whose envelope says another place."""
    body = memoryview(envelope(of_ledger, of_entry))
    return AddRequest(LedgerId(ledger), EntryId(entry), add(7, 0).master_key, body)


NONSENSE = {
    "a negative ledger": as_entry(-1, 0, -1, 0),
    "the most negative ledger": as_entry(-(2**63), 0, -(2**63), 0),
    "a negative entry": as_entry(7, -2, 7, -2),
    "the last entry": as_entry(7, -1, 7, -1),
    "another ledger's envelope": as_entry(7, 1, 8, 1),
    "another entry's envelope": as_entry(7, 1, 7, 2),
    "no envelope": AddRequest(LedgerId(7), EntryId(1), add(7, 0).master_key, memoryview(b"x" * 9)),
    "no key": add(7, 1, key=b""),
    "a long key": add(7, 1, key=b"k" * 300),
    "a fence of a negative ledger": fence(-5),
}


@pytest.mark.parametrize("name", NONSENSE)
async def test_ids_that_make_no_sense_are_refused(name: str) -> None:
    box = await owned()
    status = await box.status(NONSENSE[name])
    assert status in (Status.BAD_REQUEST, Status.UNAUTHORIZED)
    await settle()
    for entry in (-2, 1, 2):
        assert await box.status(read(7, entry)) is not Status.OK
    assert await box.status(read(8, 1)) is Status.NO_LEDGER
    assert payload_of(7, (await box.call(read(7, 0))).entry) == b"payload"


@pytest.mark.parametrize("entry", [5, 10**6, 2**62, 2**63 - 1])
async def test_gaps_cost_nothing(entry: int) -> None:
    """A stranger's own ledger may have any ids; nobody counts from one to the next."""
    box = await owned()
    began_s = time.process_time()
    assert await box.status(add(9, 0, key=WRONG)) is Status.OK
    assert await box.status(add(9, entry, key=WRONG)) is Status.OK
    for reading in (read(9, entry), read(9, -1)):
        assert await box.status(reading) is Status.OK
    batch = BatchReadRequest(LedgerId(9), EntryId(0), 1, 2**31 - 1, 2**31 - 1)
    assert await box.status(batch) is Status.OK
    assert await box.status(ForceLedgerRequest(LedgerId(9))) is Status.OK
    box.restart()
    assert await box.status(read(9, entry)) is Status.OK
    assert time.process_time() - began_s < 3.0


def v2_header(opcode: int, version: int = 2, flags: int = 0) -> bytes:
    return struct.pack(">I", version << 24 | opcode << 16 | flags)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


V3_HEADER = field(1, b"\x08\x03\x10\x02\x18\x01")
FRAMES = {
    "v2 unknown opcode": v2_header(99) + bytes(40),
    "v2 cut off add": v2_header(1) + bytes(10),
    "v2 cut off read": v2_header(2) + bytes(5),
    "v2 auth that is no message": v2_header(3) + b"\xff" * 20,
    "v3 length beyond the frame": b"\x0a\xff\xff\xff\xff\x0f" + bytes(10),
    "v3 varint without end": b"\x0a" + b"\xff" * 30,
    "v3 string beyond the frame": V3_HEADER + varint(101 << 3 | 2) + varint(2**31 - 1) + b"x",
    "v3 without header": field(101, b""),
    "v3 header that lacks fields": field(1, b""),
    "v3 nested groups": V3_HEADER + b"\xa3\x06" * 5000,
    "v3 negative length": b"\x0a" + b"\xff" * 9 + b"\x01",
}


@pytest.mark.parametrize("name", FRAMES)
async def test_a_frame_that_is_none_closes_the_connection(name: str) -> None:
    async with front("bookie") as server:
        stranger = await server.connect()
        frame = FRAMES[name]
        stranger.send(len(frame).to_bytes(4, "big") + frame)
        assert await stranger.is_closed()
        await server.honest()


@pytest.mark.parametrize("operation", [0, 4, 99, 2**31 - 1])
@pytest.mark.parametrize("version", [1, 3, 77])
async def test_an_unknown_operation_or_version_of_v3_is_answered(
    operation: int, version: int
) -> None:
    """As Apache bookies do: the peer learns that this one is older or younger."""
    header = b"\x08" + varint(version) + b"\x10" + varint(operation) + b"\x18\x05"
    frame = field(1, header)
    async with front("bookie") as server:
        stranger = await server.connect()
        stranger.send(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(20):
            size = int.from_bytes(await stranger.reader.readexactly(4), "big")
            txn_id, answer = v3.decode_response(
                memoryview(await stranger.reader.readexactly(size))
            )  # fmt: skip
        assert txn_id == 5
        assert answer.status in (Status.BAD_REQUEST, Status.BAD_VERSION)  # type: ignore[union-attr]
        stranger.close()
        await server.honest()


def spellings(secret: bytes) -> list[str]:
    """How a secret could stand in a log."""
    return [repr(secret)[2:-1], secret.hex(), str(list(secret))[1:-1]]


async def _say(server: Front, buffers: list[Buffer]) -> None:
    stranger = await server.connect()
    stranger.send(b"".join(buffers))
    async with asyncio.timeout(20):
        await stranger.reader.read(64)
    stranger.close()


async def test_no_key_and_no_payload_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Apache bookies log both keys when they differ."""
    caplog.set_level(logging.DEBUG)
    payload, right, wrong = os.urandom(24), master_key(b"right"), master_key(b"wrong")
    requests: list[Any] = [
        add(9, 50, payload, key=right),
        add(9, 51, payload, key=wrong),
        add(9, 52, payload, key=wrong, recovery=True),
        fence(9, key=wrong),
        fence(9, key=right),
        add(9, 53, payload, key=right),
        ReadRequest(LedgerId(9), EntryId(50)),
    ]
    async with front("bookie") as server:
        for request in requests:
            await _say(server, v2.encode_request(request))
            await _say(server, v3.encode_request(request, 1))
        for request in requests[:4]:
            frame = bytearray(b"".join(v2.encode_request(request)))
            frame[5] = 0x63  # an opcode that there is not, with key and payload behind it
            await _say(server, [bytes(frame)])
            broken = b"".join(v3.encode_request(request, 1))[4:-1]
            await _say(server, [len(broken).to_bytes(4, "big") + broken])
        await server.honest()
    assert "connection.refused" in caplog.text
    for secret in (payload, right, wrong):
        for spelling in spellings(secret):
            assert spelling not in caplog.text
