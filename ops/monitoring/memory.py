"""What a node can hold in memory: every buffer with its owner, its limit and its gauge.

Covers the tables of `ops/MEMORY.md` (`python -m ops.monitoring.memory` writes them; a test compares
them with what this makes, and every name in them with the code) and the sum for any configuration,
which tests compare with real processes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from broker.front.codec_thread import CODEC_BYTES_MAX
from broker.front.core.fetch_sessions import PARTITION_BYTES_MAX
from broker.front.core.share_sessions import PARTITION_BYTES_MAX as SHARE_PARTITION_BYTES_MAX
from broker.front.core.share_sessions import SESSION_BYTES_MAX
from broker.front.server import LOGIN_DECODED_TIMES
from broker.groups.group_settings import GROUPS_MAX
from broker.leadership.followers import SENT_MAX
from broker.offload.offloader import COPY_BYTES_MAX
from broker.security.core.acls import NOTED_BYTES_MAX
from client.config import settings_of
from client.ledger.config import LedgerClientConfig
from client.node.connection_limits import STRANGERS_BYTES_MAX
from client.node.http_connections import BODIES_BYTES_MAX
from ops.schemas.config import SchemasConfig

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "MEMORY.md"
BEGIN: Final = "<!-- tables: python -m ops.monitoring.memory -->\n"
END: Final = "<!-- end of tables -->\n"

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB

BASE_BYTES: Final = 192 * _MIB
"""The process itself: Python, its modules, what they keep, and blocks that the allocator holds."""

Factor = str | int
"""A setting of the process, or a number."""


class Buffer(NamedTuple):
    """Something that grows with what others send, up to a limit."""

    what: str
    owner: str
    """File that keeps the limit."""
    most: Sequence[Sequence[Factor]]
    """The most bytes that it takes: a sum of products."""
    gauge: str


BROKER: Final = (
    Buffer("requests that are incomplete, or could not start yet",
           "client/node/framed_server.py",
           [["unfinished_bytes_max"]], "quire_broker_unfinished_bytes"),
    Buffer(
        "requests that are not answered, decoded or not, and the last one that was still started:"
        " records until they are confirmed, long polls",
           "broker/front/server.py",
           [["in_flight_bytes_max"], ["request_bytes_max"]], "quire_broker_in_flight_bytes"),
    Buffer("requests of clients that have not logged in, and the last one; as much again of those"
           " that are incomplete", "broker/front/server.py",
           [[2, "security.sasl_logins_bytes_max"],
            [LOGIN_DECODED_TIMES, "security.sasl_login_bytes_max"]], "quire_broker_login_bytes"),
    Buffer("requests that wait for their consumer groups", "broker/front/core/group_requests.py",
           [["group_requests_bytes_max"]], "quire_broker_group_requests_bytes"),
    Buffer("subscriptions and assignments of the members of groups; as much again, as it was"
           " stored last", "broker/groups/groups.py",
           [[2, "group_members_bytes_max"]], "quire_broker_group_members_bytes"),
    Buffer("answers that clients have not taken: those counted as unread, as much again that is"
           " not, and the last one", "client/node/framed_server.py",
           [[2, "unread_bytes_max"], ["fetch_bytes_max"]], "quire_broker_unsent_bytes"),
    Buffer("what fetches read from bookies", "broker/front/read_budget.py",
           [["fetch_reading_bytes_max"]], "quire_broker_fetch_reading_bytes"),
    Buffer("what consumers that fetch incrementally were told of each partition",
           "broker/front/core/fetch_sessions.py",
           [["fetch_session_partitions_max", PARTITION_BYTES_MAX]],
           "quire_broker_fetch_session_partitions"),
    Buffer("which partitions members of share groups read, and the names of these",
           "broker/front/core/share_sessions.py",
           [["fetch_session_partitions_max", SHARE_PARTITION_BYTES_MAX],
            ["group_share_max_share_sessions", SESSION_BYTES_MAX]],
           "quire_broker_share_session_partitions"),
    Buffer("partitions of other brokers that consumers nearby read: segment lists, indexes",
           "broker/leadership/followers.py",
           [["follower.partitions_max", 256 * _KIB]], "quire_broker_follower_partitions"),
    Buffer("which consumers were sent to brokers nearby, from where",
           "broker/leadership/followers.py", [[SENT_MAX * 2 * _KIB]], ""),
    Buffer("whose use is counted for quotas, with their names", "broker/security/quotas.py",
           [["security.quota_owners_max", 2 * _KIB]], "quire_broker_quota_owners"),
    Buffer("recent records, with all that each batch keeps in memory",
           "broker/partition/tail_cache.py",
           [["tail_cache_bytes_max"]], "quire_broker_tail_cache_bytes"),
    Buffer("entries read ahead, or kept for other groups", "broker/partition/read_ahead.py",
           [["read_ahead_bytes_max"]], "quire_broker_read_ahead_bytes"),
    Buffer("receive buffers for batch reads, kept for reuse",
           "client/wire/frames.py",
           [["ledger.batch_buffers_max", "ledger.frame_bytes_max"]],
           "quire_ledger_batch_buffer_bytes"),
    Buffer("compaction: keys of the round under way, unless a child has them, and eight of the"
           " largest entries", "broker/compaction/cleaning_round.py",
           [["compaction.key_bytes_max"], [8, "ledger.frame_bytes_max"]],
           "quire_broker_compaction_bytes"),
    Buffer("offload: the segment that is copied, or read back to be proven",
           "broker/offload/offloader.py", [[COPY_BYTES_MAX]], "quire_broker_offload_bytes"),
    Buffer("blocks of the object store, on their way to consumers or read by them last",
           "broker/partition/archive.py",
           [["offload.read_cache_bytes_max"]], "quire_broker_archive_bytes"),
    Buffer("a batch that is compressed anew: opened, and what its codec needs (270 MiB more for"
           " zstd at level 22)",
           "broker/front/codec_thread.py", [[CODEC_BYTES_MAX]], ""),
    Buffer("groups with settings of their own", "broker/groups/group_settings.py",
           [[GROUPS_MAX * _KIB]], ""),
    Buffer("users with passwords", "broker/security/users.py",
           [["security.users_max", 2 * _KIB]], "quire_broker_users"),
    Buffer("entities with quotas", "broker/security/quota_store.py",
           [["security.quota_entities_max", 2 * _KIB]], "quire_broker_quota_entities"),
    Buffer("access control entries", "broker/security/acl_store.py",
           [["security.acls_max", 512]], "quire_broker_acls"),
    Buffer("what was decided by access control entries, with the names that clients asked for",
           "broker/security/core/acls.py", [[NOTED_BYTES_MAX]], ""),
    Buffer("metrics that clients push, and the names of their software",
           "broker/front/core/client_telemetry.py",
           [["telemetry.series_max", 2 * _KIB], [2_000 * _KIB]],
           "quire_broker_client_metrics_series"),
    Buffer("connections", "client/node/connection_limits.py",
           [["connections_max", 16 * _KIB]], "quire_broker_connections"),
    Buffer("bodies of admin requests", "client/node/http_connections.py",
           [[BODIES_BYTES_MAX]], "quire_broker_admin_body_bytes"),
    Buffer("who did what, and who was refused what", "broker/admin/audit_trail.py",
           [[2, "admin_audit_entries_max", 4 * _KIB]], ""),
)  # fmt: skip

BOOKIE: Final = (
    Buffer("requests that are incomplete", "client/node/framed_server.py",
           [["unfinished_bytes_max"]], "quire_bookie_unfinished_bytes"),
    Buffer("the same of clients that have not shown a certificate, where that is required",
           "client/node/framed_server.py", [[STRANGERS_BYTES_MAX]],
           "quire_bookie_strangers_bytes"),
    Buffer("entries that are not durable and indexed, and the last one that was still read: the"
           " line for a group, the open one, the one being synced, what waits for the index",
           "bookie/storage/core/group_commit.py",
           [["pending_bytes_max"], ["frame_bytes_max"]], "quire_bookie_pending_bytes"),
    Buffer("recent entries, with what Python needs for each; those above are there too, beyond"
           " this limit", "bookie/storage/core/entry_cache.py",
           [["cache_bytes_max"]], "quire_bookie_cache_bytes"),
    Buffer("the index: two write buffers and a block cache", "bookie/storage/index/level_db.py",
           [[2, "index_write_buffer_bytes"], ["index_cache_bytes"]], "quire_bookie_index_bytes"),
    Buffer("answers that clients have not taken: those counted as unread, as much again that is"
           " not, and the last one", "client/node/framed_server.py",
           [[2, "unread_bytes_max"], ["frame_bytes_max"]], "quire_bookie_unsent_bytes"),
    Buffer("entries of batch reads that want more, and the last run of each thread",
           "bookie/server/handlers.py",
           [["batch_reads_bytes_max"], ["reader_threads", "frame_bytes_max"]],
           "quire_bookie_batch_read_bytes"),
    Buffer("entries being read: one of the largest for each thread, or small ones up to 256 KiB",
           "bookie/storage/reads.py", [["reader_threads", "frame_bytes_max"]],
           "quire_bookie_reads_in_progress"),
    Buffer("adds that are not answered, beside their entries",
           "bookie/server/server.py",
           [["adds_in_flight_max", 2 * _KIB]], "quire_bookie_adds_in_progress"),
    Buffer("reads that are not answered", "bookie/server/server.py",
           [["reads_in_flight_max", 2 * _KIB]], "quire_bookie_reads_in_progress"),
    Buffer("long polls", "bookie/server/server.py",
           [["long_polls_max", 2 * _KIB]], "quire_bookie_long_polls"),
    Buffer("requests that are neither adds nor reads", "bookie/server/server.py",
           [["other_requests_max", 2 * _KIB]], "quire_bookie_other_requests"),
    Buffer("connections", "client/node/connection_limits.py",
           [["connections_max", 16 * _KIB]], "quire_bookie_connections"),
    Buffer("bodies of admin requests", "client/node/http_connections.py",
           [[BODIES_BYTES_MAX]], "quire_bookie_admin_body_bytes"),
)  # fmt: skip

LEDGER: Final = (
    Buffer("entries of a writer that some bookie has still to answer",
           "client/ledger/write/writer_room.py",
           [["writer_unanswered_bytes_max"]], "quire_ledger_unanswered_bytes"),
    Buffer("those of all writers on a connection to a bookie, in flight",
           "client/ledger/bookies/bookie_link.py",
           [["bookie_in_flight_bytes_max"]], "quire_ledger_bookie_in_flight_bytes"),
    Buffer("a read of many entries, by batch reads: what is on its way",
           "client/ledger/read/batch_read.py",
           [["read_batches_max", "frame_bytes_max"]], ""),
    Buffer("the same, entry by entry", "client/ledger/read/range_read.py",
           [["read_window_entries", "frame_bytes_max"]], ""),
    Buffer("a recovery", "client/ledger/recoveries.py",
           [["recovery_window_entries", "frame_bytes_max"]], ""),
    Buffer("receive buffers for batch reads, kept for reuse",
           "client/wire/frames.py", [["batch_buffers_max", "frame_bytes_max"]],
           "quire_ledger_batch_buffer_bytes"),
)  # fmt: skip
"""Of each writer, connection, read and recovery of a ledger client: they are no sum."""

SCHEMAS: Final = (
    Buffer("schemas, deleted ones too, levels and modes", "ops/schemas/core/catalogue.py",
           [["held_bytes_max"]], "quire_schemas_held_bytes"),
    Buffer("bodies of requests", "client/node/http_connections.py",
           [[BODIES_BYTES_MAX]], "quire_schemas_body_bytes"),
)  # fmt: skip

PARTS: Final = {
    # of a broker
    "control_request_bytes_max": "one request of those that are not answered",
    "connection_in_flight_bytes_max": "of those, what one connection may have",
    "partition_hold_bytes_max": "of those, Produce requests that wait for a leader",
    "log_in_flight_bytes_max": "of those, what one partition may have unconfirmed",
    "group_bytes_max": "of those, the open group and the one being synced, or eight times that",
    "log_turn_bytes_max": "of those, what is handed to bookies before others are served",
    "log_shared_entry_bytes_max": "of those, one entry",
    "telemetry.push_bytes_max": "one request of those that are not answered; opened, twice as much",
    "transactions.held_bytes_max": "of those, what one partition holds until coordinators answer",
    "ledger.bookie_in_flight_bytes_max": "of those, what is on its way to one bookie",
    "ledger.writer_in_flight_bytes_max": "of those, what one ledger has unconfirmed",
    "ledger.writer_unanswered_bytes_max": "of those, what bookies have to answer to one ledger",
    "send_buffer_bytes_max": "answers of one connection: where they begin to count as unread",
    "read_ahead_reader_bytes_max": "of what is read ahead, what one consumer may have",
    "offset_metadata_bytes_max": "one committed offset, which is kept: see below",
    "compaction.child_memory_bytes_max": "of the process that does the work of compaction, beside"
    " the broker's own",
    # of a bookie
    "unsent_bytes_max": "answers of one connection: where they begin to count as unread",
    "log_file_bytes_max": "on the disk",
    # of a registry
    "schema_bytes_max": "of its schemas, one",
}
"""Limits in bytes that add nothing to the sum, with the reason."""


def value_of(config: object, factor: Factor) -> int:
    """Return a number, or the value of a setting (`ledger.` goes one level down)."""
    if isinstance(factor, int):
        return factor
    value = config
    for name in factor.split("."):
        value = getattr(value, name)
    assert isinstance(value, int), factor
    return value


def most_bytes(buffer: Buffer, config: object) -> int:
    """Return the most bytes that a buffer takes with these settings."""
    return sum(math.prod(value_of(config, each) for each in term) for term in buffer.most)


def sum_bytes(config: BrokerConfig | BookieConfig) -> int:
    """Return the most that all buffers of a node take together, without the process itself."""
    buffers = BROKER if isinstance(config, BrokerConfig) else BOOKIE
    return sum(most_bytes(buffer, config) for buffer in buffers)


def _size(count: int) -> str:
    for unit, name in ((_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:,.0f} {name}"
    return f"{count:,}"


def _factor(factor: Factor, config: object) -> str:
    if isinstance(factor, int):
        return _size(factor)
    value = value_of(config, factor)
    return f"`{factor}` ({_size(value) if '_bytes' in factor else format(value, ',')})"


def _rows(buffers: Sequence[Buffer], config: object) -> Iterator[str]:
    yield "| what | owner | at most, with the defaults | in MiB | gauge |"
    yield "|---|---|---|---|---|"
    for buffer in buffers:
        limit = " + ".join(" × ".join(_factor(f, config) for f in term) for term in buffer.most)
        gauge = f"`{buffer.gauge}`" if buffer.gauge else "none"
        most = most_bytes(buffer, config) / _MIB
        yield f"| {buffer.what} | `{buffer.owner}` | {limit} | {most:,.0f} | {gauge} |"


def _table(buffers: Sequence[Buffer], config: BrokerConfig | BookieConfig) -> Iterator[str]:
    yield from _rows(buffers, config)
    base, total = BASE_BYTES / _MIB, (BASE_BYTES + sum_bytes(config)) / _MIB
    yield f"| the process itself | | | {base:,.0f} | `process_resident_memory_bytes` |"
    yield f"| **never more than** | | | **{total:,.0f}** | `process_resident_memory_bytes` |"


def _parts(config: type) -> Iterator[str]:
    keys = {setting.key for setting in settings_of(config)}
    for name, text in PARTS.items():
        if name in keys and not name.startswith("log_file"):
            yield f"- `{name}`: {text}"


def tables() -> str:
    """Return the tables of the page."""
    lines = ["", "## A broker", "", *_table(BROKER, BrokerConfig()), ""]
    lines += [
        "Parts of these, with limits and often gauges of their own:",
        "",
        *_parts(BrokerConfig),
        "",
    ]
    lines += ["## A bookie", "", *_table(BOOKIE, BookieConfig(data_dir=Path("data"))), ""]
    lines += [
        "## A ledger client",
        "",
        "A broker has one: its entries count among the broker's requests, its reads where they are"
        " read ahead or for a fetch. Nodes of auto recovery and applications have one, too.",
        "",
        *_rows(LEDGER, LedgerClientConfig()),
        "",
        "## A schema registry",
        "",
        "Beside the process itself and its client of the brokers:",
        "",
        *_rows(SCHEMAS, SchemasConfig()),
        "",
        "",
    ]
    return "\n".join(lines)


def parts() -> tuple[str, str, str]:
    """Return what the page has above the tables, the tables, and what is below."""
    head, begin, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    shown, end, tail = rest.partition(END)
    return head + begin, shown, end + tail


def main() -> int:
    """Write the tables."""
    head, _, tail = parts()
    DOCUMENT.write_text(head + tables() + tail, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
