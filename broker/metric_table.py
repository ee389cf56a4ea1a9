"""Every metric of a broker: its name, kind, labels, meaning, and place in the tree of latencies.

This file is the only home of a broker's own metric names; those of its ledger client are in
`client/ledger/metrics.py`, those that every program has in `client/process_metrics.py`. Labels are
bounded: APIs, stages, states and errors are small sets, bookies are as many as there are, and
topics, groups and lags have a limit in the configuration, beyond which they share one series or
are left out.

Latencies form a tree: what a request takes is the sum of its stages, in every sample.

    quire_broker_request_seconds{api}
    ├── stage="queue"      received, not yet looked at: earlier requests of the connection
    ├── produce:  "append" checked, given offsets, sent to the bookies
    │             "quorum" until its ack quorum has synced it
    │             └── quire_ledger_append_seconds     one entry, from sent to confirmed
    │                 └── quire_ledger_bookie_seconds{op="add"}   one copy
    ├── fetch:    "wait"   for new records, as long as the client allows
    │             "read"   from memory, or from bookies
    ├── others:   "handle"
    └── stage="respond"    answered, not yet sent: answers keep the order of requests
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from client import process_metrics
from client.exposition import Kind, Row, table
from client.ledger import metrics as ledger_metrics
from client.ledger.metrics import APPEND_SECONDS

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_B: Final = "quire_broker_"

REQUEST_SECONDS: Final = _B + "request_seconds"
STAGE_SECONDS: Final = _B + "request_stage_seconds"
TAKEOVER_SECONDS: Final = _B + "takeover_seconds"

_ROWS: Final = (
    # the process
    Row(_B + "ready", _G, "1 while everything is served that should be."),
    # connections and requests
    Row(_B + "connections", _G, "Open client connections."),
    Row(_B + "connections_opened", _C, "Connections accepted."),
    Row(_B + "connections_refused", _C, "Connections over a limit."),
    Row(
        _B + "connections_cut_off", _C,
        "Connections closed for requests not finished or answers not read.",
    ),
    Row(_B + "protocol_errors", _C, "Connections closed for bad bytes."),
    Row(_B + "received_bytes", _C, "Bytes received from clients."),
    Row(_B + "sent_bytes", _C, "Bytes sent to clients."),
    Row(_B + "in_flight_bytes", _G, "Request bytes that are not answered yet."),
    Row(
        _B + "unfinished_bytes", _G, "Bytes of requests that are not complete or could not start."
    ),
    Row(_B + "unread_bytes", _G, "Bytes of answers whose clients are behind with reading."),
    Row(REQUEST_SECONDS, _H, "From a request's arrival until its answer is sent.", ("api",)),
    Row(STAGE_SECONDS, _H, "Parts of it, see the tree.", ("api", "stage"), REQUEST_SECONDS),
    Row(
        _B + "request_failures", _C,
        "Requests that failed unexpectedly; each left a traceback in the log.", ("api",),
    ),
    Row(_B + "produce_errors", _C, "Refused partitions of Produce requests.", ("error",)),
    Row(_B + "fetch_errors", _C, "Refused partitions of Fetch requests.", ("error",)),
    # records
    Row(_B + "produced_records", _C, "Records accepted."),
    Row(_B + "produced_batches", _C, "Record batches accepted."),
    Row(_B + "produced_bytes", _C, "Record bytes accepted."),
    Row(_B + "fetched_bytes", _C, "Record bytes sent to consumers."),
    Row(
        _B + "read_bytes", _C, "Record bytes found for consumers, in memory or on bookies.",
        ("source",),
    ),
    Row("quire_topic_produced_records", _C, "Records accepted for a topic.", ("topic",)),
    Row("quire_topic_produced_bytes", _C, "Record bytes accepted for a topic.", ("topic",)),
    Row("quire_topic_fetched_bytes", _C, "Record bytes of a topic sent.", ("topic",)),
    Row("quire_topic_size_bytes", _G, "Size of the partitions of a topic led here.", ("topic",)),
    # partitions
    Row(_B + "partitions_led", _G, "Partitions led."),
    Row(_B + "partitions_opening", _G, "Partitions that are about to be led."),
    Row(_B + "partitions_missing", _G, "Partitions that should be led here and are not."),
    Row(
        _B + "partitions_under_replicated", _G,
        "Partitions led whose new records get fewer copies than their replication factor.",
    ),
    Row(_B + "unconfirmed_bytes", _G, "Record bytes that wait for their ack quorum."),
    Row(_B + "tail_cache_bytes", _G, "Recent record bytes kept in memory."),
    Row(_B + "read_ahead_bytes", _G, "Bytes read ahead of consumers behind, or kept for others."),
    Row(_B + "read_ahead_used_bytes", _C, "Bytes read ahead that consumers took, each time."),
    Row(_B + "read_ahead_dropped_bytes", _C, "Bytes read ahead that nobody came for."),
    Row(TAKEOVER_SECONDS, _H, "From winning its election until a partition is led."),
    Row(_B + "takeovers_lost", _C, "Attempts to lead a partition that failed."),
    Row(_B + "leaderships_lost", _C, "Leaderships that ended other than in peace."),
    Row(_B + "segments_rolled", _C, "Segments ended for a next one."),
    Row(_B + "segments_trimmed", _C, "Segments deleted by retention or on request."),
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
    # ledgers
    Row(APPEND_SECONDS, _H, "From sending an entry until it is confirmed.", (), STAGE_SECONDS),
)  # fmt: skip

TABLE: Final[Mapping[str, Row]] = table(process_metrics.ROWS, _ROWS, ledger_metrics.ROWS)
