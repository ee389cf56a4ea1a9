"""Bookies in this process that do as a test says: the `BookieSet` behind scripted scenarios.

Each one stores entries, fences and checks master keys as a bookie does (bookkeeper protocol, not
any program's code). What happens to a request is its *fate*, decided by the bookie's `fate_of`:
delivered at once, lost, answered but the answer lost, or held until the test lets it through.
Answers travel by `call_soon`, so the order is the order of delivery, always.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bookie.storage.core.availability import encode_availability
from client.errors import BookieTimeout, BookieUnavailable, LedgerError
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookie_link import OnAnswer, error_of
from client.ledger.core.placement import DEFAULT_RACK
from client.wire.bookkeeper.messages import (
    LAST_ENTRY,
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ListEntriesRequest,
    ListEntriesResponse,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)


class Fate(enum.Enum):
    """What becomes of a request."""

    DELIVER = "deliver"
    LOSE_REQUEST = "lose request"
    """Never reaches the bookie; the client sees a timeout."""
    LOSE_ANSWER = "lose answer"
    """Takes effect; the client sees a timeout."""
    HOLD_REQUEST = "hold request"
    """Reaches the bookie when the test calls `release`."""
    HOLD_ANSWER = "hold answer"
    """Takes effect now; the answer leaves when the test calls `release`."""


class Held(NamedTuple):
    """A request, or its answer, that waits for `release`."""

    request: Request
    on_answer: OnAnswer
    answer: Response | LedgerError | None


class StoredLedger:
    """What one bookie has of one ledger."""

    def __init__(self) -> None:
        self.key: bytes | None = None
        self.fenced = False
        self.entries: dict[EntryId, bytes] = {}
        self.lac_packet: bytes | None = None

    @property
    def lac(self) -> int:
        """The highest LAC that an entry or a packet told of."""
        told = [int.from_bytes(entry[16:24], signed=True) for entry in self.entries.values()]
        if self.lac_packet is not None:
            told.append(int.from_bytes(self.lac_packet[8:16], signed=True))
        return max(told, default=-1)


class FakeBookie:
    """One bookie. Implements `client.ledger.bookies.bookies.Bookie`."""

    def __init__(self, name: BookieId) -> None:
        self.name = name
        self.ledgers: dict[LedgerId, StoredLedger] = {}
        self.is_unreachable = False
        self.is_down = False
        self.fate_of: Callable[[Request], Fate] = lambda request: Fate.DELIVER
        self.is_in_limbo = False
        """Lost its disk and knows: says "cannot say" where it would say "never stored"."""
        self.io_errors: set[EntryId] = set()
        """Entries whose reading fails with an I/O error."""
        self.polls: list[Held] = []
        """Long polls that wait for a higher LAC."""
        self.held: list[Held] = []
        self.seen: list[Request] = []
        """Every request the client sent, lost ones included."""

    def request(self, request: Request, on_answer: OnAnswer, size: int = 0) -> None:
        self.seen.append(request)
        is_poll = isinstance(request, ReadRequest) and request.previous_lac is not None
        if self.is_down:
            self._answer(on_answer, request, BookieUnavailable(f"{self.name} is down"))
            return
        match self.fate_of(request):
            case Fate.DELIVER if is_poll:
                self._poll(request, on_answer)
            case Fate.DELIVER:
                self._answer(on_answer, request, self.apply(request))
            case Fate.LOSE_REQUEST:
                self._answer(on_answer, request, BookieTimeout(f"{self.name} did not answer"))
            case Fate.LOSE_ANSWER:
                self.apply(request)
                self._answer(on_answer, request, BookieTimeout(f"{self.name} did not answer"))
            case Fate.HOLD_REQUEST:
                self.held.append(Held(request, on_answer, None))
            case Fate.HOLD_ANSWER:
                self.held.append(Held(request, on_answer, self.apply(request)))

    def release(self, count: int | None = None) -> None:
        """Let held requests and answers through, oldest first."""
        count = len(self.held) if count is None else count
        let_through, self.held = self.held[:count], self.held[count:]
        for request, on_answer, answer in let_through:
            self._answer(on_answer, request, self.apply(request) if answer is None else answer)

    def fail_held(self, error: LedgerError) -> None:
        """Answer everything held with an error instead."""
        held, self.held = self.held, []
        for request, on_answer, _ in held:
            self._answer(on_answer, request, error)

    def _poll(self, request: ReadRequest, on_answer: OnAnswer) -> None:
        """Answer a long poll when the LAC has passed, the ledger is fenced, or its time is up."""
        held = Held(request, on_answer, None)
        self.polls.append(held)
        assert request.timeout_ms is not None
        loop = asyncio.get_running_loop()
        loop.call_later(request.timeout_ms / 1000, self._end_poll, held)
        self._look_at_polls()

    def _look_at_polls(self) -> None:
        for held in list(self.polls):
            assert isinstance(held.request, ReadRequest)
            ledger = self.ledgers.get(held.request.ledger_id)
            if ledger is None or ledger.fenced or ledger.lac > held.request.previous_lac:
                self._end_poll(held)

    def _end_poll(self, held: Held) -> None:
        if held not in self.polls:
            return
        self.polls.remove(held)
        assert isinstance(held.request, ReadRequest)
        ledger_id, previous = held.request.ledger_id, held.request.previous_lac
        ledger = self.ledgers.get(ledger_id)
        answer: Response | LedgerError
        if ledger is None:
            answer = error_of(Status.NO_LEDGER, held.request)
        else:
            following = EntryId(previous + 1)
            found = ledger.entries.get(following) if ledger.lac > previous else None
            entry_id = LAST_ENTRY if found is None else following
            answer = ReadResponse(Status.OK, ledger_id, entry_id, found, ledger.lac)
        self._answer(held.on_answer, held.request, answer)

    def crash(self) -> None:
        """Stop answering; what was held fails. Stored entries survive."""
        self.is_down = True
        self.held += self.polls
        self.polls = []
        self.fail_held(BookieUnavailable(f"{self.name} crashed"))

    def wipe(self) -> None:
        """Lose the disk."""
        self.ledgers.clear()

    def damage(self, ledger_id: LedgerId, entry_id: EntryId) -> None:
        """Flip a bit in the last byte of a stored entry."""
        entries = self.ledgers[ledger_id].entries
        stored = entries[entry_id]
        entries[entry_id] = stored[:-1] + bytes([stored[-1] ^ 1])

    def entry_ids(self, ledger_id: LedgerId) -> list[EntryId]:
        """Return the entries it has of a ledger."""
        ledger = self.ledgers.get(ledger_id)
        return sorted(ledger.entries) if ledger else []

    def apply(self, request: Request) -> Response | LedgerError:
        """Do what a request asks for; return the answer as the client library reports it."""
        answer = self._apply(request)
        self._look_at_polls()
        return answer

    def _apply(self, request: Request) -> Response | LedgerError:
        match request:
            case AddRequest():
                response: Response = self._add(request)
            case ReadRequest():
                response = self._read(request)
            case BatchReadRequest():
                response = self._read_batch(request)
            case ReadLacRequest(ledger_id):
                response = self._read_lac(ledger_id)
            case WriteLacRequest():
                response = self._write_lac(request)
            case ListEntriesRequest(ledger_id):
                response = self._list(ledger_id)
            case _:
                raise AssertionError(f"unexpected {request}")
        status: Status = response.status  # type: ignore[union-attr]
        if self.is_in_limbo and status in (Status.NO_LEDGER, Status.NO_ENTRY):
            status = Status.UNKNOWN_LEDGER_STATE
        return response if status is Status.OK else error_of(status, request)

    def _add(self, request: AddRequest) -> AddResponse:
        ledger = self.ledgers.setdefault(request.ledger_id, StoredLedger())
        status = self._check_key(ledger, request.master_key)
        if status is Status.OK and ledger.fenced and not request.recovery:
            status = Status.FENCED
        if status is Status.OK:
            entry = b"".join((request.entry, *request.entry_rest))
            ledger.entries[request.entry_id] = entry
        return AddResponse(status, request.ledger_id, request.entry_id)

    def _read(self, request: ReadRequest) -> ReadResponse:
        ledger_id, entry_id = request.ledger_id, request.entry_id
        known = ledger_id in self.ledgers
        if request.fence:
            ledger = self.ledgers.setdefault(ledger_id, StoredLedger())
            if self._check_key(ledger, request.master_key) is not Status.OK:
                return ReadResponse(Status.UNAUTHORIZED, ledger_id, entry_id)
            ledger.fenced = True
        if not known:
            return ReadResponse(Status.NO_LEDGER, ledger_id, entry_id)
        entries = self.ledgers[ledger_id].entries
        found = max(entries, default=None) if entry_id == LAST_ENTRY else entry_id
        if found in self.io_errors:
            return ReadResponse(Status.IO_ERROR, ledger_id, entry_id)
        if found is None or found not in entries:
            return ReadResponse(Status.NO_ENTRY, ledger_id, entry_id)
        return ReadResponse(Status.OK, ledger_id, entry_id, entries[found])

    def _read_batch(self, request: BatchReadRequest) -> BatchReadResponse:
        entries: list[bytes] = []
        entry_id = request.first_entry_id
        room = request.size_max
        while len(entries) < request.count_max:
            found = self._read(ReadRequest(request.ledger_id, EntryId(entry_id + len(entries))))
            entry = found.entry
            if entry is None or (entries and room < len(entry)):
                break
            assert isinstance(entry, bytes)
            entries.append(entry)
            room -= len(entry)
        status = Status.OK if entries else found.status
        return BatchReadResponse(
            status, request.ledger_id, entry_id, request.request_id, tuple(entries)
        )

    def _read_lac(self, ledger_id: LedgerId) -> ReadLacResponse:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return ReadLacResponse(Status.NO_LEDGER, ledger_id)
        last = ledger.entries[max(ledger.entries)] if ledger.entries else None
        status = Status.NO_ENTRY if last is ledger.lac_packet is None else Status.OK
        return ReadLacResponse(status, ledger_id, ledger.lac_packet, last)

    def _list(self, ledger_id: LedgerId) -> ListEntriesResponse:
        if ledger_id not in self.ledgers:
            return ListEntriesResponse(Status.NO_LEDGER, ledger_id)
        availability = encode_availability(self.entry_ids(ledger_id))
        return ListEntriesResponse(Status.OK, ledger_id, availability)

    def _write_lac(self, request: WriteLacRequest) -> WriteLacResponse:
        ledger = self.ledgers.setdefault(request.ledger_id, StoredLedger())
        status = self._check_key(ledger, request.master_key)
        if status is Status.OK:
            ledger.lac_packet = bytes(request.packet)
        return WriteLacResponse(status, request.ledger_id)

    def _check_key(self, ledger: StoredLedger, key: bytes | None) -> Status:
        if ledger.key is None:
            ledger.key = key
        return Status.OK if ledger.key == key else Status.UNAUTHORIZED

    def _answer(
        self, on_answer: OnAnswer, request: Request, answer: Response | LedgerError
    ) -> None:
        asyncio.get_running_loop().call_soon(on_answer, request, answer)


class FakeBookies:
    """A set of fake bookies. Implements `client.ledger.bookies.bookies.BookieSet`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._bookies = {BookieId(name): FakeBookie(BookieId(name)) for name in names}
        self.writable: tuple[BookieId, ...] = tuple(sorted(self._bookies))
        self.readonly: tuple[BookieId, ...] = ()
        self.racks: dict[BookieId, str] = {}
        self.has_long_poll = True
        self._listeners: list[Callable[[], None]] = []

    def __getitem__(self, name: str) -> FakeBookie:
        return self._bookies[BookieId(name)]

    def bookie(self, bookie: BookieId) -> FakeBookie:
        return self._bookies[bookie]

    def rack(self, bookie: BookieId) -> str:
        return self.racks.get(bookie, DEFAULT_RACK)

    def add_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    @property
    def listener_count(self) -> int:
        return len(self._listeners)

    def set_writable(self, names: Iterable[str]) -> None:
        """Change who is registered, and tell the listeners."""
        self.writable = tuple(sorted(BookieId(name) for name in names))
        for name in self.writable:
            self._bookies.setdefault(name, FakeBookie(name))
        for listener in list(self._listeners):
            listener()

    async def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def holders(self, ledger_id: LedgerId, entry_id: EntryId) -> list[str]:
        """Return the bookies that have an entry."""
        return [
            name
            for name, bookie in self._bookies.items()
            if entry_id in bookie.entry_ids(ledger_id)
        ]
