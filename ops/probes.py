"""Questions that tell whether a node serves: asked over the wire, as any client would."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from typing import Final

from client.errors import RemoteProtocolError
from client.wire.buffer import Reader

_TIMEOUT_S: Final = 2.0
CORRELATION_ID: Final = 0x51554952
API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)
"""ApiVersions v0: frame length, API key 18, version, correlation id, no client id."""

_METADATA: Final = struct.pack(">ihhihi", 14, 3, 1, CORRELATION_ID, -1, 0)
"""Metadata v1 about no topic: brokers only."""
_METADATA_BYTES_MAX: Final = 1 << 20


async def kafka_answers(host: str, port: int, context: ssl.SSLContext | None = None) -> bool:
    """Tell whether a Kafka broker answers ApiVersions without an error. `context`: of TLS."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(API_VERSIONS)
                length: int
                length, correlation_id, error = struct.unpack(">iih", await reader.readexactly(10))
                return (correlation_id, error) == (CORRELATION_ID, 0) and length >= 6
            finally:
                writer.close()
    return False


async def kafka_brokers(host: str, port: int) -> frozenset[int]:
    """Return the ids of the brokers that a Kafka broker knows; empty without a good answer."""
    with contextlib.suppress(
        OSError, TimeoutError, asyncio.IncompleteReadError, RemoteProtocolError
    ):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_METADATA)
                length, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
                if correlation_id == CORRELATION_ID and 4 < length < _METADATA_BYTES_MAX:
                    return _broker_ids(await reader.readexactly(length - 4))
            finally:
                writer.close()
    return frozenset()


def _broker_ids(body: bytes) -> frozenset[int]:
    """Read the beginning of a Metadata v1 response: [id i32, host, port i32, rack]."""
    fields = Reader(memoryview(body))
    found = set()
    for _ in range(fields.int32()):
        found.add(fields.int32())
        fields.nullable_string(compact=False)
        fields.int32()
        fields.nullable_string(compact=False)
    return frozenset(found)


async def accepts(host: str, port: int) -> bool:
    """Tell whether somebody accepts connections on the port."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    return False
