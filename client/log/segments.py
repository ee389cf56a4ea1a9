"""The segment list: which ledgers, in which order, are the log of a partition.

The list lives in one metadata node, its head, as JSON, and changes by compare-and-set only. Leaders
change it; readers of ledgers, Spark among them, only look. Each method that changes it says what
the list becomes; the leader makes it true.

    opened    a takeover: the last segments sealed as recovered, a new one at the end, epoch + 1
    rolled    the leader adds the next ledger; the previous one is still being written
    sealed    the leader has closed the previous ledger; its facts and the next base are known
    trimmed   the oldest segments leave, the log start moves
    compacted a run of sealed segments is replaced by others for the same offsets (`compacted.py`)
    released  ledgers that were replaced are let go, once their grace is over
    offloaded segments go to the object store, and their ledgers leave the bookies (`offloaded.py`)
    condemned the topic was deleted: no leader may open the partition any more

A list that is longer than a page of segments moves its oldest ones into pages, nodes of their own
(`segment_pages.py`), whenever a ledger is added (`paged`): the same list in another form. When
it moves, and what is written first, is the leader's business. What the head says then, in order:

    oldest    what is left of the oldest page, once a trim has opened it
    pages     references, of at most `page_entries - 1` pages of each level at either end
    segments  the newest ones: what a takeover needs (NEWEST-IN-HEAD), and what may not be sealed

So a head has some `page_entries` entries per level, and a level holds `page_entries` times as many
segments as the one below: with 256, a head of at most some hundred KB for ten million segments.

Node, version 1: a list that never had a page, so that brokers that know no pages can still open it;
version 2: with `oldest`, `pages` and `page_count`; version 3: like 2, once the facts of a segment
in it speak of transactions; version 4: like 3, with `compaction`, once it was compacted; version 5:
like 4, with `offload`, once a segment was to go to an object store. An unknown version is refused,
never guessed; fields that are not known are written back as they were.

Invariants (`check`): every segment but the last two is sealed; only the last one may have an
unknown base offset, and then exactly the one before it is unsealed too; offsets are gapless.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.offload_state import (
    NEVER_OFFLOADED,
    OffloadState,
    offload_from_json,
    offload_to_json,
)
from client.log.segment import (
    Segment,
    SegmentFacts,
    knows_transactions,
    segment_from_json,
    segment_to_json,
)
from client.log.segment_pages import (
    LEVEL_MAX,
    Item,
    NewPage,
    Page,
    PageName,
    PageRef,
    check_run,
    find_epoch_end,
    ref_from_json,
    ref_of,
    ref_to_json,
)
from client.metadata.json_node import NO_FIELDS, read_object, unknown_fields, whole

__all__ = [
    "COMPACTED_VERSION",
    "FORMAT_VERSION",
    "NO_EPOCH",
    "OFFLOADED_VERSION",
    "PAGED_VERSION",
    "PAGE_ENTRIES",
    "TRANSACTIONS_VERSION",
    "Segment",
    "SegmentFacts",
    "SegmentList",
    "decode_segments",
    "epoch_end",
    "is_inline",
]

FORMAT_VERSION: Final = 1
PAGED_VERSION: Final = 2
TRANSACTIONS_VERSION: Final = 3
COMPACTED_VERSION: Final = 4
OFFLOADED_VERSION: Final = 5
_VERSIONS: Final = range(FORMAT_VERSION, OFFLOADED_VERSION + 1)
_FIELDS: Final = frozenset((
    "version", "leader_epoch", "log_start_offset", "page_count", "oldest", "pages", "segments",
    "compaction", "offload", "deleted",
))  # fmt: skip
NO_EPOCH: Final = LeaderEpoch(-1)
FIRST_EPOCH: Final = LeaderEpoch(NO_EPOCH + 1)
"""Of the first leader of a log."""
PAGE_ENTRIES: Final = 256
"""Segments of a page, or pages of a page. Written once for all of them, and small enough to be read
at once; ten million segments take three levels of it."""
_COMPACTION_FIELDS: Final = frozenset((
    "cleaned_until", "cleaned_ms", "next_horizon_ms", "saved_bytes", "retired",
))  # fmt: skip


class Retired(NamedTuple):
    """A ledger that another one has replaced."""

    ledger_id: LedgerId
    since_ms: int


class CompactionState(NamedTuple):
    """How far a partition's log was compacted, and which ledgers wait to be deleted.

    Stands in the head of the segment list, so it changes with the segments, in one compare-and-set.
    A ledger that was replaced stays listed here, as retired, until its grace is over: whoever still
    reads it by an older list, a Spark query among them, finds it, and whatever happens to the
    broker meanwhile, somebody knows that it has to go.
    """

    cleaned_until: Offset = Offset(0)
    """Of records below it, only the last of each key among them is left."""
    cleaned_ms: int = -1
    """When the last round was complete; -1: never."""
    next_horizon_ms: int = -1
    """When the first tombstone below `cleaned_until` may go; -1: there is none."""
    saved_bytes: int = 0
    """What all rounds together have made the log smaller by."""
    retired: tuple[Retired, ...] = ()
    kept: Mapping[str, Any] = NO_FIELDS
    """What only another release knows of it."""

    def due(self, before_ms: int) -> tuple[LedgerId, ...]:
        """Return the ledgers that were retired up to a time."""
        return tuple(one.ledger_id for one in self.retired if one.since_ms <= before_ms)


NEVER_COMPACTED: Final = CompactionState()


def state_to_json(state: CompactionState) -> dict[str, object]:
    """Return the object that stands for it in the head."""
    return {
        **state.kept,
        "cleaned_until": state.cleaned_until,
        "cleaned_ms": state.cleaned_ms,
        "next_horizon_ms": state.next_horizon_ms,
        "saved_bytes": state.saved_bytes,
        "retired": [[*one] for one in state.retired],
    }


def state_from_json(value: Mapping[str, Any]) -> CompactionState:
    """Raises ValueError, KeyError, TypeError."""
    retired: list[Retired] = []
    for ledger_id, since_ms in value["retired"]:
        if type(ledger_id) is not int or type(since_ms) is not int:
            raise ValueError("a retired ledger is two whole numbers")
        retired.append(Retired(LedgerId(ledger_id), since_ms))
    return CompactionState(
        Offset(whole(value, "cleaned_until")),
        whole(value, "cleaned_ms", -1),
        whole(value, "next_horizon_ms", -1),
        whole(value, "saved_bytes"),
        tuple(retired),
        unknown_fields(value, _COMPACTION_FIELDS),
    )


class SegmentList(NamedTuple):
    """The value of a partition's metadata node."""

    leader_epoch: LeaderEpoch = NO_EPOCH
    """Epoch of the last successful open; -1: never opened."""
    log_start_offset: Offset = Offset(0)
    segments: tuple[Segment, ...] = ()
    """The newest ones; all of them while there are no pages."""
    deleted: bool = False
    pages: tuple[PageRef, ...] = ()
    """Older ones, oldest first."""
    oldest: tuple[Segment, ...] = ()
    """Older ones still. Empty without pages."""
    page_count: int = 0
    """Pages that were ever listed: the number of the next one."""
    compaction: CompactionState = NEVER_COMPACTED
    offload: OffloadState = NEVER_OFFLOADED
    kept: Mapping[str, Any] = NO_FIELDS
    """What only another release knows of it."""

    @property
    def items(self) -> Sequence[Item]:
        """All of it, oldest first."""
        return (*self.oldest, *self.pages, *self.segments)

    @property
    def front(self) -> tuple[Segment, ...]:
        """The oldest segments: those that a trim may drop. None while a page is before them."""
        if self.oldest or self.pages:
            return self.oldest
        return self.segments[:-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all sealed segments."""
        return sum(ref.size_bytes for ref in self.pages) + sum(
            item.facts.size_bytes for item in (*self.oldest, *self.segments) if item.facts
        )

    @property
    def max_timestamp_ms(self) -> int:
        """The newest timestamp in sealed segments; -1: none."""
        inline = (item.facts for item in (*self.oldest, *self.segments) if item.facts is not None)
        stamps = [facts.max_timestamp_ms for facts in inline]
        return max([*stamps, *(ref.max_timestamp_ms for ref in self.pages)], default=-1)

    def opened(
        self,
        ledger_id: LedgerId,
        *,
        base_offset: Offset,
        created_ms: int,
        recovered: Mapping[LedgerId, tuple[Offset, SegmentFacts]],
    ) -> SegmentList:
        """Add the new leader's ledger.

        `recovered`: (base offset, facts) of all unsealed segments, and of sealed ones whose aborted
        transactions are listed elsewhere from now on.
        """
        epoch = LeaderEpoch(self.leader_epoch + 1)
        before = self.with_facts(recovered).segments
        added = Segment(ledger_id, base_offset, epoch, created_ms)
        return self._replace(leader_epoch=epoch, segments=(*before, added)).check()

    def led(self) -> SegmentList:
        """Begin a leadership that has no ledger."""
        return self._replace(leader_epoch=LeaderEpoch(self.leader_epoch + 1)).check()

    def with_facts(self, recovered: Mapping[LedgerId, tuple[Offset, SegmentFacts]]) -> SegmentList:
        """Put in (base offset, facts) of segments that were recovered."""
        return self._replace(
            segments=tuple(
                segment._replace(
                    base_offset=recovered[segment.ledger_id][0],
                    facts=recovered[segment.ledger_id][1],
                )
                if segment.ledger_id in recovered
                else segment
                for segment in self.segments
            )
        )

    def rolled(self, ledger_id: LedgerId, created_ms: int) -> SegmentList:
        """Add the leader's next ledger; where it begins is not known yet."""
        added = Segment(ledger_id, None, self.leader_epoch, created_ms)
        return self._replace(segments=(*self.segments, added)).check()

    def sealed(self, facts: SegmentFacts) -> SegmentList:
        """Seal the last segment but one, which tells where the last one begins."""
        *before, previous, last = self.segments
        assert previous.facts is None
        assert last.base_offset is None
        return self._replace(
            segments=(
                *before,
                previous._replace(facts=facts),
                last._replace(base_offset=Offset(facts.last_offset + 1)),
            )
        ).check()

    def trimmed(self, count: int, log_start_offset: Offset) -> SegmentList:
        """Drop the oldest `count` segments, all of them in `front`, and move the log start."""
        assert 0 <= count <= len(self.front)
        assert log_start_offset >= self.log_start_offset
        if self.oldest or self.pages:
            rest = self._replace(oldest=self.oldest[count:])
        else:
            rest = self._replace(segments=self.segments[count:])
        return rest._replace(log_start_offset=log_start_offset).check()

    def condemned(self) -> SegmentList:
        """Mark the partition as deleted; its ledgers stay listed until they are deleted."""
        return self._replace(deleted=True)

    def may_have(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger may be listed; never false for one that is (PAGE-LOOK).

        It is certain without a look into pages, and nearly always right.
        """
        return is_inline(self, ledger_id) or any(ref.may_hold(ledger_id) for ref in self.pages)

    def check(self) -> SegmentList:
        """Assert the invariants and return self."""
        count = len(self.segments)
        assert count or not (self.pages or self.oldest), self
        older: tuple[Item, ...] = (*self.oldest, *self.pages)
        check_run(older)
        before: Item | None = older[-1] if older else None
        for index, segment in enumerate(self.segments):
            last = index == count - 1
            assert segment.facts is not None or index >= count - 2, self
            assert segment.base_offset is not None or (last and count > 1), self
            assert segment.leader_epoch <= self.leader_epoch, self
            if before is not None:
                assert segment.base_offset == before.end_offset, self
                assert before.last_epoch <= segment.leader_epoch, self
            before = segment
        inline = [segment.ledger_id for segment in (*self.oldest, *self.segments)]
        inline += [retired.ledger_id for retired in self.compaction.retired]
        assert len(inline) == len({*inline}), self
        return self

    def encode(self) -> bytes:
        """Return the JSON of the metadata node."""
        version = PAGED_VERSION if self.page_count else FORMAT_VERSION
        if knows_transactions((*self.oldest, *self.segments)):
            version = TRANSACTIONS_VERSION
        if self.compaction != NEVER_COMPACTED:
            version = COMPACTED_VERSION
        if self.offload != NEVER_OFFLOADED:
            version = OFFLOADED_VERSION
        value: dict[str, object] = {
            **self.kept,
            "version": version,
            "leader_epoch": self.leader_epoch,
            "log_start_offset": self.log_start_offset,
        }
        if version != FORMAT_VERSION:
            value["page_count"] = self.page_count
            value["oldest"] = [segment_to_json(segment) for segment in self.oldest]
            value["pages"] = [ref_to_json(ref) for ref in self.pages]
        value["segments"] = [segment_to_json(segment) for segment in self.segments]
        if self.compaction != NEVER_COMPACTED:
            value["compaction"] = state_to_json(self.compaction)
        if self.offload != NEVER_OFFLOADED:
            value["offload"] = offload_to_json(self.offload)
        if self.deleted:
            value["deleted"] = True
        return json.dumps(value, separators=(",", ":")).encode()


def is_inline(listed: SegmentList, ledger_id: LedgerId) -> bool:
    """Whether the head itself lists the ledger, be it as retired."""
    return any(item.ledger_id == ledger_id for item in (*listed.oldest, *listed.segments)) or any(
        item.ledger_id == ledger_id for item in listed.compaction.retired
    )


def epoch_end(
    listed: SegmentList, epoch: LeaderEpoch, end_offset: Offset
) -> tuple[LeaderEpoch, Offset] | PageRef:
    """Answer OffsetForLeaderEpoch: the largest known epoch up to `epoch`, and its end.

    Or the page that says it. `end_offset` is the end of the current epoch. (-1, -1): the epoch
    is not known here.
    """
    if epoch == listed.leader_epoch:
        return epoch, end_offset
    if epoch > listed.leader_epoch or epoch < 0:
        return NO_EPOCH, Offset(-1)
    if not listed.segments:
        return epoch, end_offset
    if listed.segments[-1].leader_epoch <= epoch:  # later leaders had no ledger
        return listed.segments[-1].leader_epoch, end_offset
    found = find_epoch_end(listed.items, epoch)
    if isinstance(found, PageRef):
        return found
    known, end = found
    return (epoch if known is None else known), end


def decode_segments(data: bytes) -> SegmentList:
    """Parse the JSON of a metadata node; no bytes at all are the empty list. Raises LogCorrupt."""
    if not data:
        return SegmentList()
    try:
        value = read_object(data)
        version = value["version"]
        if version not in _VERSIONS:
            raise LogCorrupt(
                f"segment list of version {version}, only {FORMAT_VERSION} to"
                f" {OFFLOADED_VERSION} are known: it was written by a newer broker"
            )
        is_paged = version != FORMAT_VERSION
        found = SegmentList(
            LeaderEpoch(whole(value, "leader_epoch", NO_EPOCH)),
            Offset(whole(value, "log_start_offset")),
            tuple(segment_from_json(item) for item in value["segments"]),
            value.get("deleted", False),
            tuple(ref_from_json(item) for item in value["pages"]) if is_paged else (),
            tuple(segment_from_json(item) for item in value["oldest"]) if is_paged else (),
            whole(value, "page_count", version == PAGED_VERSION) if is_paged else 0,
            state_from_json(value["compaction"])
            if version == COMPACTED_VERSION or "compaction" in value
            else NEVER_COMPACTED,
            offload_from_json(value["offload"])
            if version == OFFLOADED_VERSION
            else NEVER_OFFLOADED,
            unknown_fields(value, _FIELDS),
        )
        return found.check()
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise LogCorrupt(f"segment list is damaged: {data[:200]!r}") from error


def decode_epoch(data: bytes) -> LeaderEpoch:
    """Return the leader epoch of the list in a metadata node, without reading the rest.

    Raises LogCorrupt if it is no list, or one of a version that is not known.
    """
    if not data:
        return NO_EPOCH
    try:
        value = read_object(data)
        if value["version"] not in _VERSIONS:
            raise LogCorrupt(f"segment list of version {value['version']} is not known")
        return LeaderEpoch(whole(value, "leader_epoch", NO_EPOCH))
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"segment list is damaged: {data[:200]!r}") from error


class Paged(NamedTuple):
    """A list in the form in which it is written, and the pages to be written before it."""

    segments: SegmentList
    pages: tuple[NewPage, ...]


def paged(listed: SegmentList, ledger_id: LedgerId, page_entries: int) -> Paged:
    """Move what is more than a page of segments, or of references, into pages.

    It is the same list in another form. `ledger_id`: the one that the change adds, for the
    names. NEWEST-IN-HEAD: the newest sealed segment whose ledger has entries stays, with what
    follows it, since a takeover looks no further back; and so does one whose aborted transactions
    are listed in a ledger that follows that one, which may never get its first entry.
    """
    pages = [*listed.pages]
    left = 0
    made: list[NewPage] = []

    def put(page: Page) -> PageRef:
        number = listed.page_count + len(made)
        name = PageName(number, listed.leader_epoch, ledger_id)
        made.append(NewPage(name, page))
        return ref_of(name, page)

    for _ in range(_movable(listed.segments) // page_entries):
        pages.append(put(Page(listed.segments[left : left + page_entries])))
        left += page_entries
    end = len(pages)
    for level in range(LEVEL_MAX):
        start = _run_start(pages, end, level)
        while end - start >= page_entries:
            run = pages[start : start + page_entries]
            pages[start : start + page_entries] = [put(Page(pages=tuple(run)))]
            start += 1
            end -= page_entries - 1
        end = start
    changed = listed._replace(
        pages=tuple(pages),
        segments=listed.segments[left:],
        page_count=listed.page_count + len(made),
    )
    return Paged(changed.check(), tuple(made))


def unfolded(listed: SegmentList, page: Page) -> SegmentList:
    """Put the content of the first page in its place. `oldest` is empty."""
    assert not listed.oldest
    return listed._replace(oldest=page.segments, pages=(*page.pages, *listed.pages[1:])).check()


def segment_count(listed: SegmentList) -> int:
    """Return how many segments a list has."""
    inline = len(listed.oldest) + len(listed.segments)
    return inline + sum(ref.segment_count for ref in listed.pages)


def _movable(segments: Sequence[Segment]) -> int:
    """Return how many of the oldest segments may leave the head (NEWEST-IN-HEAD)."""
    for index in range(len(segments) - 1, -1, -1):
        facts = segments[index].facts
        if facts is not None and facts.size_bytes:
            followers = {segment.ledger_id for segment in segments[index + 1 :]}
            return _first_listed_in(segments[: index + 1], followers)
    return 0


def _first_listed_in(segments: Sequence[Segment], ledger_ids: Container[LedgerId]) -> int:
    """Return which segment is the first whose aborted transactions are listed in one of these
    ledgers; the last one, if there is none."""
    for index, segment in enumerate(segments):
        transactions = segment.facts.transactions if segment.facts is not None else None
        place = transactions.aborted_at if transactions is not None else None
        if place is not None and place.ledger_id in ledger_ids:
            return index
    return len(segments) - 1


def _run_start(pages: Sequence[PageRef], end: int, level: int) -> int:
    """Return where the references of a level begin that end at `end`."""
    start = end
    while start and pages[start - 1].level == level:
        start -= 1
    return start
