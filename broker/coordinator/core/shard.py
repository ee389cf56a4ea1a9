"""What a kind of coordinator must be able to do, so that the runtime can serve it.

A shard is all that one partition of an internal topic keeps: groups, or transactional ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.coordinator.core.coordinator_types import CopiedRecord, LogRecord, Now, Ticket
from broker.errors import BrokerError
from client.ids import Offset

Effects = Sequence[object]
"""`Append` and `Reply`, which the runtime carries out, and effects of the shard's own kind."""


class LiveState(Protocol):
    """What a shard holds that is durable."""

    def ids(self) -> list[str]:
        """Return the ids of everything that the shard keeps."""
        ...

    def snapshot(self, key: str, /) -> Sequence[LogRecord | CopiedRecord]:
        """Return the durable state of one of them as records, without what is in flight."""
        ...

    def kept_from(self, start: Offset, /) -> Offset:
        """Return the offset at or before `start` from which on the log is needed beside copies."""
        ...


class Shard(Protocol):
    """Decides for one partition of an internal topic."""

    @property
    def view(self) -> LiveState:
        """What can be asked of it."""
        ...

    def replay(self, record: LogRecord) -> None:
        """Apply a durable record. Raises CorruptCoordinatorRecord."""
        ...

    def loaded(self, now: Now) -> Effects:
        """Go live after the log was replayed to its end."""
        ...

    def on_stored(self, ticket: Ticket, now: Now) -> Effects:
        """Continue after the records of an Append were replayed."""
        ...

    def on_store_failed(self, ticket: Ticket, error: BrokerError, now: Now) -> Effects:
        """Continue after the log refused an Append: nothing of it is durable."""
        ...

    def unload(self, error: BrokerError) -> Effects:
        """Answer everything that waits: this broker no longer coordinates these ids."""
        ...

    def next_deadline(self) -> float | None:
        """Return when `on_deadline` wants to be called; perhaps early, never late."""
        ...

    def on_deadline(self, now: Now) -> Effects:
        """Do what is due."""
        ...
