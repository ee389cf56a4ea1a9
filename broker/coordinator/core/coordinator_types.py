"""What every kind of coordinator shares with its shell: records, requests on their way, effects.

A coordinator's shard turns a request into effects. `Append` is the only way to change anything: its
records become durable, are replayed, and only then the shard goes on (`on_stored`) and replies.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

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
    says."""

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
