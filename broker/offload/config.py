"""Where sealed segments go, and what that may cost: the table `[offload]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.config import check_ranges, setting

_MIB: Final = 1024 * 1024
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadConfig:
    """Settings of a broker's object store; the same for all brokers of a cluster."""

    store_url: str | None = setting(
        None,
        "Object store for topics with remote.storage.enable: s3://BUCKET/FOLDER, or"
        " file:///DIRECTORY that all brokers share. Credentials are found as cloud users expect:"
        " AWS_ACCESS_KEY_ID and the like, or the machine's identity. Needs the extra `offload`.",
    )
    endpoint: str | None = setting(
        None, "URL of a store that speaks S3 and is not Amazon's; http:// goes unencrypted."
    )
    check_interval_ms: int = setting(
        15_000, "How often partitions are looked at for segments to copy or drop.", at_least=10
    )
    bytes_per_s: int = setting(
        64 * _MIB,
        "Bytes a second that are copied or read back, all partitions together; 0: no limit. High:"
        " it takes processor time, disks and network from clients; low: ledgers stay longer.",
        at_least=0,
    )
    copy_timeout_ms: int = setting(
        1_800_000,
        "How long one segment may take to be copied, or read back, before that counts as failed"
        " and is tried again.",
        at_least=100,
    )
    request_timeout_ms: int = setting(
        30_000, "How long the store may take for one request.", at_least=100
    )
    ledger_grace_ms: int = setting(
        _HOUR_MS,
        "How long a ledger stays at least after its segment was copied, whatever local retention"
        " says: for readers with an older list, Spark queries among them.",
        at_least=0,
    )
    object_grace_ms: int = setting(
        _HOUR_MS,
        "How long an object stays after nobody needs it any more: for the same readers.",
        at_least=0,
    )
    stray_age_ms: int = setting(
        24 * _HOUR_MS,
        "Age, by the store's clock, from which an object that no list names is deleted: it was sent"
        " by a broker that had been replaced. Every partition is searched for them this often.",
        at_least=1_000,
    )
    read_cache_bytes_max: int = setting(
        64 * _MIB,
        "Memory for what consumers read of the store: blocks that are on their way, and those used"
        " last. Low: consumers that follow each other read it again.",
        at_least=8 * _MIB,
    )
    read_wait_ms: int = setting(
        500,
        "How long a fetch waits for the store, Kafka's remote.fetch.max.wait.ms; then it is"
        " answered without, the reading goes on, and the next fetch finds it.",
        at_least=1,
    )

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        check_ranges(self)
