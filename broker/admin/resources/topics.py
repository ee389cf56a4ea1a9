"""/topics: list, describe, create, change and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, page
from broker.admin.problems import Problem, impossible
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources import led
from broker.admin.schema import (
    INT_MAX,
    Fault,
    Schema,
    list_of,
    nullable,
    page_of,
    record,
    ref,
    text,
    truth,
    whole,
)
from broker.cluster.core.topic_config import TOPIC_KEYS, TopicConfig, check_value
from broker.cluster.core.topology import TopicInfo
from broker.errors import InvalidTopicConfig, PolicyViolation, TopicExists
from broker.front.config_listing import Source, topic_settings
from broker.topics.core.topic_rules import BROKER_DECIDES

_VALUE: Final = {
    "type": ["string", "integer", "boolean"],
    "maxLength": 4_096,
}


def _settings_of(value: Schema, doc: str) -> Schema:
    fields = {key.name: {**value, "description": key.doc} for key in TOPIC_KEYS.values()}
    return record(doc, fields, optional=tuple(fields))


_FIELDS: Final = {
    "topic": text("Its name."),
    "topic_id": text("Distinguishes it from a later topic of the same name."),
    "partition_count": whole("Number of partitions."),
    "replication_factor": whole("Write quorum: bookies that store each record."),
    "min_insync_replicas": whole("Ack quorum: synced copies before an acknowledgement."),
    "ensemble_size": whole("Bookies that one ledger is striped over."),
    "is_internal": truth("Whether it is internal: only brokers write to it."),
    "is_compacted": truth("Whether its records are compacted by key."),
    "created_ms": whole("When it was created."),
}
_TOTALS: Final = record(
    "Sums over the partitions whose leaders could be reached.",
    {
        "partitions_led": whole("The number of those partitions."),
        "records": whole("Offsets between log start and high watermark."),
        "bytes": whole("Size, each record counted once."),
        "produced": whole("High watermarks, summed up: its growth is the rate."),
    },
)
SCHEMAS: Final[Mapping[str, Schema]] = {
    "TopicTotals": _TOTALS,
    "Topic": record("A topic.", {**_FIELDS, "totals": ref("TopicTotals")}),
    "TopicPage": page_of(ref("Topic"), "Topics by name."),
    "TopicSetting": record(
        "One setting of a topic.",
        {
            "name": text("Kafka's name."),
            "value": text("Its value."),
            "source": text("Whether it was set for this topic.", enum=["topic", "default"]),
            "default": text("The value it has unless it is set."),
            "has_effect": truth("Whether Quire acts on it, or only keeps it for tools."),
            "doc": text("What it means."),
        },
    ),
    "TopicConfig": record(
        "The settings of a topic.",
        {"settings": list_of(ref("TopicSetting"), "All of them, by name.")},
    ),
    "NewTopic": record(
        "A topic to create; the broker decides whatever is missing.",
        {
            "partition_count": whole("Number of partitions.", 1, INT_MAX),
            "replication_factor": whole("Bookies that store each record.", 1, 32_767),
            "settings": _settings_of(_VALUE, "Settings of its own."),
        },
        optional=("partition_count", "replication_factor", "settings"),
    ),
    "TopicChange": record(
        "What to change; the rest stays.",
        {
            "partition_count": whole("The new number of partitions, larger.", 1, INT_MAX),
            "settings": _settings_of(nullable(_VALUE), "What to set; null: its default again."),
        },
        optional=("partition_count", "settings"),
    ),
}


def _shown(topic: TopicInfo, rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    def total(name: str) -> int:
        return sum(row[name] for row in rows)

    return {
        "topic": topic.name,
        "topic_id": topic.id_text,
        "partition_count": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "min_insync_replicas": topic.ack_quorum,
        "ensemble_size": topic.ensemble_size,
        "is_internal": topic.internal,
        "is_compacted": topic.config.compacts and not topic.internal,
        "created_ms": topic.created_ms,
        "totals": {
            name: total(name) for name in ("partitions_led", "records", "bytes", "produced")
        },
    }


async def list_topics(context: AdminContext, request: AdminRequest) -> Answer:
    """List the topics of the cluster."""
    prefix, internal = request.query.get("prefix", ""), request.query["internal"]
    found = await led.of_topics(
        context, {name: value for name, value in request.query.items() if name != "internal"}
    )
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in found.rows:
        rows.setdefault(row["topic"], []).append(row)
    topics = [
        topic
        for name, topic in context.broker.cluster.topics.items()
        if name.startswith(prefix) and (internal or not topic.internal)
    ]
    return await page(
        context.broker.services.turns, topics, request.query, lambda topic: topic.name,
        lambda topic: _shown(topic, rows.get(topic.name, [])),
    )  # fmt: skip


async def _describe(context: AdminContext, topic: TopicInfo) -> dict[str, Any]:
    found = await led.of_topics(context, {"prefix": topic.name, "limit": 1})
    return _shown(topic, [row for row in found.rows if row["topic"] == topic.name])


async def describe_topic(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe a topic."""
    return Answer(await _describe(context, await context.topic(request.path["topic"])))


