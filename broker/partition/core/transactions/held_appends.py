"""The append of a batch that is held until its transaction's coordinator has answered.

For the caller it is like any other append, and is completed once. Until the batch is accepted it
has no offsets. Then it follows the append that was made for the batch, which may be an earlier one
if the batch is a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import BrokerError
from broker.partition.core.append_queue import Append
from broker.partition.core.transactions.held_batches import Guard, HeldBatches, Released
from broker.partition.core.transactions.verification import ProducerTransaction
from client.ids import Offset
from client.wire.kafka.batches.records import BatchHeader, Buffer

UNKNOWN_OFFSET = Offset(-1)


class HeldAppend(Append):
    """One held batch and its outcome. `base_offset` is -1 until it is accepted; the difference to
    `end_offset` is always the number of its records."""

    __slots__ = ("_accepted_calls", "batch", "from_client", "guard", "header", "transaction")

    def __init__(
        self,
        batch: Buffer,
        header: BatchHeader,
        transaction: ProducerTransaction,
        *,
        from_client: bool,
    ) -> None:
        end = Offset(UNKNOWN_OFFSET + header.record_count)
        super().__init__(UNKNOWN_OFFSET, end, (), header.size)
        self.batch = batch
        self.header = header
        self.transaction = transaction
        self.from_client = from_client
        self.guard: Guard | None = None
        """The verification that this batch starts; None: one is in progress already."""
        self._accepted_calls: list[Callable[[HeldAppend], None]] = []

    def on_accepted(self, call: Callable[[HeldAppend], None]) -> None:
        """Call `call(self)` when it has its offsets, before any later batch has: at once if it has
        them already, never if it is refused."""
        if self.base_offset != UNKNOWN_OFFSET:
            call(self)
        else:
            self._accepted_calls.append(call)

    def follow(self, append: Append) -> None:
        """The batch was accepted as `append`, or is a duplicate of it."""
        self.base_offset, self.end_offset = append.base_offset, append.end_offset
        self.log_append_time_ms = append.log_append_time_ms
        self.batch = b""
        calls, self._accepted_calls = self._accepted_calls, []
        for call in calls:
            call(self)
        append.on_done(self._on_done)

    def _on_done(self, append: Append) -> None:
        self.complete(append.error)


def settle(
    released: Released[HeldAppend],
    held: HeldBatches[HeldAppend],
    accept: Callable[[HeldAppend], Append],
) -> None:
    """Accept or refuse released batches, in order.

    `accept` appends a batch, and raises BrokerError. After a batch was refused with an error that
    its producer retries, none after it is accepted before it (REFUSED-ORDER).
    """
    error: BrokerError | None = released.error
    for item in released.batches:
        failure = error
        if failure is None:
            try:
                item.follow(accept(item))
            except BrokerError as refusal:
                failure = refusal
                if refusal.retriable:
                    held.on_not_accepted(item.header)
                    error = refusal
        if failure is not None:
            item.complete(failure)
