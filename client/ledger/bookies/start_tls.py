"""Opens a connection to a bookie, with TLS if the settings ask for it.

BookKeeper's bookies have one port for both: the client sends StartTLS in version 3, whatever it
speaks afterwards, and once that is answered with OK the handshake begins.

Source: Apache BookKeeper `PerChannelBookieClient.initiateTLS`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Final, cast

from client.errors import BookieUnavailable, RemoteProtocolError
from client.security.tls_contexts import FreshContext
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import Response, StartTlsRequest, StartTlsResponse, Status
from client.wire.frames import Chunk
from client.wire.tls_records import pieces

_HOW: Final = "cluster_security.bookie_tls is on"


class _StartTls(asyncio.Protocol):
    """Asks for TLS; nothing else is sent before it is there."""

    def __init__(self) -> None:
        self._matcher = ClientConnection(3)
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sent = self._matcher.request(StartTlsRequest(), self._on_answer)
        cast(asyncio.Transport, transport).write(b"".join(sent.buffers))

    def data_received(self, data: bytes) -> None:
        try:
            for on_response, response in self._matcher.receive_data(data):
                on_response(response)
        except RemoteProtocolError as error:
            self._fail(f"it answered StartTLS with something else: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("it closed the connection when asked for TLS")

    def _on_answer(self, response: Response) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def _fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(BookieUnavailable(reason))


class _Secured:
    """What a link writes to: small buffers share a TLS record, which the loop's TLS does not do."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.abort = transport.abort
        self.get_write_buffer_size = transport.get_write_buffer_size

    def writelines(self, list_of_data: Iterable[Chunk]) -> None:
        """Send buffers."""
        for piece in pieces(list_of_data):
            self._transport.write(piece)


async def connect(
    link: asyncio.BufferedProtocol,
    host: str,
    port: int,
    contexts: FreshContext[ssl.SSLContext] | None,
) -> None:
    """Connect a link. `contexts`: of TLS; None: plain text.

    Raises OSError, which TLS's errors are, and BookieUnavailable if the bookie speaks no TLS.
    """
    loop = asyncio.get_running_loop()
    if contexts is None:
        await loop.create_connection(lambda: link, host, port)
        return
    transport, asking = await loop.create_connection(_StartTls, host, port)
    try:
        answer = await asking.answer
        if not (isinstance(answer, StartTlsResponse) and answer.status is Status.OK):
            raise BookieUnavailable(f"it does not speak TLS, and {_HOW}")
        context = contexts.get()
        secured = await loop.start_tls(transport, link, context, server_hostname=host)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise ConnectionResetError("the connection was lost when TLS began")
    # Not a transport in all respects, but in all that a link does with one.
    link.connection_made(cast(asyncio.Transport, _Secured(secured)))