async def create_topic(context: AdminContext, request: AdminRequest) -> Answer:
    """Create a topic, unless it already exists as asked for."""
    name, body = request.path["topic"], request.body
    settings = _settings(body.get("settings", {}))
    partitions = body.get("partition_count", BROKER_DECIDES)
    copies = body.get("replication_factor", BROKER_DECIDES)
    status = 201
    try:
        topic = await context.broker.topics.create(name, partitions, copies, settings)
    except TopicExists:
        status, topic = 200, await context.topic(name)
        _check_same(topic, partitions, copies, settings)
    headers = {"Location": f"/admin/v1/topics/{name}"} if status == 201 else {}
    return Answer(await _describe(context, topic), status, headers)


def _check_same(
    topic: TopicInfo, partitions: int, copies: int, settings: Mapping[str, str]
) -> None:
    """Raise Problem unless a topic is what a repeated creation asks for."""
    differs = []
    if partitions not in (BROKER_DECIDES, topic.partition_count):
        differs.append(Fault("partition_count", f"is {topic.partition_count}"))
    if copies not in (BROKER_DECIDES, topic.replication_factor):
        differs.append(Fault("replication_factor", f"is {topic.replication_factor}"))
    for name, value in settings.items():
        present = topic.config.value(name)
        if present != value:
            differs.append(Fault(f"settings.{name}", f"is {present}"))
    if differs:
        detail = ", ".join(f"its {field} {message}" for field, message in differs)
        raise Problem(
            409, "topic-exists", f"topic {topic.name!r} already exists, but {detail}",
            "Change it with PATCH, or choose another name.", faults=differs,
        )  # fmt: skip


async def change_topic(context: AdminContext, request: AdminRequest) -> Answer:
    """Add partitions, change settings."""
    name = request.path["topic"]
    topic = await context.topic(name)
    given: Mapping[str, Any] = request.body.get("settings", {})
    settings = _settings({key: value for key, value in given.items() if value is not None})
    count = request.body.get("partition_count", topic.partition_count)

    def changed(config: TopicConfig) -> TopicConfig:
        kept = {key: value for key, value in config.overrides.items() if key not in given}
        return TopicConfig.parse({**kept, **settings})

    if given:
        topic = await context.broker.topics.configure(name, changed)
    if count != topic.partition_count:
        topic = await context.broker.topics.grow(name, count)
    return Answer(await _describe(context, topic))


async def delete_topic(context: AdminContext, request: AdminRequest) -> Answer:
    """Delete a topic; its ledgers are deleted in the background."""
    topic = await context.topic(request.path["topic"])
    if topic.internal:
        raise PolicyViolation(f"topic {topic.name!r} is internal")
    await context.broker.topics.delete(topic.name)
    return Answer(None, 204)


async def describe_config(context: AdminContext, request: AdminRequest) -> Answer:
    """Show every setting of a topic."""
    topic = await context.topic(request.path["topic"])
    given = context.broker.services.settings.given_to_topics()
    return Answer(
        {
            "settings": [
                {
                    "name": row.name,
                    "value": row.value,
                    "source": "topic" if row.source is Source.TOPIC else "default",
                    "default": topic.config.defaults.get(row.name, TOPIC_KEYS[row.name].default),
                    "has_effect": TOPIC_KEYS[row.name].effect,
                    "doc": row.doc,
                }
                for row in topic_settings(topic, given)
            ]
        }
    )


def _settings(given: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return settings as text in normal spelling. Raises Problem that names each wrong one."""
    faults: list[Fault] = []
    found: dict[str, str] = {}
    for name, value in given.items():
        word = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            found[name] = check_value(TOPIC_KEYS[name], word)
        except InvalidTopicConfig as error:
            faults.append(Fault(f"settings.{name}", str(error).removeprefix(f"{name} ")))
    if faults:
        raise impossible(faults)
    return found


OPERATIONS: Final = (
    Operation(
        name="list_topics", role=Role.LOOK,
        method="GET", path="/topics", summary="List the topics.",
        handle=list_topics, gives={JSON: ref("TopicPage")},
        query={
            **QUERY,
            "prefix": text("Only topics whose names begin with this.", maxLength=249),
            "internal": truth("Also those that belong to the brokers.", default=False),
        },
    ),
    Operation(
        name="describe_topic", role=Role.LOOK,
        method="GET", path="/topics/{topic}", summary="Describe a topic.",
        handle=describe_topic, gives={JSON: ref("Topic")}, problems=(404,),
    ),
    Operation(
        name="create_topic", role=Role.ADMINISTER, method="PUT", path="/topics/{topic}",
        summary="Create a topic. 200: it already exists, as requested.",
        handle=create_topic, takes={JSON: ref("NewTopic")}, gives={JSON: ref("Topic")},
        status=(200, 201), problems=(409,),
    ),
    Operation(
        name="change_topic", role=Role.ADMINISTER, method="PATCH", path="/topics/{topic}",
        summary="Add partitions to a topic, change its settings.",
        handle=change_topic, takes={JSON: ref("TopicChange")}, gives={JSON: ref("Topic")},
        problems=(404, 409),
    ),
    Operation(
        name="delete_topic", role=Role.ADMINISTER, method="DELETE", path="/topics/{topic}",
        summary="Delete a topic with all its records.",
        handle=delete_topic, status=(204,), gives={}, problems=(404, 409),
    ),
    Operation(
        name="describe_topic_config", role=Role.LOOK, method="GET", path="/topics/{topic}/config",
        summary="Show every setting of a topic, and where its value came from.",
        handle=describe_config, gives={JSON: ref("TopicConfig")}, problems=(404,),
    ),
)  # fmt: skip
