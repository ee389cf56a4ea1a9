"""From one flat configuration to the bounds that each part of a bookie takes.

This file is the only home of that translation: units, and defaults that depend on other settings.
"""

from __future__ import annotations

from bookie.config import BookieConfig
from bookie.core.disk_space import SpaceLimits
from bookie.core.traffic import TrafficLimits
from bookie.garbage import GarbageLimits
from bookie.rewriter import RewriterLimits
from bookie.server import ServerLimits
from bookie.shelf import ShelfLimits
from bookie.storage import StorageLimits
from bookie.writability import WritabilityLimits

_PRIORITY_FILES = 1.2
"""So many log files must fit before a full directory still takes urgent adds."""


def shelf_limits(config: BookieConfig) -> ShelfLimits:
    """Return the bounds of each directory; what is shared is divided."""
    count = len(config.data_dirs())
    return ShelfLimits(
        log_file_bytes_max=config.log_file_bytes_max,
        storage=StorageLimits(
            cache_bytes_max=config.cache_bytes_max // count,
            checkpoint_bytes=config.checkpoint_bytes,
            checkpoint_records=config.checkpoint_records,
            checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
            index_gather_s=config.index_gather_ms / 1000,
            disk_full_retry_s=config.disk_full_retry_ms / 1000,
        ),
        rewriter=RewriterLimits(
            copy_bytes_max=config.log_file_bytes_max,
            reclaim_bytes_per_s=config.reclaim_bytes_per_s,
            free_bytes_min=config.free_bytes_min,
            deletion_memory_ms=config.deletion_memory_ms,
        ),
    )


def server_limits(config: BookieConfig) -> ServerLimits:
    """Return the bounds of connections and requests."""
    return ServerLimits(
        frame_bytes_max=config.frame_bytes_max,
        connections_max=config.connections_max,
        connections_per_host_max=config.connections_per_host_max,
        connection_idle_s=config.connection_idle_ms / 1000,
        frame_timeout_s=config.frame_timeout_ms / 1000,
        unfinished_bytes_max=config.unfinished_bytes_max,
        unread_bytes_max=config.unread_bytes_max,
        requests_in_flight_max=config.requests_in_flight_max,
        unsent_bytes_max=config.unsent_bytes_max,
        traffic=TrafficLimits(config.adds_in_flight_max, config.reads_in_flight_max),
    )


def writability_limits(config: BookieConfig) -> WritabilityLimits:
    """Return when the bookie turns read-only, and back."""
    full_at = config.disk_usage_threshold
    room_below = config.disk_usage_lwm_threshold
    priority_bytes = config.priority_free_bytes_min
    return WritabilityLimits(
        space=SpaceLimits(
            full_at=full_at,
            scarce_at=config.disk_usage_warn_threshold,
            room_below=full_at if room_below is None else room_below,
            free_bytes_min=config.free_bytes_min,
            free_bytes_for_room=config.free_bytes_min
            + max(config.log_preallocate_bytes, config.pending_bytes_max),
        ),
        check_interval_s=config.disk_check_interval_ms / 1000,
        read_only_on_any_full=config.read_only_on_any_full,
        priority_free_bytes_min=(
            int(_PRIORITY_FILES * config.log_file_bytes_max)
            if priority_bytes is None
            else priority_bytes
        ),
    )


def garbage_limits(config: BookieConfig) -> GarbageLimits:
    """Return the schedule of garbage collection."""
    return GarbageLimits(
        wait_s=config.gc_wait_ms / 1000,
        overreplicated_wait_s=config.gc_overreplicated_wait_ms / 1000,
        minor_threshold=config.minor_compaction_threshold,
        minor_interval_s=config.minor_compaction_interval_ms / 1000,
        major_threshold=config.major_compaction_threshold,
        major_interval_s=config.major_compaction_interval_ms / 1000,
        deletion_memory_ms=config.deletion_memory_ms,
    )
