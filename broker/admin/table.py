"""All operations of the admin API, and its path parameters, in one table.

`server.py` routes and checks requests by these rows, `openapi.py` builds the document from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin import openapi
from broker.admin.operation import Operation
from broker.admin.resources import (
    audit,
    bookies,
    brokers,
    cluster,
    compaction,
    dead_letters,
    group_settings,
    groups,
    led,
    me,
    offload,
    partitions,
    rates,
    records,
    segments,
    topics,
    transactions,
)
from broker.admin.schema import INT_MAX, NAME_CHARS_MAX, Schema, text, whole

_MODULES: Final = (
    cluster, brokers, led, topics, partitions, segments, compaction, offload, records,
    groups, group_settings, dead_letters, transactions, bookies,
    rates, audit, me,
)  # fmt: skip

OPERATIONS: Final[tuple[Operation, ...]] = tuple(
    operation for module in _MODULES for operation in module.OPERATIONS
)

PATH: Final[Mapping[str, Schema]] = {
    "topic": text(
        "Name of a topic.", minLength=1, maxLength=249, pattern=r"^[a-zA-Z0-9._-]+$"
    ),
    "partition": whole("Number of a partition, from 0.", 0, INT_MAX),
    "broker_id": whole("Node id of a broker.", 0, INT_MAX),
    "group": text("Name of a consumer group.", minLength=1, maxLength=NAME_CHARS_MAX),
    "transaction": text("A transactional id.", minLength=1, maxLength=NAME_CHARS_MAX),
    "bookie": text("Id of a bookie, by default its host:port.", minLength=1, maxLength=255),
    "offset": whole("Offset of a record."),
}  # fmt: skip

COMPONENTS: Final[Mapping[str, Schema]] = {
    name: schema for module in _MODULES for name, schema in module.SCHEMAS.items()
}

DOCUMENT: Final[dict[str, Any]] = openapi.document(OPERATIONS, PATH, COMPONENTS)
