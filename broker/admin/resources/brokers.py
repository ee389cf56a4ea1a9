"""/brokers: list, describe, unload and load brokers, and show their settings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from broker.admin.context import AdminContext, at_broker
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, page
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources import rates
from broker.admin.schema import (
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
from broker.cluster.core.topology import BrokerInfo
from client.config import Resolved, effective

_LIVE: Final = record(
    "What a broker reports about itself right now.",
    {
        "version": text("Version of its program."),
        "started_ms": whole("When its process began to serve."),
        "is_ready": truth("Whether it serves everything it should."),
        "not_ready": list_of(text("A reason."), "Why it is not ready."),
        "partitions_led": whole("Partitions that it leads."),
        "partitions_opening": whole("Partitions that it is about to lead."),
        "groups": whole("Consumer groups that it coordinates."),
        "connections": whole("Open client connections."),
        "in_flight_bytes": whole("Bytes of requests that it holds; see the metric of that name."),
        "tail_cache_bytes": whole("Recent records kept in memory."),
        "rates": nullable(ref("Beat")),
    },
)
_BROKER: Final = record(
    "A live broker.",
    {
        "broker_id": whole("Kafka's node id."),
        "incarnation": text("Different each time its process starts."),
        "host": text("Where Kafka clients reach it."),
        "port": whole("Its Kafka port."),
        "listeners": list_of(ref("BrokerListener"), "Where clients are sent, by listener."),
        "rack": nullable(text("Its failure domain.")),
        "admin_url": nullable(text("Its admin API; null: it has none.")),
        "is_unloaded": truth("Whether it gave its partitions away and takes no new ones."),
        "live": nullable(ref("BrokerLive")),
        "silence": nullable(text("Why there is no `live`: the broker could not be reached.")),
    },
)
_SETTING: Final = record(
    "One setting of a broker.",
    {
        "name": text("Its name, with dots for tables, as in TOML."),
        "value": {
            "description": "Its value; secrets are hidden.",
            "type": ["string", "integer", "number", "boolean", "array", "object", "null"],
        },
        "source": text("Where the value came from: default, a file, a variable, a flag."),
        "doc": text("What it means."),
    },
)
_LISTENER: Final = record(
    "A listener of a broker.",
    {
        "name": text("Its name."),
        "protocol": text("How clients speak to it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
        "host": text("Where its clients are sent."),
        "port": whole("The port there."),
        "is_advertised": truth(
            "Whether that was configured; otherwise clients are told the address that they"
            " connected to."
        ),
    },
)
SCHEMAS: Final[Mapping[str, Schema]] = {
    "BrokerLive": _LIVE,
    "BrokerListener": _LISTENER,
    "Broker": _BROKER,
    "BrokerPage": page_of(ref("Broker"), "Brokers by id."),
    "BrokerSetting": _SETTING,
    "BrokerConfig": record(
        "The settings that a broker runs with.",
        {"settings": list_of(ref("BrokerSetting"), "All of them, in the order of the reference.")},
    ),
}


def describe_here(context: AdminContext) -> dict[str, Any]:
    """Return what this broker reports about itself."""
    broker = context.broker
    reasons = broker.unready()
    led = len(broker.partitions)
    return {
        "version": version("quire"),
        "started_ms": broker.started_ms,
        "is_ready": not reasons,
        "not_ready": reasons[:10],
        "partitions_led": led,
        "partitions_opening": broker.partitions.opening_count,
        "groups": sum(broker.groups.state_counts().values()),
        "connections": broker.server.connection_count,
        "in_flight_bytes": broker.server.in_flight_bytes,
        "tail_cache_bytes": broker.log_services.cache.size,
        "rates": None if context.sampler.latest is None else rates.show(context.sampler.latest),
    }


def _shown(info: BrokerInfo, live: Mapping[str, Any] | None, silence: str | None) -> dict[str, Any]:
    return {
        "broker_id": info.id,
        "incarnation": info.incarnation,
        "host": info.host,
        "port": info.port,
        "listeners": [
            {
                "name": name,
                "protocol": str(one.protocol),
                "host": one.host,
                "port": one.port,
                "is_advertised": one.advertised,
            }
            for name, one in info.endpoints.items()
        ],
        "rack": info.rack,
        "admin_url": info.admin_url or None,
        "is_unloaded": info.unloaded,
        "live": live,
        "silence": silence,
    }


async def gather(context: AdminContext) -> list[dict[str, Any]]:
    """Return every live broker with what it reports about itself."""
    others = await context.peer_client.ask_all(lambda one: f"/brokers/{one.id}")
    found = []
    for info in context.broker.cluster.brokers.values():
        if info.id == context.me:
            found.append(_shown(info, describe_here(context), None))
        else:
            live = others.answers.get(info.id, {}).get("live")
            silence = others.silent.get(info.id, None if live else "it has only just started")
            found.append(_shown(info, live, silence))
    return found


async def list_brokers(context: AdminContext, request: AdminRequest) -> Answer:
    """List the live brokers."""
    return await page(
        context.broker.services.turns,
        await gather(context),
        request.query,
        lambda row: f"{row['broker_id']:010d}",
        lambda row: row,
    )


async def describe_broker(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe this broker: requests about others were forwarded."""
    info = context.live_broker(request.path["broker_id"])
    return Answer(_shown(info, describe_here(context), None))


async def describe_config(context: AdminContext, request: AdminRequest) -> Answer:
    """Show the settings that this broker runs with."""
    return Answer({"settings": effective(Resolved(context.config, context.sources))})


async def unload(context: AdminContext, request: AdminRequest) -> Answer:
    """Give the broker's partitions to others; it takes none until it is loaded or restarted."""
    await context.broker.set_unloaded(True)
    return await describe_broker(context, request)


async def load(context: AdminContext, request: AdminRequest) -> Answer:
    """Let the broker lead partitions again."""
    await context.broker.set_unloaded(False)
    return await describe_broker(context, request)


OPERATIONS: Final = (
    Operation(
        name="list_brokers", role=Role.LOOK,
        method="GET", path="/brokers", summary="List the live brokers.",
        handle=list_brokers, query=QUERY, gives={JSON: ref("BrokerPage")},
    ),
    Operation(
        name="describe_broker", role=Role.LOOK, method="GET", path="/brokers/{broker_id}",
        summary="Describe one broker.", handle=describe_broker, where=at_broker,
        gives={JSON: ref("Broker")}, problems=(404,),
    ),
    Operation(
        name="describe_broker_config", role=Role.LOOK,
        method="GET", path="/brokers/{broker_id}/config",
        summary="Show the settings that a broker runs with, and where each came from.",
        handle=describe_config, where=at_broker, gives={JSON: ref("BrokerConfig")},
        problems=(404,),
    ),
    Operation(
        name="unload_broker", role=Role.OPERATE, method="PUT", path="/brokers/{broker_id}/unloaded",
        summary="Give a broker's partitions to the others, before maintenance. It takes none until"
        " it is loaded again or its process restarts. Answers before they are gone.",
        handle=unload, where=at_broker, gives={JSON: ref("Broker")}, problems=(404,),
    ),
    Operation(
        name="load_broker", role=Role.OPERATE,
        method="DELETE", path="/brokers/{broker_id}/unloaded",
        summary="Let a broker lead partitions again.",
        handle=load, where=at_broker, gives={JSON: ref("Broker")}, problems=(404,),
    ),
)  # fmt: skip
