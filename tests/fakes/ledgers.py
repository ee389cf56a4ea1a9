"""An in-memory ledger service with real fencing semantics, behind the ledger client's shape.

`FakeLedgers` is the bookies and their metadata; `client()` gives one process's view. An add
travels in two legs that a test may hold: its arrival (only then is it stored) and its answer
(only then does the writer know). Fencing acts on arrival: an add that reaches a fenced ledger is
refused, an add that was stored before stays, whether or not its writer ever heard of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from client.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataConflict,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
)
from client.held_memory import HeldMemory
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    Schedule,
    fitting,
)
from client.ledger.joined_changes import RecoveryStart
from client.ledger.metrics import LedgerStats
from client.ledger.read.reader import SOME_ENTRIES_MAX
from client.metadata import paths
from client.metadata.store import Create
from client.metadata.tree import Tree
from client.node.grouped_requests import GroupedRequests
from client.wire.bookkeeper.entry import DigestType, Entry


class StoredLedger:
    """One ledger as the bookies and the metadata store know it."""

    def __init__(
        self,
        ledger_id: LedgerId,
        metadata: Mapping[str, bytes],
        ctime_ms: int,
        schedule: Schedule,
    ) -> None:
        self.ledger_id = ledger_id
        self.custom_metadata = dict(metadata)
        self.ctime_ms = ctime_ms
        self.schedule = schedule
        self.entries: list[bytes] = []
        self.confirmed = -1
        """Last entry whose answer left, in order: recovery must keep it."""
        self.fenced = False
        self.closed_at: int | None = None


class FakeLedgers:
    """The shared service, and the levers of a test."""

    def __init__(self) -> None:
        self._ledgers: dict[LedgerId, StoredLedger] = {}
        self.deleted: list[LedgerId] = []
        self.recovered: list[LedgerId] = []
        """Ledgers in the order in which recoveries of them finished."""
        self.clients: list[FakeLedgerClient] = []
        self.arrival_s: Callable[[], float] = lambda: 0.0
        self.answer_s: Callable[[], float] = lambda: 0.0
        self.read_s: Callable[[], float] = lambda: 0.0
        """How long what was read is on its way."""
        self.keep_unconfirmed: Callable[[StoredLedger], int] = lambda ledger: len(ledger.entries)
        """How many stored entries a recovery finds; never fewer than are confirmed."""
        self.fail: dict[str, deque[Exception]] = {}
        self.gate: dict[str, asyncio.Event] = {}
        self.read_count = 0
        self.bookie_count = 9
        self.listeners: list[Callable[[], None]] = []
        """Who is told when `set_bookie_count` changes it."""
        self.tree: Tree | None = None
        """The metadata store's nodes: ledgers that takeovers planned are there once these are."""
        self._planned: dict[LedgerId, StoredLedger] = {}
        self._next_id = 100

    @property
    def ledgers(self) -> dict[LedgerId, StoredLedger]:
        """Every ledger there is now: also each planned one whose node was created meanwhile."""
        for ledger_id, ledger in list(self._planned.items()):
            assert self.tree is not None
            if self.tree.find(paths.ledger(ledger_id)) is not None:
                self._ledgers[ledger_id] = ledger
                del self._planned[ledger_id]
        return self._ledgers

    def client(self, name: str = "client") -> FakeLedgerClient:
        client = FakeLedgerClient(self, name)
        self.clients.append(client)
        return client

    def set_bookie_count(self, count: int) -> None:
        """Let bookies come or go."""
        self.bookie_count = count
        for listener in self.listeners:
            listener()

    def fail_next(self, operation: str, error: Exception) -> None:
        """Let the next create, open, recover, delete, close or read raise `error`."""
        self.fail.setdefault(operation, deque()).append(error)

    def stop_at(self, operation: str) -> asyncio.Event:
        """Let every such operation wait until the returned event is set."""
        return self.gate.setdefault(operation, asyncio.Event())

    async def enter(self, operation: str) -> None:
        await asyncio.sleep(0)
        if operation in self.gate:
            await self.gate[operation].wait()
        failures = self.fail.get(operation)
        if failures:
            raise failures.popleft()

    def plan(self, ledger: StoredLedger) -> tuple[Create, ...]:
        """Return what creates a ledger; nothing if there is no metadata store: it is there then."""
        if self.tree is None:
            self.ledgers[ledger.ledger_id] = ledger
            return ()
        self._planned[ledger.ledger_id] = ledger
        return (Create(paths.ledger(ledger.ledger_id)),)

    def get(self, ledger_id: LedgerId) -> StoredLedger:
        try:
            return self.ledgers[ledger_id]
        except KeyError:
            raise NoSuchLedger(f"ledger {ledger_id}") from None

    def new_id(self) -> LedgerId:
        self._next_id += 1
        return LedgerId(self._next_id)


