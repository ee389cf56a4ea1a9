"""What a broker allows its compaction, whatever the topics want: the table `[compaction]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.config import check_ranges, setting
from client.errors import ConfigError

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """Settings of the compaction of one broker."""

    check_interval_ms: int = setting(
        15_000, "How often partitions of compacted topics are checked.", at_least=10
    )
    bytes_per_s: int = setting(
        16 * _MIB,
        "Bytes a second that compaction reads and writes, all partitions together; 0: no limit."
        " High: it takes processor time and disks from clients.",
        at_least=0,
    )
    in_child: bool = setting(
        True,
        "Whether a process of its own does the work of compaction; if not, the broker's event loop"
        " does, a millisecond or so at a time.",
    )
    child_memory_bytes_max: int = setting(
        1024 * _MIB,
        "Memory of that process, the keys of a round included. A round that needs more fails;"
        " decompressed records take most of it.",
        at_least=64 * _MIB,
    )
    child_timeout_ms: int = setting(
        60_000,
        "How long that process may take for a few entries, before it is ended and the round fails.",
        at_least=100,
    )
    key_bytes_max: int = setting(
        64 * _MIB,
        "Memory for the keys of one round of compaction, 25 bytes each, of which nine in ten are"
        " used. More keys take several rounds, each of which reads the partition.",
        at_least=50,
    )
    grace_ms: int = setting(
        60_000,
        "How long a ledger that was compacted is kept beside the new one, for readers with an"
        " older list: fetches under way, Spark queries.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        """Check ranges, and that the keys fit into the process; raise ConfigError."""
        check_ranges(self)
        if self.in_child and self.key_bytes_max > self.child_memory_bytes_max // 2:
            raise ConfigError(
                f"compaction.key_bytes_max ({self.key_bytes_max}) is more than half of"
                f" compaction.child_memory_bytes_max ({self.child_memory_bytes_max})"
            )
