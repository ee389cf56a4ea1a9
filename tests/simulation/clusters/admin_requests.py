"""What operators ask brokers for: requests, what each is to come to, and how its answer is read."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.fakes import sasl_client
from tests.simulation.clusters.admin_book import Change
from tests.simulation.kafka.connection import MECHANISM

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_MS: Final = 2_000
_TOPIC_CONFIGS, _BROKER_CONFIGS = 2, 4
_SET, _DELETE = 0, 1
_TOPIC, _ANY, _LITERAL, _READ = 2, 1, 3, 3
_ALLOW, _DENY = 3, 2
MARK: Final = "configs/retention.ms"
"""What tells the topic that one request makes from all others."""
_FIRST_MARK: Final = 10**12
"""Far more than any log is kept for in a schedule."""
QUOTA: Final = "consumer_byte_rate"
BROKER_SETTING: Final = "log.roll.ms"


class Request(NamedTuple):
    """A request, as `WireClient` sends it."""

    key: int
    version: int
    fields: dict[str, Any]
    change: Change
    code: Callable[[Any], int]
    """Finds the error code in its answer."""


def topic_path(name: str) -> str:
    """The node of a topic."""
    return f"{paths.TOPICS}/{name}"


def user_path(name: str) -> str:
    """The node of a user."""
    return f"{paths.USERS}/{hashlib.sha256(name.encode()).hexdigest()}"


def quota_path(user: str) -> str:
    """The node of a user's quotas."""
    text = json.dumps([["user", user]])
    return f"{paths.QUOTAS}/{hashlib.sha256(text.encode()).hexdigest()}"


def acl_path(topic: str) -> str:
    """The node of the entries about a topic."""
    return f"{paths.ACLS}/{hashlib.sha256(f'TOPIC/LITERAL/{topic}'.encode()).hexdigest()}"


def create(
    name: str, number: int, partitions: int, copies: int, configs: dict[str, str]
) -> Request:
    """Make a topic; `number` is that of the request."""
    path, mark = topic_path(name), str(_FIRST_MARK + number)
    rows = [{"name": key, "value": value} for key, value in configs.items()]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": copies,
        "assignments": [],
        "configs": [*rows, {"name": "retention.ms", "value": mark}],
    }
    change = Change(
        f"create {name} number {number}",
        {(path, MARK): mark, (path, "partition_count"): partitions},
        made=path,
    )
    fields = {"topics": [topic], "timeout": _TIMEOUT_MS}
    return Request(ApiKey.CREATE_TOPICS, 7, fields, change, lambda it: it.topics[0].error_code)


def delete_id(topic_id: str) -> Request:
    """Delete a topic by its id."""
    fields = {"topics": [{"name": None, "topic_id": UUID(topic_id)}], "timeout": _TIMEOUT_MS}
    change = Change(f"delete {topic_id}", doomed_id=topic_id)
    return Request(ApiKey.DELETE_TOPICS, 6, fields, change, _first_response)


def delete_name(name: str) -> Request:
    """Delete a topic by its name."""
    fields = {"topics": [{"name": name, "topic_id": None}], "timeout": _TIMEOUT_MS}
    wants = {(topic_path(name), "topic_id"): None}
    change = Change(f"delete {name}", wants, doomed_name=name)
    return Request(ApiKey.DELETE_TOPICS, 6, fields, change, _first_response)


def grow(name: str, count: int) -> Request:
    """Add partitions to a topic."""
    topic = {"name": name, "count": count, "assignments": None}
    fields = {"topics": [topic], "timeout": _TIMEOUT_MS}
    wants = {(topic_path(name), "partition_count"): count}
    change = Change(f"grow {name} to {count}", wants)
    return Request(ApiKey.CREATE_PARTITIONS, 3, fields, change, _first_result)


def configure_topic(name: str, setting: str, number: int | None) -> Request:
    """Set a setting of a topic; None: take it back."""
    value = None if number is None else str(_FIRST_MARK + number)
    wants = {(topic_path(name), f"configs/{setting}"): value}
    return _configure(_TOPIC_CONFIGS, name, setting, value, wants)


def configure_brokers(number: int | None) -> Request:
    """Set a setting of all brokers; None: take it back."""
    value = None if number is None else str(_FIRST_MARK + number)
    wants = {(f"{paths.BROKER_CONFIGS}/@", f"configs/{BROKER_SETTING}"): value}
    return _configure(_BROKER_CONFIGS, "", BROKER_SETTING, value, wants)


