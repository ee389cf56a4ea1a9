"""A fake bookie behind a real port: the model of `bookies.py` speaking both wire versions."""

from __future__ import annotations

import asyncio
from collections import deque

from client.errors import LedgerError
from client.ids import BookieId
from client.wire.bookkeeper.connection import Call, encode_answer
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
)
from tests.fakes.bookies import FakeBookie, Fate
from tests.fakes.intake import ServerConnection, serve


class WireBookie:
    """Serves a `FakeBookie` on loopback.

    HOLD_REQUEST means: answered by `answer_held`; all other fates than DELIVER: never answered.
    """

    def __init__(self) -> None:
        self.bookie = FakeBookie(BookieId("unnamed"))
        self.connections: list[_Connection] = []
        self.calls: list[Call] = []
        self.held: deque[tuple[_Connection, Call]] = deque()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def id(self) -> BookieId:
        return BookieId(f"127.0.0.1:{self.port}")

    async def start(self) -> None:
        """Listen; on the port it had before, if any."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def answer_held(self, count: int | None = None) -> None:
        """Serve so many of the requests that were held, oldest first; all by default."""
        for _ in range(len(self.held) if count is None else count):
            connection, call = self.held.popleft()
            connection.serve(call)

    async def stop(self) -> None:
        """Close the port and cut every connection."""
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()
        self.connections.clear()
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    def __init__(self, owner: WireBookie) -> None:
        self._owner = owner
        self._wire = ServerConnection()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._owner.connections.append(self)

    def data_received(self, data: bytes) -> None:
        for call in serve(self._wire, data):
            self._owner.calls.append(call)
            fate = self._owner.bookie.fate_of(call.request)
            if fate is Fate.DELIVER:
                self.serve(call)
            elif fate is Fate.HOLD_REQUEST:
                self._owner.held.append((self, call))

    def serve(self, call: Call) -> None:
        answer = self._owner.bookie.apply(call.request)
        self.transport.writelines(encode_answer(call, _response(call.request, answer)))


def _response(request: Request, answer: Response | LedgerError) -> Response:
    """Turn a client-side error back into the response that stands for it."""
    if not isinstance(answer, LedgerError):
        return answer
    status = {-13: Status.NO_ENTRY, -7: Status.NO_LEDGER, -101: Status.FENCED}.get(
        answer.code, Status.UNAUTHORIZED if answer.code == -102 else Status.IO_ERROR
    )
    match request:
        case AddRequest():
            return AddResponse(status, request.ledger_id, request.entry_id)
        case ReadRequest():
            return ReadResponse(status, request.ledger_id, request.entry_id)
        case ReadLacRequest(ledger_id):
            return ReadLacResponse(status, ledger_id)
    raise AssertionError(f"unexpected {request}")
