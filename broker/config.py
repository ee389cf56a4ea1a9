"""Settings of one broker, and which of its limits must fit within which others.

Settings of a topic are in `broker/cluster/core/topic_config.py`: they belong to the topic and are
stored with it. What each step does while its limit is reached is told in one place,
`ops/handbook/RUN.md` ("When producers are faster than bookies"); what they hold and their sum in
`ops/MEMORY.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker.compaction.config import CompactionConfig
from broker.groups.core.group_types import ASSIGNOR_NAMES, ConsumerTimes, GroupConfig
from broker.leadership.config import FollowerSettings
from broker.link.core.peer_state import LinkConfig
from broker.offload.config import OffloadConfig
from broker.partition.core.log_limits import ENTRY_FRAME_BYTES, LogLimits
from broker.security.config import SecurityConfig
from broker.transactions.config import TransactionSettings
from client.config import check_ranges, setting
from client.errors import ConfigError
from client.ids import BrokerId
from client.ledger.config import LedgerClientConfig
from client.node.logs import LogFormat, LogLevel
from client.node.process import CpuScheduling
from client.security.admin_access import AdminAccess, check_admin_access
from client.security.cluster_security import ClusterSecurity

_MIB = 1024 * 1024

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(AdminAccess):
    """Settings of one Quire broker."""

    # --- who and where
    node_id: BrokerId = setting(
        BrokerId(1), "Kafka node id; unique among the brokers of a cluster.", at_least=0
    )
    listen_host: str = setting(
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 for all. Everybody who can reach it may do everything,"
        " unless security.listeners say otherwise.",
    )
    port: int = setting(
        9092, "TCP port of the Kafka protocol; 0 takes a free one.", at_least=0, at_most=65535
    )
    advertised_host: str | None = setting(
        None, "Host that clients are told; default: the address each client connected to."
    )
    advertised_port: int = setting(
        0, "Port that clients are told; 0: the port listened on.", at_least=0, at_most=65535
    )
    hostname: str | None = setting(
        None,
        "Name under which other machines reach this one, used when listening on all addresses"
        " without an advertised host; default: this machine's name.",
    )
    rack: str | None = setting(
        None, "Failure domain, shown to clients; one copy of each record goes to a bookie in it."
    )
    admin_host: str = setting(
        "127.0.0.1",
        "Address of the HTTP admin server. Other brokers must reach it to answer for this one;"
        " where others do too, set admin_token.",
    )
    admin_port: int = setting(
        0, "Port of the HTTP admin server; 0 takes a free one, -1 for none.", at_least=-1,
        at_most=65535,
    )  # fmt: skip
    admin_advertised_host: str | None = setting(
        None,
        "Host under which other brokers reach the admin server; default: admin_host, or hostname"
        " when listening on all addresses.",
    )
    admin_items_max: int = setting(
        50_000,
        "Values in the JSON body of one admin request, over all lists and objects; above: 413."
        " Brokers ask each other for the lags of 10,000 partitions at once.",
        at_least=50_000,
    )
    admin_audit_entries_max: int = setting(
        1_000,
        "How many changes, and how many refusals, a broker remembers for the page and for `quire"
        " cluster audit`. The log has all of them.",
        at_least=1, at_most=10_000,
    )  # fmt: skip
    admin_tls_ca: Path | None = setting(
        None, "PEM file with the authority of the other brokers' certificates, if it is not one"
        " that this machine trusts.",
    )  # fmt: skip
    zookeeper: tuple[str, ...] = setting(("127.0.0.1:2181",), "ZooKeeper servers, host:port.")
    session_timeout_ms: int = setting(
        6_000,
        "ZooKeeper session: how long a silent broker counts as alive. Lower: a hanging broker is"
        " found sooner, and a slow one may be taken for dead. A killed one is noticed at once in"
        " any case.",
        at_least=1_000, at_most=300_000,
    )  # fmt: skip
    ledger_password: str = setting("", "Password of every ledger of this cluster.", secret=True)

    ledger: LedgerClientConfig = field(default_factory=LedgerClientConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    cluster_security: ClusterSecurity = field(default_factory=ClusterSecurity)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    offload: OffloadConfig = field(default_factory=OffloadConfig)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    follower: FollowerSettings = field(default_factory=FollowerSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    # --- new topics
    auto_create_topics: bool = setting(True, "Create a topic when a client first names it.")
    num_partitions: int = setting(
        1, "Partitions of a topic, unless its creator says how many.", at_least=1
    )
    default_replication_factor: int = setting(
        3,
        "Write quorum of such a topic: copies of each entry. A cluster that never had as many"
        " bookies uses as many as it has.",
        at_least=1, at_most=32,
    )  # fmt: skip
    default_min_insync_replicas: int = setting(
        2, "Ack quorum of such a topic: synced copies before an acknowledgement.", at_least=1
    )
    default_ensemble_size: int = setting(
        0, "Bookies that a ledger is striped over; 0: the write quorum.", at_least=0
    )
    topic_partitions_max: int = setting(10_000, "Most partitions of one topic.", at_least=1)

    # --- limits of the front
    connections_max: int = setting(
        10_000,
        "Most connections, Kafka's max.connections; further ones are closed as they arrive. Lower"
        " if this process may not have as many open files.",
        at_least=1,
    )
    connections_per_host_max: int = setting(
        5_000,
        "Most connections from one address, Kafka's max.connections.per.ip; further ones are"
        " closed as they arrive. By default no single address can take all of them.",
        at_least=1,
    )
    connection_idle_ms: int = setting(
        600_000,
        "A connection silent for this long, Kafka's connections.max.idle.ms, is closed; so is one"
        " whose answers are not read for this long.",
        at_least=1_000,
    )
    frame_timeout_ms: int = setting(
        30_000,
        "A connection whose request is neither complete nor a MiB longer after this time is"
        " closed.",
        at_least=1_000,
    )
    request_bytes_max: int = setting(
        100 * _MIB, "Largest request; larger ones close the connection.", at_least=1024
    )
    control_request_bytes_max: int = setting(
        16 * _MIB,
        "Largest request other than Produce. Decoding one can take several times its size.",
        at_least=1024,
    )
    request_items_max: int = setting(
        50_000,
        "Most items of one request, over all its lists: topics, partitions, groups, members,"
        " settings. Above: INVALID_REQUEST; where the answer has no place for it, the connection"
        " is closed.",
        at_least=1_000,
    )
    connection_in_flight_bytes_max: int = setting(
        128 * _MIB,
        "Unanswered request bytes above which a connection is not read. It may be lower than one"
        " request: then requests are taken one by one.",
        at_least=1,
    )
    connection_requests_max: int = setting(
        1_000, "Unanswered requests above which a connection is not read.", at_least=1
    )
    in_flight_bytes_max: int = setting(
        1024 * _MIB,
        "The same for all connections together, those that have hung up included, and with the"
        " batches that are confirmed but that some bookie has still to answer. Decoded requests,"
        " which are all but Produce, count for 16 times their bytes.",
        at_least=1,
    )
    unfinished_bytes_max: int = setting(
        512 * _MIB,
        "Bytes of requests that are not complete or could not start, over all connections; beyond,"
        " those that hold most are closed, the slowest first.",
        at_least=1024,
    )
    unread_bytes_max: int = setting(
        1024 * _MIB,
        "Bytes of answers that clients do not read, over all connections; beyond, those that hold"
        " most are closed, the slowest first.",
        at_least=1024,
    )
    send_buffer_bytes_max: int = setting(
        _MIB, "Unsent answer bytes above which a connection's requests wait.", at_least=1024
    )
    fetch_bytes_max: int = setting(
        55 * _MIB, "Most record bytes in one fetch answer, whatever the client allows.",
        at_least=1024,
    )  # fmt: skip
    fetch_reading_bytes_max: int = setting(
        256 * _MIB,
        "Record bytes that fetches may have read from bookies and not answered with, over all"
        " connections. Beyond, they wait for each other, in order.",
        at_least=1024,
    )
    fetch_sessions_max: int = setting(
        1_000,
        "Consumers that fetch incrementally, Kafka's max.incremental.fetch.session.cache.slots."
        " Others name all their partitions in each request, and get all in each answer.",
        at_least=0,
    )
    fetch_session_partitions_max: int = setting(
        100_000, "Partitions of all those consumers together.", at_least=0
    )
    group_requests_bytes_max: int = setting(
        256 * _MIB,
        "Bytes of JoinGroup and SyncGroup requests, decoded, that wait for their groups. Further"
        " ones are answered with COORDINATOR_NOT_AVAILABLE, which clients retry.",
        at_least=1024,
    )
    group_members_bytes_max: int = setting(
        256 * _MIB,
        "Bytes of the subscriptions and assignments of all members of all groups here. A member"
        " that would go beyond is answered with COORDINATOR_NOT_AVAILABLE, which clients retry.",
        at_least=1024,
    )
    produce_timeout_max_ms: int = setting(
        120_000, "Longest time that a Produce request may wait for its acks.", at_least=1
    )

    metadata_hold_max_ms: int = setting(
        300,
        "How long a Metadata or FindCoordinator answer may wait for the next leader of a partition"
        " whose leader has just gone, or for the first one of a new one. Clients that are told too"
        " early back off for up to a second; 0: never wait.",
        at_least=0,
    )

    partition_hold_max_ms: int = setting(
        1_000,
        "How long requests may wait for a partition that this broker is about to lead, from when"
        " the takeover began, or was first waited for in line, or for its coordinator, from when"
        " that began to read its log; later ones are refused until then. Low: what clients send"
        " with acks=0 may be lost; high: one that cannot be opened delays the answers behind it.",
        at_least=0,
    )
    partition_hold_bytes_max: int = setting(
        256 * _MIB,
        "Bytes of Produce requests that may wait in this way; further ones are refused at once."
        " They also count as unanswered.",
        at_least=0,
    )

    peer_answer_max_ms: int = setting(
        100,
        "How long a Metadata answer may wait for a sign of life of the leaders it names. A broker"
        " that hangs delays each answer by this time until it counts as gone; 0: do not ask.",
        at_least=0,
    )

    link_requests_max: int = setting(
        64,
        "Unanswered requests to one other broker, of one kind of work; four times as many may wait"
        " behind them, and further ones are refused.",
        at_least=1,
    )
    link_answer_max_ms: int = setting(
        5_000,
        "How long another broker may take to answer a request about transactions; then the"
        " connection is closed with all that is under way on it. Low: slow brokers are taken for"
        " hanging ones.",
        at_least=100,
    )

    hand_over_partitions_at_once: int = setting(
        4,
        "Partitions that move at once when a broker is unloaded or loaded again: the next ones"
        " follow when these have their leaders. Fewer: shorter pauses of each, and a longer time"
        " for all. Where more than 32 times as many move, each step is a 32nd of them.",
        at_least=1,
    )

    internal_topics_at_start: bool = setting(
        False,
        "Create __consumer_offsets and __transaction_state as soon as a broker starts, so that the"
        " first consumer and the first transactional producer of a cluster wait for no ledgers."
        " Off: with their first use.",
    )

    # --- groups
    offsets_topic_partitions: int = setting(
        16, "Partitions of __consumer_offsets; fixed once it exists.", at_least=1
    )
    group_session_timeout_min_ms: int = setting(
        6_000, "Shortest session a group member may ask for.", at_least=1
    )
    group_session_timeout_max_ms: int = setting(
        1_800_000, "Longest session a group member may ask for.", at_least=1
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long the first rebalance of an empty group waits for members.", at_least=0
    )
    group_size_max: int = setting(10_000, "Members per group.", at_least=1)
    group_consumer_session_timeout_ms: int = setting(
        45_000,
        "How long a member of the consumer protocol may be silent before it is removed. Lower: what"
        " a dead member had is read again sooner.",
        at_least=1,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000,
        "How often members of the consumer protocol send heartbeats. Lower: they hear of a new"
        " assignment sooner, and coordinators have more to do.",
        at_least=1,
    )
    group_consumer_session_timeout_min_ms: int = setting(
        45_000,
        "Shortest session that a single group may be set to (consumer.session.timeout.ms), beside"
        " what holds for all groups.",
        at_least=1,
    )
    group_consumer_session_timeout_max_ms: int = setting(
        60_000, "Longest session that a single group may be set to.", at_least=1
    )
    group_consumer_heartbeat_interval_min_ms: int = setting(
        5_000,
        "Shortest interval of heartbeats that a single group may be set to"
        " (consumer.heartbeat.interval.ms), beside what holds for all groups.",
        at_least=1,
    )
    group_consumer_heartbeat_interval_max_ms: int = setting(
        15_000, "Longest interval of heartbeats that a single group may be set to.", at_least=1
    )
    group_consumer_max_size: int = setting(
        10_000, "Members per group of the consumer protocol.", at_least=1
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000,
        "Shortest time between two target assignments of a group of the consumer protocol. Higher:"
        " a group that starts is divided fewer times.",
        at_least=0,
    )
    group_consumer_assignment_interval_min_ms: int = setting(
        0,
        "Shortest time between two target assignments that a single group may be set to"
        " (consumer.assignment.interval.ms), beside what holds for all groups.",
        at_least=0,
    )
    group_consumer_assignment_interval_max_ms: int = setting(
        15_000,
        "Longest time between two target assignments that a single group may be set to.",
        at_least=0,
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ASSIGNOR_NAMES,
        "Which assignors members of the consumer protocol may ask for; the first is taken if they"
        " do not.",
    )
    group_share_session_timeout_ms: int = setting(
        45_000,
        "How long a member of a share group may be silent before it is removed from the group.",
        at_least=1,
    )
    group_share_heartbeat_interval_ms: int = setting(
        5_000,
        "How often members of share groups send heartbeats. Lower: they hear of new partitions"
        " sooner, and coordinators have more to do.",
        at_least=1,
    )
    group_share_assignment_interval_ms: int = setting(
        1_000, "Shortest time between two target assignments of a share group.", at_least=0
    )
    group_share_max_size: int = setting(200, "Members per share group.", at_least=1)
    group_share_max_share_sessions: int = setting(
        2_000,
        "Members of share groups that may fetch from this broker at once; further ones wait until"
        " others have gone.",
        at_least=1,
    )
    group_share_record_lock_duration_ms: int = setting(
        30_000,
        "How long a member of a share group has for a record before another one may get it, unless"
        " its group sets share.record.lock.duration.ms. Lower: what a dead member had is delivered"
        " again sooner.",
        at_least=1_000,
    )
    group_share_delivery_count_limit: int = setting(
        5,
        "How often a record is delivered to a share group, unless that sets"
        " share.delivery.count.limit; what comes back the last time is archived.",
        at_least=2,
        at_most=10,
    )
    group_share_partition_max_record_locks: int = setting(
        2_000,
        "Records of a partition, from the first that a share group has not settled to the last that"
        " was delivered, unless the group sets share.partition.max.record.locks. Higher: one slow"
        " record holds up fewer others, and takeovers read more.",
        at_least=100,
        at_most=4_000,
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False,
        "Create the topic that a share group has its dead letters written to (its"
        " errors.deadletterqueue.topic.name), if it does not exist. Without this, records wait for"
        " their dead letters until somebody creates it.",
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.",
        "What the names of topics for dead letters of share groups begin with; empty: anything."
        " Dead letters of a group whose topic is called otherwise wait.",
    )
    group_protocols_max: int = setting(
        100,
        "Protocols that a member may offer (partition assignors, for consumers). Every rebalance"
        " looks at each of them for each member.",
        at_least=1,
    )
    group_log_copy_bytes: int = setting(
        4 * _MIB,
        "Growth of a __consumer_offsets partition after which its live state is copied and what"
        " lies before is trimmed. Lower: a new coordinator loads sooner, more is written.",
        at_least=1_000,
    )
    offset_metadata_bytes_max: int = setting(
        4_096, "Longest text committed with an offset.", at_least=0
    )
    offsets_retention_ms: int = setting(
        7 * 86_400_000, "How long offsets outlive their group.", at_least=1
    )

    metric_topics_max: int = setting(
        200, "Topics with metrics of their own; the others are counted together.", at_least=0
    )
    lag_interval_ms: int = setting(
        5_000,
        "How often the lags of all groups are computed for metrics and lists; 0: never.",
        at_least=0,
    )
    lag_series_max: int = setting(
        5_000,
        "Lags exported as metrics, one per group and partition; the largest, if there are more.",
        at_least=0,
    )

    # --- partition logs
    log_in_flight_bytes_max: int = setting(
        64 * _MIB,
        "Bytes of appends of one partition that may wait for bookies; connections that bring more"
        " are not read until there is room. Not below ledger.writer_in_flight_bytes_max, the part"
        " of them that is sent to bookies.",
        at_least=_MIB,
    )
    log_turn_bytes_max: int = setting(
        _MIB,
            "Large entries, above 64 KiB, that go to bookies before the broker looks at sockets"
            " again; one at least, and all of a partition that is written alone. Lower: more"
            " turns; higher: others wait longer.", at_least=64 * 1024,
    )  # fmt: skip
    log_shared_entry_bytes_max: int = setting(
        256 * 1024,
        "Batches that arrive together share a ledger entry of at most this many bytes; a larger"
        " batch has an entry of its own. 0: each batch has one.",
        at_least=0, at_most=4 * _MIB,
    )  # fmt: skip
    log_shared_entry_batches_max: int = setting(
        128,
        "Most batches of one entry. A takeover looks at the header of each.",
        at_least=1,
    )
    log_snapshot_interval_bytes: int = setting(
        4 * _MIB,
        "Bytes that a takeover has to read back at most, roughly. Lower: more snapshots in the"
        " log.",
        at_least=64 * 1024,
    )
    log_snapshot_interval_entries: int = setting(64, "The same, counted in entries.", at_least=1)
    log_segment_page_entries: int = setting(
        256,
        "Entries of a page of a partition's segment list: its oldest segments move into pages, and"
        " pages into pages of pages. Lower: the list's node is smaller, searches in old data read"
        " more pages.",
        at_least=2, at_most=2_000,
    )  # fmt: skip
    segment_pages_max: int = setting(
        64, "Pages of segment lists kept in memory, for all partitions together.", at_least=1
    )
    tail_cache_bytes_max: int = setting(
        256 * _MIB, "Recent record bytes kept in memory for consumers that keep up.", at_least=0
    )
    read_ahead_bytes_max: int = setting(
        256 * _MIB,
        "Bytes read ahead from bookies, for consumers that are behind and read in order, or kept"
        " for groups that follow them, over all partitions; 0: none. Low: consumers wait for"
        " bookies with each fetch, and bookies serve each group separately.",
        at_least=0,
    )
    read_ahead_reader_bytes_max: int = setting(
        8 * _MIB, "The same for one consumer in one partition.", at_least=0
    )
    read_ahead_patience_ms: int = setting(
        2_000,
        "How long such bytes wait for their consumer. Low: slow consumers get none; high:"
        " consumers that have stopped hold memory that others could use.",
        at_least=1,
    )
    opened_records_max: int = setting(
        1_000_000,
        "Compressed records of one Produce request that are read, and records of one ListOffsets"
        " that are searched by time. Beyond that, a batch is refused with MESSAGE_TOO_LARGE, and a"
        " search ends at the batch that has the time, not at its record.",
        at_least=1_000,
    )
    retention_check_interval_ms: int = setting(
        60_000, "How often segments are checked against retention.", at_least=10
    )
    producer_expiration_ms: int = setting(
        86_400_000, "An idempotent producer silent for this long is forgotten.", at_least=1_000
    )
    producer_settling_ms: int = setting(
        5_000,
        "How long after a leadership begins a gap in a producer's sequences is put down to a"
        " refusal before it, so that the producer is told to send both batches again. Low: slow"
        " clients raise their epoch needlessly, and may store twice what they sent before.",
        at_least=0,
    )

    # --- logs
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

    # --- shutdown
    shutdown_timeout_ms: int = setting(
        4_000,
        "How long handing over partitions may take at shutdown; the process ends 4 s later at the"
        " latest. Too low: others have to recover ledgers.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        """Check ranges and relations; raise ConfigError."""
        check_ranges(self)
        self.security.check_beside(self)
        check_admin_access(self)
        if not self.zookeeper:
            raise ConfigError("zookeeper names no server")
        check_limits(self)
        if self.default_min_insync_replicas > self.default_replication_factor:
            raise ConfigError("default_min_insync_replicas exceeds default_replication_factor")
        if 0 < self.default_ensemble_size < self.default_replication_factor:
            raise ConfigError("default_ensemble_size is below default_replication_factor")
        if self.group_session_timeout_min_ms > self.group_session_timeout_max_ms:
            raise ConfigError("group_session_timeout_min_ms exceeds ..._max_ms")
        self.groups()  # checks what is left of them

    def groups(self) -> GroupConfig:
        """Return the limits of the group coordinator."""
        return GroupConfig(
            session_timeout_min_ms=self.group_session_timeout_min_ms,
            session_timeout_max_ms=self.group_session_timeout_max_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_size_max=self.group_size_max,
            consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            consumer_assignment_interval_ms=self.group_consumer_assignment_interval_ms,
            consumer_times_min=ConsumerTimes(
                self.group_consumer_session_timeout_min_ms,
                self.group_consumer_heartbeat_interval_min_ms,
                self.group_consumer_assignment_interval_min_ms,
            ),
            consumer_times_max=ConsumerTimes(
                self.group_consumer_session_timeout_max_ms,
                self.group_consumer_heartbeat_interval_max_ms,
                self.group_consumer_assignment_interval_max_ms,
            ),
            consumer_size_max=self.group_consumer_max_size,
            consumer_assignors=self.group_consumer_assignors,
            share_session_timeout_ms=self.group_share_session_timeout_ms,
            share_heartbeat_interval_ms=self.group_share_heartbeat_interval_ms,
            share_assignment_interval_ms=self.group_share_assignment_interval_ms,
            share_size_max=self.group_share_max_size,
            offset_metadata_bytes_max=self.offset_metadata_bytes_max,
            offsets_retention_ms=self.offsets_retention_ms,
        )

    def link(self) -> LinkConfig:
        """Return the limits of the links to other brokers."""
        return LinkConfig(
            requests_max=self.link_requests_max,
            waiting_max=4 * self.link_requests_max,
            answer_ms_max=self.link_answer_max_ms,
        )

    def log_limits(self) -> LogLimits:
        """Return the limits of partition logs."""
        return LogLimits(
            in_flight_bytes_max=self.log_in_flight_bytes_max,
            shared_entry_bytes_max=self.log_shared_entry_bytes_max,
            shared_entry_batches_max=self.log_shared_entry_batches_max,
            snapshot_interval_bytes=self.log_snapshot_interval_bytes,
            snapshot_interval_entries=self.log_snapshot_interval_entries,
            segment_page_entries=self.log_segment_page_entries,
            producer_expiration_ms=self.producer_expiration_ms,
            settling_ms=self.producer_settling_ms,
            opened_records_max=self.opened_records_max,
            open_transactions_max=self.transactions.open_max,
            held_bytes_max=self.transactions.held_bytes_max,
        )


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
