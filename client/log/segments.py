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
    condemned the topic was deleted: no leader may open the partition any more

A list that is longer than a page of segments moves its oldest ones into pages, nodes of their own
(`segment_pages.py`), whenever a ledger is added (`paging.py`). What the head says then, in order:

    oldest    what is left of the oldest page, once a trim has opened it
    pages     references, of at most `page_entries - 1` pages of each level at either end
    segments  the newest ones: what a takeover needs (NEWEST-IN-HEAD), and what may not be sealed

So a head has some `page_entries` entries per level, and a level holds `page_entries` times as many
segments as the one below: with 256, a head of at most some hundred KB for ten million segments.

Node, version 1: a list that never had a page, so that brokers that know no pages can still open it;
version 2: with `oldest`, `pages` and `page_count`; version 3: like 2, once the facts of a segment
in it speak of transactions; version 4: like 3, with `compaction`, once it was compacted. An unknown
version is refused, never guessed.

Invariants (`check`): every segment but the last two is sealed; only the last one may have an
unknown base offset, and then exactly the one before it is unsealed too; offsets are gapless.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.compaction_state import (
    NEVER_COMPACTED,
    CompactionState,
    state_from_json,
    state_to_json,
)
from client.log.segment import (
    Segment,
    SegmentFacts,
    knows_transactions,
    segment_from_json,
    segment_to_json,
)
from client.log.segment_pages import (
    Item,
    PageRef,
    check_run,
    find_epoch_end,
    ref_from_json,
    ref_to_json,
)
from client.metadata.json_node import read_object, whole

__all__ = [
    "COMPACTED_VERSION",
    "FORMAT_VERSION",
    "NO_EPOCH",
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
_VERSIONS: Final = range(FORMAT_VERSION, COMPACTED_VERSION + 1)
NO_EPOCH: Final = LeaderEpoch(-1)
PAGE_ENTRIES: Final = 256
"""Segments of a page, or pages of a page. Written once for all of them, and small enough to be read
at once; ten million segments take three levels of it."""


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
        before = tuple(
            segment
            if segment.facts is not None and segment.ledger_id not in recovered
            else segment._replace(
                base_offset=recovered[segment.ledger_id][0], facts=recovered[segment.ledger_id][1]
            )
            for segment in self.segments
        )
        added = Segment(ledger_id, base_offset, epoch, created_ms)
        return self._replace(leader_epoch=epoch, segments=(*before, added)).check()

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
        value: dict[str, object] = {
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
                f" {COMPACTED_VERSION} are known: it was written by a newer broker"
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
            if version == COMPACTED_VERSION
            else NEVER_COMPACTED,
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
