"""Settings of the ledger client; see `client/config.py` for how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from client.config import check_ranges, setting
from client.errors import ConfigError
from client.ids import BookieId
from client.ledger.core.bookie_health import HealthLimits
from client.ledger.core.reads import Speculation
from client.metadata import paths
from client.wire.bookkeeper.messages import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerClientConfig:
    """Settings of one `LedgerClient`."""

    ledgers_root: str = setting(
        paths.LEDGERS_ROOT, "Root of BookKeeper's tree in the metadata store; same as the bookies'."
    )
    wire_version: Literal["both", "v2", "v3"] = setting(
        "both",
        "Versions of the wire protocol spoken to bookies. both: v2 for plain adds and reads, which"
        " is fast, v3 for the rest; v3: that one only, for bookies that lack v2; v2: that one"
        " only, for bookies that lack v3: no explicit LAC and no long polls then.",
    )
    request_timeout_ms: int = setting(
        5_000,
        "How long one bookie may take to answer a request, counted from its last answer to one"
        " sent before, if that is later. Too low: slow disks look dead and ensembles change; too"
        " high: a hung bookie holds up writes for as long.",
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
        "Payload bytes under way on one connection to a bookie. Above it adds wait, in order, and"
        " their request timeout does not run. Not below writer_in_flight_bytes_max, so that only"
        " several writers together make each other wait.",
        at_least=1,
    )
    bookie_in_flight_requests_max: int = setting(
        50_000,
        "Like bookie_in_flight_bytes_max, for many small requests. Requests other than adds fail"
        " above it, and are asked of another bookie.",
        at_least=1,
    )
    writer_in_flight_bytes_max: int = setting(
        16 * 1024 * 1024,
        "Payload bytes of one writer that may be unconfirmed before further entries wait. Too low:"
        " the pipeline runs dry; too high: memory, and what comes next waits for all of it.",
        at_least=1,
    )
    writer_shared_delay_ms: int = setting(
        2,
        "While a ledger is written too whose rate is at most an eighth of the busiest one's, a"
        " writer may have only as much unconfirmed as is confirmed within this time, or within one"
        " and a quarter times the shortest time that bookies need for an entry, if that is longer."
        " Entries of that ledger wait about that long for those of a busy writer. Too low: a busy"
        " ledger beside idle ones is slower; too high: they wait.",
        at_least=1,
    )
    writer_shared_bytes_min: int = setting(
        512 * 1024,
        "This much may be unconfirmed in any case, as far as writer_in_flight_bytes_max allows it.",
        at_least=1,
    )
    writer_unanswered_bytes_max: int = setting(
        64 * 1024 * 1024,
        "The same, including entries that are confirmed but that one of their bookies has still to"
        " answer. Too low: one bookie that hangs soon stops its writers, until it has failed; too"
        " high: memory for as long.",
        at_least=1,
    )
    slow_bookie_memory_ms: int = setting(
        60_000,
        "How long a bookie that was slow to answer a read is asked after others, and one that lost"
        " its places for being slow is chosen after others.",
        at_least=0,
    )
    slow_bookie_lag_ms: int = setting(
        2_000,
        "A bookie is behind the others of a ledger while it has not stored an entry that they"
        " confirmed this long ago. Too low: bookies lose their places for a pause of their disks.",
        at_least=1,
    )
    slow_bookie_replace_ms: int = setting(
        30_000,
        "How long a bookie must be behind without a break to lose its place in a ledger being"
        " written, to one that is not; 0: never. Off with delay_ensemble_change. Too low:"
        " ensembles change because of delays that would pass; too high: a slow bookie slows its"
        " writers for as long.",
        at_least=0,
    )
    slow_bookies_max: int = setting(
        1,
        "Bookies that may have lost places for being slow within slow_bookie_memory_ms, so that"
        " writers do not move from one to the next when all are slow.",
        at_least=0,
    )
    quarantine_errors_max: int = setting(
        0,
        "Errors of one bookie per interval above which it gets no new entries for a long while, as"
        " long as there are others; 0: no quarantine.",
        at_least=0,
    )
    quarantine_interval_ms: int = setting(60_000, "Interval in which errors count.", at_least=1)
    quarantine_ms: int = setting(1_800_000, "How long a quarantine lasts.", at_least=1)
    racks: tuple[str, ...] = setting(
        (),
        "Racks of bookies that do not publish one, as BOOKIE=RACK; also overrides what they"
        " publish.",
    )
    local_rack: str | None = setting(
        None, "Rack of this client: one copy goes there, and reads ask there first."
    )
    racks_min: int = setting(
        2, "Racks that the copies of an entry should span, if there are as many.", at_least=1
    )
    racks_enforced: bool = setting(
        False, "Create no ledger rather than one whose copies span fewer racks."
    )
    opportunistic_striping: bool = setting(
        False, "Let an ensemble shrink to the write quorum when there are fewer bookies."
    )
    speculative_read_ms: int = setting(
        1_000,
        "How long a read waits for one bookie before it asks another, too; doubles with each; 0"
        " never. Too low: more reads under load; too high: a slow bookie slows readers.",
        at_least=0,
    )
    speculative_read_max_ms: int = setting(
        4_000, "Longest such wait, however many bookies were asked.", at_least=0
    )
    long_poll_ms: int = setting(
        2_000,
        "How long a bookie may hold the request of a reader that follows an open ledger; never"
        " longer than half of request_timeout_ms. Without long polls (wire_version v2): how often"
        " to ask.",
        at_least=1,
    )
    read_window_entries: int = setting(
        32, "Entries one read asks for at once. Too low: slow; too high: memory.", at_least=1
    )
    read_window_bytes: int = setting(
        256 * 1024,
        "More of them while they are so small that all stay within this. Too low: ledgers of small"
        " entries are read slowly, a few entries per trip to the bookies.",
        at_least=0,
    )
    read_batch_bytes: int = setting(
        1 << 20,
        "Bytes of entries that one batch read asks a bookie for, where bookies know such reads; 0:"
        " entry by entry. Too low: more requests; too high: what comes first waits for the rest.",
        at_least=0,
    )
    read_batches_max: int = setting(
        4, "Batch reads that one read has under way, over all replicas.", at_least=1
    )
    batch_buffers_max: int = setting(
        16,
        "Receive buffers for their answers, of that size, that are kept for reuse.",
        at_least=0,
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
        for pair in self.racks:
            parse_rack(pair)
        if self.reconnect_delay_min_ms > self.reconnect_delay_max_ms:
            raise ConfigError(
                f"reconnect_delay_min_ms ({self.reconnect_delay_min_ms}) is larger than"
                f" reconnect_delay_max_ms ({self.reconnect_delay_max_ms})"
            )
        for name in ("writer_unanswered_bytes_max", "bookie_in_flight_bytes_max"):
            limit = getattr(self, name)
            if limit < self.writer_in_flight_bytes_max:
                raise ConfigError(
                    f"{name} ({limit}) is smaller than writer_in_flight_bytes_max"
                    f" ({self.writer_in_flight_bytes_max}): raise it, or lower that one"
                )
        if self.speculative_read_ms > self.speculative_read_max_ms:
            raise ConfigError(
                f"speculative_read_ms ({self.speculative_read_ms}) is larger than"
                f" speculative_read_max_ms ({self.speculative_read_max_ms})"
            )
        if self.wire_version == "v2" and self.explicit_lac_interval_ms:
            raise ConfigError("explicit_lac_interval_ms needs version 3 of the wire protocol")

    def health_limits(self) -> HealthLimits:
        """Return how long what is held against a bookie."""
        return HealthLimits(
            failed_pause_s=self.failed_bookie_pause_ms / 1000,
            slow_memory_s=self.slow_bookie_memory_ms / 1000,
            slow_bookies_max=self.slow_bookies_max,
            quarantine_errors_max=self.quarantine_errors_max,
            quarantine_interval_s=self.quarantine_interval_ms / 1000,
            quarantine_s=self.quarantine_ms / 1000,
        )

    def poll_s(self) -> float:
        """Return how long a long poll lasts, safely below the limit of a request."""
        return min(self.long_poll_ms, self.request_timeout_ms // 2) / 1000

    def speculation(self) -> Speculation:
        """Return when reads ask a further bookie."""
        return Speculation(self.speculative_read_ms / 1000, self.speculative_read_max_ms / 1000)


def parse_rack(pair: str) -> tuple[BookieId, str]:
    """Return (bookie, rack) of a `racks` setting. Raises ConfigError."""
    bookie, equals, rack = pair.partition("=")
    if not (bookie and equals and rack):
        raise ConfigError(f"racks: {pair!r} is not of the form BOOKIE=RACK")
    return BookieId(bookie), rack
