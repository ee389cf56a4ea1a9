"""Planted defects of overload: credit, busy nodes, deadlines, tasks; see `table.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.cluster.lease import SessionLease
from broker.front.handlers.produce import ProduceAnswer, _Produce
from broker.front.server import Connection, RequestRoom
from broker.partition.core.append_queue import Append, AppendQueue
from broker.partition.core.producer_state import ProducerState, SequenceGaps
from client import callbacks
from client.errors import BookieUnavailable, MetadataError
from client.held_memory import HeldMemory
from client.ledger.bookies.bookie_link import Link
from client.ledger.core.adds import Adds
from client.ledger.write import writer
from client.ledger.write.writer import AddPipeline
from client.ledger.write.writer_room import WriterMemory, WriterRoom
from client.node import background
from client.wire.kafka.produce import PartitionResult

if TYPE_CHECKING:
    from collections.abc import Callable


def credit_back_when_sent(patch: Any) -> None:
    """A partition has room again when an entry is sent, not when it is confirmed."""

    def take(self: AppendQueue) -> Any:
        entry = taken(self)
        self.size_bytes -= entry.size
        return entry

    def pop(self: AppendQueue) -> Any:
        entry = popped(self)
        self.size_bytes += entry.size
        return entry

    taken = patch(AppendQueue, "take", take)
    popped = patch(AppendQueue, "pop", pop)


def credit_back_at_quorum(patch: Any) -> None:
    """A writer has room again when an entry is confirmed, whoever still has to answer it."""

    def is_free(self: WriterRoom) -> bool:
        adds = self._adds
        return adds.length - adds.confirmed_length < self.window.size

    patch(WriterRoom, "is_free", property(is_free))


def credit_back_before_last_copy(patch: Any) -> None:
    """A broker counts a batch until it is confirmed, whoever still has to answer it."""

    def on_confirmed(self: WriterMemory, first: int, last: int) -> None:
        for entry_id in range(first, last + 1):
            if entry_id in self._entries:
                self._let_go(self._entries[entry_id])

    def on_answer(self: WriterMemory, entry_id: Any) -> None:
        if entry_id in self._entries:
            answered(self, entry_id)

    patch(WriterMemory, "on_confirmed", on_confirmed)
    answered = patch(WriterMemory, "on_answer", on_answer)


def credit_back_on_disconnect(patch: Any) -> None:
    """A connection that is lost gives the bytes of its requests back, whoever holds them still."""

    def connection_lost(self: Connection, exc: Exception | None) -> None:
        in_flight_bytes = self._wire.in_flight_bytes
        original(self, exc)
        memory = self._server.memory
        memory.give(min(in_flight_bytes, memory.size))

    def give(self: HeldMemory, size: int) -> None:
        given(self, min(size, self.size))

    original = patch(Connection, "connection_lost", connection_lost)
    given = patch(HeldMemory, "give", give)


def credit_back_when_written(patch: Any) -> None:
    """A connection to a bookie has room again when what was sent is on its way."""

    def has_room(self: Link, record: Any) -> bool:
        del record
        return not self._transport.get_write_buffer_size()

    patch(Link, "_has_room", has_room)


def unread_is_served(patch: Any) -> None:
    """A client that does not read its answers is given more of them."""

    def may_start(self: Connection) -> Any:
        self._unsent_bytes, unsent_bytes = 0, self._unsent_bytes
        self._is_unread, is_unread = False, self._is_unread
        try:
            return original(self)
        finally:
            self._unsent_bytes, self._is_unread = unsent_bytes, is_unread

    original = patch(Connection, "_may_start", may_start)


def starved_stay_starved(patch: Any) -> None:
    """A connection for which no bytes were left is not told when there are some again."""

    patch(RequestRoom, "_on_given", lambda self: None)


def shed_is_failed(patch: Any) -> None:
    """The first add that a bookie sheds counts as a failure of it."""

    def on_busy(self: Adds, entry_id: Any, index: int, bookie: Any, error: Any, now_s: Any) -> Any:
        del now_s
        return self.on_failed(entry_id, index, bookie, error)

    patch(Adds, "on_busy", on_busy)


def full_link_is_failed(patch: Any) -> None:
    """An add for which a connection has no room fails."""

    def add(self: Link, record: Any) -> None:
        if self._has_room(record):
            self.send(record)
        else:
            error = BookieUnavailable("the connection is full")
            self._loop.call_later(0.01, record.on_answer, record.request, error)

    patch(Link, "add", add)


def timeout_ends_leadership(patch: Any) -> None:
    """A leader that could not confirm an append in its request's time gives up."""

    def on_deadline(self: _Produce) -> None:
        leaders = [row[1] for _, rows in self._topics for row in rows if row[1] is not None]
        original(self)
        for leader in leaders:
            leader.resign("an append was not confirmed in time")

    original = patch(_Produce, "_on_deadline", on_deadline)


def timeout_forgets_sequence(patch: Any) -> None:
    """An append that timed out counts as never made: its producer's sequences go back."""
    given_up: dict[tuple[int, int], None] = {}

    def on_deadline(self: _Produce) -> None:
        for _, rows in self._topics:
            for _, leader, append in rows:
                if leader is not None and isinstance(append, Append) and not append.completed:
                    given_up[id(leader._leader.log.producers), append.base_offset] = None
        original(self)

    def duplicate(self: ProducerState, header: Any) -> Any:
        known = find(self, header)
        if known is not None and (id(self), known.base_offset) in given_up:
            return None
        return known

    original = patch(_Produce, "_on_deadline", on_deadline)
    find = patch(ProducerState, "find_duplicate", duplicate)


def timeout_is_success(patch: Any) -> None:
    """An append that timed out is answered as stored: its bookies will not fail all at once."""

    def result(self: ProduceAnswer, name: str, row: Any, version: int) -> Any:
        index, _, append = row
        if isinstance(append, Append) and not append.completed:
            return PartitionResult(index, 0, append.base_offset, -1, 0)
        return original(self, name, row, version)

    original = patch(ProduceAnswer, "_result", result)


def task_ends_in_silence(patch: Any) -> None:
    """A background task that fails is over, and nobody is told."""

    async def supervise(make: Any, name: str) -> None:
        del name
        try:
            await make()
        except Exception:
            return

    patch(background, "_supervise", supervise)


def callbacks_escape(patch: Any) -> None:
    """What a callback raises goes through to whoever calls the next one."""
    patch(callbacks, "RAISED", ())


def callback_failure_is_forgotten(patch: Any) -> None:
    """A callback that raised is reported, and its writer goes on as if it had heard."""
    patch(AddPipeline, "_on_bug", lambda self, error: None)
    patch(writer, "_untaken", lambda entry_id, raised: None)


def full_log_is_overtaken(patch: Any) -> None:
    """A log that had no room for a new producer's first batch takes the second one."""
    patch(SequenceGaps, "lacked_room", lambda self, header: False)


def lease_ends_unanswered(patch: Any) -> None:
    """The task that renews the lease ends with the first question that gets no answer."""

    async def keep(self: SessionLease, store: Any) -> None:
        while True:
            await asyncio.sleep(self.session_timeout_s / 6)
            try:
                await self.ask(store)
            except MetadataError:
                return

    patch(SessionLease, "keep", keep)


WORLD = "cluster"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
