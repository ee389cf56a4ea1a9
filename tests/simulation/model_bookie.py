"""A bookie small enough to be obviously right: one log, one task that commits groups.

It speaks the wire protocol of the real one and promises the same (synced before answered, fence
durable before answered, negative only when it knows), with none of the machinery. Ledger client
and oracle are developed and compared against it: `--bookie model`.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from typing import TYPE_CHECKING

from client.errors import MetadataError, NodeExists
from client.ids import BookieId, LedgerId
from client.metadata import paths
from client.metadata.store import SessionState
from client.wire.bookkeeper.connection import Call, ServerConnection, encode_answer
from client.wire.bookkeeper.messages import (
    AddRequest,
    AddResponse,
    ErrorResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Response,
    Status,
    UnknownRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.metadata.memory import MemoryStore
    from tests.simulation.disk import DiskTimes
    from tests.simulation.volume import SimFile, Volume

_LOG = "log"


class _Ledger:
    def __init__(self, master_key: bytes) -> None:
        self.master_key = master_key
        self.fenced = False
        self.entries: dict[int, bytes] = {}


class ModelBookie:
    """One bookie process. `run` never returns unless the disk fails."""

    def __init__(
        self, bookie_id: str, port: int, store: MemoryStore, volume: Volume, times: DiskTimes
    ) -> None:
        self._id = BookieId(bookie_id)
        self._port = port
        self._store = store
        self._times = times
        self._ledgers: dict[int, _Ledger] = {}
        self._queue: list[Callable[[], None]] = []
        self._wanted = asyncio.Event()
        self._file = volume.files.get(_LOG) or self._new_log(volume)
        self._volume = volume
        self._replay(self._file)

    def _new_log(self, volume: Volume) -> SimFile:
        file = volume.create(_LOG)
        volume.sync_names()
        return file

    async def run(self) -> None:
        """Serve until the disk fails."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), "0.0.0.0", self._port)
        self._store.add_session_listener(self._on_session)
        registering = loop.create_task(self._register())
        try:
            await self._commit_groups()
        except OSError:
            server.close()
            registering.cancel()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            asyncio.get_running_loop().create_task(self._register())

    async def _register(self) -> None:
        path = paths.available_bookie(self._id)
        while True:
            try:
                await self._store.create(path, ephemeral=True)
                return
            except NodeExists:
                node = await self._owner(path)
                if node == self._store.session_id:
                    return
                await asyncio.sleep(0.1)
            except MetadataError:
                await asyncio.sleep(0.1)

    async def _owner(self, path: str) -> int:
        try:
            node = await self._store.exists(path)
        except MetadataError:
            return 0
        return node.ephemeral_owner if node is not None else 0

    # ---------------------------------------------------------------- storage

    def _replay(self, file: SimFile) -> None:
        data, at = bytes(file.cached), 0
        while at + 9 <= len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            body = data[at + 8 : at + 8 + size]
            crc = int.from_bytes(data[at + 4 : at + 8], "big")
            if len(body) < max(size, 29) or zlib.crc32(body) != crc:
                break
            self._redo(body)
            at += 8 + size
        file.truncate(at)

    def _redo(self, body: bytes) -> None:
        ledger_id = int.from_bytes(body[1:9], "big")
        ledger = self._ledgers.setdefault(ledger_id, _Ledger(body[9:29]))
        if body[:1] == b"F":
            ledger.fenced = True
        else:
            ledger.entries[int.from_bytes(body[37:45], "big")] = body[29:]

    def _append(self, kind: bytes, ledger_id: int, ledger: _Ledger, data: bytes) -> None:
        body = kind + ledger_id.to_bytes(8, "big") + ledger.master_key + data
        record = len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
        self._file.write(len(self._file.cached), record)

    async def _commit_groups(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            answers, self._queue = self._queue, []
            await self._sync()
            for answer in answers:
                answer()

    async def _sync(self) -> None:
        count = len(self._file.dirty)
        await asyncio.sleep(self._times.draw_s(self._times.options.sync_s))
        if self._volume.take_sync_failure():
            self._file.sync_failed()
            raise OSError(errno.EIO, "simulated sync failure")
        self._file.synced(count)

    def _when_durable(self, answer: Callable[[], None]) -> None:
        self._queue.append(answer)
        self._wanted.set()

    # ---------------------------------------------------------------- requests

    def handle(self, call: Call, answer: Callable[[Response], None]) -> None:
        """Carry out one request."""
        match call.request:
            case AddRequest() as add:
                self._add(add, answer)
            case ReadRequest() as read:
                self._read(read, answer)
            case ReadLacRequest() as read_lac:
                answer(self._lac_answer(read_lac.ledger_id))
            case UnknownRequest() as unknown:
                answer(ErrorResponse(unknown.operation, unknown.status))
            case request:
                raise AssertionError(f"the model bookie does not know {request}")

    def _ledger(self, ledger_id: int, master_key: bytes | None) -> _Ledger | None:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = _Ledger(master_key or b"")
        return ledger if ledger.master_key == master_key else None

    def _add(self, add: AddRequest, answer: Callable[[Response], None]) -> None:
        def done(status: Status) -> None:
            answer(AddResponse(status, add.ledger_id, add.entry_id))

        ledger = self._ledger(add.ledger_id, add.master_key)
        if ledger is None:
            done(Status.UNAUTHORIZED)
        elif ledger.fenced and not add.recovery:
            done(Status.FENCED)
        else:
            data = bytes(add.entry) + b"".join(add.entry_rest)
            try:
                self._append(b"A", add.ledger_id, ledger, data)
            except OSError:
                done(Status.IO_ERROR)
                return
            ledger.entries[add.entry_id] = data
            self._when_durable(lambda: done(Status.OK))

    def _read(self, read: ReadRequest, answer: Callable[[Response], None]) -> None:
        if not read.fence:
            answer(self._answer_to(read))
            return
        ledger = self._ledger(read.ledger_id, read.master_key)
        if ledger is None:
            answer(ReadResponse(Status.UNAUTHORIZED, read.ledger_id, read.entry_id))
            return
        try:
            if not ledger.fenced:
                self._append(b"F", read.ledger_id, ledger, b"")
        except OSError:
            answer(ReadResponse(Status.IO_ERROR, read.ledger_id, read.entry_id))
            return
        ledger.fenced = True
        self._when_durable(lambda: answer(self._answer_to(read)))

    def _lac_answer(self, ledger_id: LedgerId) -> ReadLacResponse:
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            return ReadLacResponse(Status.NO_LEDGER, ledger_id)
        if not ledger.entries:
            return ReadLacResponse(Status.NO_ENTRY, ledger_id)
        last = ledger.entries[max(ledger.entries)]
        return ReadLacResponse(Status.OK, ledger_id, last_entry=last)

    def _answer_to(self, read: ReadRequest) -> ReadResponse:
        ledger = self._ledgers.get(read.ledger_id)
        if ledger is None:
            return ReadResponse(Status.NO_LEDGER, read.ledger_id, read.entry_id)
        wanted = read.entry_id if read.entry_id >= 0 else max(ledger.entries, default=-1)
        entry = ledger.entries.get(wanted)
        if entry is None:
            return ReadResponse(Status.NO_ENTRY, read.ledger_id, read.entry_id)
        return ReadResponse(Status.OK, read.ledger_id, read.entry_id, entry)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: ModelBookie) -> None:
        self._bookie = bookie
        self._wire = ServerConnection()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for call in self._wire.receive_data(data):
            self._bookie.handle(call, lambda response, call=call: self._answer(call, response))

    def _answer(self, call: Call, response: Response) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(encode_answer(call, response))
