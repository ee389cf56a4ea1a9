"""Questions that tell whether a node serves: asked over the wire, as any client would."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final

_TIMEOUT_S: Final = 2.0
_CORRELATION_ID: Final = 0x51554952
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, _CORRELATION_ID, -1)
"""ApiVersions v0: frame length, API key 18, version, correlation id, no client id."""


async def kafka_answers(host: str, port: int) -> bool:
    """Tell whether a Kafka broker answers ApiVersions without an error."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_API_VERSIONS)
                length: int
                length, correlation_id, error = struct.unpack(">iih", await reader.readexactly(10))
                return (correlation_id, error) == (_CORRELATION_ID, 0) and length >= 6
            finally:
                writer.close()
    return False


async def accepts(host: str, port: int) -> bool:
    """Tell whether somebody accepts connections on the port."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    return False
