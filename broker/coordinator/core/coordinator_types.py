"""What a kind of coordinator is to its shell: a shard, and the records and effects of it.

A shard is all that one partition of an internal topic keeps: groups, or transactional ids. It turns
a request into effects. `Append` is the only way to change anything: its records become durable, are
replayed, and only then the shard goes on (`on_stored`) and replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NewType, Protocol

from broker.errors import BrokerError
from client.errors import RemoteProtocolError
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker

Token = NewType("Token", int)
"""Names one unanswered request; the shell maps it back to whoever waits."""

Ticket = NewType("Ticket", int)
"""Names one append that a core asked for; comes back in `on_stored` or `on_store_failed`."""


class CorruptCoordinatorRecord(RemoteProtocolError):
    """A record of the coordinator's log does not follow its layout."""


class Now(NamedTuple):
    """The moment an input arrives: `s` for intervals (event loop time), `ms` for records."""

    s: float
    ms: int


class LogRecord(NamedTuple):
    """One record of the coordinator's log; value None is a tombstone."""

    key: bytes
    value: bytes | None


class CopiedRecord(NamedTuple):
    """A record that a copy of the log wrote again while a transaction could still change what it
    says: only older brokers did so."""

    record: LogRecord


class TransactionalRecord(NamedTuple):
    """A record of a transaction, which counts when the transaction commits."""

    record: LogRecord
    producer_id: ProducerId
    producer_epoch: int
    offset: Offset
    """Where it lies in the log."""


LogItem = LogRecord | CopiedRecord | TransactionalRecord | Marker
"""What a coordinator's log consists of."""


class Reply(NamedTuple):
    """Answer a request. `result` is a reply value, or the error to answer with."""

    token: Token
    result: object


class Append(NamedTuple):
    """Append these records as one batch, replay them once durable, then `on_stored(ticket)`."""

    ticket: Ticket
    records: tuple[LogRecord, ...]


Effects = Sequence[object]
"""`Append` and `Reply`, which the runtime carries out, and effects of the shard's own kind."""


Undecided = Mapping[Any, object]
"""What a transaction may still change: the durable values, by their keys."""


class Snapshot(NamedTuple):
    """The durable state of one id, as far as a copy of the log may hold it now."""

    records: Sequence[LogRecord]
    undecided: Undecided = MappingProxyType({})
    """Left out: what a transaction may still change."""


class LiveState(Protocol):
    """What a shard holds that is durable."""

    def ids(self) -> list[str]:
        """Return the ids of everything that the shard keeps."""
        ...

    def snapshot(self, key: str, undecided: Undecided | None = None, /) -> Snapshot:
        """Return the durable state of one of them, without what is in flight.

        With `undecided`, which an earlier snapshot left out: only what of it is the newest still.
        """
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
