"""What a registry counts."""

from __future__ import annotations

from collections import Counter
from typing import Final

from client.histogram import Histogram
from client.node.exposition import Exposition, Kind, Row, table
from client.node.http_connections import HttpConnections
from ops.schemas.core.catalogue import Catalogue
from ops.schemas.log import SchemaLog

_S: Final = "quire_schemas_"
REQUESTS: Final = _S + "requests"
REQUEST_SECONDS: Final = _S + "request_seconds"
SUBJECTS: Final = _S + "subjects"
LAST_ID: Final = _S + "last_id"
UNREADABLE: Final = _S + "unreadable_records"
HELD_BYTES: Final = _S + "held_bytes"
BODY_BYTES: Final = _S + "body_bytes"

ROWS: Final = (
    Row(REQUESTS, Kind.COUNTER, "Requests of the REST API answered, by HTTP status.", ("status",)),
    Row(REQUEST_SECONDS, Kind.HISTOGRAM, "From a request to its answer."),
    Row(SUBJECTS, Kind.GAUGE, "Subjects that are not deleted."),
    Row(LAST_ID, Kind.GAUGE, "The highest id given to a schema."),
    Row(UNREADABLE, Kind.COUNTER, "Records of the topic that are not readable as a registry's."),
    Row(HELD_BYTES, Kind.GAUGE, "Memory that all schemas take, deleted ones too."),
    Row(BODY_BYTES, Kind.GAUGE, "Bytes of the bodies of requests under way."),
)
TABLE: Final = table(ROWS)


class SchemaStats:
    """The numbers of one registry's requests."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        """By HTTP status."""
        self.request_seconds = Histogram()


def provide(
    exposition: Exposition,
    stats: SchemaStats,
    catalogue: Catalogue,
    log: SchemaLog,
    doors: HttpConnections,
) -> None:
    """Show them."""
    exposition.provide(
        REQUESTS,
        lambda: [({"status": str(code)}, n) for code, n in sorted(stats.requests.items())],
    )
    exposition.provide_one(REQUEST_SECONDS, lambda: stats.request_seconds)
    exposition.provide_one(SUBJECTS, lambda: len(catalogue.subjects()))
    exposition.provide_one(LAST_ID, lambda: catalogue.last_id)
    exposition.provide_one(UNREADABLE, lambda: log.unreadable_count)
    exposition.provide_one(HELD_BYTES, lambda: catalogue.held_bytes)
    exposition.provide_one(BODY_BYTES, lambda: doors.bodies_bytes)
