"""Settings of fetching from a broker nearby, a part of a broker's settings: `follower.*`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.config import check_ranges, setting
from client.errors import ConfigError

_PACKAGE: Final = "org.apache.kafka.common.replica"
LEADER_SELECTOR: Final = f"{_PACKAGE}.LeaderSelector"
RACK_AWARE_SELECTOR: Final = f"{_PACKAGE}.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Whether and how consumers read from brokers that do not lead (KIP-392)."""

    selector: str | None = setting(
        None,
        "Kafka's replica.selector.class: with"
        f" {RACK_AWARE_SELECTOR} a consumer that says client.rack reads what is sealed"
        " from a broker whose rack is the same; default: everybody reads from leaders.",
    )
    behind_bytes_min: int = setting(
        16 << 20,
        "Sealed bytes that a consumer must have before it to be sent to a broker nearby: for fewer,"
        " going there and back is not worth it.",
        at_least=1,
    )
    partitions_max: int = setting(
        100,
        "Partitions of others that a broker serves to consumers nearby; for more, it lets go of"
        " those that nobody has read for longest.",
        at_least=1,
    )
    list_age_ms: int = setting(
        1_000,
        "For how long a broker goes by a segment list of a partition that it does not lead before"
        " it reads it again: trims and deletions are seen so late.",
        at_least=0,
    )

    list_timeout_ms: int = setting(
        1_000,
        "Longest wait for such a list; then consumers are sent back to the leader.",
        at_least=1,
    )

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        check_ranges(self)
        if self.selector not in (None, LEADER_SELECTOR, RACK_AWARE_SELECTOR):
            raise ConfigError(
                f"follower.selector is {self.selector!r}; it can be {RACK_AWARE_SELECTOR} or"
                f" {LEADER_SELECTOR}, or not be set"
            )

    @property
    def is_rack_aware(self) -> bool:
        """Whether consumers are sent to brokers nearby, and served by them."""
        return self.selector == RACK_AWARE_SELECTOR
