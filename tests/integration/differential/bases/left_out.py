"""What must not be asked, because it would end the comparison instead of telling something.

`tamed` takes it back from a request; `LEFT_OUT_OF_REQUESTS` says what that is, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.transactions import add_fields
from tests.integration.differential.known import Known
from tests.integration.differential.plain_wire import Tree

K = ApiKey
LEFT_OUT_OF_REQUESTS: Mapping[str, str] = {
    "timeouts, and waits for records": "what is in time is up to the machine",
    "Produce with acks 0": "nothing is answered",
    "Produce with null records, AddPartitionsToTxn of no transactions": "Kafka never answers",
    "Fetch of replicas": "is between Kafka's brokers, and moves their watermarks",
    "Metadata that makes topics": "makes them in the background, some time later",
    "thousands of partitions": "both would make them",
    "changes of brokers' settings": "are only tried: some would end the service",
    "UpdateFeatures": "is only tried, and version 0 cannot: transactions change with it",
    "UnregisterBroker of the broker itself": "ends Kafka's service",
    "quotas for everybody": "would hold up the test itself: are only tried",
    "settings of brokers, all of them": "are each program's own; some are asked for by name",
    "DescribeTopicPartitions of all topics": "is cut where topics are that others just made",
    "AlterConfigs of a resource twice": "Kafka never answers",
    "WriteTxnMarkers of several partitions": "Kafka never answers if one is unknown",
    "JoinGroup of a second member": "waits for the first one, and that for its session's end",
}


def tamed(key: ApiKey, version: int, number: int, fields: Tree) -> list[str]:
    """Take back what must not be asked; return what was."""
    rule = _RULES.get(key)
    return rule(version, number, fields) if rule is not None else []


def _tame_produce(_version: int, _number: int, fields: Tree) -> list[str]:
    said = []
    if fields["acks"] == 0:
        fields["acks"] = 1
        said.append("acks=1")
    for topic in fields["topic_data"] or ():
        for one in topic["partition_data"] or ():
            if one["records"] is None:
                one["records"] = b""
                said.append("records=b''")
    return said


def _tame_adding(version: int, number: int, fields: Tree) -> list[str]:
    if version >= 4 and not fields["transactions"]:
        fields["transactions"] = add_fields(number)["transactions"]
        return ["of one"]
    return []


def _tame_fetch(_version: int, _number: int, fields: Tree) -> list[str]:
    if fields.get("replica_id", -1) >= 0:
        fields["replica_id"] = -1
        return ["replica_id=-1"]
    return []


def _tame_metadata(version: int, _number: int, fields: Tree) -> list[str]:
    fields["allow_auto_topic_creation"] = False
    if version >= 4 or fields["topics"] is None:
        return []
    kept = [one for one in fields["topics"] if one["name"] not in ("unknown", "é", "")]
    said = ["without unknown ones"] if kept != fields["topics"] else []
    fields["topics"] = kept
    return said


def _tame_settings(_version: int, _number: int, fields: Tree) -> list[str]:
    said = []
    rows = fields["resources"] or []
    unique = {(one["resource_type"], one["resource_name"]): one for one in rows}
    if len(unique) < len(rows):
        fields["resources"] = list(unique.values())
        said.append("each once")
    of_brokers = [one for one in fields["resources"] or () if one["resource_type"] in (4, 8)]
    if of_brokers and not fields["validate_only"]:
        fields["validate_only"] = True
        said.append("validate_only=True")
    return said


def _tame_described(_version: int, _number: int, fields: Tree) -> list[str]:
    for one in fields["resources"] or ():
        if one["resource_type"] in (4, 8, 32) and not one["configuration_keys"]:
            one["configuration_keys"] = ["log.retention.ms", "no.such"]
    return []


def _tame_topic_pages(_version: int, _number: int, fields: Tree) -> list[str]:
    if not fields["topics"]:
        fields["topics"] = [{"name": "one"}]
        return ["topics=['one']"]
    return []


def _tame_features(version: int, _number: int, fields: Tree) -> list[str]:
    if version >= 1:
        fields["validate_only"] = True
        return []
    for one in fields["feature_updates"] or ():
        if one["feature"] == "transaction.version":
            one["feature"] = "no.such"
    return []


def _tame_quotas(_version: int, _number: int, fields: Tree) -> list[str]:
    names = [part["entity_name"] for one in fields["entries"] or () for part in one["entity"] or ()]
    if None in names and not fields["validate_only"]:
        fields["validate_only"] = True
        return ["validate_only=True"]
    return []


def _tame_join(version: int, number: int, fields: Tree) -> list[str]:
    """The second base has a member in the group already, and names it."""
    is_known = isinstance(fields["member_id"], Known)
    if fields["group_id"] not in (f"g-{number}", "", None):
        fields["group_id"] = f"g-{number}" if is_known else f"g-{number}b"
        return [f"group_id={fields['group_id']!r}"]
    if not is_known and (fields["member_id"] or "") == "":
        # Alone in a group of its own, whatever its base was.
        fields["group_id"] = fields["group_id"] and f"g-{number}b"
    return []


def _tame_markers(_version: int, _number: int, fields: Tree) -> list[str]:
    """Kafka never answers if one of several partitions is unknown, or is named twice."""
    markers = fields["markers"] or []
    rows = [
        (topic["name"], index)
        for one in markers
        for topic in one["topics"] or ()
        for index in topic["partition_indexes"] or ()
    ]
    if len(rows) > 1 or len(markers) > 1:
        fields["markers"] = markers[:1]
        for one in fields["markers"]:
            one["topics"] = (one["topics"] or [])[:1]
            for topic in one["topics"]:
                topic["partition_indexes"] = (topic["partition_indexes"] or [])[:1]
        return ["only the first"]
    return []


_RULES: Mapping[ApiKey, Callable[[int, int, Tree], list[str]]] = {
    K.PRODUCE: _tame_produce,
    K.ADD_PARTITIONS_TO_TXN: _tame_adding,
    K.FETCH: _tame_fetch,
    K.METADATA: _tame_metadata,
    K.ALTER_CONFIGS: _tame_settings,
    K.INCREMENTAL_ALTER_CONFIGS: _tame_settings,
    K.DESCRIBE_CONFIGS: _tame_described,
    K.DESCRIBE_TOPIC_PARTITIONS: _tame_topic_pages,
    K.UPDATE_FEATURES: _tame_features,
    K.ALTER_CLIENT_QUOTAS: _tame_quotas,
    K.JOIN_GROUP: _tame_join,
    K.WRITE_TXN_MARKERS: _tame_markers,
}
