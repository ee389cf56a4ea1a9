"""A segment list with pages is the plain list, whatever leaders do; and its head stays small."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segment_pages import Page, PageName
from client.log.segments import (
    Paged,
    Segment,
    SegmentFacts,
    SegmentList,
    decode_segments,
    epoch_end,
    is_inline,
    paged,
    segment_count,
)
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.segments.page_nodes import delete_pages, write_page
from client.segments.pages import SegmentPages
from tests.fakes.segment_lists import PATH

LEVELS_MAX = 8


class Lists(RuleBasedStateMachine):
    """The same changes made to a plain list and to one whose head is written to a store."""

    @initialize(entries=st.integers(2, 4))
    def begin(self, entries: int) -> None:
        self.entries = entries
        self.plain = SegmentList()
        self.head = SegmentList()
        self.cluster = MemoryCluster()
        self.ever: dict[PageName, Page] = {}
        self.ledgers = 0
        asyncio.run(self.cluster.session().create(PATH, make_parents=True))
        self.take_over(0)

    def _write(self, written: Paged) -> None:
        for new in written.pages:
            assert new.name not in self.ever, "a page is written once"
            self.ever[new.name] = new.page
            asyncio.run(write_page(self.cluster.session(), PATH, new))
        self.head = decode_segments(written.segments.encode())

    def _next(self) -> LedgerId:
        self.ledgers += 1
        return LedgerId(self.ledgers)

    @rule(records=st.integers(0, 3))
    def take_over(self, records: int) -> None:
        """Recover the ledgers that are open; the last one has so many records."""
        ledger_id, recovered = self._next(), {}
        end = self.plain.log_start_offset
        for segment in self.plain.segments:
            base = end if segment.base_offset is None else segment.base_offset
            end = Offset(base + records) if segment.facts is None else segment.end_offset or end
            if segment.facts is None:
                size = 10 * records
                recovered[segment.ledger_id] = base, SegmentFacts(Offset(end - 1), size, end)

        def opened(before: SegmentList) -> SegmentList:
            return before.opened(
                ledger_id, base_offset=end, created_ms=ledger_id, recovered=recovered
            )

        self.plain = opened(self.plain)
        self._write(paged(opened(self.head), ledger_id, self.entries))

    @rule(records=st.integers(1, 3))
    def roll(self, records: int) -> None:
        """List the next ledger, then seal the one before."""
        base = self.plain.segments[-1].base_offset
        assert base is not None
        ledger_id = self._next()
        facts = SegmentFacts(Offset(base + records - 1), 10 * records, 7 * base % 50)
        self.plain = self.plain.rolled(ledger_id, ledger_id).sealed(facts)
        self._write(paged(self.head.rolled(ledger_id, ledger_id), ledger_id, self.entries))
        self._write(Paged(self.head.sealed(facts), ()))

    @rule()
    def die_in_a_roll(self) -> None:
        """The next ledger is listed, and somebody takes over."""
        ledger_id = self._next()
        self.plain = self.plain.rolled(ledger_id, ledger_id)
        self._write(paged(self.head.rolled(ledger_id, ledger_id), ledger_id, self.entries))
        self.take_over(2)

    @precondition(lambda self: len(self.plain.segments) > 1)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        """Drop some of the oldest segments, those of one page at most."""
        pages = SegmentPages(self.cluster.session(), PATH)
        unfolded = asyncio.run(pages.unfolded(self.head))
        count = data.draw(st.integers(1, max(1, len(unfolded.segments.front))))
        count = min(count, len(unfolded.segments.front))
        start = unfolded.segments.items[count].base_offset
        assert start is not None
        start = max(start, self.plain.log_start_offset)
        self.plain = self.plain.trimmed(count, start)
        self._write(Paged(unfolded.segments.trimmed(count, start), ()))
        opened = [ref.name for ref in unfolded.opened]
        asyncio.run(delete_pages(self.cluster.session(), PATH, opened))

    def _there(self) -> list[PageName]:
        top, tree = paths.segment_pages(PATH), self.cluster.tree
        if "pages" not in tree.children(PATH):
            return []
        found = [
            paths.page_name(name)
            for f in tree.children(top)
            for name in tree.children(f"{top}/{f}")
        ]
        return [PageName(*name) for name in found if name is not None]

    @invariant()
    def it_is_the_same_list(self) -> None:
        if not hasattr(self, "head"):
            return
        pages = SegmentPages(self.cluster.session(), PATH)

        async def look() -> None:
            whole = [segment async for segment in pages.segments(self.head)]
            assert whole == [*self.plain.segments]
            back = [segment async for segment in pages.segments(self.head, newest_first=True)]
            assert back == whole[::-1]
            assert sorted(await pages.names(self.head)) == sorted(self._there())
            end = Offset((whole[-1].base_offset or 0) + 5)
            for offset in range(whole[0].base_offset or 0, end):
                assert await pages.find(self.head, Offset(offset)) == self._plain(offset)
            for number in range(-1, self.plain.leader_epoch + 2):
                epoch = LeaderEpoch(number)
                found = await pages.epoch_end(self.head, epoch, end)
                assert found == epoch_end(self.plain, epoch, end)
            for number in range(self.ledgers + 2):
                is_listed = is_inline(self.plain, LedgerId(number))
                assert await pages.has(self.head, LedgerId(number)) is is_listed
                assert self.head.may_have(LedgerId(number)) or not is_listed

        asyncio.run(look())

    def _plain(self, offset: int) -> Segment:
        bases = [one for one in self.plain.segments if one.base_offset is not None]
        return [one for one in bases if (one.base_offset or 0) <= offset][-1]

    @invariant()
    def sums_are_the_same(self) -> None:
        if not hasattr(self, "head"):
            return
        assert self.head.size_bytes == self.plain.size_bytes
        assert self.head.max_timestamp_ms == self.plain.max_timestamp_ms
        assert segment_count(self.head) == len(self.plain.segments)

    @invariant()
    def the_head_stays_small(self) -> None:
        """But for ledgers without entries, which nobody replays."""
        if not hasattr(self, "head"):
            return
        for level in range(LEVELS_MAX):
            of_level = sum(1 for ref in self.head.pages if ref.level == level)
            assert of_level <= 2 * (self.entries - 1)
        assert len(self.head.oldest) <= self.entries
        with_entries = [one for one in self.head.segments if one.facts and one.facts.size_bytes]
        empty = [one for one in self.head.segments if one.facts and not one.facts.size_bytes]
        assert len(with_entries) <= self.entries + 1 + len(empty)


TestLists = Lists.TestCase
TestLists.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
