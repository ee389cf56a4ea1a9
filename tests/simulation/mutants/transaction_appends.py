"""Planted defects of how a partition takes transactional batches: verified, held, in order.

See `table.py`; the table is in `transactions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.partition.core.held_batches import HeldBatches
from broker.partition.core.log_state import LogState
from broker.partition.core.open_transactions import OpenTransactions
from broker.partition.core.producer_state import ProducerState

if TYPE_CHECKING:
    from collections.abc import Callable


def verify_off(patch: Any) -> None:
    """No coordinator is asked before a transaction begins in a partition (KAFKA-14402)."""

    def needs_verification(self: OpenTransactions, header: Any) -> bool:
        original(self, header)
        return False

    original = patch(OpenTransactions, "needs_verification", needs_verification)


def guard_by_value(patch: Any) -> None:
    """An answer counts for whatever waits in that partition for that producer (AK#13608)."""

    def take(self: HeldBatches[Any], guard: Any) -> Any:
        held = self._held.get(guard.producer_id)
        return original(self, guard if held is None else held.guard)

    original = patch(HeldBatches, "_take", take)


def guard_outlives_markers(patch: Any) -> None:
    """A marker does not void the question that is under way."""

    def on_marker(self: HeldBatches[Any], producer_id: Any, *arguments: Any, **options: Any) -> Any:
        none = original(self, -producer_id - 2, *arguments, **options)
        return none

    original = patch(HeldBatches, "on_marker", on_marker)


def next_epoch_in_the_classic_protocol(patch: Any) -> None:
    """A marker of the batch's own epoch does not void the question in TV1 either (NEXT-EPOCH)."""

    def on_marker(self: HeldBatches[Any], producer_id: Any, epoch: int, *, is_tv2: bool) -> Any:
        return original(self, producer_id, epoch, is_tv2=True)

    original = patch(HeldBatches, "on_marker", on_marker)


def overtakes_the_held(patch: Any) -> None:
    """A batch is accepted while the one before it waits for its coordinator."""

    def contains(self: HeldBatches[Any], producer_id: Any) -> bool:
        return False

    def hold(self: HeldBatches[Any], header: Any, batch: Any) -> Any:
        if header.producer_id in self._held:
            self._held[header.producer_id].batches.insert(0, batch)
            return None
        return original(self, header, batch)

    patch(HeldBatches, "__contains__", contains)
    original = patch(HeldBatches, "hold", hold)


def refused_order_forgotten(patch: Any) -> None:
    """After a batch was refused, those behind it are taken before it comes again."""
    patch(HeldBatches, "_remember", lambda self, producer_id, epoch, sequence: None)


def verified_before_the_epoch(patch: Any) -> None:
    """A fenced producer's epoch is not looked at before its coordinator is asked (AK#20618)."""
    patch(ProducerState, "check_epoch", lambda self, header: None)
    patch(LogState, "_check_behind", lambda self, header: None)


def repeated_batch_begins_again(patch: Any) -> None:
    """A duplicate of a batch opens its transaction again, behind the marker (RP#3039)."""

    def look(self: LogState, header: Any, *arguments: Any, **options: Any) -> Any:
        found = original(self, header, *arguments, **options)
        repeated = not header.is_control and self.producers.find_repeated(header) is not None
        transactions = self.fold.transactions
        if repeated and header.is_transactional and header.producer_id not in transactions:
            transactions.on_batch(header, self.offsets.log_end, 0)
        return found

    original = patch(LogState, "_look", look)


def late_batch_is_held(patch: Any) -> None:
    """A coordinator is asked about a batch that comes too late, and its answer is for all."""
    patch(LogState, "_check_behind", lambda self, header: None)


def open_producer_is_forgotten(patch: Any) -> None:
    """A producer is forgotten though its transaction is open (AK#7687)."""

    def init(self: ProducerState, **options: Any) -> None:
        original(self, **{**options, "pinned": ()})

    original = patch(ProducerState, "__init__", init)
    patch(
        OpenTransactions,
        "forget",
        lambda self, producer_id: self._coordinators.pop(producer_id, None),
    )


def open_without_limit(patch: Any) -> None:
    """How many transactions are open is not looked at again when held ones begin."""

    def check_beginning(self: LogState, *arguments: Any) -> None:
        transactions = self.fold.transactions
        kept, transactions._count_max = transactions._count_max, 1 << 40
        try:
            original(self, *arguments)
        finally:
            transactions._count_max = kept

    original = patch(LogState, "_check_beginning", check_beginning)


def held_without_limit(patch: Any) -> None:
    """Whatever comes is held."""

    def init(self: HeldBatches[Any], name: str, **options: Any) -> None:
        original(self, name, **{**options, "size_bytes_max": 1 << 40})

    original = patch(HeldBatches, "__init__", init)


PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
