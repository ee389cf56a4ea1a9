"""The append of a batch that is held until its transaction's coordinator has answered.

Whoever appended the batch has it as any other append: it is settled once. Until the batch is
accepted it has no offsets; then it follows the append that the batch has become, which may be one
that it repeats.
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
    """One held batch and what becomes of it. `base_offset` is -1 until it is accepted; the
    difference to `end_offset` is the number of its records at any time."""

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
        """The question that is to be asked because of this batch; None: it was asked before."""
        self._accepted_calls: list[Callable[[HeldAppend], None]] = []

    def on_accepted(self, call: Callable[[HeldAppend], None]) -> None:
        """Call `call(self)` when it has its offsets, before any batch after it has: at once if it
        has them already. Not at all if it is refused."""
        if self.base_offset != UNKNOWN_OFFSET:
            call(self)
        else:
            self._accepted_calls.append(call)

    def follow(self, append: Append) -> None:
        """The batch was accepted as that append, or repeats it."""
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
    """Accept or refuse what waits no more, in order.

    `accept` appends a batch, and raises BrokerError. When a batch is refused so that its producer
    sends it again, none behind it is taken before it (REFUSED-ORDER).
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
