"""A member of a share group that sends exactly what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.topics.core.config_resource import Change, Operation
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, produce

MEMBER = "member-1"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acks = Sequence[tuple[int, int, Sequence[int]]]


class Member:
    """A member of a share group, and what it holds of one topic with one partition."""

    def __init__(self, broker: Broker, client: WireClient, topic_id: UUID, name: str) -> None:
        self.broker = broker
        self.client = client
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    async def beat(self, epoch: int, topics: Sequence[str] | None = None, **more: Any) -> Any:
        return await self.client.call(
            ApiKey.SHARE_GROUP_HEARTBEAT, 1,
            **{
                "group_id": "g", "member_id": self.name, "member_epoch": epoch,
                "subscribed_topic_names": topics, **more,
            },
        )  # fmt: skip

    async def join(self) -> Any:
        """Join; until the group's coordinator is there."""
        while True:
            reply = await self.beat(0, ["t"])
            if reply.error_code is ErrorCode.none:
                return reply
            assert reply.error_code in (
                ErrorCode.coordinator_load_in_progress,
                ErrorCode.not_coordinator,
                ErrorCode.coordinator_not_available,
            ), reply
            await asyncio.sleep(0.01)

    def _topics(self, acks: Acks | None) -> Any:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types}
            for first, last, types in acks or ()
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return [{"topic_id": self.topic_id, "partitions": [partition]}]

    def fetch_fields(self, acks: Acks | None = None, **more: Any) -> Mapping[str, Any]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return {
            "group_id": "g",
            "member_id": self.name,
            "share_session_epoch": epoch,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(acks) if acks is not None or not epoch else [],
            "forgotten_topics_data": [],
            **more,
        }

    async def fetch(self, acks: Acks | None = None, *, version: int = 2, **more: Any) -> Any:
        return await self.client.call(
            ApiKey.SHARE_FETCH, version, **self.fetch_fields(acks, **more)
        )

    async def acknowledge(self, acks: Acks, *, version: int = 2, **more: Any) -> Any:
        epoch, self.epoch = self.epoch, self.epoch + 1
        fields = {
            "group_id": "g",
            "member_id": self.name,
            "share_session_epoch": epoch,
            "topics": self._topics(acks),
            **more,
        }
        return await self.client.call(ApiKey.SHARE_ACKNOWLEDGE, version, **fields)

    async def settled(self, acks: Acks, **more: Any) -> tuple[str, str]:
        """Acknowledge; return the code of the answer, and of its partition."""
        answer = await self.acknowledge(acks, **more)
        rows = [row for topic in answer.responses for row in topic.partitions]
        return answer.error_code.name, rows[0].error_code.name if rows else ""


def row(answer: Any) -> Any:
    """Return the one partition of an answer."""
    assert answer.error_code is ErrorCode.none, answer
    ((partition,),) = (topic.partitions for topic in answer.responses)
    return partition


def lent(answer: Any) -> list[tuple[int, int, int]]:
    if not answer.responses:
        return []
    found = row(answer)
    assert found.error_code is ErrorCode.none, found
    return [
        (one.first_offset, one.last_offset, one.delivery_count) for one in found.acquired_records
    ]


async def set_group(broker: Broker, name: str, value: str) -> None:
    changes = [Change(name, Operation.SET, value)]
    limits = broker.services.groups.limits
    await broker.services.group_settings.edit(
        "g", changes, limits, replaces=False, validate_only=False
    )


async def start_broker(cloud: FakeCloud, node_id: int = 1, **settings: Any) -> Broker:
    """Start a broker of a cluster that has share groups, and dead letters."""
    found = await cloud.start_broker(node_id, group_share_record_lock_duration_ms=1_000, **settings)
    await until(lambda: found.services.features.finalized.levels.get("share.version") == 2)
    return found


async def member(broker: Broker, name: str = MEMBER, *, joins: bool = True) -> Member:
    client = await WireClient.connect(broker.port)
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    found = Member(broker, client, broker.cluster.topics["t"].topic_id, name)
    if joins:
        await found.join()
    return found


async def publish(broker: Broker, *counts: int) -> None:
    """Publish batches of so many records."""
    client = await WireClient.connect(broker.port)
    for count in counts:
        done = await produce(client, batch(*(b"v%d" % n for n in range(count))))
        assert done.error_code is ErrorCode.none
    await client.close()
