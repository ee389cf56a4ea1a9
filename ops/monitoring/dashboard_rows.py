"""What is on the four dashboards: brokers, bookies, groups, ledgers.

Covers which numbers operators see, and in which order: first whether all is well, then what moves,
then where time goes, then what is inside. `python -m ops.monitoring.dashboard_rows` writes
`grafana/dashboards/*.json`; a test compares them, and another asks every query of a real
Prometheus on a running cluster.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ops.monitoring.dashboards import (
    Dashboard,
    Row,
    as_json,
    lines,
    mean,
    quantile,
    rate,
    shares,
    stat,
)

_I: Final = 'instance=~"$instance"'
_T: Final = 'topic=~"$topic"'
_G: Final = 'group=~"$group"'
_GT: Final = f"{{{_G},{_T}}}"
_REQUEST: Final = "quire_broker_request_seconds"
_STAGE: Final = "quire_broker_request_stage_seconds"
_BROKER: Final = 'job="quire-broker"'


def _stages(api: str) -> str:
    parts = rate(f"{_STAGE}_sum", "stage", f'api="{api}",{_I}')
    whole = rate(f"{_REQUEST}_count", "", f'api="{api}",{_I}')
    return f"{parts} / ignoring (stage) group_left {whole}"


BROKERS: Final = Dashboard(
    "quire-brokers",
    "Quire / Brokers",
    "What clients see: records, requests, and where their time goes.",
    {
        "instance": "label_values(quire_broker_ready, instance)",
        "topic": "label_values(quire_topic_produced_records_total, topic)",
    },
    [
        Row("Is all well?", [
            stat("Brokers up", f"sum(up{{{_BROKER}}})", good_from=1),
            stat("Partitions led", f"sum(quire_broker_partitions_led{{{_I}}})"),
            stat("Partitions missing", f"sum(quire_broker_partitions_missing{{{_I}}})", bad_from=1,
                 text="They should be led and are not: clients cannot use them."),
            stat("Under-replicated", f"sum(quire_broker_partitions_under_replicated{{{_I}}})",
                 bad_from=1, text="Their new records get too few copies."),
            stat("Writable bookies", "min(quire_ledger_bookies)", good_from=3),
            stat("Sessions with ZooKeeper", f"sum(quire_metadata_connected{{{_BROKER}}})",
                 good_from=1),
        ]),
        Row("What moves", [
            lines("Records in, by topic", (rate("quire_topic_produced_records_total", "topic", _T),
                  "{{topic}}"), unit="cps"),
            lines("Bytes in, by topic", (rate("quire_topic_produced_bytes_total", "topic", _T),
                  "{{topic}}"), unit="Bps"),
            lines("Bytes out, by topic", (rate("quire_topic_fetched_bytes_total", "topic", _T),
                  "{{topic}}"), unit="Bps"),
            lines("Bytes read for consumers", (rate("quire_broker_read_bytes_total", "source", _I),
                  "{{source}}"),
                  (rate("quire_broker_read_ahead_used_bytes_total", "", _I), "ahead, taken"),
                  (rate("quire_broker_read_ahead_dropped_bytes_total", "", _I), "ahead, dropped"),
                  unit="Bps", text="From memory, or, for those that lag, bookies."),
            lines("Size of topics", (f"sum by (topic) (quire_topic_size_bytes{{{_T}}})",
                  "{{topic}}"), unit="bytes", text="Each record counted once."),
            lines("Requests, by API", (rate(f"{_REQUEST}_count", "api", _I), "{{api}}"),
                  unit="reqps"),
        ]),
        Row("Where time goes", [
            shares("Where the time of produce goes (mean)", (_stages("produce"), "{{stage}}"),
                   unit="s", text="The stages add up to the request: queue, append, quorum,"
                   " respond."),
            shares("Where the time of fetch goes (mean)", (_stages("fetch"), "{{stage}}"),
                   unit="s", text="`wait` is time that the client asked to wait for new records."),
            lines("Produce", (quantile(0.5, _REQUEST, "", f'api="produce",{_I}'), "p50"),
                  (quantile(0.99, _REQUEST, "", f'api="produce",{_I}'), "p99"),
                  (quantile(0.999, _REQUEST, "", f'api="produce",{_I}'), "99.9 %"), unit="s"),
            lines("p99 by API", (quantile(0.99, _REQUEST, "api", _I), "{{api}}"),
                  unit="s"),
            lines("Takeovers: mean time until led", (mean("quire_broker_takeover_seconds", "",
                  _I), "seconds"), unit="s"),
            lines("Background tasks that failed", (rate("quire_task_failures_total", "task", _I),
                  "{{task}}"), unit="cps"),
            lines("Callbacks that raised", (rate("quire_callback_failures_total", "kind", _I),
                  "{{kind}}"), unit="cps", text="Bugs of whoever registered them."),
            lines("Event loop lag, p99", (quantile(0.99, "quire_loop_lag_seconds", "instance",
                  f"{_BROKER},{_I}"), "{{instance}}"), unit="s"),
            lines("Event loop, longest stall", (f"quire_loop_stall_seconds{{{_BROKER},{_I}}}",
                  "{{instance}}"), (f"quire_loop_stall_cpu_seconds{{{_BROKER},{_I}}}",
                  "{{instance}} worked"), unit="s",
                  text="Nobody was served meanwhile. `worked`: what the loop's thread ran."),
            lines("ZooKeeper requests, p99", (quantile(0.99, "quire_metadata_request_seconds",
                  "instance", f"{_BROKER},{_I}"), "{{instance}}"), unit="s",
                  text="Takeovers, new ledgers and ensemble changes wait for it; records do not."),
        ]),
        Row("What goes wrong", [
            lines("Refused partitions of Produce", (rate("quire_broker_produce_errors_total",
                  "error", _I), "{{error}}"), unit="cps"),
            lines("Refused partitions of Fetch", (rate("quire_broker_fetch_errors_total", "error",
                  _I), "{{error}}"), unit="cps"),
            lines("Requests that met a bug", (rate("quire_broker_request_failures_total", "api",
                  _I), "{{api}}"), unit="cps"),
            lines("Leaderships", (rate("quire_broker_leaderships_lost_total", "", _I),
                  "lost other than in peace"), (rate("quire_broker_takeovers_lost_total", "", _I),
                  "takeovers that failed"), unit="cps"),
        ]),
        Row("Inside", [
            lines("Connections", (f"sum by (instance) (quire_broker_connections{{{_I}}})",
                  "{{instance}}")),
            lines("Connections opened and refused", (rate("quire_broker_connections_opened_total",
                  "", _I), "opened"), (rate("quire_broker_connections_refused_total", "", _I),
                  "refused"), (rate("quire_broker_protocol_errors_total", "", _I),
                  "closed for bad bytes"), (rate("quire_broker_connections_cut_off_total", "", _I),
                  "cut off for holding too much"), (rate(
                  "quire_broker_tls_handshakes_failed_total", "", _I), "failed in TLS"),
                  unit="cps"),
            lines("TLS handshakes under way", (f"sum(quire_broker_tls_handshakes{{{_I}}})",
                  "handshakes")),
            lines("Logins", (rate("quire_broker_logins_total", "", _I), "succeeded"),
                  (rate("quire_broker_logins_refused_total", "", _I), "refused"),
                  (rate("quire_broker_requests_denied_total", "", _I), "requests denied"),
                  (rate("quire_admin_requests_refused_total", "", _I), "refused by HTTP"),
                  unit="cps"),
            lines("Quotas: clients made to wait", (rate("quire_broker_quota_waits_total", "kind",
                  _I), "{{kind}}"), unit="cps"),
            lines("Quotas: waits", (rate("quire_broker_quota_wait_seconds_total", "kind", _I),
                  "{{kind}}"), (f"sum(quire_broker_quota_owners{{{_I}}})", "who is counted")),
            lines("Held by clients", (f"sum(quire_broker_unfinished_bytes{{{_I}}})",
                  "unfinished requests"), (f"sum(quire_broker_unread_bytes{{{_I}}})",
                  "unread answers"), (f"sum(quire_broker_unsent_bytes{{{_I}}})",
                  "answers not taken"), (f"sum(quire_broker_admin_body_bytes{{{_I}}})",
                  "admin requests"), (f"sum(quire_broker_group_requests_bytes{{{_I}}})",
                  "requests that wait for their groups"),
                  (f"sum(quire_broker_group_members_bytes{{{_I}}})", "members of groups"),
                  unit="bytes"),
            lines("Requests to other brokers",
                  (rate("quire_broker_link_requests_total", "state", _I), "{{state}}"),
                  (f"sum(quire_broker_link_requests_open{{{_I}}})", "open"),
                  (f"sum(quire_broker_links_up{{{_I}}})", "connections")),
            lines("Unanswered and unconfirmed", (f"sum(quire_broker_in_flight_bytes{{{_I}}})",
                  "request bytes unanswered"), (f"sum(quire_broker_unconfirmed_bytes{{{_I}}})",
                  "record bytes unconfirmed"), (f"sum(quire_broker_held_produce_bytes{{{_I}}})",
                  "request bytes that wait for a leader"), (
                  f"sum(quire_broker_fetch_reading_bytes{{{_I}}})",
                  "record bytes being read from bookies"), unit="bytes"),
            lines("Incremental fetches",
                  (f"sum(quire_broker_fetch_sessions{{{_I}}})", "consumers"),
                  (f"sum(quire_broker_fetch_session_partitions{{{_I}}})", "their partitions"),
                  text="Consumers that are sent only changes; others get everything each time."),
            lines("Fetch sessions replaced",
                  (rate("quire_broker_fetch_sessions_evicted_total", "", _I), "replaced"),
                  unit="cps", text="Idle ones, to make room for others. Many: raise"
                  " fetch_sessions_max."),
            lines("Consumers that read nearby",
                  (f"sum(quire_broker_follower_partitions{{{_I}}})", "partitions"),
                  (rate("quire_broker_follower_redirects_total", "", _I), "sent there"),
                  text="Partitions that others lead, served to consumers of the broker's rack."),
            lines("Metrics of clients",
                  (f"sum(quire_broker_client_metrics_clients{{{_I}}})", "clients"),
                  (f"sum(quire_broker_client_metrics_series{{{_I}}})", "their values"),
                  (rate("quire_broker_client_metrics_dropped_total", "", _I), "dropped per second"),
                  text="What clients push of themselves, where somebody subscribes to it."),
            lines("Segments", (rate("quire_broker_segments_rolled_total", "", _I), "rolled"),
                  (rate("quire_broker_segments_trimmed_total", "", _I), "trimmed"), unit="cps"),
            lines("Compaction", (rate("quire_broker_compaction_read_bytes_total", "", _I), "read"),
                  (rate("quire_broker_compaction_written_bytes_total", "", _I), "written"),
                  unit="Bps", text="Of compacted topics; limited by compaction.bytes_per_s."),
            lines("Partitions that should be compacted",
                  (f"sum by (instance) (quire_broker_compaction_due_partitions{{{_I}}})",
                  "{{instance}}"), text="They wait for their turn."),
            lines("CPU", (f"sum by (instance) (rate(process_cpu_seconds_total{{{_BROKER},{_I}}}"
                  "[$__rate_interval]))", "{{instance}}"), unit="percentunit"),
            lines("Memory", (f"process_resident_memory_bytes{{{_BROKER},{_I}}}",
                  "{{instance}}"), (f"quire_broker_tail_cache_bytes{{{_I}}}",
                  "tail cache of {{instance}}"), (f"quire_broker_read_ahead_bytes{{{_I}}}",
                  "read ahead by {{instance}}"), (f"quire_ledger_batch_buffer_bytes{{{_I}}}",
                  "buffers of batch reads of {{instance}}"), unit="bytes"),
        ]),
    ],
)  # fmt: skip

BOOKIES: Final = Dashboard(
    "quire-bookies",
    "Quire / Bookies",
    "Storage nodes: adds, syncs, reads, space.",
    {"instance": "label_values(quire_bookie_is_registered, instance)"},
    [
        Row("Is all well?", [
            stat("Bookies up", 'sum(up{job="quire-bookie"})', good_from=1),
            stat("Registered", f"sum(quire_bookie_is_registered{{{_I}}})", good_from=1),
            stat("Read-only", f"sum(quire_bookie_is_read_only{{{_I}}})", bad_from=1),
            stat("Fullest disk", f"max(quire_bookie_directory_used_ratio{{{_I}}})", "percentunit",
                 bad_from=0.85),
            stat("Damaged ranges", f"sum(quire_bookie_damaged_ranges{{{_I}}})", bad_from=1),
            stat("Failed directories", f"sum(quire_bookie_failed_directories{{{_I}}})", bad_from=1),
        ]),
        Row("What moves", [
            lines("Entries added", (rate("quire_bookie_adds_total", "instance", _I),
                  "{{instance}}"), unit="cps"),
            lines("Bytes added", (rate("quire_bookie_added_bytes_total", "instance", _I),
                  "{{instance}}"), unit="Bps"),
            lines("Entries read", (rate("quire_bookie_cache_hits_total", "", _I), "from memory"),
                  (rate("quire_bookie_cold_reads_total", "", _I), "from disk"), unit="cps"),
            lines("Bytes read", (rate("quire_bookie_read_bytes_total", "instance", _I),
                  "{{instance}}"), unit="Bps"),
        ]),
        Row("Where time goes", [
            lines("p99 of adds", (quantile(0.99, "quire_bookie_add_seconds", "instance", _I),
                  "{{instance}}"), unit="s"),
            shares("A group commit (mean)", (mean("quire_bookie_group_wait_seconds", "", _I),
                   "waits for the group before"), (mean("quire_bookie_sync_seconds", "", _I),
                   "write and sync"), unit="s", text="The two parts add up to the group."),
            lines("p99 of adds' time in the queue",
                  (quantile(0.99, "quire_bookie_turn_wait_seconds", "instance", _I),
                  "{{instance}}"), unit="s",
                  text="Adds that came when the open group was full."),
            lines("p99 of syncs", (quantile(0.99, "quire_bookie_fsync_seconds",
                  "instance, directory", _I), "{{instance}} {{directory}}"), unit="s"),
            lines("p99 of reads", (quantile(0.99, "quire_bookie_read_seconds", "instance", _I),
                  "{{instance}}"), unit="s"),
            lines("Entries per group commit (mean)", (mean("quire_bookie_group_entries",
                  "instance", _I), "{{instance}}")),
            lines("Bytes per group commit (mean)", (mean("quire_bookie_group_bytes", "instance",
                  _I), "{{instance}}"), unit="bytes"),
        ]),
        Row("Space", [
            lines("Disks", (f"quire_bookie_directory_used_ratio{{{_I}}}",
                  "{{instance}} {{directory}}"), unit="percentunit"),
            lines("Ledgers", (f"quire_bookie_ledgers{{{_I}}}", "{{instance}}")),
            lines("Space reclaimed", (rate("quire_bookie_dropped_file_bytes_total", "", _I),
                  "files in which nothing lived"), (rate("quire_bookie_rewritten_file_bytes_total",
                  "", _I), "files rewritten"), unit="Bps"),
            lines("Garbage collection", (rate("quire_bookie_gc_rounds_total", "", _I), "rounds"),
                  (rate("quire_bookie_deleted_ledgers_total", "", _I), "ledgers deleted"),
                  unit="cps"),
        ]),
        Row("What goes wrong", [
            lines("Refused", (rate("quire_bookie_refused_adds_total", "", _I), "adds"),
                  (rate("quire_bookie_refused_requests_total", "", _I), "too many requests"),
                  (rate("quire_bookie_unauthorized_requests_total", "", _I), "without right"),
                  (rate("quire_bookie_tls_handshakes_failed_total", "", _I), "failed in TLS"),
                  (rate("quire_bookie_refused_connections_total", "", _I), "connections"),
                  (rate("quire_bookie_cut_off_connections_total", "", _I), "connections cut off"),
                  unit="cps"),
            lines("Unreadable", (rate("quire_bookie_unreadable_entries_total", "instance", _I),
                  "entries of {{instance}}"), (rate("quire_bookie_lost_groups_total", "instance",
                  _I), "groups given up by {{instance}}"), unit="cps"),
        ]),
        Row("Inside", [
            lines("Requests that wait", (f"sum by (instance) (quire_bookie_long_polls{{{_I}}})",
                  "long polls at {{instance}}"),
                  (f"sum by (instance) (quire_bookie_other_requests{{{_I}}})",
                  "neither adds nor reads at {{instance}}"),
                  (f"sum by (instance) (quire_bookie_tls_handshakes{{{_I}}})",
                  "TLS handshakes at {{instance}}")),
            lines("Held", (f"sum(quire_bookie_unfinished_bytes{{{_I}}})",
                  "unfinished requests"), (f"sum(quire_bookie_unread_bytes{{{_I}}})",
                  "unread answers"), (f"sum(quire_bookie_unsent_bytes{{{_I}}})",
                  "answers not taken"), (f"sum(quire_bookie_batch_read_bytes{{{_I}}})",
                  "batch reads"), (f"sum(quire_bookie_admin_body_bytes{{{_I}}})",
                  "admin requests"), (f"sum(quire_bookie_index_bytes{{{_I}}})", "the index"),
                  unit="bytes"),
            lines("Not durable and indexed yet", (f"quire_bookie_pending_bytes{{{_I}}}",
                  "{{instance}}"), (f"quire_bookie_waiting_bytes{{{_I}}}",
                  "in line at {{instance}}"), unit="bytes"),
            lines("In progress", (f"sum(quire_bookie_adds_in_progress{{{_I}}})", "adds"),
                  (f"sum(quire_bookie_waiting_adds{{{_I}}})", "of them in line for a group"),
                  (f"sum(quire_bookie_reads_in_progress{{{_I}}})", "reads"),
                  (f"sum(quire_bookie_connections_waiting_for_disk{{{_I}}})",
                  "connections not read: disk"),
                  (f"sum(quire_bookie_connections_waiting_for_peer{{{_I}}})",
                  "connections not read: peer")),
            lines("CPU", ('sum by (instance) (rate(process_cpu_seconds_total{job="quire-bookie",'
                  f"{_I}}}[$__rate_interval]))", "{{instance}}"), unit="percentunit"),
            lines("Memory", (f'process_resident_memory_bytes{{job="quire-bookie",{_I}}}',
                  "{{instance}}"), (f"quire_bookie_cache_bytes{{{_I}}}",
                  "entry cache of {{instance}}"), unit="bytes"),
            lines("Fences", (rate("quire_bookie_fences_total", "instance", _I), "{{instance}}"),
                  unit="cps", text="Ledgers are taken over, or open ones repaired."),
            lines("Background tasks that failed", (rate("quire_task_failures_total", "task", _I),
                  "{{task}}"), unit="cps"),
            lines("Callbacks that raised", (rate("quire_callback_failures_total", "kind", _I),
                  "{{kind}}"), unit="cps", text="Bugs of whoever registered them."),
            lines("Event loop lag, p99", (quantile(0.99, "quire_loop_lag_seconds", "instance",
                  f'job="quire-bookie",{_I}'), "{{instance}}"), unit="s"),
            lines("Event loop, longest stall", (
                  f'quire_loop_stall_seconds{{job="quire-bookie",{_I}}}', "{{instance}}"), (
                  f'quire_loop_stall_cpu_seconds{{job="quire-bookie",{_I}}}',
                  "{{instance}} worked"), unit="s",
                  text="Nobody was served meanwhile. `worked`: what the loop's thread ran."),
        ]),
    ],
)  # fmt: skip

GROUPS: Final = Dashboard(
    "quire-groups",
    "Quire / Groups",
    "Consumer groups: how far behind, in records and in seconds.",
    {
        "group": "label_values(quire_group_lag_records, group)",
        "topic": "label_values(quire_group_lag_records, topic)",
    },
    [
        Row("At a glance", [
            stat("Groups", "sum(quire_groups)"),
            stat("Groups with members, stable", 'sum(quire_groups{state="Stable"})'),
            stat("Groups that rebalance",
                 'sum(quire_groups{state=~"PreparingRebalance|CompletingRebalance"})'),
            stat("Records behind, all groups", f"sum(quire_group_lag_records{_GT})"),
            stat("Worst lag", f"max(quire_group_lag_seconds{_GT})", "s", bad_from=300),
        ]),
        Row("Lag", [
            lines("Records behind", (f"sum by (group, topic) (quire_group_lag_records{_GT})",
                  "{{group}} in {{topic}}")),
            lines("Seconds behind", (f"max by (group, topic) (quire_group_lag_seconds{_GT})",
                  "{{group}} in {{topic}}"), unit="s",
                  text="Age of the oldest record that was not read."),
            lines("The ten worst partitions, records",
                  (f"topk(10, max by (group, topic, partition) (quire_group_lag_records{_GT}))",
                  "{{group}} {{topic}}-{{partition}}")),
            lines("The ten worst partitions, seconds",
                  (f"topk(10, max by (group, topic, partition) (quire_group_lag_seconds{_GT}))",
                  "{{group}} {{topic}}-{{partition}}"), unit="s"),
            lines("Bytes read, by topic", (rate("quire_topic_fetched_bytes_total", "topic", _T),
                  "{{topic}}"), unit="Bps"),
            lines("Groups by state", ("sum by (state) (quire_groups)", "{{state}}")),
        ]),
        Row("Coordination", [
            lines("Rebalances", (rate("quire_group_rebalances_total", "instance"), "{{instance}}"),
                  unit="cps", text="Members that come and go, or are too slow to send heartbeats."),
            lines("Group requests", (rate(f"{_REQUEST}_count", "api",
                  'api=~"join_group|sync_group|heartbeat|leave_group|offset_commit|offset_fetch"'),
                  "{{api}}"), unit="reqps"),
            lines("p99 of group requests", (quantile(0.99, _REQUEST, "api",
                  'api=~"join_group|sync_group|heartbeat|leave_group|offset_commit|offset_fetch"'),
                  "{{api}}"), unit="s", text="Joins wait for all members."),
        ]),
        Row("Transactions", [
            stat("Open", 'sum(quire_transactions{state="Ongoing"})'),
            stat("Oldest one that is open", "max(quire_transaction_oldest_seconds)", "s",
                 bad_from=300),
            stat("Oldest decision without all its markers",
                 "max(quire_transaction_oldest_decision_seconds)", "s", bad_from=60),
            stat("Oldest one in a partition", "max(quire_transaction_open_in_partitions_seconds)",
                 "s", bad_from=300),
            lines("Transactional ids by state", ("sum by (state) (quire_transactions)",
                  "{{state}}")),
            lines("Markers not confirmed", ("quire_transaction_markers", "{{instance}}")),
            lines("Open in partitions",
                  ("sum by (instance) (quire_transaction_open_in_partitions)", "{{instance}}")),
            lines("Records that committed readers wait for",
                  ("max by (instance) (quire_transaction_undecided_records)", "{{instance}}"),
                  text="Between the last stable offset and the high watermark, worst partition."),
            lines("Bytes held until coordinators answer",
                  ("sum by (instance) (quire_transaction_held_bytes)", "{{instance}}"),
                  unit="bytes"),
            lines("Ended by the coordinator", (rate("quire_transaction_events_total", "kind"),
                  "{{kind}}"), unit="cps",
                  text="Out of time, fenced by a successor, by an operator; and ids that expired."),
            lines("Transaction requests", (rate(f"{_REQUEST}_count", "api",
                  'api=~"init_producer_id|add_partitions_to_txn|add_offsets_to_txn|end_txn"'),
                  "{{api}}"), unit="reqps"),
            lines("p99 of transaction requests", (quantile(0.99, _REQUEST, "api",
                  'api=~"init_producer_id|add_partitions_to_txn|add_offsets_to_txn|end_txn"'),
                  "{{api}}"), unit="s"),
        ]),
    ],
)  # fmt: skip

LEDGERS: Final = Dashboard(
    "quire-ledgers",
    "Quire / Ledgers",
    "The layer between brokers and bookies, and the repair of what lacks copies.",
    {"instance": "label_values(quire_ledger_writers, instance)"},
    [
        Row("Is all well?", [
            stat("Ledgers that lack copies", "max(quire_recovery_under_replicated_ledgers)",
                 bad_from=1),
            stat("Ledgers that could not be repaired", "sum(quire_recovery_waiting_ledgers)",
                 bad_from=1),
            stat("Lost bookies", "max(quire_recovery_lost_bookies)", bad_from=1),
            stat("Writable bookies", "min(quire_ledger_bookies)", good_from=3),
            stat("Auditors", "sum(quire_recovery_is_auditor)", good_from=1),
            stat("Auto recovery on", "min(quire_recovery_enabled)", good_from=1),
        ]),
        Row("Writing", [
            lines("Entries confirmed", (rate("quire_ledger_confirmed_entries_total", "instance",
                  _I), "{{instance}}"), unit="cps"),
            lines("Entries unconfirmed", (
                  f"sum by (instance) (quire_ledger_unconfirmed_entries{{{_I}}})",
                  "{{instance}}"), text="Sent, and beyond the last add confirmed."),
            lines("Append to ack quorum", (quantile(0.5, "quire_ledger_append_seconds", "", _I),
                  "p50"), (quantile(0.99, "quire_ledger_append_seconds", "", _I), "p99"),
                  unit="s"),
            lines("p99 of adds, by bookie", (quantile(0.99, "quire_ledger_bookie_seconds",
                  "bookie", f'op="add",{_I}'), "{{bookie}}"), unit="s",
                  text="As its writers see it: network included."),
            lines("Bytes that bookies have to answer", (
                  f"sum by (instance) (quire_ledger_unanswered_bytes{{{_I}}})", "of {{instance}}"),
                  (f"sum by (bookie) (quire_ledger_bookie_in_flight_bytes{{{_I}}})",
                  "under way to {{bookie}}"), unit="bytes",
                  text="What is confirmed counts until every bookie asked has answered."),
            lines("Ledgers being written", (f"sum by (instance) (quire_ledger_writers{{{_I}}})",
                  "{{instance}}")),
            lines("Ledgers created and recovered", (rate("quire_ledger_created_total", "", _I),
                  "created"), (rate("quire_ledger_recovered_total", "", _I), "recovered"),
                  unit="cps"),
        ]),
        Row("What goes wrong", [
            lines("Ensemble changes", (rate("quire_ledger_ensemble_changes_total", "instance", _I),
                  "{{instance}}"), unit="cps"),
            lines("Errors, by bookie", (rate("quire_ledger_bookie_errors_total", "bookie", _I),
                  "{{bookie}}"), unit="cps"),
            lines("Bookies replaced for being slow", (rate("quire_ledger_slow_replacements_total",
                  "instance", _I), "{{instance}}"), unit="cps",
                  text="They answered, but far behind the others: `bookie.slow` says which."),
            lines("Pauses for bookies that shed adds", (rate("quire_ledger_busy_pauses_total",
                  "instance", _I), "{{instance}}"), unit="cps"),
            lines("Writers and recoveries that failed", (rate("quire_ledger_writer_failures_total",
                  "", _I), "writers"), (rate("quire_ledger_recovery_failures_total", "", _I),
                  "recoveries"), (rate("quire_ledger_quarantines_total", "", _I),
                  "bookies quarantined"), (rate("quire_ledger_marks_total", "", _I),
                  "ledgers marked by writers"), unit="cps"),
            lines("Recovery of a ledger (mean)", (mean("quire_ledger_recovery_seconds", "", _I),
                  "seconds"), unit="s"),
        ]),
        Row("Reading", [
            lines("Entries read", (rate("quire_ledger_read_entries_total", "instance", _I),
                  "{{instance}}"), unit="cps"),
            lines("p99 of reads", (quantile(0.99, "quire_ledger_read_seconds", "instance", _I),
                  "{{instance}}"), unit="s"),
            lines("Further replicas asked", (rate("quire_ledger_speculative_reads_total", "", _I),
                  "because one took long"), (rate("quire_ledger_read_retries_total", "", _I),
                  "because one failed"), (rate("quire_ledger_read_failures_total", "", _I),
                  "in vain"), unit="cps"),
            lines("Last add confirmed", (rate("quire_ledger_lac_reads_total", "", _I), "asked for"),
                  (rate("quire_ledger_explicit_lacs_total", "", _I), "told without an entry"),
                  unit="cps"),
        ]),
        Row("Repairing", [
            lines("Ledgers that lack copies", ("max(quire_recovery_under_replicated_ledgers)",
                  "marked"), ("sum(quire_recovery_waiting_ledgers)", "tried in vain")),
            lines("Repairs", (rate("quire_recovery_repaired_ledgers_total"), "whole again"),
                  (rate("quire_recovery_unfinished_repairs_total"), "unfinished"),
                  (rate("quire_recovery_failed_repairs_total"), "failed"),
                  (rate("quire_recovery_closed_ledgers_total"), "open ledgers closed"), unit="cps"),
            lines("Copied", (rate("quire_recovery_copied_bytes_total", "instance"), "{{instance}}"),
                  unit="Bps"),
            lines("Audits", (rate("quire_recovery_audits_total"), "of lost bookies"),
                  (rate("quire_recovery_checks_total"), "of all ledgers"),
                  (rate("quire_recovery_marked_ledgers_total"), "ledgers marked"), unit="cps"),
        ]),
        Row("Schema registries", [
            lines("Requests, by status", (rate("quire_schemas_requests_total", "status"),
                  "{{status}}"), unit="reqps"),
            lines("p99 of requests", (quantile(0.99, "quire_schemas_request_seconds", "instance"),
                  "{{instance}}"), unit="s"),
            lines("Subjects and ids", ("max(quire_schemas_subjects)", "subjects"),
                  ("max(quire_schemas_last_id)", "last id")),
            lines("Records that are unreadable", (rate("quire_schemas_unreadable_records_total",
                  "instance"), "{{instance}}"), unit="cps"),
        ]),
    ],
)  # fmt: skip

DASHBOARDS: Final = (BROKERS, BOOKIES, GROUPS, LEDGERS)
FOLDER: Final = Path(__file__).with_name("grafana") / "dashboards"


def files() -> dict[Path, str]:
    """Return every dashboard's file and what is in it."""
    return {FOLDER / f"{one.uid}.json": as_json(one) for one in DASHBOARDS}


def main() -> int:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
