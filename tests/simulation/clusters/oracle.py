"""The judge of whole-cluster schedules: chains of ledgers, takeovers, topics, on top of ledgers.

    C1 at most the last two listed ledgers are open, and a newer one confirms nothing before the
       older one's end is final
    C2 the list loses a prefix and gains one id at its end, by compare-and-set only
    C3 sealed segments never change, but for where what is aborted in them is listed
    C4 nothing is confirmed in an unlisted ledger
    C5 a new leader lists its ledger once all others are closed
    C6 ledgers in order give one gapless sequence of offsets
    C7 a listed ledger is never deleted
    C8 a page is there while the list names it, and never changes

    T1 acknowledged records stay            T2 one value per offset, for everybody, for ever
    T3 an idempotent batch is stored once   T4 in its producer's order
    T5 a consumer skips nothing             T9 nothing unconfirmed is shown
    T10 no high watermark goes back for a client that knows the epoch
    T13 earliest and latest bound what is readable
    T14 only prefixes that somebody gave up are dropped
    T15 no success without an offset        T16 after healing everything goes on
    T17 when all is quiet, a leader that is named takes what is produced
    T18 where all is only slow, no leader changes and no bookie counts as failed
    T19 and every batch is answered in its time
    T20 a background task ends with its node
    T21 when all is quiet, a broker counts no bytes as held but those of open requests

    Z1 acknowledgements of epochs do not interleave (C1 and C5 together, and Z6)
    Z2 a replaced leader's batches never succeed (T1 at the end) nor change the list (C2)
    Z3 duplicates are known after a takeover (T3 over everything ever stored)
    Z4 nobody is told "out of range" about what is there
    Z5 a leader that was replaced serves no reads for longer than a session lasts
    Z6 leader epochs grow by one per takeover, and never fall along the log

    N1 brokers that do not lead show nothing that is not confirmed
    N2 and never say that an offset is out of range; N3 nor send a consumer on

AD1 to AD9 are about what operators change (`admin_book.py`, `spoiled_nodes.py`).

Consumer groups (T11, T12, Z8) are judged by `group_member.History`, compacted partitions by
`compacted_book.py`, share groups (S1 to S9) by `share_book.py`.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

from client.log.offloaded import name_of
from client.log.segment_object import folder_of
from client.log.segment_pages import PageName, decode_page
from client.log.segments import Segment, SegmentList, decode_segments, is_inline
from client.metadata import paths
from tests.simulation.bookies.ledger_books import BookieBook, LedgerBook, ledger_of
from tests.simulation.clusters.compacted_book import CompactedBook, Expected
from tests.simulation.clusters.offload_load import check_object
from tests.simulation.kafka.connection import OUT_OF_RANGE, Fetched, Refused
from tests.simulation.kafka.entries import Batch, batches_of
from tests.simulation.ledgers.oracle import LedgerOracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.errors import LedgerError
    from client.objects.memory import MemoryObjectStore
    from tests.simulation.bookies.wiretap import Pending
    from tests.simulation.clusters.access_book import AccessBook
    from tests.simulation.clusters.admin_book import AdminBook
    from tests.simulation.clusters.spoiled_nodes import SpoiledNodes
    from tests.simulation.machine.loop import SimLoop

_PARTITION_PATH = re.compile(r"^/quire/partitions/([^/]+)/(\d+)$")
_PAGE_PATH = re.compile(r"^(/quire/partitions/[^/]+/\d+)/pages/\d+/([^/]+)$")
_PARTITIONS = "/quire/partitions/"
_TOPIC_PREFIX = "/quire/topics/"
_KEY = struct.Struct(">qq")


def _page_of(path: str) -> tuple[str, PageName] | None:
    """Return (the partition's path, name) of a page's node."""
    match = _PAGE_PATH.match(path)
    name = paths.page_name(match[2]) if match is not None else None
    return (match[1], PageName(*name)) if match is not None and name is not None else None


def _folder(book: PartitionBook) -> str:
    """Return where the object store has a partition's segments."""
    topic_id, _, index = book.name.partition("/")
    return folder_of(topic_id, int(index.partition(" ")[0]))


def _objects_of(book: PartitionBook) -> set[str]:
    """Return the names of all objects that a list has, in whatever place."""
    state = book.segments.offload
    marked = [*state.graves, *filter(None, [state.intent])]
    names = {one.name for one in marked} | set(map(name_of, book.segments.segments))
    return {name.path(_folder(book)) for name in names if name is not None}


def _lasting(segment: Segment) -> Segment:
    """Return a segment without the place where its aborted transactions are listed: a takeover
    that finds nothing but a snapshot behind a recovered ledger lists them in its own again."""
    facts = segment.facts
    if facts is None or facts.transactions is None:
        return segment._replace(stored=None)
    transactions = facts.transactions._replace(aborted_at=None)
    return segment._replace(stored=None, facts=facts._replace(transactions=transactions))


class PartitionBook:
    """All that is known about one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments = SegmentList()
        """As it was last set, with what is in its pages in their place."""
        self.pages: dict[PageName, bytes] = {}
        """Nodes of pages that are there."""
        self.named: dict[PageName, None] = {}
        """Pages that the list names, those that pages name included."""
        self.chain: list[int] = []
        """Every ledger that was ever listed, in order."""
        self.ends: dict[int, int] = {}
        """End offset of ledgers whose end is final."""
        self.confirmed: set[int] = set()
        """Ledgers in which something was confirmed."""
        self.values: dict[int, bytes] = {}
        """offset -> value, of everything acknowledged or consumed."""
        self.acked: dict[int, bytes] = {}
        self.led_since_s: dict[int, float] = {}
        """When each leader epoch began."""
        self.confirmed_end = 0
        """Lower bound of the offset up to which the log is confirmed."""
        self.trim_to = 0
        """Highest offset below which somebody asked to delete."""
        self.compacted: CompactedBook | None = None
        """What is known of its compaction; None: it is not compacted."""


class ClusterOracle(LedgerOracle):
    """Checks one whole-cluster schedule."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop)
        self.partitions: dict[str, PartitionBook] = {}
        self._owners: dict[int, PartitionBook] = {}
        """Ledger -> the partition whose list names it, or did."""
        self._gone: dict[str, int] = {}
        """How often the node of a partition was deleted, by path."""
        self._topic_ids: dict[str, str] = {}
        self._partition_counts: dict[str, int] = {}
        self.forgets_producers = False
        """Whether partitions remember so few producers that they forget some."""
        self.ack_quorum_min = 1
        """Copies that every topic of this schedule wants before an acknowledgement."""
        self.is_only_slow: Callable[[], bool] = lambda: False
        """Whether nothing happens to the cluster but slowness."""
        self.access: AccessBook | None = None
        """What is known of rights and logins; None: there are none."""
        self.admin: AdminBook | None = None
        self.spoiled: SpoiledNodes | None = None
        """What operators have asked for; None: there are none."""
        self.compaction: Expected | None = None
        """What is expected of compacted topics; None: there are none."""
        self.objects: MemoryObjectStore | None = None
        """The object store; None: there is none."""
        self.object_names: set[str] = set()
        """Names of objects that a list has, or had."""

    # ---------------------------------------------------------------- entries on bookies

    def add_received(self, bookie: str, add: Pending) -> None:
        super().add_received(bookie, add)
        book = self.bookie(bookie)
        key = (add.ledger, add.entry)
        if key not in book.durable:
            book.awaited[key] = _KEY.pack(*key)

    def find_entries(self, book: BookieBook, run: bytearray) -> None:
        """An entry is known by the ids its envelope begins with."""
        found = [key for key, ids in book.awaited.items() if ids in run]
        for key in found:
            book.durable.add(key)
            del book.awaited[key]

    # ---------------------------------------------------------------- the chain

    def sent(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        super().sent(ledger_id, entry_id, payload)
        partition = self._owners.get(ledger_id)
        compacted = self._compacted_by(ledger_id)
        if compacted is not None:
            self.hot("compacted")
            compacted.written(ledger_id, payload)
            return
        if partition is None or ledger_id not in partition.chain:
            self.fail("C4", f"ledger {ledger_id} is sent {entry_id}, no list names it")
            return
        self.trace.sent(
            partition.name, ledger_id, [batch.abstract() for batch in batches_of(payload)]
        )

    def added(self, ledger_id: int, entry_id: int, error: LedgerError | None) -> None:
        super().added(ledger_id, entry_id, error)
        if error is not None:
            return
        partition = self._owners.get(ledger_id)
        metadata = self.ledger(ledger_id).metadata
        if metadata is not None and metadata.ack_quorum < self.ack_quorum_min:
            self.fail("R8", f"ledger {ledger_id} is content with {metadata.ack_quorum}")
        if self._compacted_by(ledger_id) is not None:
            return
        if partition is None:
            self.fail("C4", f"ledger {ledger_id} confirmed {entry_id}, no list names it")
            return
        if ledger_id not in partition.confirmed:
            partition.confirmed.add(ledger_id)
            self._check_older_are_final(partition, ledger_id)
        newer = partition.chain[partition.chain.index(ledger_id) + 1 :]
        if self.ledger(ledger_id).closed_at is None and partition.confirmed.intersection(newer):
            self.fail("C1", f"{partition.name}: {ledger_id}/{entry_id} confirmed after a newer one")

    def _compacted_by(self, ledger_id: int) -> CompactedBook | None:
        """Return the book of the compacted partition that an unlisted ledger was made for."""
        metadata = self.ledger(ledger_id).metadata
        if self.compaction is None or ledger_id in self._owners or metadata is None:
            return None
        labels = metadata.custom_metadata
        name = f"{labels['quire.topic_id'].decode()}/{labels['quire.partition'].decode()}"
        return self._book(_PARTITIONS + name).compacted

    def _check_older_are_final(self, partition: PartitionBook, ledger_id: int) -> None:
        for older in partition.chain[: partition.chain.index(ledger_id)]:
            book = self.ledger(older)
            if book.closed_at is None and not book.deleted and book.acked + 1 != len(book.sent):
                self.fail(
                    "C1",
                    f"{partition.name}: {ledger_id} confirms entries, {older} has confirmed"
                    f" {book.acked + 1} of {len(book.sent)}",
                )

    def node_made(self, path: str, data: bytes) -> None:
        super().node_made(path, data)
        self._tell_books(path, data)
        self._list_set(path, data)
        page = _page_of(path)
        if page is not None:
            self.hot("page made")
            self._book(page[0]).pages[page[1]] = data
        if path.startswith(_TOPIC_PREFIX):
            fields = json.loads(data)
            name = path.removeprefix(_TOPIC_PREFIX)
            self._topic_ids[name] = fields["topic_id"]
            self._partition_counts[name] = fields["partition_count"]
            if fields["internal"]:  # its coordinators trim it as they think fit
                for index in range(fields["partition_count"]):
                    book = self._book(f"{_PARTITIONS}{fields['topic_id']}/{index}")
                    book.trim_to = 1 << 62
            elif "compact" in fields["configs"].get("cleanup.policy", ""):
                self._compacted_topic(fields)

    def _compacted_topic(self, fields: dict[str, Any]) -> None:
        assert self.compaction is not None
        for index in range(fields["partition_count"]):
            book = self._book(f"{_PARTITIONS}{fields['topic_id']}/{index}")
            book.compacted = CompactedBook(self, book, self.compaction)
            if "delete" in fields["configs"]["cleanup.policy"]:
                book.trim_to = 1 << 62

    def node_changed(self, path: str, data: bytes) -> None:
        super().node_changed(path, data)
        self._tell_books(path, data)
        self._list_set(path, data)
        if _page_of(path) is not None:
            self.fail("C8", f"{path} was set again")

    def node_deleted(self, path: str) -> None:
        super().node_deleted(path)
        self._tell_books(path, None)
        if path in self.partitions:
            # What comes after it under this path, made by somebody who has not heard of the
            # deletion, is another log: of nothing that clients know.
            self._gone[path] = self._gone.get(path, 0) + 1
            self.partitions[f"{path} {self._gone[path]}"] = self.partitions.pop(path)
        page = _page_of(path)
        if page is not None:
            book = self._book(page[0])
            del book.pages[page[1]]
            if page[1] in book.named and not book.segments.deleted:
                self.fail("C8", f"{book.name}: {page[1]} was deleted, the list names it")
        ledger_id = ledger_of(path)
        if ledger_id is None or ledger_id not in self._owners:
            return
        partition = self._owners[ledger_id]
        if self._is_given_up(partition, ledger_id):
            return
        if not partition.segments.deleted:
            self.trace.deleted(partition.name, ledger_id)
        if is_inline(partition.segments, ledger_id) and not partition.segments.deleted:  # type: ignore[arg-type]
            self.fail("C7", f"{partition.name}: listed ledger {ledger_id} was deleted")

    def _is_given_up(self, book: PartitionBook, ledger_id: int) -> bool:
        """Whether a listed ledger may be deleted, as the list says that it is gone (O3)."""
        for segment in book.segments.segments:
            if segment.ledger_id == ledger_id and segment.is_ledger_gone:
                ledger, name = self.ledger(ledger_id), name_of(segment)
                assert self.objects is not None
                assert name is not None
                assert ledger.closed_at is not None
                if not book.segments.deleted:
                    entries = ledger.sent[: ledger.closed_at + 1]
                    check_object(self, self.objects, name.path(_folder(book)), entries)
                return True
        return False

    def is_object_needed(self, path: str) -> bool:
        """Whether a segment of a partition that is not deleted is in this object."""
        return any(
            (name := name_of(segment)) is not None and name.path(_folder(book)) == path
            for book in self.partitions.values()
            for segment in book.segments.segments
            if not book.segments.deleted
        )

    def is_object_named(self, path: str) -> bool:
        """Whether any list names an object now; of a deleted partition, everything is."""
        folder = path.rpartition("/")[0]
        return any(
            path in _objects_of(book) or (book.segments.deleted and folder == _folder(book))
            for book in self.partitions.values()
        )

    def _tell_books(self, path: str, data: bytes | None) -> None:
        for book in (self.access, self.admin, self.spoiled):
            if book is not None:
                book.node_changed(path, data)

    def _list_set(self, path: str, data: bytes) -> None:
        match = _PARTITION_PATH.match(path)
        if match is None:
            return
        book = self._book(path)
        old, new = book.segments, self._expanded(book, decode_segments(data))
        if old == new:
            return
        self.note(
            "list %s epoch=%d start=%d %s",
            book.name,
            new.leader_epoch,
            new.log_start_offset,
            [(s.ledger_id, s.base_offset, s.facts and s.facts.last_offset) for s in new.segments],
        )
        self.hot("list changed")
        ids = [int(segment.ledger_id) for segment in new.segments]
        if book.compacted is not None and any(
            one.cleaned and one not in old.segments for one in new.segments
        ):
            self.trace.swapped(book.name, new.leader_epoch, ids)
            book.compacted.swapped(old, new)
            self._owners.update(dict.fromkeys(ids, book))
        else:
            self.trace.listed(book.name, new.leader_epoch, ids)
            self._check_list(book, old, new)
            if book.compacted is not None:
                book.compacted.listed(old, new)
        book.segments = new
        self.object_names |= _objects_of(book)

    def _expanded(self, book: PartitionBook, head: SegmentList) -> SegmentList:
        """Return a list with the content of its pages in their place."""
        book.named = {}
        older: list[Segment] = []
        left = [*head.pages[::-1]]
        while left:
            ref = left.pop()
            book.named[ref.name] = None
            data = book.pages.get(ref.name)
            if data is None:
                self.fail("C8", f"{book.name}: the list names {ref.name}, which is not there")
                continue
            page = decode_page(data, ref)
            self.count("pages of pages" if page.pages else "pages")
            left += page.pages[::-1]
            older += page.segments
        segments = (*head.oldest, *older, *head.segments)
        return head._replace(oldest=(), pages=(), page_count=0, segments=segments)

    def _check_list(self, book: PartitionBook, old: SegmentList, new: SegmentList) -> None:
        before = [s.ledger_id for s in old.segments]
        after = [s.ledger_id for s in new.segments]
        added = [i for i in after if i not in before]
        kept = [i for i in after if i in before]
        dropped = len(before) - len(kept)
        if before[dropped:] != kept or after != kept + added or len(added) > 1:
            self.fail("C2", f"{book.name}: {before} became {after}")
        if added:
            self._check_growth(book, old, new, int(added[0]))
        elif new.leader_epoch != old.leader_epoch:
            self._check_read_only(book, old, new)
        self._check_sealed(book, old, new, dropped)
        if new.log_start_offset < old.log_start_offset or new.log_start_offset > book.trim_to:
            self.fail(
                "T14",
                f"{book.name}: log start {old.log_start_offset} -> {new.log_start_offset},"
                f" asked for was {book.trim_to}",
            )

    def _check_growth(
        self, book: PartitionBook, old: SegmentList, new: SegmentList, added: int
    ) -> None:
        if added in book.chain:
            self.fail("C2", f"{book.name}: ledger {added} is listed a second time")
        takeover = new.leader_epoch == old.leader_epoch + 1
        if not takeover and new.leader_epoch != old.leader_epoch:
            self.fail("Z6", f"{book.name}: epoch {old.leader_epoch} -> {new.leader_epoch}")
        if not takeover and new.segments[-1].base_offset is not None and old.segments:
            self.fail("Z6", f"{book.name}: ledger {added} is a takeover's, its epoch is not")
        self.count("takeovers" if takeover else "rolls")
        others = [s.ledger_id for s in new.segments[:-1]]
        for ledger_id in others if takeover else others[:-1]:
            ledger = self.ledger(ledger_id)
            if ledger.closed_at is None and not ledger.deleted:
                self.fail(
                    "C5" if takeover else "C1",
                    f"{book.name}: ledger {added} is listed while {ledger_id} is open",
                )
        if takeover and self.is_only_slow():
            self.fail("T18", f"{book.name}: all was only slow, and epoch {new.leader_epoch} begins")
        if takeover:
            book.led_since_s[new.leader_epoch] = self.loop.time()
        book.chain.append(added)
        self._owners[added] = book

    def _check_read_only(self, book: PartitionBook, old: SegmentList, new: SegmentList) -> None:
        """A leadership without a ledger begins: nothing else may change, and nobody may write."""
        if new != old.led():
            self.fail("Z6", f"{book.name}: {old} became {new} without a ledger")
        for segment in new.segments:
            ledger = self.ledger(segment.ledger_id)
            if ledger.closed_at is None and not ledger.deleted:
                self.fail("C5", f"{book.name}: led for reads while {segment.ledger_id} is open")
        if self.is_only_slow():
            self.fail("T18", f"{book.name}: all was only slow, and epoch {new.leader_epoch} begins")
        self.count("leaders without a ledger")
        book.led_since_s[new.leader_epoch] = self.loop.time()

    def _check_sealed(
        self, book: PartitionBook, old: SegmentList, new: SegmentList, dropped: int
    ) -> None:
        for segment in new.segments:
            if segment.facts is None:
                continue
            ledger = self.ledger(segment.ledger_id)
            if ledger.closed_at is None and not ledger.deleted:
                self.fail("C3", f"{book.name}: {segment.ledger_id} is sealed and open")
            end = None if segment.cleaned else self._end_of(book, ledger)
            if end is not None and end != segment.end_offset:
                self.fail("C6", f"{book.name}: {segment} ends at {end}")
        for was, now in zip(old.segments[dropped:], new.segments, strict=False):
            if was.facts is not None and _lasting(was) != _lasting(now):
                self.fail("C3", f"{book.name}: sealed {was} became {now}")
        if dropped:
            last = old.segments[dropped - 1]
            if last.end_offset is None or last.end_offset > new.log_start_offset:
                self.fail("T14", f"{book.name}: {last} was dropped, start {new.log_start_offset}")

    def _end_of(self, book: PartitionBook, ledger: LedgerBook) -> int | None:
        """Offset at which a closed ledger ends; None when it holds no record."""
        if ledger.ledger_id in book.ends:
            return book.ends[ledger.ledger_id]
        if ledger.closed_at is None:
            return None
        for payload in reversed(ledger.sent[: ledger.closed_at + 1]):
            found = batches_of(payload)
            if found:
                book.ends[ledger.ledger_id] = found[-1].next_offset
                return found[-1].next_offset
        return None

    # ---------------------------------------------------------------- what clients are told

    def partition(self, topic: str, index: int) -> PartitionBook:
        """Return the book of a partition by its topic's name."""
        return self._book(f"{_PARTITIONS}{self._topic_ids[topic]}/{index}")

    def partition_of(self, topic_id: str, index: int) -> PartitionBook:
        """Return the book of a partition by its topic's id."""
        return self._book(f"{_PARTITIONS}{topic_id}/{index}")

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if there is none."""
        return self._partition_counts.get(topic, 0)

    def topic_of(self, book: PartitionBook) -> str:
        """Return the name of the topic of a partition."""
        topic_id = book.name.partition("/")[0]
        return next(name for name, known in self._topic_ids.items() if known == topic_id)

    def _book(self, path: str) -> PartitionBook:
        book = self.partitions.get(path)
        if book is None:
            again = " again" * self._gone.get(path, 0)
            book = self.partitions[path] = PartitionBook(path.removeprefix(_PARTITIONS) + again)
        return book

    def acknowledged(self, book: PartitionBook, offset: int, values: list[bytes]) -> None:
        """A producer was told that its batch is stored."""
        self.count("batches acknowledged")
        if offset < 0:
            self.fail("T15", f"{book.name}: success at offset {offset}")
        for at, value in enumerate(values, offset):
            self._one_value(book, at, value)
            book.acked[at] = value

    def consumed(self, book: PartitionBook, by: str, data: bytes, position: int) -> int:
        """A consumer was given batches; return its next position."""
        for batch in batches_of(data):
            if batch.next_offset <= position:
                continue
            if batch.base_offset > position:
                self.fail("T5", f"{book.name}: {by} wanted {position}, got {batch.base_offset}")
            self._check_confirmed(book, batch, by)
            for offset, value in batch.values():
                self._one_value(book, offset, value)
                self.count("records consumed")
            position = batch.next_offset
        return position

    def _one_value(self, book: PartitionBook, offset: int, value: bytes) -> None:
        known = book.values.setdefault(offset, value)
        if known != value:
            self.fail("T2", f"{book.name}: offset {offset} is {known!r} and {value!r}")

    def _check_confirmed(self, book: PartitionBook, batch: Batch, by: str) -> None:
        for ledger_id in reversed(book.chain):
            ledger = self.ledger(ledger_id)
            end = ledger.acked if ledger.closed_at is None else ledger.closed_at
            for payload in ledger.sent[: end + 1]:
                if batch.data in payload:
                    return
        self.fail("T9", f"{book.name}: {by} was shown {batch.base_offset}, which nobody confirmed")

    def watermark(self, book: PartitionBook, by: str, before: int, now: int) -> int:
        """A client saw a high watermark; return the highest."""
        if now > book.confirmed_end:
            log = self.log_of(book)
            book.confirmed_end = log[-1].next_offset if log else 0
        if now > book.confirmed_end:
            self.fail("T9", f"{book.name}: {by} is told {now}, confirmed is {book.confirmed_end}")
        if now < before:
            self.fail("T10", f"{book.name}: {by} saw {before}, then {now}")
        return max(before, now)

    def read_nearby(self, book: PartitionBook, by: str, got: Fetched) -> None:
        """A broker that need not lead answered a consumer. Raises Refused.

        N1: it shows nothing that is not confirmed. N2: it never says that an offset is out of
        range. N3: it sends nobody on. What it shows is judged as what leaders show.
        """
        self.watermark(book, by, -1, got.high_watermark)
        if got.code == OUT_OF_RANGE:
            self.fail("N2", f"{book.name}: {by} is told out of range by who does not lead")
        if got.code:
            raise Refused(got.code, "fetch nearby")
        if got.replica >= 0:
            self.fail("N3", f"{book.name}: {by} is sent on to {got.replica}")
        if got.records:
            self.count("reads nearby")

    def served(
        self, book: PartitionBook, by: str, epoch: int, asked_s: float, session_s: float
    ) -> None:
        """A leader of some epoch answered a question that left its client at `asked_s`."""
        replaced_s = book.led_since_s.get(epoch + 1)
        if replaced_s is not None and asked_s > replaced_s + session_s:
            late_s = asked_s - replaced_s
            self.fail("Z5", f"{book.name}: {by} still serves epoch {epoch}, {late_s:.1f} s late")

    def out_of_range(self, book: PartitionBook, by: str, position: int) -> None:
        """A consumer that only goes on where it was is told that there is nothing."""
        if position >= book.trim_to:
            self.fail("Z4", f"{book.name}: {by} at {position} is told that it is out of range")

    # ---------------------------------------------------------------- at the end

    def log_of(self, book: PartitionBook) -> list[Batch]:
        """Return everything that ever was in the log, from its first ledger on."""
        found: list[Batch] = []
        for ledger_id in book.chain:
            ledger = self.ledger(ledger_id)
            end = ledger.acked if ledger.closed_at is None else ledger.closed_at
            for payload in ledger.sent[: end + 1]:
                found += batches_of(payload)
        return found

    def judge_log(self, book: PartitionBook) -> None:
        """Check a partition's whole log at quiescence, unless its topic was deleted."""
        if book.segments.deleted:
            return
        log = self.log_of(book)
        expected, epoch = 0, -1
        next_sequence: dict[tuple[int, int], int] = {}
        values: dict[int, bytes] = {}
        for batch in log:
            if batch.base_offset != expected:
                self.fail("C6", f"{book.name}: {batch.base_offset} follows {expected - 1}")
            expected = batch.next_offset
            if batch.epoch < epoch:
                self.fail("Z6", f"{book.name}: epoch {batch.epoch} after {epoch}")
            epoch = batch.epoch
            if batch.is_idempotent:
                self._check_sequence(book, batch, next_sequence)
            if batch.producer[0] >= 0:
                values.update(batch.values())
        for offset, value in book.acked.items():
            if values.get(offset) != value:
                self.fail("T1", f"{book.name}: acknowledged {value!r} at {offset} is gone")
        for offset, value in book.values.items():
            if values.get(offset) != value:
                self.fail("T9", f"{book.name}: {value!r} at {offset} was shown and is gone")

    def _check_sequence(
        self, book: PartitionBook, batch: Batch, next_sequence: dict[tuple[int, int], int]
    ) -> None:
        expected = next_sequence.get(batch.producer, 0)
        if batch.sequence < expected:
            self.fail("T3", f"{book.name}: {batch.producer} {batch.sequence} is stored twice")
        elif batch.sequence > expected:
            self.fail("T4", f"{book.name}: {batch.producer} {batch.sequence} before {expected}")
        next_sequence[batch.producer] = batch.sequence + batch.record_count