class FakeLedgerClient:
    """One process's ledger client."""

    def __init__(self, service: FakeLedgers, name: str) -> None:
        self.service = service
        self.name = name
        self.stats = LedgerStats()
        self.memory = HeldMemory()
        self.writers: list[FakeWriter] = []
        self.hold_arrivals = False
        self.hold_answers = False
        self.room_bytes = 1 << 62
        """How much a writer may have under way before it has no room."""
        self.dead = False
        """A killed process: nothing of it is sent, nothing reaches it."""

    requests: GroupedRequests | None = None

    async def take_id(self) -> LedgerId:
        return self.service.new_id()

    @property
    def writable_bookies(self) -> list[BookieId]:
        return [BookieId(f"fake{number}:1") for number in range(self.service.bookie_count)]

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        self.service.listeners.append(listener)

    async def create(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int | None = None,
        ledger_id: LedgerId | None = None,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] = {},
    ) -> FakeWriter:
        ledger = await self._new_ledger(
            Schedule(ensemble_size, write_quorum, ack_quorum),
            write_quorum_min,
            ledger_id,
            custom_metadata,
        )
        self.service.ledgers[ledger.ledger_id] = ledger
        return self._new_writer(ledger)

    async def plan(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        write_quorum_min: int | None = None,
        ledger_id: LedgerId | None = None,
        custom_metadata: Mapping[str, bytes] = {},
    ) -> FakePlannedLedger:
        ledger = await self._new_ledger(
            Schedule(ensemble_size, write_quorum, ack_quorum),
            write_quorum_min,
            ledger_id,
            custom_metadata,
        )

        return FakePlannedLedger(
            ledger.ledger_id, self.service.plan(ledger), lambda: self._new_writer(ledger)
        )

    async def _new_ledger(
        self,
        asked: Schedule,
        write_quorum_min: int | None,
        ledger_id: LedgerId | None,
        custom_metadata: Mapping[str, bytes],
    ) -> StoredLedger:
        schedule = fitting(
            asked, self.service.bookie_count, striping=False, write_quorum_min=write_quorum_min
        )
        await self.service.enter("create")
        if self.service.bookie_count < schedule.ensemble_size:
            raise NotEnoughBookies(f"there are {self.service.bookie_count}")
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        if ledger_id is None:
            ledger_id = self.service.new_id()
        return StoredLedger(ledger_id, custom_metadata, now_ms, schedule)

    def _new_writer(self, ledger: StoredLedger) -> FakeWriter:
        writer = FakeWriter(self, ledger)
        self.writers.append(writer)
        return writer

    async def open(self, ledger_id: LedgerId, *, password: bytes = b"") -> FakeReader:
        await self.service.enter("open")
        ledger = self.service.get(ledger_id)
        last = ledger.closed_at if ledger.closed_at is not None else ledger.confirmed
        return FakeReader(self.service, ledger, lambda: last)

    @property
    def recoveries(self) -> FakeLedgerClient:
        """Its own, too."""
        return self

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> Sequence[RecoveryStart]:
        return ()

    async def find_end(
        self, ledger_id: LedgerId, start: RecoveryStart | None = None
    ) -> FakeFoundEnd:
        return FakeFoundEnd(await self.recover(ledger_id), None)

    async def recover(
        self, ledger_id: LedgerId, start: RecoveryStart | None = None, *, password: bytes = b""
    ) -> FakeReader:
        await self.service.enter("recover")
        ledger = self.service.get(ledger_id)
        ledger.fenced = True
        await self.service.enter("recover_read")
        if ledger.closed_at is None:
            count = max(ledger.confirmed + 1, self.service.keep_unconfirmed(ledger))
            ledger.closed_at = count - 1
        self.service.recovered.append(ledger_id)
        last = ledger.closed_at
        return FakeReader(self.service, ledger, lambda: last)

    async def delete(self, ledger_id: LedgerId) -> None:
        await self.service.enter("delete")
        self.service.get(ledger_id)
        del self.service.ledgers[ledger_id]
        self.service.deleted.append(ledger_id)

    async def describe(self, ledger_id: LedgerId) -> LedgerMetadata:
        await self.service.enter("describe")
        return describe(self.service.get(ledger_id))

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        for ledger_id in sorted(self.service.ledgers):
            yield ledger_id

    def release(self) -> None:
        """Let held arrivals and answers of all writers go."""
        self.hold_arrivals = self.hold_answers = False
        for writer in self.writers:
            writer.pump()

    def kill(self) -> None:
        """kill -9: what has not arrived is lost."""
        self.dead = True


