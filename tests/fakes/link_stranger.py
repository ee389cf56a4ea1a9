"""Speaks to a broker over the link between brokers, by hand.

It says of itself that it is broker 2, and what a test wants to know is what it is told.
"""

from __future__ import annotations

import asyncio
import struct

from broker.app import Broker
from broker.link.core.link_frames import Hello, encode_hello, request_frame, split_answer
from client.ids import BrokerId


class Stranger:
    """One connection to a broker's listener; opened anew by each `async with`."""

    def __init__(self, broker: Broker, port: int | None = None) -> None:
        self.broker = broker
        self.port = port or broker.port

    async def __aenter__(self) -> Stranger:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, kind: int, body: bytes) -> str | None:
        """Return why a request was refused; "closed" if the connection was."""
        self.writer.write(request_frame(kind, 5, body))
        try:
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return split_answer(memoryview(await self.reader.readexactly(size))).refusal
        except asyncio.IncompleteReadError:
            return "closed"

    def hello(self, **changes: object) -> bytes:
        true = Hello(
            self.broker.cluster.cluster_id,
            BrokerId(2),
            self.broker.cluster.brokers[BrokerId(2)].incarnation,
            self.broker.config.node_id,
            self.broker.incarnation,
        )
        return encode_hello(true._replace(**changes))  # type: ignore[arg-type]
