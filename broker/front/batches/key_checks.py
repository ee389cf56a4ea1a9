"""The keys of a Produce request's batches, where a compacted topic requires one in each record.

Small batches are looked at when they are appended, large ones before, in turns of the loop. All of
them together have at most `opened_records_max` records looked at.
"""

from __future__ import annotations

from typing import Final

from broker.errors import MessageTooLarge
from broker.partition.partition import Partition
from client.wire.kafka.batches.record_scan import OpenedRecords
from client.wire.kafka.batches.records import HEADER_BYTES, parse_header
from client.wire.steps import Steps

_WORK_RECORDS: Final = 8
"""Records that cost as much as a batch that is begun."""


class KeyChecks:
    """Checks the batches of one request, one after the other."""

    __slots__ = ("_opened", "_records_max", "_work", "are_checked")

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._opened: OpenedRecords | None = None
        self._work = 0
        self.are_checked = False
        """Whether the keys of the batch whose turn it is are known to be there."""

    def check(self, leader: Partition, batch: memoryview) -> Steps[int] | None:
        """Look at the keys of a batch if its topic wants any; return the steps that are left, if
        there are any: after the last of them `are_checked` is true.

        Raises MessageTooLarge and the rest of the `InvalidRecord` family.
        """
        if self.are_checked or not leader.admission.are_keys_required:
            return None
        if len(batch) >= HEADER_BYTES:
            count = parse_header(batch).record_count
            if self._opened is None:
                self._opened = OpenedRecords(self._records_max)
            if not self._opened.take(count):
                raise MessageTooLarge(
                    f"record batch holds {count} records, and one request may have"
                    f" {self._records_max} looked at"
                )
        steps = leader.admission.key_check(batch)
        try:
            next(steps)
        except StopIteration as stop:
            self.are_checked = True
            self._work += stop.value // _WORK_RECORDS
            return None
        return self._rest(steps)

    def _rest(self, steps: Steps[int]) -> Steps[int]:
        count = yield from steps
        self.are_checked = True
        return count

    def take_work(self) -> int:
        """Return what was done since the last call, in batches."""
        work, self._work = self._work, 0
        return work

    def forget(self) -> None:
        """The next batch comes."""
        self.are_checked = False
