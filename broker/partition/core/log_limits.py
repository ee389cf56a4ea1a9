"""Sizes and intervals of a partition's log, and which of them a topic sets.

Simulations vary all of them.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from broker.cluster.core.topic_config import BATCH_BYTES_MAX

UNLIMITED: Final = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """When to roll the active segment, and when to delete sealed ones: from the topic's
    configuration."""

    segment_bytes: int = 1 << 30
    """Roll once a segment has this many bytes."""

    segment_ms: int = 7 * 86_400_000
    """Roll a segment that has records and is this old."""

    retention_ms: int = 7 * 86_400_000
    """Delete segments whose newest record is older; -1: never."""

    retention_bytes: int = UNLIMITED
    """Delete the oldest segments while the remaining ones have at least this many bytes; -1:
    never."""


ENTRY_BYTES_MAX: Final = BATCH_BYTES_MAX
ENTRY_FRAME_BYTES: Final = ENTRY_BYTES_MAX + 4_096
"""An entry with everything that a request to a bookie adds to it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """Limits that are the same for all partitions of a broker."""

    snapshot_interval_bytes: int = 4 * 1024 * 1024
    """A takeover reads back at most about this much. Lower: more snapshot bytes in the log."""

    snapshot_interval_entries: int = 64
    """And at most about this many entries: a small entry costs a takeover as much as a large
    one."""

    index_interval_bytes: int = 64 * 1024
    """Distance between positions in the sparse index of the segment being written."""

    entry_bytes_max: int = ENTRY_BYTES_MAX
    """Largest batch or snapshot: bookies accept frames of 5 MiB (`nettyMaxFrameSizeBytes`)."""

    shared_entry_bytes_max: int = 256 * 1024
    """Batches share an entry up to this many bytes; a larger batch has an entry of its own."""

    shared_entry_batches_max: int = 128
    """And up to this many batches: a takeover looks at the header of each."""

    entries_before_sharing: int = 2
    """With this many entries in flight, batches wait for the next one (`append_queue.py`)."""

    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Unconfirmed bytes of one partition; beyond that, clients wait."""

    read_entries_max: int = 256
    """Most entries that one read asks a ledger for at once."""

    search_span_entries: int = 8
    """A search reads all remaining entries at once when at most this many are left."""

    segment_page_entries: int = 256
    """Segments per page of the segment list, or pages per page of the next level. Lower: the list's
    node is smaller and rolls write less, but a search reads more pages. At least 2."""

    readers_max: int = 8
    """Open ledger readers that a partition keeps."""

    producer_expiration_ms: int = 86_400_000
    """An idempotent producer idle for this long is forgotten (Kafka: producer.id.expiration.ms)."""

    producer_count_max: int = 20_000
    """Idempotent producers that a partition remembers; beyond that, the longest idle are
    dropped."""

    open_transactions_max: int = 5_000
    """Open transactions of a partition; the first batches of further ones are refused, and retried.
    Their producers are never forgotten, so this stays well below `producer_count_max`."""

    held_bytes_max: int = 16 * 1024 * 1024
    """Bytes of batches that wait in a partition for verification by their transaction coordinators;
    further ones are refused, and retried."""

    aborted_block_entries: int = 1_000
    """Aborted transactions per block. Lower: more entries in the log; higher: larger snapshots."""

    settling_ms: int = 5_000
    """How long after the begin of a leadership gaps in producers' sequences may be caused by
    brokers (`producer_state.py`). Lower: slower clients bump their epoch without need."""

    opened_records_max: int = 1_000_000
    """Records that may be decoded for one request, in batches of compacted topics or in searches by
    timestamp. Higher: one request may take longer, in idle time of the loop."""

    copy_below_bytes: int = 4096
    """Copy batches smaller than this: that costs less than handling them in pieces. Larger ones are
    copied if they are less than half of the buffer that they arrived in, because they would keep
    all of it in memory."""