class FakePlannedLedger(NamedTuple):
    """A ledger that is there as soon as its changes were made."""

    ledger_id: LedgerId
    changes: tuple[Create, ...]
    created: Callable[[], FakeWriter]


class FakeFoundEnd(NamedTuple):
    """A ledger that was recovered; it is closed already."""

    reader: FakeReader
    close: None


def describe(ledger: StoredLedger) -> LedgerMetadata:
    """Return the metadata a real ledger would have."""
    schedule = ledger.schedule
    ensemble = tuple(BookieId(f"fake{number}:1") for number in range(schedule.ensemble_size))
    return LedgerMetadata(
        ensemble_size=schedule.ensemble_size,
        write_quorum=schedule.write_quorum,
        ack_quorum=schedule.ack_quorum,
        fragments=(Fragment(EntryId(0), ensemble),),
        state=LedgerState.OPEN if ledger.closed_at is None else LedgerState.CLOSED,
        custom_metadata=ledger.custom_metadata,
        ctime_ms=ledger.ctime_ms,
    )


class FakeWriter:
    """Writer of one ledger."""

    def __init__(self, client: FakeLedgerClient, ledger: StoredLedger) -> None:
        self.client = client
        self.ledger = ledger
        self.ledger_id = ledger.ledger_id
        self.last_add_confirmed = EntryId(-1)
        self.last_add_pushed = EntryId(-1)
        self.length = 0
        self.in_flight_bytes = 0
        self.is_shared = True
        self.error: LedgerError | None = None
        self.suspended: list[BookieId] = []
        self.lost_members: list[BookieId] = []
        self.closed = False
        self._sent: deque[tuple[EntryId, bytes]] = deque()
        """On the way to the bookies."""
        self._answers: deque[EntryId] = deque()
        """Stored; the answer is on its way."""
        self._calls: dict[EntryId, Callable[[EntryId, LedgerError | None], None]] = {}
        self.fail_add: LedgerError | None = None
        self._room_calls: list[Callable[[], None]] = []

    @property
    def metadata(self) -> LedgerMetadata:
        return describe(self.ledger)

    @property
    def is_ended(self) -> bool:
        return self.error is not None

    @property
    def room(self) -> FakeWriter:
        """Its own room, too."""
        return self

    @property
    def is_free(self) -> bool:
        return self.in_flight_bytes < self.client.room_bytes

    def on_free(self, call: Callable[[], None]) -> None:
        self._room_calls.append(call)

    def add(
        self,
        payload: Sequence[Any],
        on_done: Callable[[EntryId, LedgerError | None], None],
    ) -> EntryId:
        if self.error is not None:
            raise type(self.error)("the writer failed earlier")
        if self.closed:
            raise LedgerClosed(f"ledger {self.ledger_id}")
        entry_id = EntryId(self.last_add_pushed + 1)
        self.last_add_pushed = entry_id
        data = b"".join(bytes(part) for part in payload)
        self.in_flight_bytes += len(data)
        self.client.memory.take(len(data))
        self._calls[entry_id] = on_done
        self._sent.append((entry_id, data))
        self._later(self.client.service.arrival_s(), self._arrive)
        return entry_id

    async def append(self, payload: Any) -> EntryId:
        done: asyncio.Future[EntryId] = asyncio.get_running_loop().create_future()
        self.add(
            [payload],
            lambda entry, error: done.set_exception(error) if error else done.set_result(entry),
        )
        return await done

    def pump(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(len(self._sent)):
            loop.call_soon(self._arrive)
        for _ in range(len(self._answers)):
            loop.call_soon(self._answer)

    def reader(self) -> FakeReader:
        return FakeReader(self.client.service, self.ledger, lambda: self.last_add_confirmed)

    async def close(self) -> None:
        await self.client.service.enter("close")
        self._fail(LedgerClosed(f"ledger {self.ledger_id} was closed"))
        self.closed = True
        stored = self.ledger
        if stored.closed_at is not None:
            if stored.closed_at != self.last_add_confirmed:
                raise MetadataConflict(f"ledger {self.ledger_id} ends at {stored.closed_at}")
            return
        if stored.fenced:
            raise LedgerFenced(f"ledger {self.ledger_id} is being recovered")
        stored.closed_at = self.last_add_confirmed

    def abandon(self) -> None:
        self.closed = True
        self._fail(LedgerClosed(f"ledger {self.ledger_id} was abandoned"))

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if delay_s > 0:
            loop.call_later(delay_s, call)
        else:
            loop.call_soon(call)

    def _arrive(self) -> None:
        if self.client.hold_arrivals or self.client.dead or not self._sent:
            return
        entry_id, data = self._sent.popleft()
        if self.ledger.fenced or self.fail_add is not None:
            self._fail(self.fail_add or LedgerFenced(f"ledger {self.ledger_id} is fenced"))
            return
        assert entry_id == len(self.ledger.entries)
        self.ledger.entries.append(data)
        self._answers.append(entry_id)
        self._later(self.client.service.answer_s(), self._answer)

    def _answer(self) -> None:
        if self.client.hold_answers or self.client.dead or not self._answers:
            return
        entry_id = self._answers.popleft()
        end = self.ledger.closed_at
        if end is not None and entry_id > end:
            self._fail(LedgerFenced(f"ledger {self.ledger_id} was closed at {end}"))
            return
        self.ledger.confirmed = max(self.ledger.confirmed, entry_id)
        self.last_add_confirmed = entry_id
        size = len(self.ledger.entries[entry_id])
        self.length += size
        self.in_flight_bytes -= size
        self.client.memory.give(size)
        on_done = self._calls.pop(entry_id, None)
        if on_done is not None:
            on_done(entry_id, None)
        self._tell_room()

    def _tell_room(self) -> None:
        if self.is_free or self.error is not None:
            calls, self._room_calls = self._room_calls, []
            for call in calls:
                asyncio.get_running_loop().call_soon(call)

    def _fail(self, error: LedgerError) -> None:
        if self.error is None:
            self.error = error
        self.client.memory.give(self.in_flight_bytes)
        self.in_flight_bytes = 0
        self._answers.clear()
        self._sent.clear()
        calls, self._calls = self._calls, {}
        for entry_id, on_done in calls.items():
            asyncio.get_running_loop().call_soon(on_done, entry_id, error)
        self._tell_room()


class FakeReader:
    """Reads up to an end that its maker decides."""

    def __init__(self, service: FakeLedgers, ledger: StoredLedger, last: Callable[[], int]) -> None:
        self._service = service
        self._ledger = ledger
        self._last = last
        self.ledger_id = ledger.ledger_id

    @property
    def last_entry(self) -> EntryId:
        return EntryId(self._last())

    @property
    def closed(self) -> bool:
        return self._ledger.closed_at is not None

    @property
    def length(self) -> int:
        return sum(len(entry) for entry in self._ledger.entries[: self.last_entry + 1])

    async def read(self, first: EntryId, last: EntryId) -> list[Entry]:
        await self._service.enter("read")
        self._service.get(self.ledger_id)
        if not 0 <= first <= last <= self.last_entry:
            raise NoSuchEntry(f"ledger {self.ledger_id}: {first}..{last} of {self.last_entry}")
        self._service.read_count += last - first + 1
        found = [
            Entry(
                self.ledger_id,
                EntryId(at),
                EntryId(at - 1),
                0,
                memoryview(self._ledger.entries[at]),
            )
            for at in range(first, last + 1)
        ]
        if pause_s := self._service.read_s():
            await asyncio.sleep(pause_s)
        return found

    async def read_some(self, first: EntryId, last: EntryId) -> list[Entry]:
        return await self.read(first, EntryId(min(last, first + SOME_ENTRIES_MAX - 1)))

    async def refresh(self) -> EntryId:
        return self.last_entry
