"""Every setting of a bookie, with its unit, its meaning and what low and high values do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bookie.access_config import AccessConfig
from bookie.storage.core.append_log import BODY_BYTES_MAX, FILE_BYTES_MAX
from client.autorecovery.config import AutoRecoveryConfig
from client.config import check_ranges, required, setting
from client.errors import ConfigError
from client.metadata.paths import LEDGERS_ROOT
from client.node.logs import LogFormat, LogLevel
from client.node.process import CpuScheduling
from client.security.admin_access import AdminAccess, check_admin_access, check_reachable
from client.security.cluster_security import ClusterSecurity

_KIB = 1024
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieConfig(AdminAccess):
    """Settings of one bookie."""

    data_dir: Path = required(
        "Directory of the append log and its index; one disk, one bookie. Losing it loses the"
        " bookie's copies, and its id cannot be used again."
    )
    more_data_dirs: tuple[Path, ...] = setting(
        (),
        "Further data directories, each on a disk of its own; ledgers are spread over all of them."
        " None may be left out later.",
    )
    allow_storage_expansion: bool = setting(
        False, "Accept empty directories that were added to those of an existing bookie."
    )
    host: str = setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 for all. Everybody who can reach it may read, write and"
        " fence every ledger, unless [access] asks for certificates.",
    )
    port: int = setting(
        3181, "TCP port of the BookKeeper protocol; 0 takes a free one.", at_least=0, at_most=65535
    )
    advertised_host: str | None = setting(
        None, "Host that clients are told; by default `host`, or 127.0.0.1 for 0.0.0.0."
    )
    bookie_id: str | None = setting(
        None, "Permanent name in the cluster; by default advertised host:port."
    )
    rack: str | None = setting(
        None, "What fails together with this bookie; writers spread copies over racks."
    )
    admin_host: str = setting("127.0.0.1", "Address of the HTTP admin server.")
    admin_port: int | None = setting(
        None, "Port of the HTTP admin server, 0 for a free one; without it there is none."
    )
    zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "ZooKeeper servers, host:port.")
    ledgers_root: str = setting(LEDGERS_ROOT, "Root of BookKeeper's tree in ZooKeeper.")
    session_timeout_ms: int = setting(
        10_000,
        "ZooKeeper session timeout. Lower: a dead bookie is noticed sooner, a slow one is taken"
        " for dead.",
        at_least=1000,
    )
    log_format: LogFormat = setting(
        "text", "How log lines look: text for people, json for programs."
    )
    log_level: LogLevel = setting(
        "info", "What is logged: info is every change of state, debug far more."
    )
    cpu_scheduling: CpuScheduling = setting(
        "batch",
        "What happens when this process wakes up and no processor is idle: with batch, whoever runs"
        " goes on for its slice, so that more requests are served at once; with normal, it is"
        " interrupted. A policy that was set outside (chrt, systemd) stays as it is.",
    )

    auto_recovery: bool = setting(
        False,
        "Also run auto recovery in this process: it re-replicates ledgers that lack copies. If it"
        " runs nowhere, copies on lost bookies are never replaced.",
    )
    recovery: AutoRecoveryConfig = field(default_factory=AutoRecoveryConfig)
    cluster_security: ClusterSecurity = field(default_factory=ClusterSecurity)
    access: AccessConfig = field(default_factory=AccessConfig)

    frame_bytes_max: int = setting(
        5 * _MIB,
        "Largest request; BookKeeper clients use the same limit. A longer one closes its"
        " connection.",
        at_least=_KIB,
        at_most=BODY_BYTES_MAX,
    )
    connections_max: int = setting(
        4096,
        "Open client connections; further ones are closed. Fewer, if this process may not have as"
        " many open files.",
        at_least=1,
    )
    connections_per_host_max: int = setting(
        2048,
        "Open connections from one address; further ones are closed. By default no address alone"
        " can take them all.",
        at_least=1,
    )
    connection_idle_ms: int = setting(
        3_600_000,
        "A connection silent for this time is closed; so is one whose answers are not read for"
        " this time. Low: a writer may send at that very moment, and take this bookie for lost.",
        at_least=1000,
    )
    frame_timeout_ms: int = setting(
        30_000,
        "A connection whose request is neither complete nor a MiB longer after this time is"
        " closed.",
        at_least=1000,
    )
    unfinished_bytes_max: int = setting(
        256 * _MIB,
        "Bytes of incomplete requests over all connections; beyond, those that hold most are"
        " closed, the slowest first.",
        at_least=_KIB,
    )
    unread_bytes_max: int = setting(
        1024 * _MIB,
        "Bytes of answers that clients do not read, over all connections; beyond, those that hold"
        " most are closed, the slowest first.",
        at_least=_KIB,
    )
    requests_in_flight_max: int = setting(
        10_000,
        "Unanswered requests per connection before it is no longer read; beyond twice as many"
        " further ones are refused.",
        at_least=1,
    )
    adds_in_flight_max: int = setting(
        100_000,
        "Unanswered adds of all connections; further ones are refused, except those of recovery."
        " Our writers send them again after a pause; Apache BookKeeper's take a refusal for a lost"
        " bookie.",
        at_least=1,
    )
    reads_in_flight_max: int = setting(
        10_000,
        "Unanswered reads of all connections; further ones are refused, except those that fence."
        " High: as many entries can be in memory at once.",
        at_least=1,
    )
    batch_reads_bytes_max: int = setting(
        256 * _MIB,
        "Bytes of entries held by batch reads that are still reading; beyond, they are answered"
        " with what they have. Low: their readers ask more often.",
        at_least=0,
    )
    batch_read_entries_max: int = setting(
        5_000,
        "Entries in the answer to one batch read, so that one of very small entries does not hold"
        " up others; a reader that wants more asks again. High: the event loop stands still for"
        " longer.",
        at_least=1,
    )
    long_polls_max: int = setting(
        20_000,
        "Unanswered long polls of all connections; further ones are refused. Each takes 2 KiB.",
        at_least=1,
    )
    long_polls_per_connection_max: int = setting(
        5_000,
        "Unanswered long polls of one connection; further ones are refused.",
        at_least=1,
    )
    other_requests_max: int = setting(
        20_000,
        "Unanswered requests of all connections that are neither adds nor reads: explicit LACs,"
        " forces, lists of entries. Further ones are refused. Each takes 2 KiB.",
        at_least=1,
    )
    unsent_bytes_max: int = setting(
        4 * _MIB,
        "Answers a client has not read before its connection is no longer read.",
        at_least=1,
    )
    pending_bytes_max: int = setting(
        32 * _MIB,
        "Bytes of adds not yet durable and indexed before no connection is read. Low: syncs are"
        " shared by few adds; high: an add can wait for that much to be written.",
        at_least=_KIB,
    )
    group_bytes_max: int = setting(
        2 * _MIB,
        "Bytes of entries that are written and synced together, eight times as many while no light"
        " writer shares the bookie with heavy ones. Further adds queue, and connections and"
        " ledgers take turns. Low: light writers wait less beside heavy ones; high: fewer syncs,"
        " which matters on a disk that needs 10 ms or more for each.",
        at_least=1,
    )
    cache_bytes_max: int = setting(
        64 * _MIB,
        "Recent entries kept in memory for tailing readers, including what Python needs for each.",
        at_least=0,
    )
    log_file_bytes_max: int = setting(
        512 * _MIB,
        "Size at which another log file is begun. Low: many files; high: space of deleted"
        " ledgers comes back late.",
        at_least=_KIB,
        at_most=FILE_BYTES_MAX,
    )
    log_preallocate_bytes: int = setting(
        16 * _MIB,
        "Space allocated ahead of the log's end, so that a sync need not write metadata.",
        at_least=0,
    )
    free_bytes_min: int = setting(
        256 * _MIB,
        "Free disk space below which adds are refused; the rest is for fences and the index.",
        at_least=0,
    )
    disk_full_retry_ms: int = setting(
        1000, "How long adds are refused after the disk was full.", at_least=1
    )
    disk_usage_threshold: float = setting(
        0.95,
        "Used share of a disk, 0 to 1, at which its directory is full and the bookie read-only.",
        at_least=0.0,
        at_most=1.0,
    )
    disk_usage_warn_threshold: float = setting(
        0.90,
        "Used share at which space is reclaimed without waiting.",
        at_least=0.0,
        at_most=1.0,
    )
    disk_usage_lwm_threshold: float | None = setting(
        None,
        "Used share below which a full directory takes entries again; by default the threshold.",
        at_least=0.0,
        at_most=1.0,
    )
    disk_check_interval_ms: int = setting(
        10_000, "How often the free space of the disks is checked.", at_least=1
    )
    read_only_on_any_full: bool = setting(
        True,
        "Read-only as soon as one directory is full; otherwise when all are, and new ledgers go to"
        " those with room.",
    )
    priority_free_bytes_min: int | None = setting(
        None,
        "Free space down to which a full directory still takes recovery and urgent adds; by default"
        " 1.2 log files.",
        at_least=0,
    )

    gc_wait_ms: int = setting(
        600_000,
        "How often ledgers that the cluster deleted are deleted here, and space is reclaimed.",
        at_least=1,
    )
    gc_overreplicated_wait_ms: int = setting(
        86_400_000,
        "How often ledgers that have moved to other bookies altogether are looked for, and deleted"
        " here.",
        at_least=1,
    )
    minor_compaction_threshold: float = setting(
        0.2,
        "Log files of which a smaller share than this is live are rewritten; 0: never. Higher:"
        " less wasted space, more work.",
        at_least=0.0,
        at_most=1.0,
    )
    minor_compaction_interval_ms: int = setting(
        3_600_000, "Longest time between two minor compactions.", at_least=1
    )
    major_compaction_threshold: float = setting(
        0.8, "The same, for major compactions, which are rarer.", at_least=0.0, at_most=1.0
    )
    major_compaction_interval_ms: int = setting(
        86_400_000, "Longest time between two major compactions.", at_least=1
    )
    reclaim_bytes_per_s: int = setting(
        32 * _MIB,
        "Rate at which log files are rewritten, bytes read and written. High: adds become slower.",
        at_least=_KIB,
    )
    deletion_memory_ms: int = setting(
        7 * 86_400_000,
        "How long a ledger that was fenced and deleted is remembered. Short: a writer that was"
        " away for longer can create it again.",
        at_least=0,
    )
    checkpoint_bytes: int = setting(
        128 * _MIB,
        "Log bytes between checkpoints. High: a start replays more; low: the index is synced more"
        " often.",
        at_least=_KIB,
    )
    checkpoint_records: int = setting(
        100_000,
        "Log records between checkpoints. There are many if entries are small: a start replays"
        " this many in a second or two.",
        at_least=1,
    )
    checkpoint_interval_ms: int = setting(
        60_000, "Longest time between checkpoints while entries arrive.", at_least=1
    )
    index_gather_ms: int = setting(
        10,
        "How long durable entries wait for others, so that they go into the index together. Nobody"
        " waits for them meanwhile: they are read from memory.",
        at_least=0,
    )
    index_write_buffer_bytes: int = setting(
        16 * _MIB,
        "LevelDB memory table of the index. High: fewer tables are made and merged; low: a start"
        " reads less of LevelDB's own log.",
        at_least=64 * _KIB,
    )
    index_cache_bytes: int = setting(64 * _MIB, "LevelDB block cache of the index.", at_least=0)
    reader_threads: int = setting(
        4, "Threads that read entries from the disk.", at_least=1, at_most=64
    )
    read_rest_times: float = setting(
        8.0,
        "Beside adds, reads of the disk go one at a time, and rest so many times as long as each"
        " took. 0: no rest. Low: adds wait for readers that catch up; high: those take longer.",
        at_least=0,
    )
    read_bytes_per_s_min: int = setting(
        16 * _MIB,
        "What reads of the disk get beside adds in any case, over all directories, if more is not"
        " added: a consumer has to read faster than others write, or it never catches up.",
        at_least=_MIB,
    )

    read_wait_ms_max: int = setting(
        500,
        "What has waited so long gives way to adds no more. Less than clients wait before they ask"
        " another bookie too: 1,000 ms for ours (speculative_read_ms), 2,000 for Java's.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.admin_port is not None and not 0 <= self.admin_port <= 65535:
            raise ConfigError(f"admin_port must be between 0 and 65535, not {self.admin_port}")
        check_admin_access(self)
        if self.admin_port is not None and self.access.tls == "required":
            check_reachable(self, self.admin_host, why='access.tls "required"')
        if self.pending_bytes_max > FILE_BYTES_MAX // 4:
            raise ConfigError(
                f"pending_bytes_max ({self.pending_bytes_max}) must fit a log file with room:"
                f" at most {FILE_BYTES_MAX // 4}"
            )

        self.access.check_beside(self.cluster_security)
        if self.unfinished_bytes_max < self.frame_bytes_max:
            raise ConfigError("unfinished_bytes_max is smaller than frame_bytes_max")
        for name in ("frame_bytes_max", "unsent_bytes_max"):
            if self.unread_bytes_max < getattr(self, name):
                raise ConfigError(f"unread_bytes_max is smaller than {name}")
        if self.disk_usage_warn_threshold > self.disk_usage_threshold:
            raise ConfigError("disk_usage_warn_threshold must not be above disk_usage_threshold")
        if (self.disk_usage_lwm_threshold or 0.0) > self.disk_usage_threshold:
            raise ConfigError("disk_usage_lwm_threshold must not be above disk_usage_threshold")

    def data_dirs(self) -> list[Path]:
        """Return all data directories, the first one first."""
        return [self.data_dir, *self.more_data_dirs]

    def shown_name(self) -> str:
        """Return what log lines call this bookie, also before its port is known."""
        return self.bookie_id or f"{self.client_host()}:{self.port}"

    def client_host(self) -> str:
        """Return the host that clients are told."""
        if self.advertised_host is not None:
            return self.advertised_host
        return "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host  # noqa: S104
