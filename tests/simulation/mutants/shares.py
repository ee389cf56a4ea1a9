"""Planted defects of share groups (KIP-932); see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.front.shares import share_reading, share_requests
from broker.partition.core.shares import share_partition
from broker.partition.core.shares.share_partition import Extent, SharePartition
from broker.partition.core.shares.share_states import ShareStates
from broker.partition.core.shares.share_updates import RecordState, encode_updates
from broker.partition.leading.partition_shares import PartitionShares

if TYPE_CHECKING:
    from collections.abc import Callable

_NEVER = 1 << 14


def _held(self: SharePartition, acknowledgements: Any) -> list[Any]:
    """Return the runs, cut to size, that acknowledgements are about."""
    found = []
    for first, last, _ in acknowledgements:
        low, high = max(first, self.start), min(last, self.end - 1)
        if low <= high:
            found += self._cut(low, high)
    return found


def settled_before_durable(patch: Any) -> None:
    """A member is told that records are settled before the log has it (ANSWER-LATE)."""

    def acknowledge(self: PartitionShares, *arguments: Any) -> Any:
        original(self, *arguments)

    original = patch(PartitionShares, "acknowledge", acknowledge)


def anybody_settles(patch: Any) -> None:
    """Who does not hold a record settles it as if he did (OWN-ONLY)."""

    def checked(self: SharePartition, member_id: str, acknowledgements: Any, now_s: float) -> Any:
        for run in _held(self, acknowledgements):
            if run.state is RecordState.ACQUIRED:
                run.holder = member_id
        return original(self, member_id, acknowledgements, now_s)

    original = patch(SharePartition, "_checked", checked)


def lent_to_two(patch: Any) -> None:
    """What somebody holds is lent to whoever asks (FREE-ONLY)."""

    def lend(self: SharePartition, first: int, last: int, *more: Any, **options: Any) -> Any:
        for run in self._cut(first, min(last, self.end - 1)) if first < self.end else ():
            if run.state is RecordState.ACQUIRED:
                run.become(RecordState.AVAILABLE)
        return original(self, first, last, *more, **options)

    original = patch(SharePartition, "_lend", lend)


def counts_are_not_stored(patch: Any) -> None:
    """How often a record was delivered is not in the log, and begins anew with each leader."""

    def stored(run: Any) -> Any:
        return original(run)._replace(deliveries=0)

    original = patch(share_partition, "_stored", stored)


def start_passes_the_released(patch: Any) -> None:
    """The start passes what was given back, too (START-WAITS)."""

    def pass_settled(self: SharePartition) -> None:
        original(self)
        while self._runs and self._runs[0].state is RecordState.RELEASED:
            self.start = share_partition.Offset(self._runs.pop(0).last + 1)
            original(self)

    original = patch(SharePartition, "_pass_settled", pass_settled)


def settled_records_take_room(patch: Any) -> None:
    """The window is full for ever once as many records were delivered as it has room for."""
    starts: dict[SharePartition, Any] = {}

    def wanted(self: SharePartition, terms: Any) -> Any:
        first = starts.setdefault(self, self.start)
        found = original(self, terms)
        return None if found == self.end and self.end - first >= terms.window_max else found

    original = patch(SharePartition, "wanted", wanted)


def locks_outlive_settling(patch: Any) -> None:
    """The lock of a record that was settled passes all the same, and gives the record back."""
    locks: dict[SharePartition, list[tuple[int, int, float]]] = {}

    def acknowledge(self: SharePartition, member_id: str, found: Any, *more: Any) -> Any:
        mine = [run for run in _held(self, found) if run.holder == member_id]
        spans = [(run.first, run.last, run.lock_ends_s) for run in mine]
        update = original(self, member_id, found, *more)
        locks.setdefault(self, []).extend(spans)
        return update

    def expire(self: SharePartition, now_s: float, terms: Any, now_ms: int = 0) -> Any:
        for first, last, ends_s in locks.get(self, ()):
            if ends_s <= now_s and self.start <= first and last < self.end:
                for run in self._cut(first, last):
                    if run.state is RecordState.ACKNOWLEDGED:
                        run.state, run.holder, run.lock_ends_s = RecordState.ACQUIRED, "?", now_s
        return expired(self, now_s, terms, now_ms)

    original = patch(SharePartition, "acknowledge", acknowledge)
    expired = patch(SharePartition, "expire", expire)


def closed_sessions_keep_records(patch: Any) -> None:
    """Whoever ends its session holds its records until their locks pass."""
    patch(share_requests, "release", lambda services, session: None)


def locks_that_passed_are_renewed(patch: Any) -> None:
    """Who held a record until its lock passed gets it back by acknowledging it."""
    lost: dict[tuple[SharePartition, int], str] = {}

    def acknowledge(
        self: SharePartition,
        member_id: str,
        acknowledgements: Any,
        now_s: float,
        terms: Any,
        now_ms: int = 0,
    ) -> Any:
        for run in _held(self, acknowledgements):
            if run.state is RecordState.AVAILABLE and lost.get((self, run.first)) == member_id:
                run.state, run.holder = RecordState.ACQUIRED, member_id
                run.lock_ends_s = now_s + terms.lock_s
        try:
            return settled(self, member_id, acknowledgements, now_s, terms, now_ms)
        finally:
            self._join(self.start, max(self.start, self.end - 1))

    def expire(self: SharePartition, now_s: float, terms: Any, now_ms: int = 0) -> Any:
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and run.lock_ends_s <= now_s:
                for offset in range(run.first, run.last + 1):
                    lost[self, offset] = run.holder
        return expired(self, now_s, terms, now_ms)

    settled = patch(SharePartition, "acknowledge", acknowledge)
    expired = patch(SharePartition, "expire", expire)


def locks_that_pass_know_no_limit(patch: Any) -> None:
    """The limit of deliveries does not count for records whose locks pass (LIMIT-ALWAYS)."""

    def expire(self: SharePartition, now_s: float, terms: Any, now_ms: int = 0) -> Any:
        return original(self, now_s, terms._replace(deliveries_max=_NEVER), now_ms)

    original = patch(SharePartition, "expire", expire)


def locks_pass_early(patch: Any) -> None:
    """A record is taken back when half of its lock's time is over."""

    def lend(self: SharePartition, *arguments: Any, **options: Any) -> Any:
        *first, terms = arguments
        return original(self, *first, terms._replace(lock_s=terms.lock_s / 2), **options)

    original = patch(SharePartition, "_lend", lend)


