"""A connection to another broker that is only used to check whether it is alive.

The request is ApiVersions, version 0, which every broker answers at once. At most one is in flight,
and callers that ask meanwhile share the next one, so a thousand clients that ask for metadata cost
a peer one request per round trip. If the peer's listener requires a login, the connection logs in
first, and again from time to time; without a login there is no connection.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, cast

from broker.cluster.core.topology import BrokerInfo
from broker.cluster.peer_access import PeerAccess, PeerLogin
from client.wire.kafka.sasl_login import LoginRefused, is_login

_CONNECT_TIMEOUT_S: Final = 3.0
_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 0x51554952, -1)
"""Frame length, API key 18, version 0, correlation id, no client id."""
_LENGTH: Final = struct.Struct(">i")
_ANSWER_BYTES_MAX: Final = 1 << 16


class PeerConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[float] = self._loop.create_future()
        """Done when the connection is lost: the loop's time of that moment."""
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._login: PeerLogin | None = None
        self._refusal = ""
        self._asked: asyncio.Future[float] | None = None
        """Done when the request in flight is answered."""
        self._next: asyncio.Future[float] | None = None
        """The same for the request after it."""

    def ask(self) -> asyncio.Future[float]:
        """Return a future that is done when a request sent from now on is answered, or the
        connection is lost.

        Other callers may share the future: do not cancel it.
        """
        if self.lost.done():
            return self.lost
        if self._asked is None:
            self._asked = self._send()
            return self._asked
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    def close(self) -> None:
        """Close the connection; `lost` is done soon."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of another class

    def data_received(self, data: bytes) -> None:
        """Take bytes of the expected answer, or of a login."""
        received = self._received
        received += data
        while len(received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received)
            if not 0 <= length <= _ANSWER_BYTES_MAX:
                self.close()
                return
            if len(received) < _LENGTH.size + length:
                return
            frame = memoryview(bytes(received[_LENGTH.size : _LENGTH.size + length]))
            del received[: _LENGTH.size + length]
            self._on_frame(frame)

    def _on_frame(self, frame: memoryview) -> None:
        if self._login is not None and is_login(frame):
            self._login.on_frame(frame)
        elif self._asked is None:
            self.close()
        else:
            self._asked.set_result(self._loop.time())
            self._asked = None
            if self._next is not None:
                self._asked, self._next = self._send(self._next), None

    async def log_in(self, peer: BrokerInfo, access: PeerAccess) -> None:
        """Log in if the peer requires it. Raises OSError, ConfigError, LoginRefused."""
        assert self._transport is not None
        done: asyncio.Future[float] = self._loop.create_future()

        def on_done() -> None:
            if not done.done():
                done.set_result(self._loop.time())

        def on_refused(reason: str) -> None:
            self._refusal = reason
            self.close()

        self._login = access.login(peer, self._transport.write, on_done, on_refused)
        if self._login is None:
            return
        self._login.start()
        await asyncio.wait([done, self.lost], return_when=asyncio.FIRST_COMPLETED)
        if self._refusal:
            raise LoginRefused(self._refusal)
        if not done.done():
            raise ConnectionResetError("the peer closed the connection during the login")

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete all futures that callers wait for."""
        if self._login is not None:
            self._login.close()
        for future in (self.lost, self._asked, self._next):
            if future is not None and not future.done():
                future.set_result(self._loop.time())

    def _send(self, answer: asyncio.Future[float] | None = None) -> asyncio.Future[float]:
        assert self._transport is not None
        self._transport.write(_REQUEST)
        return self._loop.create_future() if answer is None else answer


async def connect(peer: BrokerInfo, access: PeerAccess | None = None) -> PeerConnection:
    """Connect to a peer.

    Raises ConnectionRefusedError if no process listens there, other OSErrors; ConfigError if the
    TLS files cannot be read, or the peer requires a login and no account is configured;
    LoginRefused.
    """
    access = PeerAccess() if access is None else access
    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
        _, connection = await asyncio.get_running_loop().create_connection(
            PeerConnection, peer.host, peer.port, **access.options(peer)
        )
        try:
            await connection.log_in(peer, access)
        except BaseException:
            connection.close()
            raise
    return connection
