"""Planted defects of brokers: takeovers, rolls, trims, duplicates, groups; see `table.py`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from broker.cluster.owner_node import OwnerNode
from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.runtime import CoordinatorRuntime, Phase
from broker.leadership import orphan_ledgers
from broker.partition import opening
from broker.partition.core import leader, producer_state, takeover
from broker.partition.core.append_queue import AppendQueue
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import LedgerClosed, ListChanged
from broker.partition.core.log_state import LogOffsets, LogState
from broker.partition.core.producer_state import ProducerState
from broker.partition.core.replay import LedgerReplay
from broker.partition.core.takeover import Committed, CommitUnknown, Takeover
from broker.partition.leading import leader_steps
from broker.partition.leading.leader_steps import LeaderSteps
from broker.partition.ledgers import ledger_labels
from broker.partition.opening import Opening
from broker.partition.partition import Partition
from broker.partition.segment_node import SegmentNode
from client.errors import ConnectionLoss, MetadataError, NodeExists, NoNode, VersionConflict
from client.log.segment_pages import PageName
from client.log.segments import SegmentList, decode_segments, is_inline
from client.metadata import paths
from client.metadata.store import SetData
from client.segments.pages import SegmentPages

if TYPE_CHECKING:
    from collections.abc import Callable


def recover_only_the_last(patch: Any) -> None:
    """A takeover fences and recovers the last ledger only."""
    patch(takeover, "RECOVER_LEDGERS", 1)


def open_instead_of_recover(patch: Any) -> None:
    """A takeover opens ledgers without fencing their writer."""

    async def recover(self: Opening, ledger_id: Any, *, is_last: bool) -> Any:
        self._readers[ledger_id] = await self._services.ledgers.open(ledger_id)
        return self._takeover.on_recovered(ledger_id)

    patch(Opening, "_recover", recover)


def serve_before_cas(patch: Any) -> None:
    """A leader serves before its compare-and-set was answered."""

    async def commit(self: Opening, segments: Any, expected_version: int, pages: Any) -> Any:
        async def later() -> None:
            try:
                await self._node.write_pages(pages)
                close = () if self._close is None else (self._close,)
                first = (*close, *self._planned.changes)
                await self._node.set(segments, expected_version, first)
            except (ConnectionLoss, NodeExists, NoNode, VersionConflict):
                return

        asyncio.get_running_loop().create_task(later())
        return self._takeover.on_commit(Committed(expected_version + 1))

    patch(Opening, "_commit", commit)


def list_any_version(patch: Any) -> None:
    """The segment list is set without comparing versions."""

    async def set_(self: SegmentNode, segments: Any, expected_version: int, first: Any = ()) -> Any:
        del expected_version
        changes = [*first, SetData(self.path, segments.encode(), -1)]
        return (await self._requests.multi(changes))[-1]

    patch(SegmentNode, "set", set_)


def commit_without_close(patch: Any) -> None:
    """A takeover seals the last ledger in the list, but does not close it."""

    async def commit(self: Opening, *step: Any) -> Any:
        self._close = None
        return await original(self, *step)

    original = patch(Opening, "_commit", commit)


def unknown_commit_is_done(patch: Any) -> None:
    """A takeover whose answer got lost takes it for success."""

    def on_commit(self: Takeover, outcome: Any) -> Any:
        is_unknown = isinstance(outcome, CommitUnknown)
        return original(self, Committed(self._version + 1) if is_unknown else outcome)

    original = patch(Takeover, "on_commit", on_commit)


def epoch_stays(patch: Any) -> None:
    """A takeover does not raise the leader epoch."""

    def opened(self: SegmentList, ledger_id: Any, **facts: Any) -> SegmentList:
        grown = original(self, ledger_id, **facts)
        if self.leader_epoch < 0:
            return grown
        *before, last = grown.segments
        same = self.leader_epoch
        last = last._replace(leader_epoch=same)
        return grown._replace(leader_epoch=same, segments=(*before, last))

    original = patch(SegmentList, "opened", opened)


def dedupe_not_rebuilt(patch: Any) -> None:
    """A new leader begins without the producers' sequences."""

    def opened(self: Opening, step: Any) -> Any:
        return original(self, step)._replace(producers=self._new_producers())

    original = patch(Opening, "_opened", opened)


