"""Turns the flat configuration of a bookie into the limits of each of its parts.

Units are converted here, and defaults filled in that depend on other settings.
"""

from __future__ import annotations

from bookie.config import BookieConfig
from bookie.membership.garbage import GarbageLimits
from bookie.membership.read_only_state import ReadOnlyLimits
from bookie.server.core.request_limiter import RequestLimits
from bookie.server.server import ServerLimits
from bookie.storage.compactor import CompactorLimits
from bookie.storage.core.disk_space import SpaceLimits
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.index.checkpoints import CheckpointLimits
from bookie.storage.ledger_directory import LedgerDirectoryLimits
from bookie.storage.storage import StorageLimits
from client.node.connection_limits import ConnectionLimits

_PRIORITY_FILES = 1.2
"""So many log files must fit before a full directory still takes urgent adds."""


def ledger_directory_limits(config: BookieConfig) -> LedgerDirectoryLimits:
    """Return the bounds of each directory; what is shared is divided."""
    count = len(config.data_dirs())
    return LedgerDirectoryLimits(
        log_file_bytes_max=config.log_file_bytes_max,
        storage=StorageLimits(
            group_bytes_max=config.group_bytes_max,
            cache_bytes_max=config.cache_bytes_max // count,
            reads=ReadLimits(
                rest_times=config.read_rest_times,
                bytes_per_s_min=config.read_bytes_per_s_min // count,
                wait_s_max=config.read_wait_ms_max / 1000,
            ),
            checkpoint=CheckpointLimits(
                checkpoint_bytes=config.checkpoint_bytes,
                checkpoint_records=config.checkpoint_records,
                checkpoint_interval_s=config.checkpoint_interval_ms / 1000,
            ),
            index_gather_s=config.index_gather_ms / 1000,
            disk_full_retry_s=config.disk_full_retry_ms / 1000,
        ),
        compactor=CompactorLimits(
            copy_bytes_max=config.log_file_bytes_max,
            reclaim_bytes_per_s=config.reclaim_bytes_per_s,
            free_bytes_min=config.free_bytes_min,
            deletion_memory_ms=config.deletion_memory_ms,
        ),
    )


def server_limits(config: BookieConfig) -> ServerLimits:
    """Return the bounds of connections and requests."""
    return ServerLimits(
        connections=ConnectionLimits(
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
            connection_idle_s=config.connection_idle_ms / 1000,
            frame_timeout_s=config.frame_timeout_ms / 1000,
            unfinished_bytes_max=config.unfinished_bytes_max,
            unread_bytes_max=config.unread_bytes_max,
            unsent_bytes_max=config.unsent_bytes_max,
        ),
        frame_bytes_max=config.frame_bytes_max,
        requests_in_flight_max=config.requests_in_flight_max,
        request_limiter=RequestLimits(
            config.adds_in_flight_max,
            config.reads_in_flight_max,
            config.long_polls_max,
            config.long_polls_per_connection_max,
            config.other_requests_max,
        ),
    )


def read_only_limits(config: BookieConfig) -> ReadOnlyLimits:
    """Return when the bookie turns read-only, and back."""
    full_at = config.disk_usage_threshold
    room_below = config.disk_usage_lwm_threshold
    priority_bytes = config.priority_free_bytes_min
    return ReadOnlyLimits(
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
