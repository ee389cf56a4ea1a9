"""The four offsets of a led partition, and their order:

    log start <= last stable offset <= high watermark <= log end

The log start moves by trimming, the log end when a batch is accepted, the high watermark when
its entry is confirmed, in order. None of them ever decreases: a reader that saw a record below the
high watermark will find it there after any takeover. The last stable offset is the high watermark
unless a transaction is undecided (`transactions/open_transactions.py`).
"""

from __future__ import annotations

from broker.partition.core.transactions.open_transactions import OpenTransactions
from client.ids import Offset


class LogOffsets:
    """Offsets of one partition under one leader. After a takeover everything is confirmed."""

    __slots__ = ("_transactions", "high_watermark", "log_end", "log_start")

    def __init__(
        self, log_start: Offset, log_end: Offset, transactions: OpenTransactions | None = None
    ) -> None:
        """`transactions`: the log's open transactions, kept up to date; None: there are none."""
        self._transactions = transactions
        self.log_start = log_start
        self.high_watermark = log_end
        self.log_end = log_end
        self.check()

    @property
    def last_stable(self) -> Offset:
        """First offset of the oldest undecided transaction; without one, the high watermark."""
        if self._transactions is None:
            return self.high_watermark
        return self._transactions.last_stable(self.log_start, self.high_watermark)

    def on_accepted(self, end: Offset) -> None:
        """A batch that ends before `end` was enqueued."""
        assert end > self.log_end, (end, self.log_end)
        self.log_end = end

    def on_confirmed(self, end: Offset) -> None:
        """Everything below `end` is on its ack quorum."""
        assert self.high_watermark <= end <= self.log_end, (end, self.high_watermark, self.log_end)
        self.high_watermark = end

    def on_trimmed(self, start: Offset) -> None:
        """Records below `start` may disappear."""
        assert self.log_start <= start <= self.high_watermark, (start, self.high_watermark)
        self.log_start = start

    def check(self) -> None:
        """Assert the order of the offsets."""
        assert 0 <= self.log_start <= self.last_stable <= self.high_watermark <= self.log_end, (
            self.describe()
        )

    def describe(self) -> str:
        """One stable line for logs and transcripts."""
        return (
            f"log_start={self.log_start} high_watermark={self.high_watermark}"
            f" log_end={self.log_end}"
        )