def dedupe_from_snapshot_only(patch: Any) -> None:
    """A new leader knows sequences up to the last snapshot, not the batches after it."""

    def finish(self: LedgerReplay) -> Any:
        accept, ProducerState.accept = ProducerState.accept, lambda *_: None  # type: ignore[method-assign, assignment]
        try:
            return original(self)
        finally:
            ProducerState.accept = accept  # type: ignore[method-assign]

    original = patch(LedgerReplay, "finish", finish)


def sequences_unchecked(patch: Any) -> None:
    """Nobody looks at sequence numbers."""
    patch(ProducerState, "find_duplicate", lambda self, header: None)


def window_of_one(patch: Any) -> None:
    """Only a producer's very last batch is known as a duplicate."""
    patch(producer_state, "WINDOW_BATCHES", 1)


def duplicate_answered_at_once(patch: Any) -> None:
    """A duplicate of a batch on its way is answered as stored."""

    patch(LogState, "_find_under_way", lambda self, base_offset: None)


def no_drain_at_roll(patch: Any) -> None:
    """A roll switches to the next ledger before the previous one has confirmed everything."""

    def release(self: AppendQueue) -> None:
        self._holding = False
        self.waiting = len(self) - self.sent_count

    patch(AppendQueue, "is_drained", property(lambda self: not self.waiting))
    patch(AppendQueue, "release", release)


def previous_stays_open(patch: Any) -> None:
    """A roll does not close the previous ledger."""

    async def close(self: LeaderSteps, step: Any) -> Any:
        if step.ledger_id == self.writer.ledger_id:
            return await original(self, step)
        return LedgerClosed()

    original = patch(LeaderSteps, "_close", close)


def lost_is_success(patch: Any) -> None:
    """What is unconfirmed when a leadership ends is answered as stored."""

    def end(self: PartitionLeader, reason: str) -> Any:
        for append in self.log.drain():
            append.complete()
        return original(self, reason)

    original = patch(PartitionLeader, "end", end)


def unconfirmed_shown(patch: Any) -> None:
    """The high watermark is the log end: consumers are told of what no quorum has."""

    def accepted(self: LogOffsets, end: Any) -> None:
        original(self, end)
        self.high_watermark = end

    original = patch(LogOffsets, "on_accepted", accepted)
    patch(LogOffsets, "on_confirmed", lambda self, end: None)


def resign_never(patch: Any) -> None:
    """A failed add does not end the leadership."""

    def added(self: Partition, entry_id: Any, error: Any) -> None:
        if error is None:
            original(self, entry_id, error)

    original = patch(Partition, "_on_added", added)
    patch(Partition, "_on_refused", lambda self, error: None)


def delete_before_listing(patch: Any) -> None:
    """A trim deletes ledgers before the list lets them go."""

    async def change(self: LeaderSteps, step: Any) -> Any:
        with contextlib.suppress(MetadataError):
            listed, _ = await self.node.read_back()
            for item in listed.segments:
                if is_inline(step.segments, item.ledger_id):
                    break
                await self._delete(item.ledger_id)
        return await original(self, step)

    original = patch(LeaderSteps, "_change_list", change)


def trim_too_far(patch: Any) -> None:
    """A trim drops the segment that holds the new log start, too."""

    def trimmed(self: SegmentList, count: int, log_start: Any) -> Any:
        return original(self, min(count + 1, len(self.front)), log_start)

    original = patch(SegmentList, "trimmed", trimmed)


def no_first_snapshot(patch: Any) -> None:
    """A ledger begins without a snapshot."""

    def write(self: LogState) -> None:
        if self.active.entry_count:
            original(self)

    original = patch(LogState, "write_snapshot", write)


def gap_ignored_at_end(patch: Any) -> None:
    """A takeover takes the list's word for where the last ledger ends."""

    def derive(self: Takeover) -> Any:
        for segment in reversed(self._list.segments):
            if segment.base_offset is not None:
                return segment.base_offset
        return self._list.log_start_offset

    patch(Takeover, "_derive_end", derive)


