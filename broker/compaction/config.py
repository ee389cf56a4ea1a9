"""What a broker allows its compaction, whatever the topics want: the table `[compaction]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.config import check_ranges, setting

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Settings of the compaction of one broker."""

    check_interval_ms: int = setting(
        15_000, "How often partitions of compacted topics are looked at.", at_least=10
    )
    bytes_per_s: int = setting(
        4 * _MIB,
        "Bytes a second that compaction reads and writes, all partitions together; 0: no limit."
        " High: it takes processor time and disks from clients.",
        at_least=0,
    )
    key_bytes_max: int = setting(
        64 * _MIB,
        "Memory for the keys of one round of compaction, 24 bytes each, nine in ten of which are"
        " used. More keys take several rounds, each of which reads the partition.",
        at_least=48,
    )
    grace_ms: int = setting(
        60_000,
        "How long a ledger that was compacted is kept beside the new one, for those who read it by"
        " an older list: fetches under way, Spark queries.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        check_ranges(self)
