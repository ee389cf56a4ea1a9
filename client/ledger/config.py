"""Settings of the ledger client; see `client/config.py` for how they are read."""

from __future__ import annotations

from dataclasses import dataclass

from client.config import check_ranges, setting
from client.errors import ConfigError
from client.metadata import paths
from client.wire.bookkeeper.messages import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerClientConfig:
    """Settings of one `LedgerClient`."""

    ledgers_root: str = setting(
        paths.LEDGERS_ROOT, "Root of BookKeeper's tree in the metadata store; same as the bookies'."
    )
    request_timeout_ms: int = setting(
        5_000,
        "How long one bookie may take to answer. Too low: slow disks look dead and ensembles"
        " change; too high: a hung bookie holds up writes for that long.",
        at_least=1,
    )
    add_quorum_timeout_ms: int = setting(
        0,
        "How long the next entry to confirm may wait, for whatever reason, before its writer"
        " fails; 0 for ever. Bounds stalls while neither bookies nor metadata answer.",
        at_least=0,
    )
    delay_ensemble_change: bool = setting(
        False,
        "Keep a failed bookie in the ensemble as long as entries reach their ack quorum without"
        " it. Fewer metadata writes while bookies restart; entries lack a copy until repaired.",
    )
    ensemble_changes_max: int = setting(
        0,
        "Ensemble changes after which the next one fails the writer, so that a ledger's metadata"
        " stays small; 0 for no limit.",
        at_least=0,
    )
    explicit_lac_interval_ms: int = setting(
        0,
        "How soon bookies are told of the last confirmed entry when no further one is added, for"
        " readers of open ledgers; 0 never.",
        at_least=0,
    )
    connect_timeout_ms: int = setting(
        5_000,
        "How long connecting to a bookie may take before it counts as unreachable.",
        at_least=1,
    )
    reconnect_delay_min_ms: int = setting(
        50, "Pause after the first failed connection attempt; doubles with each.", at_least=1
    )
    reconnect_delay_max_ms: int = setting(
        1_000, "Longest pause between connection attempts to one bookie.", at_least=1
    )
    failed_bookie_pause_ms: int = setting(
        10_000,
        "How long a bookie that failed a ledger is not chosen while there are others. Too low:"
        " dead bookies are chosen again until their registration expires.",
        at_least=0,
    )
    bookie_in_flight_bytes_max: int = setting(
        128 * 1024 * 1024,
        "Payload bytes under way on one connection to a bookie. Above it requests fail as if the"
        " bookie had refused them: a bookie that slow is replaced. Bounds memory.",
        at_least=1,
    )
    bookie_in_flight_requests_max: int = setting(
        50_000, "Like bookie_in_flight_bytes_max, for many small requests.", at_least=1
    )
    writer_in_flight_bytes_max: int = setting(
        16 * 1024 * 1024,
        "Payload bytes one writer has under way before `append` waits. Too low: the pipeline"
        " runs dry; too high: memory.",
        at_least=1,
    )
    read_window_entries: int = setting(
        32, "Entries one read asks for at once. Too low: slow; too high: memory.", at_least=1
    )
    recovery_window_entries: int = setting(
        32, "Entries a recovery reads and writes back at once.", at_least=1
    )
    metadata_attempts_max: int = setting(
        5, "Attempts at one metadata operation while the store cannot be reached.", at_least=1
    )
    metadata_retry_delay_ms: int = setting(
        100, "Pause between attempts at one metadata operation.", at_least=0
    )
    frame_bytes_max: int = setting(
        FRAME_BYTES_MAX,
        "Largest frame on a bookie connection, headers included; the bookies' limit must not be"
        " lower.",
        at_least=1024,
    )
    store_creation_time: bool = setting(
        False,
        "Write the creation time into ledger metadata; otherwise readers use the znode's.",
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.reconnect_delay_min_ms > self.reconnect_delay_max_ms:
            raise ConfigError(
                f"reconnect_delay_min_ms ({self.reconnect_delay_min_ms}) is larger than"
                f" reconnect_delay_max_ms ({self.reconnect_delay_max_ms})"
            )
