"""A Kafka client for tests that sends exactly what it is told to.

Requests are given as plain fields (what is left out is empty) and encoded by Quire's encoder
from kio's request classes; answers are read by kio. `send_raw` sends any bytes at all.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from kio.serial import entity_reader
from kio.serial.errors import OutOfBoundValue

from client.wire.kafka.apis import is_flexible, request_type, response_type
from client.wire.kafka.encoder import blank, encode


class WireClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent: list[tuple[int, int, int]] = []
        self._correlation_id = 0

    @classmethod
    async def connect(
        cls, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> WireClient:
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    async def close(self) -> None:
        self._writer.close()

    def certificate(self) -> Any:
        """Return what the broker showed."""
        return self._writer.get_extra_info("peercert")

    def under_tls(self) -> Any:
        """Return the transport of encrypted bytes."""
        return self._writer.transport._ssl_protocol._transport  # type: ignore[attr-defined]

    def pause(self) -> None:
        """Read nothing."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume(self) -> None:
        """Read again."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def frame(self, key: int, version: int, fields: Mapping[str, Any]) -> bytes:
        """Encode a request and note that its answer is owed."""
        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, 4) + b"test"
        if is_flexible(key, version):
            head += b"\x00"
        body = head + encode(
            request_type(key, version), {**blank(request_type(key, version)), **fields}
        )
        self._sent.append((key, version, self._correlation_id))
        return struct.pack(">i", len(body)) + body

    def send(self, key: int, version: int, **fields: Any) -> None:
        """Send a request without waiting."""
        self.send_raw(self.frame(key, version, fields))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    def forget_last(self) -> None:
        """The request just sent has no answer."""
        self._sent.pop()

    async def receive(self, timeout_s: float = 5.0) -> Any:
        """Read the answer to the oldest request not answered yet."""
        key, version, correlation_id = self._sent.pop(0)
        frame = await self.receive_raw(timeout_s)
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        start = 5 if is_flexible(key, version) and key != 18 else 4
        read = entity_reader(response_type(key, version))
        try:
            answer, size = read(frame[start:], 0)
        except OutOfBoundValue:
            # kio knows no -1 for "never", which an idle transactional id began: 1970 then.
            answer, size = read(frame[start:].replace(b"\xff" * 8, bytes(8)), 0)
        assert start + size == len(frame)
        return answer

    async def receive_raw(self, timeout_s: float = 5.0) -> bytes:
        """Read one frame. Raises IncompleteReadError when the connection was closed."""
        async with asyncio.timeout(timeout_s):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def call(self, key: int, version: int, **fields: Any) -> Any:
        """Send a request and return its answer."""
        assert not self._sent
        self.send(key, version, **fields)
        return await self.receive()

    async def is_closed(self, timeout_s: float = 5.0) -> bool:
        """Wait for the broker to close the connection; false if it says something first."""
        async with asyncio.timeout(timeout_s):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True
