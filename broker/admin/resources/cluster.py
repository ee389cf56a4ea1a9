"""/cluster: an overview of the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.resources import bookies, brokers
from broker.admin.schema import Schema, list_of, map_of, nullable, record, ref, text, whole

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Cluster": record(
        "The cluster at a glance.",
        {
            "cluster_id": text("Chosen once, when the cluster was created."),
            "answered_by": whole("The broker that answers."),
            "controller_id": nullable(whole("The broker that Kafka's tools ask first.")),
            "brokers": record(
                "Brokers.",
                {
                    "live": whole("Registered now."),
                    "unloaded": list_of(
                        whole("A broker."), "Those that gave all their partitions away."
                    ),
                    "not_ready": list_of(
                        whole("A broker."), "Those that do not serve everything they should."
                    ),
                    "silent": map_of(text("Why."), "Those that could not be reached."),
                },
            ),
            "topics": whole("Topics, without internal ones."),
            "partitions": record(
                "Partitions, including those of internal topics.",
                {
                    "count": whole("All."),
                    "led": whole("Those with a leader, of the brokers that could be reached."),
                },
            ),
            "bookies": record(
                "All bookies that ever registered, by state.",
                {name: whole("How many.") for name in bookies.STATES},
            ),
            "unreadable": map_of(
                text("Why."),
                "Nodes in ZooKeeper that the answering broker cannot decode, by path. Nothing that"
                " belongs to them is deleted; `quire doctor` says what to do.",
            ),
            "carried": map_of(
                list_of(text("A setting."), "By name."),
                "Topics with stored settings that it does not understand and carries along.",
            ),
            "groups": whole("Consumer groups."),
            "connections": whole("Open client connections."),
        },
    )
}


async def describe_cluster(context: AdminContext, request: AdminRequest) -> Answer:
    """Add up what all brokers report."""
    cluster = context.broker.cluster
    rows, states = await asyncio.gather(brokers.gather(context), bookies.states(context))
    live = [row["live"] for row in rows if row["live"] is not None]
    return Answer(
        {
            "cluster_id": cluster.cluster_id,
            "answered_by": context.me,
            "controller_id": cluster.controller_id() if rows else None,
            "brokers": {
                "live": len(rows),
                "unloaded": [row["broker_id"] for row in rows if row["is_unloaded"]],
                "not_ready": [
                    row["broker_id"] for row in rows if row["live"] and not row["live"]["is_ready"]
                ],
                "silent": {str(row["broker_id"]): row["silence"] for row in rows if row["silence"]},
            },
            "topics": sum(not topic.internal for topic in cluster.topics.values()),
            "partitions": {
                "count": sum(topic.partition_count for topic in cluster.topics.values()),
                "led": sum(row["partitions_led"] for row in live),
            },
            "bookies": {name: list(states.values()).count(name) for name in bookies.STATES},
            "unreadable": context.broker.store.unreadable.all(),
            "carried": {
                name: list(topic.config.carried)
                for name, topic in cluster.topics.items()
                if topic.config.carried
            },
            "groups": sum(row["groups"] for row in live),
            "connections": sum(row["connections"] for row in live),
        }
    )


OPERATIONS: Final = (
    Operation(
        name="describe_cluster", role=Role.LOOK, method="GET", path="/cluster",
        summary="Show the cluster at a glance.", handle=describe_cluster,
        gives={JSON: ref("Cluster")},
    ),
)  # fmt: skip
