"""The table of Kafka APIs: key, name, and from which version the flexible encoding is used.

Covers API keys and names. Which versions a broker serves is said by the handler of each API
(`VERSIONS` in its module) and nowhere else: an API without a handler is not advertised, because a
client picks per API and falls back only from an absent key. The schemas behind the table are
kio's, and for versions that kio lacks those of `newer_schemas.py`. They are loaded one version at a
time when first used (loading all of them takes seconds); kio itself is imported then, because
commands that only name an API should not wait for it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Collection
from typing import Any, Final

from client.errors import LocalProtocolError


class ApiKey(enum.IntEnum):
    """Every API that Quire knows by name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


API_VERSIONS_KEY: Final = int(ApiKey.API_VERSIONS)

LINK_API_KEY: Final = 20_001
"""Key of the requests that brokers send to each other (`broker/link`), far from Kafka's own. It is
not advertised, has no schema and the classic headers."""


@functools.cache
def request_type(api_key: int, version: int) -> Any:
    """Return kio's class of a request. Raises LocalProtocolError for an unknown one."""
    from kio.index import load_request_schema

    from client.wire.kafka.newer_schemas import REQUESTS

    _require(api_key, version)
    return REQUESTS.get((api_key, version)) or load_request_schema(api_key, version)


@functools.cache
def response_type(api_key: int, version: int) -> Any:
    """Return kio's class of a response. Raises LocalProtocolError for an unknown one."""
    from kio.index import load_response_schema

    from client.wire.kafka.newer_schemas import RESPONSES

    _require(api_key, version)
    return RESPONSES.get((api_key, version)) or load_response_schema(api_key, version)


def _require(api_key: int, version: int) -> None:
    if version not in _versions(api_key):
        raise LocalProtocolError(f"no schema for api {api_key} version {version}")


@functools.cache
def _versions(api_key: int) -> Collection[int]:
    """Return the versions that have a schema; none for an unknown API."""
    from kio.schema.index import api_key_map, schema_name_map

    from client.wire.kafka.newer_schemas import REQUESTS

    found = schema_name_map.get(api_key_map.get(api_key, ""), ())
    return (*found, *(version for key, version in REQUESTS if key == api_key))


def schema_versions(api_key: int) -> tuple[int, int]:
    """Return the lowest and highest version that has a schema. Raises ValueError for an unknown
    API."""
    versions = _versions(api_key)
    return min(versions), max(versions)


@functools.cache
def is_flexible(api_key: int, version: int) -> bool:
    """Say whether a version uses compact lengths and tagged fields.

    Versions older than the oldest schema are not. Raises LocalProtocolError for an unknown API
    or a version newer than the newest schema.
    """
    if api_key == LINK_API_KEY:
        return False
    if _versions(api_key) and 0 <= version < schema_versions(api_key)[0]:
        return False
    return bool(request_type(api_key, version).__flexible__)
