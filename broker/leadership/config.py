"""Settings of follower fetching (KIP-392), a part of a broker's settings: `follower.*`."""

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
    """Whether and how consumers fetch from brokers that are not the leader (KIP-392)."""

    selector: str | None = setting(
        None,
        "Kafka's replica.selector.class: with"
        f" {RACK_AWARE_SELECTOR} a consumer that sets client.rack reads sealed segments"
        " from a broker in the same rack; by default all consumers read from leaders.",
    )
    behind_bytes_min: int = setting(
        16 << 20,
        "How many sealed bytes a consumer must still have to read before it is sent to a broker in"
        " its rack: for fewer, moving there and back is not worth it.",
        at_least=1,
    )
    partitions_max: int = setting(
        100,
        "Most partitions led by other brokers that a broker serves to consumers in its rack; beyond"
        " that, it drops the least recently read ones.",
        at_least=1,
    )
    list_age_ms: int = setting(
        1_000,
        "How long a broker uses the segment list of a partition that it does not lead before it"
        " reads the list again: trims and deletions are noticed this late.",
        at_least=0,
    )

    list_timeout_ms: int = setting(
        1_000,
        "Longest wait for such a list; after it, consumers are sent back to the leader.",
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
        """Whether consumers are sent to, and served by, brokers in their rack."""
        return self.selector == RACK_AWARE_SELECTOR
