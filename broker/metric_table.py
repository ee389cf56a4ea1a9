"""Every metric of a broker: its name, kind, labels, meaning, and place in the tree of latencies.

The metrics of its ledger client are in `client/ledger/metrics.py`, those that every program has in
`client/node/process_metrics.py`. Labels are bounded: APIs, stages, states and errors are small
sets, there are as many bookies as there are, and topics, groups and lags have a limit in the
configuration, beyond which they share one series or are left out.

Latencies form a tree: the time a request takes is the sum of its stages, in every sample.

    quire_broker_request_seconds{api}
    ├── stage="queue"      received, waiting for earlier requests of the connection
    ├── produce:  "append" checked, given offsets, sent to the bookies
    │             "quorum" until its ack quorum has synced it
    │             └── quire_ledger_append_seconds     one entry, from sent to confirmed
    │                 └── quire_ledger_bookie_seconds{op="add"}   one copy
    ├── fetch:    "wait"   for new records, as long as the client allows
    │             "read"   from memory, or from bookies
    ├── others:   "handle"
    └── stage="respond"    answered, waiting to be sent: answers keep the order of requests
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from client.ledger import metrics as ledger_metrics
from client.ledger.metrics import APPEND_SECONDS
from client.node import process_metrics
from client.node.exposition import Kind, Row, table

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_B: Final = "quire_broker_"

REQUEST_SECONDS: Final = _B + "request_seconds"
STAGE_SECONDS: Final = _B + "request_stage_seconds"
TAKEOVER_SECONDS: Final = _B + "takeover_seconds"

_ROWS: Final = (
    # the process
    Row(_B + "ready", _G, "1 while the broker serves everything it should."),
    # connections and requests
    Row(_B + "connections", _G, "Open client connections."),
    Row(_B + "connections_opened", _C, "Connections accepted."),
    Row(_B + "connections_refused", _C, "Connections refused because a limit was reached."),
    Row(
        _B + "connections_cut_off", _C,
        "Connections closed because a request was not finished or answers were not read.",
    ),
    Row(_B + "protocol_errors", _C, "Connections closed because of malformed bytes."),
    Row(_B + "logins", _C, "Successful SASL logins, re-authentication included."),
    Row(
        _B + "requests_denied", _C,
        "Requests, or parts of them, that access control lists denied.",
    ),
    Row(_B + "logins_refused", _C, "Failed SASL logins."),
    Row(
        _B + "quota_waits", _C, "How often a quota delayed a client, or refused a connection.",
        ("kind",),
    ),
    Row(_B + "quota_wait_seconds", _C, "Total time by which quotas delayed clients.", ("kind",)),
    Row(
        _B + "quota_owners", _G,
        "Users, client ids and addresses whose usage is counted for quotas.",
    ),
    Row(_B + "quota_entities", _G, "Entities whose quotas are kept in memory."),
    Row(_B + "users", _G, "Users with passwords kept in memory, without the brokers' own user."),
    Row(_B + "acls", _G, "Access control entries that are kept in memory."),
    Row(_B + "tls_handshakes", _G, "TLS handshakes in progress."),
    Row(
        _B + "tls_handshakes_failed", _C,
        "TLS handshakes that failed, took too long or were too many.",
    ),
    Row(
        _B + "tls_certificate_expires_seconds", _G,
        "Unix time at which the first certificate of the broker's chain expires.",
    ),
    Row(_B + "received_bytes", _C, "Bytes received from clients."),
    Row(_B + "sent_bytes", _C, "Bytes sent to clients."),
    Row(
        _B + "in_flight_bytes", _G,
        "Memory held for requests: those not answered yet, and those with batches that are not"
        " stored by all their bookies yet, even if the client has disconnected. Decoded requests"
        " count for more than their encoded size.",
    ),
    Row(
        _B + "login_bytes", _G,
        "Bytes of requests of clients that have not logged in, complete or not.",
    ),
    Row(
        _B + "unfinished_bytes", _G, "Bytes of requests that are incomplete or could not start yet."
    ),
    Row(_B + "unread_bytes", _G, "Bytes of answers to clients that are behind in reading them."),
    Row(
        _B + "unsent_bytes", _G,
        "Bytes of answers not read yet, including those to clients that keep up.",
    ),
    Row(_B + "admin_body_bytes", _G, "Bytes of the bodies of admin requests in progress."),
    Row(REQUEST_SECONDS, _H, "Time from a request's arrival until its answer is sent.", ("api",)),
    Row(STAGE_SECONDS, _H, "Time in each stage of a request.", ("api", "stage"), REQUEST_SECONDS),
    Row(
        _B + "request_failures", _C,
        "Requests that failed unexpectedly; the log has a traceback of each.", ("api",),
    ),
    Row(_B + "produce_errors", _C, "Produce partitions answered with an error.", ("error",)),
    Row(_B + "fetch_errors", _C, "Fetch partitions answered with an error.", ("error",)),
    # records
    Row(_B + "produced_records", _C, "Records accepted."),
    Row(_B + "produced_batches", _C, "Record batches accepted."),
    Row(_B + "produced_bytes", _C, "Record bytes accepted."),
    Row(
        _B + "recompressed_batches", _C,
        "Record batches that the broker compressed anew for their topic's compression.type.",
    ),
    Row(_B + "fetched_bytes", _C, "Record bytes sent to consumers."),
    Row(
        _B + "fetched_rack_bytes", _C,
        "Record bytes sent to consumers, by their rack (client.rack): that of the broker (same),"
        " another one (other), or unknown if one of the two has none.",
        ("rack",),
    ),
    Row(
        _B + "read_bytes", _C, "Record bytes read for consumers, from memory or from bookies.",
        ("source",),
    ),
    Row("quire_topic_produced_records", _C, "Records accepted for a topic.", ("topic",)),
    Row("quire_topic_produced_bytes", _C, "Record bytes accepted for a topic.", ("topic",)),
    Row(
        _B + "follower_partitions",
        _G,
        "Partitions led by other brokers that consumers in this broker's rack read here.",
    ),
    Row(
        _B + "follower_redirects",
        _C,
        "Answers that sent a consumer to a broker in its own rack.",
    ),
    Row("quire_topic_fetched_bytes", _C, "Record bytes of a topic sent to consumers.", ("topic",)),
    Row("quire_topic_size_bytes", _G, "Size of the partitions of a topic led here.", ("topic",)),
    # partitions
    Row(_B + "partitions_led", _G, "Partitions that this broker leads."),
    Row(_B + "partitions_opening", _G, "Partitions that this broker is about to lead."),
    Row(_B + "partitions_missing", _G, "Partitions that this broker should lead but does not."),
    Row(
        _B + "partitions_under_replicated", _G,
        "Partitions led whose new records get fewer copies than the replication factor.",
    ),
    Row(
        _B + "held_produce_bytes", _G,
        "Bytes of Produce requests that wait for a partition that is about to be led.",
    ),
    Row(_B + "unconfirmed_bytes", _G, "Record bytes waiting for their ack quorum."),
    Row(
        _B + "fetch_reading_bytes", _G,
        "Record bytes that fetches are reading from bookies, or have read but not answered yet.",
    ),
    Row(
        _B + "group_requests_bytes", _G,
        "Bytes of JoinGroup and SyncGroup requests that wait for their groups.",
    ),
    Row(
        _B + "group_members_bytes", _G,
        "Bytes of the subscriptions and assignments of all members of groups here.",
    ),
    Row(_B + "fetch_sessions", _G, "Consumers that fetch incrementally."),
    Row(_B + "fetch_session_partitions", _G, "Partitions of all those consumers together."),
    Row(
        _B + "fetch_sessions_evicted", _C,
        "Idle fetch sessions that were evicted to make room for others.",
    ),
    Row(_B + "share_sessions", _G, "Members of share groups that fetch from this broker."),
    Row(_B + "share_session_partitions", _G, "Partitions that all those members read."),
    Row(
        _B + "share_archiving_records", _G,
        "Records of share groups that wait for their dead letters, in partitions led here.",
    ),
    Row(_B + "dead_letters", _C, "Dead letters of share groups that were written."),
    Row(
        _B + "dead_letter_failures", _C,
        "Attempts to write dead letters that failed; each is made again.",
    ),
    Row(_B + "tail_cache_bytes", _G, "Recent record bytes kept in memory."),
    Row(_B + "read_ahead_bytes", _G, "Bytes read ahead for lagging consumers, or kept for others."),
    Row(_B + "read_ahead_used_bytes", _C, "Bytes read ahead that consumers used, each time."),
    Row(_B + "read_ahead_dropped_bytes", _C, "Bytes read ahead that no consumer used."),
    Row(TAKEOVER_SECONDS, _H, "Time from winning a partition's election until leading it."),
    Row(_B + "takeovers_lost", _C, "Attempts to lead a partition that failed."),
    Row(_B + "leaderships_lost", _C, "Leaderships that ended unexpectedly."),
    Row(_B + "segments_rolled", _C, "Segments that were sealed and followed by a new one."),
    Row(_B + "segments_trimmed", _C, "Segments deleted by retention or on request."),
    # offload
    Row(_B + "offload_failures", _C, "Failures to copy, prove or delete a segment; tried again."),
    Row(_B + "offload_copied_segments", _C, "Segments that were copied to the object store."),
    Row(_B + "offload_copied_bytes", _C, "Bytes of ledgers that were copied there."),
    Row(_B + "offload_dropped_ledgers", _C, "Ledgers that left the bookies, with a proven copy."),
    Row(
        _B + "offload_lag_bytes", _G,
        "Bytes of sealed segments that should be in the object store and are not.",
    ),
    Row(
        _B + "offload_lag_seconds", _G,
        "Since when the oldest of them has been waiting. High: the store is away, or too slow.",
    ),
    Row(
        _B + "offload_stuck_partitions", _G,
        "Partitions led here whose last piece of offloading failed; `quire topic offload` says"
        " why.",
    ),
    Row(_B + "offload_buried_objects", _G, "Objects that nobody needs and that are not gone yet."),
    Row(_B + "offload_bytes", _G, "Memory of the copy that is being made or proven."),
    Row(_B + "archive_bytes", _G, "Memory of what consumers have read of the object store."),
    Row(_B + "archive_read_bytes", _C, "Bytes that consumers have had read of the object store."),
    Row(_B + "archive_failures", _C, "Requests of consumers to the object store that failed."),
    Row(_B + "object_store_requests", _C, "Requests to the object store.", ("kind",)),
    # compaction
    Row(_B + "compaction_rounds", _C, "Completed rounds of compaction."),
    Row(_B + "compaction_failures", _C, "Rounds of compaction that failed; they are tried again."),
    Row(_B + "compaction_read_bytes", _C, "Bytes that compaction has read from bookies."),
    Row(_B + "compaction_written_bytes", _C, "Bytes of ledgers that compaction has written."),
    Row(_B + "compaction_removed_records", _C, "Records that compaction has removed."),
    Row(
        _B + "compaction_bytes", _G,
        "Memory of the round of compaction in progress: its keys, unless a child process has them,"
        " its input and its output.",
    ),
    Row(
        _B + "compaction_dirty_ratio", _G,
        "Largest share of uncompacted bytes, among those that may be compacted, of a partition led"
        " here.",
    ),
    Row(
        _B + "compaction_due_partitions", _G,
        "Partitions led here that wait to be compacted, or are being compacted.",
    ),
    Row(
        _B + "compaction_stuck_partitions", _G,
        "Partitions led here whose last round of compaction, or check for it, failed, or that an"
        " open transaction holds back; `quire topic compaction` says why.",
    ),
    Row(
        _B + "compaction_overdue_seconds", _G,
        "How far the most overdue partition led here is beyond max.compaction.lag.ms.",
    ),
    Row(
        _B + "compaction_waiting_seconds", _G,
        "How long the partition led here that has been due for longest has waited for a complete"
        " round.",
    ),
    Row(
        _B + "compaction_last_clean_seconds", _G,
        "Time since the last complete round of the partition led here whose last one is longest"
        " ago; 0: none had one.",
    ),
    Row(
        _B + "compaction_next_due_seconds", _G,
        "Time until the next partition led here is due because of max.compaction.lag.ms or of"
        " tombstones that may be removed; +Inf: none will be.",
    ),
    Row(
        _B + "compaction_saved_bytes", _G,
        "Bytes by which compaction has made the logs of partitions led here smaller.",
    ),
    # groups
    Row("quire_groups", _G, "Consumer groups coordinated here.", ("state",)),
    Row("quire_group_rebalances", _C, "Rebalances of groups coordinated here."),
    Row(
        "quire_group_lag_records", _G, "Records that a group has not read yet.",
        ("group", "topic", "partition"),
    ),
    Row(
        "quire_group_lag_seconds", _G, "Age of the oldest record that a group has not read yet.",
        ("group", "topic", "partition"),
    ),
    # requests between brokers
    Row(
        _B + "link_requests", _C,
        "Requests to other brokers by outcome: answered, unanswered (the outcome is unknown),"
        " unsent.",
        ("state",),
    ),
    Row(_B + "link_requests_open", _G, "Requests to other brokers that have no outcome yet."),
    Row(_B + "links_up", _G, "Established connections to other brokers, one per broker and lane."),
    # what clients tell of themselves
    Row(
        "quire_client_metric", _G,
        "Last value of a metric that a client pushed, labelled with the client's name for it"
        " (KIP-714).",
        ("metric", "client_id", "software", "instance_id", "attributes"),
    ),
    Row(_B + "client_metrics_clients", _G, "Clients whose metrics are wanted, and remembered."),
    Row(_B + "client_metrics_series", _G, "Values of clients' metrics that are kept."),
    Row(
        _B + "client_metrics_dropped", _C,
        "Values that clients pushed and that were dropped for lack of room.",
    ),
    # transactions
    Row("quire_transactions", _G, "Transactional ids coordinated here.", ("state",)),
    Row(
        "quire_transaction_oldest_seconds", _G,
        "Age of the oldest open transaction coordinated here; 0: none is open.",
    ),
    Row(
        "quire_transaction_oldest_decision_seconds", _G,
        "Time since the oldest decision made here whose markers are not all written.",
    ),
    Row("quire_transaction_markers", _G, "Markers that partitions have not confirmed."),
    Row(
        "quire_transaction_events", _C,
        "What coordinators decided without the producer: timed_out, fenced, id_expired,"
        " aborted_by_operator.",
        ("kind",),
    ),
    Row(
        "quire_transaction_open_in_partitions", _G,
        "Transactions that have data and no marker, counted in each partition led here.",
    ),
    Row(
        "quire_transaction_open_in_partitions_seconds", _G,
        "Age of the oldest open transaction in a partition led here; 0: none is open.",
    ),
    Row(
        "quire_transaction_undecided_records", _G,
        "Records between the last stable offset and the high watermark, of the partition that has"
        " most.",
    ),
    Row(
        "quire_transaction_held_bytes", _G,
        "Bytes of batches that are held until coordinators have verified their transactions.",
    ),
    # ledgers
    Row(APPEND_SECONDS, _H, "Time from sending an entry until it is confirmed.", (), STAGE_SECONDS),
)  # fmt: skip

TABLE: Final[Mapping[str, Row]] = table(process_metrics.ROWS, _ROWS, ledger_metrics.ROWS)
