"""Planted defects of markers at the partitions that they end a transaction in.

See `table.py`; the table is in `transactions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import TransactionCoordinatorFenced
from broker.partition.core.held_batches import HeldBatches
from broker.partition.core.open_transactions import MarkerVerdict, OpenTransactions
from broker.partition.leading.partition_transactions import LeadershipProofs, PartitionTransactions

if TYPE_CHECKING:
    from collections.abc import Callable


def snapshot_forgets_coordinators(patch: Any) -> None:
    """A snapshot does not tell which coordinators the log has heard (COORDINATOR-EPOCH)."""

    def encode(self: OpenTransactions) -> Any:
        kept, self._coordinators = self._coordinators, {}
        try:
            return original(self)
        finally:
            self._coordinators = kept

    original = patch(OpenTransactions, "encode", encode)


def marker_retry_refused(patch: Any) -> None:
    """A marker that is in the log already is refused (KAFKA-19999)."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        if verdict is MarkerVerdict.DONE:
            raise TransactionCoordinatorFenced(marker.producer_id, "it is there already")
        return verdict

    original = patch(OpenTransactions, "judge", judge)


def marker_twice(patch: Any) -> None:
    """A marker is written as often as it comes."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        is_again = verdict is MarkerVerdict.DONE and marker.producer_id not in self
        return MarkerVerdict.WRITE if is_again else verdict

    original = patch(OpenTransactions, "judge", judge)


def old_coordinator_heard(patch: Any) -> None:
    """What an older coordinator says than the log knows counts as well."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        newest = max(marker.coordinator_epoch, self.coordinator_epoch(marker.producer_id))
        return original(self, marker._replace(coordinator_epoch=newest), producer_epoch, **options)

    original = patch(OpenTransactions, "judge", judge)


def newer_coordinator_is_not_noted(patch: Any) -> None:
    """The first marker of a newer coordinator is not written if it ends nothing
    (COORDINATOR-EPOCH)."""

    def judge(self: OpenTransactions, marker: Any, producer_epoch: int, **options: Any) -> Any:
        verdict = original(self, marker, producer_epoch, **options)
        is_known = marker.producer_epoch == producer_epoch
        is_noted = verdict is MarkerVerdict.WRITE and is_known
        return MarkerVerdict.DONE if is_noted else verdict

    original = patch(OpenTransactions, "judge", judge)


def old_coordinator_vouches(patch: Any) -> None:
    """The word of an older coordinator than the log knows counts as well (COORDINATOR-EPOCH)."""

    def on_verified(self: HeldBatches[Any], guard: Any, coordinator_epoch: int, _: int) -> Any:
        return original(self, guard, coordinator_epoch, coordinator_epoch)

    original = patch(HeldBatches, "on_verified", on_verified)


def done_without_proof(patch: Any) -> None:
    """A leader that has nothing to write for a marker says so without a proof that it leads."""

    def ask(self: LeadershipProofs, log_end: Any, sent_count: int) -> Any:
        proof = original(self, log_end, sent_count)
        self.waiting.pop()
        proof.complete()
        return proof

    original = patch(LeadershipProofs, "ask", ask)


def any_leader_takes_markers(patch: Any) -> None:
    """A marker is written by whichever leader it comes to (MARKER-ADDRESS)."""
    patch(PartitionTransactions, "_check_address", lambda self, leader_epoch: None)


PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}
