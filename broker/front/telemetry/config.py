"""Settings of the metrics that clients push, a part of a broker's settings: `telemetry.*`."""

from __future__ import annotations

from dataclasses import dataclass

from client.config import check_ranges, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """How much a broker takes of what clients tell of themselves."""

    clients_max: int = setting(
        1_000,
        "Clients whose metrics a broker keeps; others are told not to push any.",
        at_least=0,
    )
    series_max: int = setting(
        5_000,
        "Values of all those clients together, each a line of /metrics; further ones are dropped.",
        at_least=0,
    )
    client_series_max: int = setting(1_000, "The same for one client.", at_least=1)
    push_bytes_max: int = setting(
        1 << 20,
            "Largest push, Kafka's telemetry.max.bytes; decompressed, it may be twice as large.",
        at_least=1024, at_most=16 << 20,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check ranges; raise ConfigError."""
        check_ranges(self)