def page_after_head(patch: Any) -> None:
    """The head names a page before it is there."""

    async def write(self: SegmentNode, pages: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(0.01)
            with contextlib.suppress(NoNode, MetadataError):
                await original(self, pages)

        if pages:
            asyncio.get_running_loop().create_task(later())

    original = patch(SegmentNode, "write_pages", write)


def page_deleted_before_listing(patch: Any) -> None:
    """A trim deletes the page that it opens before the list lets go of it."""

    async def unfold(self: LeaderSteps, segments: Any) -> Any:
        unfolded = await original(self, segments)
        await self._delete_pages(unfolded.opened)
        return unfolded

    original = patch(LeaderSteps, "_unfold", unfold)


def page_forgets_the_oldest(patch: Any) -> None:
    """A page is made without the oldest of the segments that leave the head for it."""

    def put(listed: SegmentList, ledger_id: Any, entries: int) -> Any:
        paged = original(listed, ledger_id, entries)
        if not paged.pages or listed.pages:
            return paged
        return original(listed.trimmed(1, listed.log_start_offset), ledger_id, entries)

    original = patch(leader, "paged", put)
    patch(takeover, "paged", put)


def young_page_swept(patch: Any) -> None:
    """The sweep deletes pages that no list names, whoever may be about to list them."""

    async def orphans(store: Any, path: str) -> Any:
        there = []
        with contextlib.suppress(NoNode):
            for folder in await store.children(paths.segment_pages(path)):
                names = await store.children(f"{paths.segment_pages(path)}/{folder}")
                there += [PageName(*name) for name in map(paths.page_name, names) if name]
        listed = decode_segments((await store.get(path)).data)
        named = await SegmentPages(store, path).names(listed)
        return [name for name in there if name not in named]

    patch(orphan_ledgers, "orphan_pages", orphans)


def listed_in_the_head_alone(patch: Any) -> None:
    """Who asks whether a ledger is listed looks at the head of the list, and not into pages."""

    async def has(self: SegmentPages, listed: Any, ledger_id: Any) -> bool:
        return is_inline(listed, ledger_id)

    def segments(self: SegmentPages, listed: Any, *wanted: Any, **options: Any) -> Any:
        return original(self, listed, *(wanted or (lambda ref: False,)), **options)

    patch(SegmentPages, "has", has)
    patch(SegmentList, "may_have", is_inline)
    original = patch(SegmentPages, "segments", segments)


def deposed_unnoticed(patch: Any) -> None:
    """A leader does not look at its owner node while it leads."""

    async def is_ours(self: OwnerNode, on_change: Any) -> bool:
        del self, on_change
        return True

    patch(OwnerNode, "is_ours", is_ours)


def roll_unlisted(patch: Any) -> None:
    """A roll switches to its next ledger before it is listed."""

    async def change(self: LeaderSteps, step: Any) -> Any:
        if step.segments.segments[-1].base_offset is None:
            return ListChanged(step.expected_version)
        return await original(self, step)

    original = patch(LeaderSteps, "_change_list", change)


def commit_answered_early(patch: Any) -> None:
    """A group's offsets are answered as committed before the log has them."""

    def append(self: CoordinatorLog, records: Any, now_ms: int, on_durable: Any) -> None:
        original(self, records, now_ms, lambda: None)
        on_durable()

    original = patch(CoordinatorLog, "append", append)


def coordinator_not_loaded(patch: Any) -> None:
    """A new coordinator serves before it has read its log."""

    async def read_log(self: CoordinatorRuntime[Any]) -> None:
        self._shard = self._new_shard()
        self._log = CoordinatorLog(self.partition, self._on_log_failed)
        self.phase = Phase.ACTIVE
        self._perform(self._shard.loaded(self._now()))

    patch(CoordinatorRuntime, "_read_log", read_log)


def one_copy_is_enough(patch: Any) -> None:
    """Ledgers get an ack quorum of one, whatever the topic asks for."""

    def options(topic: Any, index: int, epoch: Any) -> dict[str, Any]:
        return {
            "ensemble_size": topic.ensemble_size,
            "write_quorum": topic.write_quorum,
            "ack_quorum": 1,
            "write_quorum_min": 1,
            "custom_metadata": ledger_labels(topic, index, epoch),
        }

    async def create(ledgers: Any, topic: Any, index: int, epoch: Any) -> Any:
        return await ledgers.create(**options(topic, index, epoch))

    async def plan(ledgers: Any, topic: Any, index: int, epoch: Any, ledger_id: Any) -> Any:
        return await ledgers.plan(**options(topic, index, epoch), ledger_id=ledger_id)

    patch(opening, "plan_ledger", plan)
    patch(leader_steps, "create_ledger", create)


WORLD = "cluster"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
