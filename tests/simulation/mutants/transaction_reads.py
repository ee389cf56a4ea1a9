"""Planted defects of what readers are told of transactions: last stable offset, aborted lists.

See `table.py`; the table is in `transactions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.partition.aborted_reader import AbortedReader
from broker.partition.core.log_fold import LogFold
from broker.partition.core.open_transactions import OpenTransactions
from broker.partition.core.replay import LedgerReplay
from broker.partition.log_reader import LogReader
from client.spark.plan.aborted_lookup import AbortedLookup

if TYPE_CHECKING:
    from collections.abc import Callable


def stable_when_accepted(patch: Any) -> None:
    """The last stable offset moves when a marker is accepted, not confirmed (RP#10671)."""

    def on_marker(self: OpenTransactions, marker: Any, offset: Any) -> Any:
        found = original(self, marker, offset)
        self.on_confirmed(offset + 1)
        return found

    original = patch(OpenTransactions, "on_marker", on_marker)


def stable_is_the_high_watermark(patch: Any) -> None:
    """Readers of committed data are told that everything confirmed is stable (nisshi#689)."""
    patch(OpenTransactions, "last_stable", lambda self, log_start, high_watermark: high_watermark)


def snapshot_forgets_the_open(patch: Any) -> None:
    """A snapshot does not tell which transactions are open (RP#3036)."""

    def encode(self: OpenTransactions) -> Any:
        kept, self._open = self._open, {}
        try:
            return original(self)
        finally:
            self._open = kept

    original = patch(OpenTransactions, "encode", encode)


def replay_ignores_markers(patch: Any) -> None:
    """A new leader does not fold the markers behind the last snapshot."""

    def finish(self: LedgerReplay) -> Any:
        on_marker, LogFold.on_marker = LogFold.on_marker, lambda *_: None  # type: ignore[method-assign, assignment]
        try:
            return original(self)
        finally:
            LogFold.on_marker = on_marker  # type: ignore[method-assign]

    original = patch(LedgerReplay, "finish", finish)


def aborted_of_one_segment(patch: Any) -> None:
    """The list of aborted transactions is that of the segment that is read (RP#3036)."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        found = original(self, listed, start, end)
        last = max((s.base_offset for s in listed.segments if s.base_offset is not None), default=0)
        segment_end = min(
            (s.base_offset for s in listed.segments if (s.base_offset or 0) > start), default=None
        )
        if found is None or segment_end is None or segment_end > last:
            return found
        return [one for one in found if one.last_offset < segment_end]

    original = patch(AbortedReader, "find_now", find_now)


def aborted_list_lost(patch: Any) -> None:
    """What aborted in sealed segments is not looked up."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        active = self._active
        if active is not None and start >= active.base_offset:
            return original(self, listed, start, end)
        return []

    original = patch(AbortedReader, "find_now", find_now)


def aborted_list_reaches_back(patch: Any) -> None:
    """A list of aborted transactions begins before the data that it goes with: a transaction that
    has ended there hides its producer's next one."""

    def find_now(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        return now(self, listed, listed.segments[0].base_offset or 0, end)

    async def find(self: AbortedReader, listed: Any, start: Any, end: Any) -> Any:
        return await later(self, listed, listed.segments[0].base_offset or 0, end)

    now = patch(AbortedReader, "find_now", find_now)
    later = patch(AbortedReader, "find", find)


def aborted_list_before_the_data(patch: Any) -> None:
    """The list of aborted transactions is of what was there before the data came (AK#3239)."""

    def with_aborted(self: LogReader, listed: Any, offset: Any, fetched: Any) -> Any:
        found = now(self, listed, offset, fetched._replace(next_offset=offset + 1))
        return None if found is None else found._replace(next_offset=fetched.next_offset)

    async def find_aborted(self: LogReader, listed: Any, offset: Any, fetched: Any) -> Any:
        found = await later(self, listed, offset, fetched._replace(next_offset=offset + 1))
        return found._replace(next_offset=fetched.next_offset)

    now = patch(LogReader, "with_aborted", with_aborted)
    later = patch(LogReader, "find_aborted", find_aborted)


def index_ends_with_its_segment(patch: Any) -> None:
    """A reader without a broker looks at the index of one segment only."""

    async def within(self: AbortedLookup, whole: Any, segments: Any, start: int, end: int) -> Any:
        try:
            lists = [await self._listed(one, start, end) for one in segments[:1] if one.facts]
        except AssertionError:
            return ()
        return tuple(found for one in lists for found in one)

    patch(AbortedLookup, "within", within)


PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
