"""Planted defects of the offsets that groups commit in transactions.

See `table.py`; the table is in `transactions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator import coordinator_log
from broker.coordinator.core.coordinator_types import Snapshot
from broker.coordinator.core.routing import OFFSETS_TOPIC
from broker.groups.core.group_offsets import PendingOffsets
from broker.groups.core.group_table import GroupView
from broker.groups.core.offset_records import offset_record
from broker.partition.core.open_transactions import OpenTransactions
from broker.partition.core.producer_state import ProducerState
from broker.transactions.core.transaction import TransactionVersion
from broker.transactions.transactions import TransactionCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable


def pending_is_visible(patch: Any) -> None:
    """An offset of an open transaction does not make its partition unstable."""
    patch(GroupView, "unstable", lambda self, group_id: frozenset())


def pending_stays(patch: Any) -> None:
    """A partition stays unstable after its transaction's marker (RP#6423)."""

    def end(self: PendingOffsets, producer_id: Any, **options: Any) -> Any:
        before = {
            (group_id, key): self._groups[group_id][key][producer_id]
            for group_id, key in self._producers.get(producer_id, ())
        }
        found = original(self, producer_id, **options)
        for (group_id, key), pending in before.items():
            self.put(producer_id, group_id, key, pending)
        return found

    original = patch(PendingOffsets, "end", end)


def aborted_offsets_published(patch: Any) -> None:
    """An abort publishes the offsets of its transaction."""

    def end(self: PendingOffsets, producer_id: Any, *, is_commit: bool, **options: Any) -> Any:
        return original(self, producer_id, is_commit=True, **options)

    original = patch(PendingOffsets, "end", end)


def pending_leaks_into_the_next(patch: Any) -> None:
    """An abort keeps what is pending, for the producer's next transaction."""

    def end(self: PendingOffsets, producer_id: Any, *, is_commit: bool, **options: Any) -> Any:
        return original(self, producer_id, is_commit=True, **options) if is_commit else []

    original = patch(PendingOffsets, "end", end)


def pending_lost_by_the_copy(patch: Any) -> None:
    """A copy of the groups' log does not leave what is pending where it is."""
    patch(GroupView, "kept_from", lambda self, start: start)


def copy_of_what_may_change(patch: Any) -> None:
    """A copy of the groups' log holds what a transaction may still change (COPY-DECIDED)."""

    def snapshot(self: GroupView, group_id: str, undecided: Any = None) -> Snapshot:
        records, left = original(self, group_id, undecided)
        more = (offset_record(group_id, *key, committed) for key, committed in left.items())
        return Snapshot([*records, *more])

    original = patch(GroupView, "snapshot", snapshot)


def left_out_for_good(patch: Any) -> None:
    """What a transaction might have changed is not copied when it is decided (COPY-DECIDED)."""

    def snapshot(self: GroupView, group_id: str, undecided: Any = None) -> Snapshot:
        return Snapshot(original(self, group_id, undecided).records)

    original = patch(GroupView, "snapshot", snapshot)


def copy_behind_what_is_open(patch: Any) -> None:
    """The log is trimmed while open transactions hide its copy from readers (COPY-DECIDED)."""
    patch(coordinator_log, "_is_stable", lambda log, end: True)


def older_beats_newer(patch: Any) -> None:
    """A transaction's offset counts though a plain one was committed later (RP#3003)."""
    patch(PendingOffsets, "overtake", lambda self, group_id, key, position=None: None)


def offsets_of_any_epoch(patch: Any) -> None:
    """Nobody looks at the epoch of a TxnOffsetCommit (nisshi#716)."""

    def check_epoch(self: ProducerState, header: Any) -> None:
        if header.base_sequence >= 0:
            check(self, header)

    def find_duplicate(self: ProducerState, header: Any) -> Any:
        return find(self, header) if header.base_sequence >= 0 else None

    def needs_verification(self: OpenTransactions, header: Any) -> bool:
        found = needs(self, header)
        return found and not (header.base_sequence < 0 and header.producer_id in self)

    check = patch(ProducerState, "check_epoch", check_epoch)
    find = patch(ProducerState, "find_duplicate", find_duplicate)
    needs = patch(OpenTransactions, "needs_verification", needs_verification)


def offsets_begin_nothing(patch: Any) -> None:
    """A transaction of offsets alone does not begin with them (TV2)."""

    async def add_partitions(self: TransactionCoordinator, request: Any) -> None:
        is_tv2 = request.version >= TransactionVersion.TV2
        if not is_tv2 or any(one.topic != OFFSETS_TOPIC for one in request.partitions):
            await original(self, request)

    original = patch(TransactionCoordinator, "add_partitions", add_partitions)


PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
