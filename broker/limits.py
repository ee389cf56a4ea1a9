"""Which of a broker's limits must fit within which others.

What each step does while it is full is told in one place, `ops/HANDBOOK.md` ("When more comes than
the bookies take"); what they hold and their sum in `ops/MEMORY.md`.
"""

from __future__ import annotations

from typing import Any, Final

from broker.partition.core.log_limits import ENTRY_FRAME_BYTES
from client.errors import ConfigError

_LADDER: Final = (
    ("ledger.writer_in_flight_bytes_max", "log_in_flight_bytes_max"),
    ("log_in_flight_bytes_max", "in_flight_bytes_max"),
    ("connection_in_flight_bytes_max", "in_flight_bytes_max"),
    ("partition_hold_bytes_max", "in_flight_bytes_max"),
    ("transactions.held_bytes_max", "in_flight_bytes_max"),
)
"""Each of these limits is at most the next: credit comes up from the bookies, step by step, and a
step that could hold less than the one below it would never let that one fill. What is below the
first is checked in `client/ledger/config.py`."""

_PARTS: Final = (
    ("request_bytes_max", "unfinished_bytes_max"),
    ("control_request_bytes_max", "request_bytes_max"),
    ("security.sasl_login_bytes_max", "request_bytes_max"),
    ("telemetry.push_bytes_max", "control_request_bytes_max"),
    ("telemetry.client_series_max", "telemetry.series_max"),
    ("fetch_bytes_max", "unread_bytes_max"),
    ("send_buffer_bytes_max", "unread_bytes_max"),
    ("read_ahead_reader_bytes_max", "read_ahead_bytes_max"),
)
"""What one may have is at most what all may have together, unless that is 0: nothing."""


def check_limits(config: object) -> None:
    """Check how the limits of a `BrokerConfig` fit together. Raises ConfigError."""
    for lower, upper in _LADDER:
        least, most = _value(config, lower), _value(config, upper)
        if least > most:
            raise ConfigError(
                f"{lower} ({least}) is larger than {upper} ({most}): what the first"
                " admits would be held up by the second; lower the first or raise the second"
            )
    for part, whole in _PARTS:
        least, most = _value(config, part), _value(config, whole)
        if least > most > 0:
            raise ConfigError(
                f"{part} ({least}) is larger than {whole} ({most}), which includes it;"
                " lower the first or raise the second"
            )
    if (most := _value(config, "ledger.frame_bytes_max")) < ENTRY_FRAME_BYTES:
        raise ConfigError(
            f"ledger.frame_bytes_max ({most}) is too small for the largest entry of a broker, which"
            f" takes {ENTRY_FRAME_BYTES}"
        )


def _value(config: object, name: str) -> int:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    assert isinstance(value, int)
    return value