def locks_never_pass(patch: Any) -> None:
    """What a member holds that is silent is never taken back."""
    patch(PartitionShares, "_on_time", lambda self: None)


def markers_are_records(patch: Any) -> None:
    """Markers of transactions are lent."""

    def extent(header: Any, fetched: Any) -> Extent:
        return (
            original(header, fetched)._replace(is_wanted=True)
            if header.is_control
            else (original(header, fetched))
        )

    original = patch(share_reading, "_extent", extent)


def aborted_records_are_lent(patch: Any) -> None:
    """Records of aborted transactions are lent with read_committed."""

    def extent(header: Any, fetched: Any) -> Extent:
        return original(header, fetched)._replace(is_wanted=not header.is_control)

    original = patch(share_reading, "_extent", extent)


def snapshots_leave_a_group_out(patch: Any) -> None:
    """A snapshot has all groups but the last."""

    def encode(self: ShareStates) -> bytes:
        groups = list(self)
        return encode_updates(one.whole() for one in groups[: max(1, len(groups) - 1)])

    patch(ShareStates, "encode", encode)


def snapshots_have_nothing_settled(patch: Any) -> None:
    """A snapshot says where a group begins, and nothing of what is settled behind that."""

    def whole(self: SharePartition) -> Any:
        return original(self)._replace(ranges=())

    original = patch(SharePartition, "whole", whole)


WORLD = "shares"
KINDS: dict[str, str] = {}
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}
