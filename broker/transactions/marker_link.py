"""The interface that takes markers from a coordinator to the brokers that lead the partitions.

The rules of `core/marker_queue.py` and `core/connection_order.py` (CHANNEL) meet here: the queue
says what goes to which broker, a link carries it there and brings the outcomes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker.errors import NotLeader
from broker.transactions.core.marker_queue import Marker, Outcome
from client.ids import BrokerId, LeaderEpoch


class CoordinatorTerm(NamedTuple):
    """Who sends markers: the leader of a partition of `__transaction_state`, in one leader epoch.

    The leader epoch is the *coordinator epoch* that markers carry into the log.
    """

    partition: int
    epoch: LeaderEpoch


class MarkerSessions(Protocol):
    """The sessions of one coordinator with all brokers, this one included."""

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        """Have markers written; return an outcome for each, in their order.

        Called again for a broker only after its last call is over. Raises QuireError if no answer
        came: the markers may be written or not, and the session with that broker is over, so that
        nothing that was sent over it takes effect later (CHANNEL).
        """
        ...

    def close(self) -> None:
        """End all sessions: nothing that was sent in them may take effect later."""
        ...


class MarkerLink(Protocol):
    """The way to all brokers."""

    def open(self, coordinator: CoordinatorTerm) -> MarkerSessions:
        """Begin to send for a coordinator; its sessions are newer than all that it had before."""
        ...


class NoLink:
    """The link of a broker that cannot reach any: markers wait."""

    def open(self, coordinator: CoordinatorTerm) -> NoLink:
        """Begin to send for a coordinator."""
        return self

    async def send(self, broker: BrokerId, markers: Sequence[Marker]) -> Sequence[Outcome]:
        """Refuse. Raises NotLeader."""
        raise NotLeader(f"broker {broker} cannot be reached")

    def close(self) -> None:
        """End nothing."""