def _configure(
    kind: int, name: str, setting: str, value: str | None, wants: dict[Any, Any]
) -> Request:
    operation = _SET if value is not None else _DELETE
    row = {"name": setting, "config_operation": operation, "value": value}
    resource = {"resource_type": kind, "resource_name": name, "configs": [row]}
    change = Change(f"configure {name or 'brokers'}: {setting}={value}", wants)
    fields = {"resources": [resource]}
    return Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields, change, _first_response)


def assign(name: str, index: int, brokers: list[int]) -> Request:
    """Say who leads a partition."""
    topic = {"name": name, "partitions": [{"partition_index": index, "replicas": brokers}]}
    fields = {"timeout": _TIMEOUT_MS, "topics": [topic]}
    wants = {(topic_path(name), f"assignments/{index}"): brokers}
    change = Change(f"assign {name}/{index} to {brokers}", wants)

    def code(answer: Any) -> int:
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    return Request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields, change, code)


def allow(topic: str, number: int, *, is_denial: bool) -> Request:
    """Add an entry about a topic, of somebody of whom there is no other."""
    who = f"User:p{number}"
    creation = {
        "resource_type": _TOPIC, "resource_name": topic, "resource_pattern_type": _LITERAL,
        "principal": who, "host": "*", "operation": _READ,
        "permission_type": _DENY if is_denial else _ALLOW,
    }  # fmt: skip
    key = acl_key(who, "DENY" if is_denial else "ALLOW")
    change = Change(f"allow {who} {topic}", {(acl_path(topic), key): True})
    return Request(ApiKey.CREATE_ACLS, 3, {"creations": [creation]}, change, _first_result)


def acl_key(who: str, permission: str) -> str:
    """The key of an entry in its node."""
    return f"acls/{json.dumps([who, '*', 'READ', permission])}"


def revoke(topic: str, key: str | None) -> Request:
    """Remove an entry about a topic, by its key; None: all of them."""
    path = acl_path(topic)
    who = None if key is None else json.loads(key.removeprefix("acls/"))[0]
    wanted = {
        "resource_type_filter": _TOPIC, "resource_name_filter": topic,
        "pattern_type_filter": _LITERAL, "principal_filter": who, "host_filter": None,
        "operation": _ANY, "permission_type": _ANY,
    }  # fmt: skip

    def removes(fact: tuple[str, str]) -> bool:
        return fact[0] == path and (key in (None, fact[1]) or not fact[1].startswith("acls/"))

    change = Change(f"revoke {who} {topic}", removes=removes)

    def code(answer: Any) -> int:
        return int(answer.filter_results[0].error_code)

    return Request(ApiKey.DELETE_ACLS, 3, {"filters": [wanted]}, change, code)


def set_password(user: str, number: int | None) -> Request:
    """Give a user a password of its own; None: take it."""
    mechanism = sasl_client.NUMBERS[MECHANISM]
    salt = b"salt %d" % (number or 0)
    kept = None if number is None else base64.b64encode(salt).decode()
    if number is None:
        fields: dict[str, Any] = {"deletions": [{"name": user, "mechanism": mechanism}]}
    else:
        row = {
            "name": user, "mechanism": mechanism, "iterations": 4096, "salt": salt,
            "salted_password": hashlib.sha256(salt).digest(),
        }  # fmt: skip
        fields = {"upsertions": [row]}
    change = Change(f"password of {user} {number}", {(user_path(user), f"scram/{MECHANISM}"): kept})
    key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    return Request(key, 0, {"deletions": [], "upsertions": [], **fields}, change, _first_result)


def limit(user: str, number: int | None) -> Request:
    """Give a user a quota; None: take it."""
    value = None if number is None else repr(float(_FIRST_MARK + number))
    operation = {"key": QUOTA, "value": float(value or 0), "remove": value is None}
    entity = [{"entity_type": "user", "entity_name": user}]
    fields = {"entries": [{"entity": entity, "ops": [operation]}]}
    change = Change(f"limit {user} {value}", {(quota_path(user), f"quotas/{QUOTA}"): value})

    def code(answer: Any) -> int:
        return int(answer.entries[0].error_code)

    return Request(ApiKey.ALTER_CLIENT_QUOTAS, 1, fields, change, code)


def _first_response(answer: Any) -> int:
    return int(answer.responses[0].error_code)


def _first_result(answer: Any) -> int:
    return int(answer.results[0].error_code)
