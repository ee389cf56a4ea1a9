"""Pages: runs of sealed segments that stand in metadata nodes of their own, written once.

A list of segments is a tree. Its head, the partition's node, holds the newest segments, and
references to pages; a page holds segments (level 0), or references to pages of the level below.
A reference says enough of its page (offsets, epochs, bytes, newest timestamp, ledger ids) that a
search reads one page per level, and sums read none.

A page's node is made before the head names it (PAGE-FIRST), is never changed, and is deleted after
the head has let it go. Its name is its writer's own (PAGE-NAME): the number is for order, epoch and
ledger id say which change of which leader it was made for. So whoever finds a node of that name
has made it, and a leader that was replaced cannot stand in another one's way.

Node of a page, JSON; version 2 only if the facts of a segment in it speak of transactions, version
3 only if one is in the object store:

    {"version":1,"level":0,"segments":[segment, ...]}          as in the head
    {"version":1,"level":n,"pages":[reference, ...]}           n above 0

A reference is an array of whole numbers, in the order of the fields of `PageName` and `PageRef`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment import (
    Segment,
    knows_objects,
    knows_transactions,
    segment_from_json,
    segment_to_json,
)
from client.metadata.json_node import INT64_MAX, NO_FIELDS, read_object, unknown_fields

PAGE_VERSION: Final = 1
TRANSACTIONS_VERSION: Final = 2
OBJECTS_VERSION: Final = 3
_VERSIONS: Final = range(PAGE_VERSION, OBJECTS_VERSION + 1)
_FIELDS: Final = frozenset(("version", "level", "segments", "pages"))
LEVEL_MAX: Final = 16
"""More levels than any list has."""


class PageName(NamedTuple):
    """What a page is called; nobody else can give it the same name."""

    number: int
    """Counts the pages of a partition that were ever listed, from 0."""
    leader_epoch: LeaderEpoch
    """Of the leader that made it."""
    ledger_id: LedgerId
    """The ledger that is listed by the same change of the head."""


class PageRef(NamedTuple):
    """A page as its parent shows it."""

    name: PageName
    level: int
    """0: a page of segments; otherwise of pages of the level below."""
    segment_count: int
    base_offset: Offset
    end_offset: Offset
    """Offset after its last record."""
    size_bytes: int
    max_timestamp_ms: int
    created_ms: int
    """Of its first segment."""
    first_epoch: LeaderEpoch
    last_epoch: LeaderEpoch
    ledger_min: LedgerId
    ledger_max: LedgerId

    def may_hold(self, ledger_id: LedgerId) -> bool:
        """Whether a ledger may be listed in the page; never false for one that is."""
        return self.ledger_min <= ledger_id <= self.ledger_max


Item = Segment | PageRef
"""What stands in a list: a segment, or a run of them."""


class Page(NamedTuple):
    """A page's content: either segments or references."""

    segments: tuple[Segment, ...] = ()
    pages: tuple[PageRef, ...] = ()
    kept: Mapping[str, Any] = NO_FIELDS
    """What only another release knows of it; a page that takes its place has it too."""

    @property
    def items(self) -> Sequence[Item]:
        """What is in it, oldest first."""
        return self.segments or self.pages

    def encode(self) -> bytes:
        """Return the JSON of the page's node."""
        is_plain = not knows_transactions(self.segments)
        version = PAGE_VERSION if is_plain else TRANSACTIONS_VERSION
        if knows_objects(self.segments):
            version = OBJECTS_VERSION
        value: dict[str, object] = {**self.kept, "version": version}
        if self.segments:
            value["level"] = 0
            value["segments"] = [segment_to_json(segment) for segment in self.segments]
        else:
            value["level"] = self.pages[0].level + 1
            value["pages"] = [ref_to_json(ref) for ref in self.pages]
        return json.dumps(value, separators=(",", ":")).encode()


class NewPage(NamedTuple):
    """A page to be written before the head that names it."""

    name: PageName
    page: Page


def ref_of(name: PageName, page: Page) -> PageRef:
    """Return the reference to a page."""
    refs = page.pages or tuple(_as_ref(name, segment) for segment in page.segments)
    return PageRef(
        name,
        page.pages[0].level + 1 if page.pages else 0,
        sum(ref.segment_count for ref in refs),
        refs[0].base_offset,
        refs[-1].end_offset,
        sum(ref.size_bytes for ref in refs),
        max(ref.max_timestamp_ms for ref in refs),
        refs[0].created_ms,
        refs[0].first_epoch,
        refs[-1].last_epoch,
        min(ref.ledger_min for ref in refs),
        max(ref.ledger_max for ref in refs),
    )


