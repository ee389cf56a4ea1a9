"""The judge of ledger schedules: sees everything, checks the ledger invariants as events happen.

Names are those of the invariants a distributed log of BookKeeper's kind must keep:

    L1 TypeOK                      metadata moves OPEN -> IN_RECOVERY -> CLOSED only
    L2 NoDivergence                nothing is acknowledged above a closed ledger's last entry
    L3 AllAckedEntriesAreReadable  an acknowledged entry is read back, for ever
    L4 ReachAckQuorum              entries of a closed ledger are durable on Qa of their write set
    L5 NoOutOfOrderEntries         entry n holds the n-th thing the writer sent
    L6 OnlyValidFragments          fragments ascend and a new one takes no confirmed entry along
    L7 LedgerIsClosed              after healing, recovery ends within a bound
    R1 what was read once stays    R2 recovery writes carry a frozen LAC
    R3 fence first, stay fenced    R4 a negative answer is explicit and true
    R5 read what you have          R6 recovery publishes fragments only with CLOSED
    R7 ensemble change             R8 ack order, durability and distinct bookies
    R10 without its disk a bookie is nobody
    R11 a fence is a timeout       R12 only deleted ledgers disappear
    R13 an index is made anew if it is damaged, and only then (`machine/index.py`)
    B5, B6 who adds little waits for little (`bookies/fair_share.py`)

Sources of its knowledge: the bytes on bookie connections (`bookies/wiretap.py`), durable writes
of the simulated volumes, the tree of the metadata store, and what the workload tells it about calls
of the ledger client. It never asks the code under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.errors import LedgerError, Outcome
from client.ids import EntryId
from client.ledger.core import metadata_codec
from client.ledger.core.ledger_metadata import LedgerMetadata, LedgerState
from tests.simulation.bookies import durable_records
from tests.simulation.bookies.fair_share import FairShare
from tests.simulation.bookies.ledger_books import (
    BookieBook,
    LedgerBook,
    holders,
    is_member,
    ledger_of,
)
from tests.simulation.ledgers.metadata_rules import MetadataRules
from tests.simulation.ledgers.trace import Trace
from tests.simulation.machine.loop import SimLoop, Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.metadata.tree import Tree
    from tests.simulation.bookies.wiretap import Pending
    from tests.simulation.machine.volume import SimFile, Write

OK, NO_LEDGER, NO_ENTRY = 0, 1, 2


class LedgerOracle:
    """Checks one schedule. Every violation ends it through `SimLoop.fail`."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.ledgers: dict[int, LedgerBook] = {}
        self.bookies: dict[str, BookieBook] = {}
        self.counts: dict[str, int] = {}
        self.log: list[str] | None = None
        """Every event in words, when somebody wants to read them."""
        self.on_hot: Callable[[str, str], None] = lambda what, who: None
        """Told of moments at which a fault hurts most: what happens, and to which bookie."""
        self._received = 0
        self.trace = Trace(self.fail)
        self.share = FairShare(self.fail)
        self._metadata_rules = MetadataRules(self)

    def hot(self, what: str, who: str = "") -> None:
        """A moment at which a fault would hurt."""
        self.on_hot(what, who)

    def fail(self, name: str, text: str) -> None:
        """Report a violation."""
        self.note("VIOLATION %s: %s", name, text)
        self.loop.fail(Violation(f"{name}: {text}"))

    def note(self, text: str, *values: object) -> None:
        """Write an event down if a log is kept."""
        if self.log is not None:
            self.log.append(f"{self.loop.time() - 1000:10.6f} " + text % values)

    def count(self, what: str) -> None:
        """Count an event for the schedule's summary."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def ledger(self, ledger_id: int) -> LedgerBook:
        """Return the book of a ledger."""
        book = self.ledgers.get(ledger_id)
        if book is None:
            book = self.ledgers[ledger_id] = LedgerBook(ledger_id)
        return book

    def bookie(self, name: str) -> BookieBook:
        """Return the book of a bookie."""
        book = self.bookies.get(name)
        if book is None:
            book = self.bookies[name] = BookieBook(name)
        return book

    # ---------------------------------------------------------------- the writer's calls

    def sent(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """The workload called `add` and was given an entry id."""
        book = self.ledger(ledger_id)
        if entry_id != len(book.sent):
            self.fail("L5", f"ledger {ledger_id}: add {len(book.sent)} was called {entry_id}")
        book.sent.append(payload)

    def added(self, ledger_id: int, entry_id: int, error: LedgerError | None) -> None:
        """An add's callback fired."""
        book = self.ledger(ledger_id)
        self.note("added %d/%d %r", ledger_id, entry_id, error)
        if error is not None:
            self.count("adds failed")
            if book.failed_at is None:
                book.failed_at = entry_id
            if error.outcome is Outcome.NOT_APPLIED:
                book.definite[entry_id] = error
            return
        self.count("adds")
        if entry_id != book.acked + 1:
            self.fail("R8", f"ledger {ledger_id}: {entry_id} acked after {book.acked}")
        if book.failed_at is not None and book.failed_at <= entry_id:
            self.fail("R8", f"ledger {ledger_id}: {entry_id} acked after {book.failed_at} failed")
        self.trace.ledger(ledger_id, "acknowledged", entry_id)
        book.acked = entry_id
        closed_at = book.closed_at
        if closed_at is not None and entry_id > closed_at:
            self.fail("L2", f"ledger {ledger_id}: {entry_id} acked, but closed at {closed_at}")
        self.check_durable(book, entry_id, "R8")

    def check_durable(self, book: LedgerBook, entry_id: int, name: str) -> None:
        """See that enough bookies of its write set have an entry on their disks; else the rule
        `name` is broken."""
        metadata = book.metadata
        if metadata is None:
            return
        ensemble = metadata.fragment_of(EntryId(entry_id)).ensemble
        holders, needed, key = 0, metadata.ack_quorum, (book.ledger_id, entry_id)
        for index in metadata.schedule.write_set(EntryId(entry_id)):
            bookie = self.bookie(ensemble[index])
            holders += key in bookie.durable
            needed -= bookie.wiped
        if holders < max(needed, 1):
            held = [n for n, b in self.bookies.items() if key in b.durable]
            self.fail(
                name,
                f"ledger {book.ledger_id}: entry {entry_id} is durable on {holders} of"
                f" {ensemble}, needs {needed}; holders: {held}",
            )

    # ---------------------------------------------------------------- readers and recoverers

    def read(
        self, ledger_id: int, entry_id: int, payload: bytes, by: str, *, stays: bool = True
    ) -> None:
        """A reader was given an entry, which `stays`: it is in the ledger for good."""
        book = self.ledger(ledger_id)
        self.count("reads")
        if entry_id >= len(book.sent) or payload != book.sent[entry_id]:
            what = payload[:24]
            self.fail("L5", f"ledger {ledger_id}: {by} read {what!r} at {entry_id}")
        if not stays:
            return
        book.seen_max = max(book.seen_max, entry_id)
        closed_at = book.closed_at
        if closed_at is not None and entry_id > closed_at:
            self.fail("R1", f"ledger {ledger_id}: {by} read {entry_id} above end {closed_at}")

    def recovered(self, ledger_id: int, last_entry: int, by: str) -> None:
        """`recover` returned: the ledger is closed, and this is its end."""
        book = self.ledger(ledger_id)
        self.note("recovered %d at %d by %s", ledger_id, last_entry, by)
        self.count("recoveries")
        if book.closed_at != last_entry:
            self.fail(
                "L2",
                f"ledger {ledger_id}: {by} closed at {last_entry}, metadata says {book.closed_at}",
            )

    def closed(self, ledger_id: int, last_entry: int, by: str) -> None:
        """A writer's `close` returned without an error."""
        self.count("closes")
        self.recovered(ledger_id, last_entry, by)

    # ---------------------------------------------------------------- metadata

    def watch(self, tree: Tree) -> None:
        """See every change of ledger metadata in the store's tree."""
        create, change, delete = tree.create, tree.set, tree.delete

        def watched_create(path: str, data: bytes, **options: object) -> object:
            result = create(path, data, **options)  # type: ignore[arg-type]
            self.node_made(path, data)
            return result

        def watched_set(path: str, data: bytes, version: int) -> object:
            result = change(path, data, version)
            self.node_changed(path, data)
            return result

        def watched_delete(path: str, version: int) -> object:
            result = delete(path, version)
            self.node_deleted(path)
            return result

        tree.create = watched_create  # type: ignore[method-assign, assignment]
        tree.set = watched_set  # type: ignore[method-assign, assignment]
        tree.delete = watched_delete  # type: ignore[method-assign, assignment]

    def node_changed(self, path: str, data: bytes) -> None:
        """A node of the store has a new value."""
        ledger_id = ledger_of(path)
        if ledger_id is not None:
            self._metadata_changed(self.ledger(ledger_id), metadata_codec.decode(data))

    def node_deleted(self, path: str) -> None:
        """A node of the store is gone."""
        ledger_id = ledger_of(path)
        if ledger_id is not None:
            self.note("deleted %d", ledger_id)
            self.ledger(ledger_id).deleted = True

    def node_made(self, path: str, data: bytes) -> None:
        """A node of the store is new."""
        ledger_id = ledger_of(path)
        if ledger_id is None:
            return
        book = self.ledger(ledger_id)
        book.metadata = metadata_codec.decode(data)
        self.note("created %d %s", ledger_id, book.metadata.fragments)
        self.trace.made(ledger_id, book.metadata)
        if book.metadata.state is not LedgerState.OPEN or len(book.metadata.fragments) != 1:
            self.fail("L1", f"ledger {ledger_id} was born {book.metadata}")

    def _metadata_changed(self, book: LedgerBook, new: LedgerMetadata) -> None:
        old, book.metadata = book.metadata, new
        assert old is not None
        self.note(
            "metadata %d %s last=%d %s",
            book.ledger_id,
            new.state.name,
            new.last_entry,
            new.fragments,
        )
        self.hot("metadata changed")
        self.trace.changed(book.ledger_id, new)
        self._metadata_rules.check(book, old, new)
        if new.state is LedgerState.CLOSED:
            self._release(book, old, new)

    def _release(self, book: LedgerBook, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Expect of bookies that may forget a closed ledger only what they take from now on.

        A repair may make one a member, and copies to it what a member has. Whatever else reached
        it before (a late recovery's write) it may have forgotten while it was none.
        """
        for bookie in self.bookies.values():
            if self.may_have_dropped(bookie, book.ledger_id):
                bookie.stored.pop(book.ledger_id, None)
                bookie.fenced_at.pop(book.ledger_id, None)
            elif old.state is LedgerState.CLOSED and not is_member(bookie.name, old):
                bookie.fenced_at.pop(book.ledger_id, None)
                stored = bookie.stored.get(book.ledger_id, {})
                for entry in [e for e in stored if bookie.name not in holders(new, EntryId(e))]:
                    del stored[entry]

    # ---------------------------------------------------------------- disks

    def on_durable(self, bookie: str, file: SimFile, writes: list[Write]) -> None:
        """A sync made writes durable."""
        if not file.name.startswith("log/"):
            return
        book = self.bookie(bookie)
        for run in durable_records.runs_of(writes):
            self.find_entries(book, run)
            book.fences.update(durable_records.fences_in(run))

    def find_entries(self, book: BookieBook, run: bytearray) -> None:
        """Note which entries are in bytes that are durable now."""
        book.durable.update(durable_records.marks_in(run))

    def wiped(self, bookie: str) -> None:
        """A bookie lost its disk."""
        self.bookie(bookie).wipe()
        self.trace.disk_lost(bookie)

    # ---------------------------------------------------------------- the wire

    def add_received(self, bookie: str, add: Pending) -> None:
        self._received += 1
        add.arrived = self._received
        self.share.add_received(bookie, add)
        book = self.ledger(add.ledger)
        self.note(
            "%s gets add %d/%d lac=%d%s from %s",
            bookie,
            add.ledger,
            add.entry,
            add.lac,
            " recovery" if add.recovery else "",
            add.peer,
        )
        if not add.recovery:
            self.trace.ledger(add.ledger, "add_arrived", bookie, add.entry)
            book.lac_sent = max(book.lac_sent, add.lac)
            pending = self.bookie(bookie).pending.setdefault((add.ledger, add.entry), [])
            pending.append(add)
        elif book.metadata is not None:
            self.hot("recovery add", bookie)
            frozen = max(book.lac_sent, *(f.first_entry - 1 for f in book.metadata.fragments))
            if add.lac > frozen:
                self.fail(
                    "R2",
                    f"ledger {add.ledger}: recovery add {add.entry} carries LAC"
                    f" {add.lac}, the writer never sent more than {frozen}",
                )

    def group_written(self, bookie: str, size: int) -> None:
        self.share.group_written(bookie, size)

    def add_answered(self, bookie: str, add: Pending, code: int) -> None:
        book = self.bookie(bookie)
        self.note("%s answers add %d/%d %d", bookie, add.ledger, add.entry, code)
        pending = book.pending.get((add.ledger, add.entry))
        if pending is not None and add in pending:
            pending.remove(add)
            if not pending:
                del book.pending[add.ledger, add.entry]
        if code != OK:
            return
        self._check_identity(book)
        self.share.add_answered(bookie, add)
        self.hot("add answered", bookie)
        book.stored.setdefault(add.ledger, {}).setdefault(add.entry, self._received)
        fenced_at = book.fenced_at.get(add.ledger)
        if not add.recovery:
            if fenced_at is not None and fenced_at < add.arrived:
                self.fail(
                    "R3",
                    f"{bookie} took add {add.ledger}/{add.entry} after it had answered a fence",
                )
            if add.denied:
                self.fail(
                    "R5",
                    f"{bookie} took add {add.ledger}/{add.entry}, although a"
                    f" fencing read that came later was told it is not there",
                )
        durable = (add.ledger, add.entry) in book.durable
        self.trace.ledger(
            add.ledger,
            "add_answered",
            bookie,
            add.entry,
            recovery=add.recovery,
            durable=durable,
        )
        if not durable:
            self.fail("R8", f"{bookie} answered add {add.ledger}/{add.entry} before a sync")

    def read_received(self, bookie: str, read: Pending) -> None:
        self._received += 1
        read.arrived = self._received
        if read.entry < 0:
            read.lac = max(self.bookie(bookie).stored.get(read.ledger, ()), default=-1)
        elif read.fence:
            self._check_fenced_first(self.ledger(read.ledger), read)
            self.trace.ledger(read.ledger, "asked", bookie, read.entry, read.peer)
        self.note(
            "%s gets %s %d/%d from %s",
            bookie,
            "fence" if read.fence else "read",
            read.ledger,
            read.entry,
            read.peer,
        )

    def read_answered(
        self, bookie: str, read: Pending, code: int, entry: bytes | memoryview
    ) -> None:
        book = self.bookie(bookie)
        self.note(
            "%s answers %s %d/%d %d",
            bookie,
            "fence" if read.fence else "read",
            read.ledger,
            read.entry,
            code,
        )
        if code in (OK, NO_LEDGER, NO_ENTRY):
            self._check_identity(book)
        if read.fence and code in (OK, NO_LEDGER, NO_ENTRY):
            if read.ledger not in book.fences:
                self.fail("R3", f"{bookie} answered a fence of {read.ledger} that is not durable")
            book.fenced_at.setdefault(read.ledger, self._received)
            self.trace.ledger(read.ledger, "fence_answered", bookie)
            self.hot("fence answered", bookie)
        if code == OK:
            self._check_served(book, read, bytes(entry))
        elif code in (NO_LEDGER, NO_ENTRY) and not self.may_have_dropped(book, read.ledger):
            self._check_negative(book, read)

    def fence_heard(self, bookie: str, read: Pending, code: int) -> None:
        """The answer to a fencing read reached its client."""
        if read.entry < 0 and code in (OK, NO_LEDGER, NO_ENTRY):
            self.ledger(read.ledger).fenced_for.setdefault(read.peer, set()).add(bookie)

    def _check_fenced_first(self, book: LedgerBook, read: Pending) -> None:
        """No recovery read may leave before enough of the last ensemble is fenced."""
        metadata = book.metadata
        if metadata is None or metadata.state is not LedgerState.IN_RECOVERY:
            return
        answered = book.fenced_for.get(read.peer, set())
        known = sum(
            1 << index
            for index, bookie in enumerate(metadata.last_fragment.ensemble)
            if bookie in answered
        )
        if any(
            sum(not known >> index & 1 for index in metadata.schedule.write_set(EntryId(first)))
            >= metadata.ack_quorum
            for first in range(metadata.ensemble_size)
        ):
            self.fail(
                "R3",
                f"{read.peer} reads {read.ledger}/{read.entry} to recover it, only"
                f" {sorted(answered)} are fenced",
            )

    def _check_identity(self, book: BookieBook) -> None:
        if book.is_nobody:
            self.fail("R10", f"{book.name} lost its disk and answers under its old name")

    def _check_served(self, book: BookieBook, read: Pending, entry: bytes) -> None:
        number = int.from_bytes(entry[8:16], "big")
        sent = self.ledger(read.ledger).sent
        if read.entry >= 0 and number != read.entry:
            self.fail("R4", f"{book.name} served {number} for {read.ledger}/{read.entry}")
        elif number >= len(sent) or not entry.endswith(sent[number]):
            self.fail("R4", f"{book.name} served wrong bytes for {read.ledger}/{number}")
        elif (
            read.entry < 0
            and number < read.lac
            and not book.rotten
            and not self.may_have_dropped(book, read.ledger)
        ):
            # A ledger that was deleted may come back with what a late recovery writes.
            self.fail(
                "R5",
                f"{book.name} called {number} the last entry of {read.ledger}, it"
                f" had taken {read.lac}",
            )

    def may_have_dropped(self, book: BookieBook, ledger_id: int) -> bool:
        """Whether a bookie may forget a ledger: it is deleted, or closed and elsewhere (R12)."""
        ledger = self.ledger(ledger_id)
        if ledger.deleted:
            return True
        metadata = ledger.metadata
        return (
            metadata is not None
            and metadata.state is LedgerState.CLOSED
            and not is_member(book.name, metadata)
        )

    def _check_negative(self, book: BookieBook, read: Pending) -> None:
        if read.fence and read.entry >= 0:
            self.trace.ledger(read.ledger, "denied", book.name, read.entry, read.peer)
        stored = book.stored.get(read.ledger, {})
        wanted = stored if read.entry < 0 else stored.keys() & {read.entry}
        if any(stored[entry] < read.arrived for entry in wanted):
            self.fail("R4", f"{book.name} denied {read.ledger}/{read.entry}, which it had taken")
        for add in book.pending.get((read.ledger, read.entry), ()):
            if read.fence and add.arrived < read.arrived:
                add.denied = True
