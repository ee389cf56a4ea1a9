"""A segment: one ledger as an offset range of a partition, and its JSON.

What a list of segments is, and how it changes, is `segments.py`'s business. Fields that only
another release knows stay with their segment, wherever it moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from client.ids import EntryId, LeaderEpoch, LedgerId, Offset
from client.metadata.json_node import INT64_MAX, NO_FIELDS, unknown_fields, whole

_FIELDS: Final = frozenset((
    "ledger", "base_offset", "leader_epoch", "created_ms", "last_offset", "bytes",
    "max_timestamp_ms", "transactional", "stable_at_end", "aborted", "aborted_at", "cleaned",
    "object",
))  # fmt: skip


class SnapshotPlace(NamedTuple):
    """Where a snapshot stands."""

    ledger_id: LedgerId
    entry_id: EntryId


class TransactionFacts(NamedTuple):
    """What readers that pass over aborted data need to know of a segment."""

    is_transactional: bool
    """Whether it holds data of transactions, or markers."""
    aborted_count: int
    """Transactions whose ABORT marker is in it."""
    aborted_at: SnapshotPlace | None
    """The snapshot that lists them (`aborted_transactions.py`), in the segment's own ledger or in a
    later one; None if there are none."""
    stable_offset: Offset
    """Everything before it is decided by what the log holds up to the segment's end: the first
    offset of the oldest transaction that is open there, else the segment's end. Not above the
    segment's end; before its beginning, if that transaction is as old."""


class SegmentFacts(NamedTuple):
    """What is known of a segment once nothing can be added to it."""

    last_offset: Offset
    """Base offset - 1 when it holds no record."""
    size_bytes: int
    """0 only if its ledger has no entry at all: a snapshot has a size, too."""
    max_timestamp_ms: int
    """-1: no record has a timestamp."""
    transactions: TransactionFacts | None = None
    """None: it holds nothing of a transaction, and none is open at its end."""

    @property
    def stable_offset(self) -> Offset:
        """Everything before it is decided by what the log holds up to the segment's end."""
        if self.transactions is None:
            return Offset(self.last_offset + 1)
        return self.transactions.stable_offset

    def of_ledger(self, ledger_id: LedgerId) -> SegmentFacts:
        """Return the facts of a segment whose own ledger lists what is aborted in it."""
        known = self.transactions
        if known is None or known.aborted_at is None:
            return self
        place = known.aborted_at._replace(ledger_id=ledger_id)
        return self._replace(transactions=known._replace(aborted_at=place))


class StoredObject(NamedTuple):
    """The copy of a segment in the object store (`segment_object.py`)."""

    attempt: int
    """With the segment's ledger and base offset it makes the object's name."""
    size: int
    footer_bytes: int
    """Without the trailer."""
    footer_crc: int
    """The footer holds the checksums of all the rest."""
    since_ms: int
    """When it was listed."""
    ledger_gone: bool = False
    """Whether the ledger was given up: the object is the only copy (DROP)."""


class Segment(NamedTuple):
    """One ledger as an offset range of the partition."""

    ledger_id: LedgerId
    base_offset: Offset | None
    """None from its listing by a roll until the previous ledger is closed."""
    leader_epoch: LeaderEpoch
    created_ms: int
    facts: SegmentFacts | None = None
    """None until sealed."""
    cleaned: bool = False
    """Whether it was compacted: then offsets may be missing anywhere in it, its end included."""
    stored: StoredObject | None = None
    """None: it is not in the object store."""
    kept: Mapping[str, Any] = NO_FIELDS
    """What only another release knows of it."""

    @property
    def end_offset(self) -> Offset | None:
        """Offset after its last record; None until sealed."""
        return None if self.facts is None else Offset(self.facts.last_offset + 1)

    @property
    def is_ledger_gone(self) -> bool:
        """Whether only its object is left."""
        return self.stored is not None and self.stored.ledger_gone

    @property
    def first_epoch(self) -> LeaderEpoch:
        """Like a page's."""
        return self.leader_epoch

    @property
    def last_epoch(self) -> LeaderEpoch:
        """Like a page's."""
        return self.leader_epoch


def segment_to_json(segment: Segment) -> dict[str, object]:
    """Return the object that stands for a segment in a node."""
    value: dict[str, object] = {
        **segment.kept,
        "ledger": segment.ledger_id,
        "base_offset": segment.base_offset,
        "leader_epoch": segment.leader_epoch,
        "created_ms": segment.created_ms,
    }
    if segment.facts is not None:
        value["last_offset"] = segment.facts.last_offset
        value["bytes"] = segment.facts.size_bytes
        value["max_timestamp_ms"] = segment.facts.max_timestamp_ms
        transactions = segment.facts.transactions
        if transactions is not None:
            value["transactional"] = transactions.is_transactional
            value["stable_at_end"] = transactions.stable_offset
            value["aborted"] = transactions.aborted_count
            if transactions.aborted_at is not None:
                value["aborted_at"] = [*transactions.aborted_at]
    if segment.cleaned:
        value["cleaned"] = True
    if segment.stored is not None:
        value["object"] = [*segment.stored]
    return value


def knows_objects(segments: Iterable[Segment]) -> bool:
    """Whether any segment is in the object store."""
    return any(item.stored is not None for item in segments)


def knows_transactions(segments: Iterable[Segment]) -> bool:
    """Whether the facts of any segment speak of transactions."""
    return any(item.facts is not None and item.facts.transactions is not None for item in segments)


def segment_from_json(value: Mapping[str, Any]) -> Segment:
    """Raises ValueError, KeyError, TypeError."""
    facts = None
    if "last_offset" in value:
        facts = SegmentFacts(
            Offset(whole(value, "last_offset", -1)),
            whole(value, "bytes"),
            whole(value, "max_timestamp_ms", -INT64_MAX - 1),
            _transactions_from_json(value) if "stable_at_end" in value else None,
        )
    return Segment(
        LedgerId(whole(value, "ledger")),
        Offset(whole(value, "base_offset")) if value["base_offset"] is not None else None,
        LeaderEpoch(whole(value, "leader_epoch")),
        whole(value, "created_ms"),
        facts,
        value.get("cleaned") is True,
        _stored_from_json(value["object"]) if "object" in value else None,
        unknown_fields(value, _FIELDS),
    )


def _transactions_from_json(value: Mapping[str, Any]) -> TransactionFacts:
    is_transactional = value["transactional"]
    if type(is_transactional) is not bool:
        raise ValueError("transactional is neither true nor false")
    count = whole(value, "aborted")
    place = None
    if count:
        ledger_id, entry_id = value["aborted_at"]
        numbers = {"ledger": ledger_id, "entry": entry_id}
        place = SnapshotPlace(LedgerId(whole(numbers, "ledger")), EntryId(whole(numbers, "entry")))
    stable = Offset(whole(value, "stable_at_end", 0, whole(value, "last_offset", -1) + 1))
    return TransactionFacts(is_transactional, count, place, stable)


def _stored_from_json(value: Any) -> StoredObject:
    *numbers, gone = value
    if len(numbers) != len(StoredObject._fields) - 1 or type(gone) is not bool:
        raise ValueError("an object is five whole numbers, and whether its ledger is gone")
    for number in numbers:
        if type(number) is not int or not 0 <= number < 1 << 64:
            raise ValueError(f"{number!r} is not between 0 and 2^64")
    attempt, size, footer_bytes, footer_crc, since_ms = numbers
    return StoredObject(attempt, size, footer_bytes, footer_crc, since_ms, gone)
