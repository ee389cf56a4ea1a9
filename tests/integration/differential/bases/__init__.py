"""Requests that are in order, for every API, and what their fields may be changed to.

`BASES` has the requests; `field_values.py` says what fields are changed to, `left_out.py` what is
not asked, `compared.py` what of the answers is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.cluster import CLUSTER
from tests.integration.differential.bases.compared import (
    NEVER_TWO_ALIKE,
    OFFSETS,
    STABLE,
    STABLE_TOPICS,
    WHOLE_LISTS,
    WRITING,
)
from tests.integration.differential.bases.field_values import BATCHES, values_of
from tests.integration.differential.bases.groups import GROUPS, commit_fields, join_fields
from tests.integration.differential.bases.left_out import LEFT_OUT_OF_REQUESTS, tamed
from tests.integration.differential.bases.records import RECORDS
from tests.integration.differential.bases.request import (
    KEYED,
    SETTINGS_TOPICS,
    WRITTEN,
    WRITTEN_PARTITIONS,
    Base,
    member,
    producer,
)
from tests.integration.differential.bases.topics import TOPICS
from tests.integration.differential.bases.transactions import TRANSACTIONS, add_fields, init_fields

__all__ = [
    "BASES",
    "BATCHES",
    "KEYED",
    "LEFT_OUT_OF_REQUESTS",
    "NEVER_TWO_ALIKE",
    "OFFSETS",
    "SETTINGS_TOPICS",
    "STABLE",
    "STABLE_TOPICS",
    "WHOLE_LISTS",
    "WRITING",
    "WRITTEN",
    "WRITTEN_PARTITIONS",
    "Base",
    "add_fields",
    "commit_fields",
    "init_fields",
    "join_fields",
    "member",
    "producer",
    "tamed",
    "values_of",
]

BASES: Mapping[ApiKey, Sequence[Base]] = {
    **RECORDS, **GROUPS, **TRANSACTIONS, **TOPICS, **CLUSTER,
}  # fmt: skip
