"""Planted defects of compaction; see `table.py`.

Those of batches of which two rounds judge a part each, and of markers that go too early, are met by
`unit/broker/compaction/core/test_cleaning.py` and `property/test_compaction.py`: schedules of this
world hardly ever show the first, and no reader misses a marker whose data is gone.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from broker.compaction import cleaning_round
from broker.compaction.cleaning_round import CleaningRound
from broker.compaction.core import cleaning, plan
from broker.compaction.core.cleaning import AbortedRanges, Cleaner, KeyRound
from broker.compaction.core.key_map import KeyMap, Superseded
from broker.compaction.core.round_work import RoundWork
from broker.compaction.core.segment_output import SegmentOutput
from broker.partition.partition_reader import PartitionReader
from broker.partition.segment_node import SegmentNode
from client.errors import NoSuchLedger
from client.ids import Offset
from client.log import compacted
from client.log.compacted import Round
from client.log.segments import CompactionState, SegmentList
from client.metadata.store import SetData
from client.segments.pages import SegmentPages

if TYPE_CHECKING:
    from collections.abc import Callable


def tombstone_goes_at_once(patch: Any) -> None:
    """A tombstone goes in the first round that meets it."""

    def init(self: Cleaner, *args: Any) -> None:
        original(self, *args)
        self._start = self.end

    original = patch(Cleaner, "__init__", init)
    patch(cleaning, "_horizon_of", lambda header: 0)


def tombstone_is_not_kept(patch: Any) -> None:
    """delete.retention.ms is not heeded."""

    def init(self: Cleaner, *args: Any) -> None:
        original(self, *args)
        self._retain_ms = -1

    original = patch(Cleaner, "__init__", init)


def horizon_moves_each_round(patch: Any) -> None:
    """Every round sets the delete horizon anew, so that tombstones stay for ever."""
    patch(cleaning, "_horizon_of", lambda header: None)


def tail_is_compacted(patch: Any) -> None:
    """All sealed segments are cleaned, also those that a takeover replays."""
    patch(plan, "KEEP_SEGMENTS", 1)
    patch(plan, "_newest", lambda segments, has: len(segments))


def swap_of_any_version(patch: Any) -> None:
    """A list is set without comparing versions: a replaced leader swaps in its old list."""

    async def set_(self: SegmentNode, segments: Any, expected_version: int, first: Any = ()) -> Any:
        del expected_version
        changes = [*first, SetData(self.path, segments.encode(), -1)]
        return (await self._requests.multi(changes))[-1]

    async def change(self: SegmentNode, segments: Any, expected_version: int) -> int:
        version: int = await set_(self, segments, expected_version)
        return version

    patch(SegmentNode, "set", set_)
    patch(SegmentNode, "change", change)


def trimmed_comes_back(patch: Any) -> None:
    """A swap of segments that were trimmed meanwhile lists the new ones all the same."""

    def run(segments: Any, swap: Any) -> Any:
        found = original(segments, swap)
        if found is None and segments and segments[0].base_offset == swap.last_offset + 1:
            return compacted._Run((*swap.new, *segments), 0)
        return found

    original = patch(compacted, "_run", run)


def old_ledgers_go_before_the_swap(patch: Any) -> None:
    """The old ledgers are deleted, then the new ones are listed."""

    async def clean(self: CleaningRound, group: Any) -> Any:
        led = self._led

        async def delete_first(wanted: Any) -> None:
            for ledger_id in wanted.old:
                with contextlib.suppress(NoSuchLedger):
                    await self._services.ledgers.delete(ledger_id)
            await led.swap(wanted)

        self._led = led._replace(swap=delete_first)
        try:
            return await original(self, group)
        finally:
            self._led = led

    original = patch(CleaningRound, "_clean", clean)


def no_grace(patch: Any) -> None:
    """Ledgers that were replaced are deleted at once."""
    patch(
        CompactionState,
        "due",
        lambda self, before_ms: tuple(one.ledger_id for one in self.retired),
    )


def retired_are_orphans(patch: Any) -> None:
    """A ledger that was replaced counts as not listed, so the sweep deletes it."""

    async def has(self: SegmentPages, listed: SegmentList, ledger_id: Any) -> bool:
        forgetful = listed._replace(compaction=listed.compaction._replace(retired=()))
        return bool(await original(self, forgetful, ledger_id))

    original = patch(SegmentPages, "has", has)


def retired_are_forgotten(patch: Any) -> None:
    """A swap does not note which ledgers it has replaced."""

    def swapped(*args: Any) -> Any:
        found = original(*args)
        if found is None:
            return None
        state = found.segments.compaction._replace(retired=())
        return found._replace(segments=found.segments._replace(compaction=state))

    original = patch(compacted, "swapped", swapped)


def too_young_is_compacted(patch: Any) -> None:
    """min.compaction.lag.ms is not heeded."""

    def count(segments: Any, limits: Any, stable: Any, now_ms: int) -> int:
        return int(original(segments, plan.CompactionLimits(), stable, now_ms))

    original = patch(plan, "_cleanable_count", count)


def epochs_are_merged(patch: Any) -> None:
    """Segments of several leader epochs become one."""

    def groups(runs: Any, end: Offset, segment_bytes: int) -> Any:
        same = [[one._replace(leader_epoch=0) for one in run] for run in runs]
        known = {one.ledger_id: one for run in runs for one in run}
        found = original(same, end, segment_bytes)
        return [tuple(known[one.ledger_id] for one in group) for group in found]

    original = patch(cleaning_round, "groups", groups)
    patch(compacted, "_continues", lambda old, new: True)


def reader_stops_at_an_empty_ledger(patch: Any) -> None:
    """A ledger without a batch from the offset on is taken for damage."""

    async def find(self: SegmentPages, listed: Any, offset: Any) -> Any:
        return (await original(self, listed, offset))._replace(cleaned=False)

    original = patch(SegmentPages, "find", find)


def short_hash(patch: Any) -> None:
    """Keys are told apart by two bits of their hash."""

    def halves(self: KeyMap, key: bytes) -> tuple[int, int]:
        high, low = original(self, key)
        return 0, low & 3 if high else 0

    original = patch(KeyMap, "_halves", halves)


def full_map_ends_nothing(patch: Any) -> None:
    """A key that does not fit into the map is forgotten, and the round goes on."""
    original = KeyMap.__dict__["put"]

    def put(self: KeyMap, key: bytes, offset: Offset) -> bool:
        original(self, key, offset)
        return True

    patch(KeyMap, "put", put)


def broken_off_is_complete(patch: Any) -> None:
    """A round is noted as complete with its first swap."""

    async def run(self: CleaningRound, runs: Any, found: Any) -> Round:
        with contextlib.suppress(Exception):
            return await original(self, runs, found)
        return Round(found.end, -1)

    original = patch(CleaningRound, "run", run)


def younger_counts_as_older(patch: Any) -> None:
    """The first record of a key in what is dirty stays, and not the last."""

    def put(self: KeyMap, key: bytes, offset: Offset) -> bool:
        if self.newest(key) >= 0:
            return True
        return bool(original(self, key, offset))

    original = patch(KeyMap, "put", put)


def neighbour_is_superseded(patch: Any) -> None:
    """Of two records of a key, the one behind the older one is noted as superseded."""

    def add(self: Superseded, offset: Offset) -> None:
        original(self, Offset(offset + 1))

    original = patch(Superseded, "add", add)


def broken_off_takes_its_ledgers_along(patch: Any) -> None:
    """A round that is broken off deletes what it has written, which may be listed by then."""

    async def clean(self: CleaningRound, group: Any) -> Any:
        written: list[Any] = []
        write = self._write

        async def noted(group: Any, outputs: Any) -> Any:
            written.append(outputs)
            return await write(group, outputs)

        self.__dict__["_write"] = noted
        try:
            return await original(self, group)
        except BaseException:
            for output in written[0] if written else ():
                with contextlib.suppress(Exception):
                    await self._services.ledgers.delete(output.ledger_id)
            raise
        finally:
            del self.__dict__["_write"]

    original = patch(CleaningRound, "_clean", clean)


def aborted_data_stays(patch: Any) -> None:
    """Aborted data counts like any other."""
    patch(AbortedRanges, "covers", lambda self, header: False)


def aborted_data_enters_the_map(patch: Any) -> None:
    """Aborted data goes, and replaces what was committed before it."""

    def enter(self: KeyRound, batch: Any, header: Any, aborted: Any = None) -> Any:
        return original(self, batch, header)

    original = patch(KeyRound, "enter", enter)


def open_transactions_are_compacted(patch: Any) -> None:
    """The last stable offset is not heeded."""

    def count(segments: Any, limits: Any, stable: Any, now_ms: int) -> int:
        return int(original(segments, limits, Offset(1 << 62), now_ms))

    original = patch(plan, "_cleanable_count", count)


def all_below_the_stable_offset_is_compacted(patch: Any) -> None:
    """The last records before the last stable offset may go, for which some wait."""

    def count(segments: Any, limits: Any, stable: Any, now_ms: int) -> int:
        return int(original(segments, limits, Offset(stable + 1), now_ms))

    original = patch(plan, "_cleanable_count", count)


def index_forgets_what_is_left(patch: Any) -> None:
    """A compacted segment lists no aborted transactions, though the round has not judged all."""
    patch(SegmentOutput, "on_aborted", lambda self, entry, stable_offset: [])


def list_of_another_version(patch: Any) -> None:
    """Records of before a swap go with the list of what is aborted in those after it."""

    def forget(self: PartitionReader, ledger_ids: Any, compacted_below: Any = 0) -> None:
        swaps = self._swaps
        original(self, ledger_ids, compacted_below)
        self._swaps = swaps

    original = patch(PartitionReader, "forget", forget)


def index_stays_in_another_ledger(patch: Any) -> None:
    """A segment that loses nothing is not written anew, though another ledger has its index."""
    patch(cleaning_round, "is_listed_elsewhere", lambda segment: False)


def groups_forget_open_transactions(patch: Any) -> None:
    """A transaction whose data is in one group and whose marker is in the next is forgotten."""

    def begin(self: RoundWork, request: Any) -> Any:
        self._group = None
        return original(self, request)

    original = patch(RoundWork, "_begin_group", begin)


WORLD = "compaction"
CLUSTER_KIND = "compacted"
"""Schedules of whole clusters in which most of them are hunted, too."""
OF_TRANSACTIONS = frozenset(
    {
        "aborted-data-stays",
        "aborted-data-enters-the-map",
        "open-transactions-are-compacted",
        "all-below-the-stable-offset-is-compacted",
        "index-forgets-what-is-left",
        "list-of-another-version",
        "index-stays-in-another-ledger",
        "groups-forget-open-transactions",
    }
)
"""Those that take transactions to show, which compacted topics of whole clusters have none of."""
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
