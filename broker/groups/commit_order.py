"""Keeps late offsets of transactions from taking effect, although nothing in them shows it.

A client that gets no answer in time connects again and repeats its TxnOffsetCommit; the bytes of
the first one may lie in a socket still. In the classic protocol all transactions of a producer have
one epoch and offsets have no sequence: late ones of transaction n would count for n + 1, in place
of what that has committed. The rules are those of transactional ids
(`broker/transactions/core/connection_order.py`):

    OLD-CONNECTION  of each producer id and epoch, the newest connection counts that has committed
    FRESH-LEADER    what was accepted before this broker took the group's partition over is refused
"""

from __future__ import annotations

from typing import Final

from broker.errors import OldConnection
from client.ids import ConnectionId, ProducerId

PRODUCERS_MAX: Final = 20_000
"""How many producers are remembered, those that committed last; about 0.2 KB each."""


class CommitOrder:
    """Which connections may still commit offsets in transactions, in one partition of groups."""

    def __init__(
        self, accepted_before: ConnectionId, *, producers_max: int = PRODUCERS_MAX
    ) -> None:
        """`accepted_before`: the last connection that was accepted before the takeover."""
        self._accepted_before = accepted_before
        self._producers_max = producers_max
        self._newest: dict[ProducerId, tuple[int, ConnectionId]] = {}
        """Producer id -> its epoch and newest connection; who committed last is the last."""

    def admit(self, producer_id: ProducerId, epoch: int, connection: ConnectionId) -> None:
        """Let a commit pass; one of an older epoch passes and counts for nothing, its epoch is
        looked at later.

        Raises OldConnection: close it, answer nothing.
        """
        if connection <= self._accepted_before:
            raise OldConnection(f"connection {connection} is older than this coordinator")
        newest = self._newest.get(producer_id, (epoch, connection))
        if epoch < newest[0]:
            return
        if epoch == newest[0] and connection < newest[1]:
            raise OldConnection(f"producer {producer_id} has a newer connection than {connection}")
        self._newest.pop(producer_id, None)
        self._newest[producer_id] = (epoch, connection)
        if len(self._newest) > self._producers_max:
            del self._newest[next(iter(self._newest))]