def _as_ref(name: PageName, segment: Segment) -> PageRef:
    """Return a sealed segment as a run of one."""
    facts = segment.facts
    assert facts is not None
    assert segment.base_offset is not None
    return PageRef(
        name,
        0,
        1,
        segment.base_offset,
        Offset(facts.last_offset + 1),
        facts.size_bytes,
        facts.max_timestamp_ms,
        segment.created_ms,
        segment.leader_epoch,
        segment.leader_epoch,
        segment.ledger_id,
        segment.ledger_id,
    )


def decode_page(data: bytes, ref: PageRef) -> Page:
    """Parse a page's node, and check it against its reference. Raises LogCorrupt."""
    try:
        value = read_object(data)
        if value["version"] not in _VERSIONS:
            raise LogCorrupt(
                f"page of version {value['version']}, only {PAGE_VERSION} to"
                f" {OBJECTS_VERSION} are known: it was written by a newer broker"
            )
        page = (
            Page(pages=tuple(ref_from_json(item) for item in value["pages"]))
            if value["level"]
            else Page(tuple(segment_from_json(item) for item in value["segments"]))
        )._replace(kept=unknown_fields(value, _FIELDS))
        check_run(page.items)
        if ref_of(ref.name, page) != ref:
            raise ValueError("it does not match its reference")
    except (ValueError, KeyError, TypeError, IndexError, AssertionError) as error:
        raise LogCorrupt(f"page {ref.name.number} of a segment list: {data[:200]!r}") from error
    return page


def check_run(items: Sequence[Item], before: Item | None = None) -> None:
    """Assert that sealed items continue each other, and `before`, in offsets and epochs."""
    for item in items:
        assert item.end_offset is not None, item
        assert item.base_offset is not None, item
        assert item.base_offset <= item.end_offset, item
        assert item.first_epoch <= item.last_epoch, item
        if before is not None:
            assert item.base_offset == before.end_offset, (before, item)
            assert before.last_epoch <= item.first_epoch, (before, item)
        before = item


def ref_to_json(ref: PageRef) -> list[int]:
    """Return the array that stands for a reference in a node."""
    return [*ref.name, *ref[1:]]


def ref_from_json(value: Any) -> PageRef:
    """Raises ValueError."""
    if not isinstance(value, list) or len(value) != _REF_NUMBERS:
        raise ValueError(f"a reference to a page has {_REF_NUMBERS} numbers")
    for at, number in enumerate(value):
        least = -INT64_MAX - 1 if at == _TIMESTAMP_AT else 0
        if type(number) is not int or not least <= number <= INT64_MAX:
            raise ValueError(f"{number!r} is not between {least} and {INT64_MAX}")
    ref = PageRef(PageName(*value[:3]), *value[3:])
    if ref.level > LEVEL_MAX or not ref.segment_count:
        raise ValueError("a page has too many levels, or no segments")
    return ref


_REF_NUMBERS: Final = len(PageName._fields) + len(PageRef._fields) - 1
_TIMESTAMP_AT: Final = len(PageName._fields) - 1 + PageRef._fields.index("max_timestamp_ms")


# --- searches: the same in the head and in a page ------------------------------------------------


def find_offset(items: Sequence[Item], offset: Offset) -> Item:
    """Return the last item that begins at or before an offset; the first one does."""
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        base = items[middle].base_offset
        if base is None or base > offset:
            high = middle
        else:
            low = middle + 1
    assert low, (offset, items[:1])
    return items[low - 1]


def find_epoch_end(
    items: Sequence[Item], epoch: LeaderEpoch
) -> tuple[LeaderEpoch | None, Offset] | PageRef:
    """Return (the largest epoch up to `epoch`, where the next one begins); None: no such epoch.

    Or the page in which both are. Some segment has an epoch above `epoch`.
    """
    known: LeaderEpoch | None = None
    for item in items:
        if item.first_epoch > epoch:
            assert item.base_offset is not None
            return known, item.base_offset
        if isinstance(item, PageRef) and item.last_epoch > epoch:
            return item
        known = item.last_epoch
    raise AssertionError((epoch, items[-1:]))
