"""What a broker allows its compaction, whatever the topics want."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorSettings:
    """What a broker allows its compaction."""

    interval_s: float = 15.0
    """How often to look."""
    grace_ms: int = 60_000
    """How long a ledger that was replaced may still be read."""
    bytes_per_s: int = 10 * 1024 * 1024
    """Read and written together; 0: no limit."""
    key_bytes_max: int = 64 * 1024 * 1024
    """Memory of the key map."""
