"""The sizes and intervals that shape a partition's log, and which of them a topic sets.

Simulations vary every one of them.
"""

from __future__ import annotations

import dataclasses
from typing import Final

UNLIMITED: Final = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """When the active segment ends and when sealed ones go: from the topic's configuration."""

    segment_bytes: int = 1 << 30
    """Roll once a segment has this many bytes."""

    segment_ms: int = 7 * 86_400_000
    """Roll a segment that has records and is this old."""

    retention_ms: int = 7 * 86_400_000
    """Delete segments whose newest record is older; -1: never."""

    retention_bytes: int = UNLIMITED
    """Delete the oldest segments while the others still have this many bytes; -1: never."""


ENTRY_BYTES_MAX: Final = 5_000_000
ENTRY_FRAME_BYTES: Final = ENTRY_BYTES_MAX + 4_096
"""With all that a request to a bookie adds to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """The same for all partitions of a broker."""

    snapshot_interval_bytes: int = 4 * 1024 * 1024
    """A takeover reads back at most about this much. Lower: more snapshot bytes in the log."""

    snapshot_interval_entries: int = 64
    """And at most about so many entries: small ones cost a takeover as much each as large ones."""

    index_interval_bytes: int = 64 * 1024
    """Distance of places in the sparse index of the segment being written."""

    entry_bytes_max: int = ENTRY_BYTES_MAX
    """Largest batch or snapshot: bookies take frames of 5 MiB (`nettyMaxFrameSizeBytes`)."""

    shared_entry_bytes_max: int = 256 * 1024
    """Batches that come together share an entry up to so many bytes; a larger one has its own."""

    shared_entry_batches_max: int = 128
    """And up to so many batches: a takeover looks at the header of each."""

    entries_before_sharing: int = 2
    """With so many entries under way, batches wait for the next one (`batch_accumulator.py`)."""

    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Appends wait for bookies up to this much in one partition; then their clients wait."""

    read_entries_max: int = 256
    """Most entries that one read asks a ledger for at once."""

    search_span_entries: int = 8
    """A search reads the rest in one go once so few entries are left."""

    segment_page_entries: int = 256
    """Segments in a page of the segment list, or pages in one of the level above. Lower: the list's
    node is smaller and rolls write less, and a search reads more pages. From 2 on."""

    readers_max: int = 8
    """Open ledger readers that a partition keeps."""

    producer_expiration_ms: int = 86_400_000
    """An idempotent producer silent for so long is forgotten (Kafka: producer.id.expiration.ms)."""

    producer_count_max: int = 20_000
    """Idempotent producers a partition remembers; beyond, the ones silent longest are dropped."""

    open_transactions_max: int = 5_000
    """Open transactions of a partition; the first batches of further ones are refused, and come
    again. Their producers are never forgotten, so this stays well below `producer_count_max`."""

    held_bytes_max: int = 16 * 1024 * 1024
    """Batches that wait in a partition for the word of their transactions' coordinators; further
    ones are refused, and come again."""

    aborted_block_entries: int = 1_000
    """Aborted transactions in a block. Lower: more entries in the log; higher: larger snapshots."""

    settling_ms: int = 5_000
    """After a leadership began, gaps in producers' sequences may be of our own making for so long
    (`sequence_gaps.py`). Lower: clients slower than that raise their epoch for nothing."""

    opened_records_max: int = 1_000_000
    """Records that one request may have opened, in batches whose topic wants keys or in searches by
    time. Higher: a request may take longer, on the loop's idle time."""

    copy_below_bytes: int = 4096
    """Copy batches smaller than this, which costs less than handling them in pieces. Larger ones
    are copied if they are less than half of what they came with: they would keep all of it in
    memory for as long as somebody has them."""
