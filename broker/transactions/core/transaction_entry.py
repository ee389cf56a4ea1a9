"""One transactional id of a coordinator, with all that it waits for.

What an id can have beside its stored value:

    change      one append under way, or a producer id that is being allocated for one: everything
                else has to wait for it
    unmarked    partitions whose markers are not confirmed, while the stored state is Prepare*
    done        Complete*, once there are none, until it is in the log (COMPLETE-LATER)
    parked      requests to add partitions, which wait for the end of the last transaction
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.coordinator.core.coordinator_types import Reply, Token
from broker.transactions.core.transaction import Decision
from broker.transactions.core.transaction_types import (
    PREPARED,
    AddPartitions,
    Client,
    TransactionMetadata,
    TransactionPartition,
)
from client.ids import ProducerId

Rule = Callable[[int, ProducerId | None], Decision]
"""What a request does, given the time in ms and perhaps a new producer id."""


class Allocation(NamedTuple):
    """A new producer id is being allocated; the rule is asked again when it is there."""

    transaction: Transaction
    rule: Rule
    token: Token | None


class Change(NamedTuple):
    """Values on their way into the log, and who is answered then."""

    values: tuple[TransactionMetadata, ...]
    """One after the other; empty: the id is removed."""
    replies: tuple[Reply, ...]


class Parked(NamedTuple):
    """A request to add partitions that waits."""

    request: AddPartitions
    token: Token
    until_s: float


class Transaction:
    """One transactional id."""

    __slots__ = (
        "change",
        "client",
        "complete_s",
        "done",
        "parked",
        "stored",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id: Final = transactional_id
        self.stored: TransactionMetadata | None = None
        """The last durable value."""
        self.change: Change | Allocation | None = None
        self.unmarked: set[TransactionPartition] = set()
        self.parked: deque[Parked] = deque()
        self.client: Client | None = None
        """Who used it last, as far as this coordinator has seen."""
        self.done: TransactionMetadata | None = None
        """What follows from `stored`, a decision with all markers confirmed. Not in the log."""
        self.complete_s: float | None = None
        """When `done` is appended at the latest, unless a change is under way then."""

    @property
    def current(self) -> TransactionMetadata | None:
        """What requests are held against: what is stored, or follows from it and the markers."""
        return self.stored if self.done is None else self.done

    @property
    def is_prepared(self) -> bool:
        """Whether its markers are under way."""
        current = self.current
        return current is not None and current.state in PREPARED

    @property
    def is_writing(self) -> bool:
        """Whether a newer value is on its way into the log."""
        return isinstance(self.change, Change)

    def is_due(self, now_s: float) -> bool:
        """Say whether Complete* is to be appended."""
        return self.complete_s is not None and self.complete_s <= now_s and self.change is None

    def next_deadline(self) -> float | None:
        """Return when something has to be done, None if nothing has."""
        deadlines = [self.parked[0].until_s] if self.parked else []
        if self.complete_s is not None and self.change is None:
            deadlines.append(self.complete_s)
        return min(deadlines, default=None)
