"""DescribeProducers (61), version 0: who has written to a partition, and in which transaction.

Behaviour: only a partition's leader knows. Each producer that it remembers, with the sequence of
its last batch, when that came, by this broker's clock, and the epoch of the coordinator that wrote
its last marker; -1 where there is none. A transaction without a marker has its first offset: that
is what holds the last stable offset back.

Deviations from Kafka: the time of a producer that a takeover found is that of the takeover.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.errors import BrokerError
from broker.faults import Code, code_of, message_of
from broker.front.services import Call, Services
from broker.security.rights import READ_TOPIC
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.DESCRIBE_PRODUCERS
VERSIONS: Final = (0, 0)
NEEDS: Final = (READ_TOPIC,)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe the producers of each partition."""
    pace = services.turns.pace()
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            await pace.item()
            partitions.append(await _partition(services, call, topic.name, index))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"throttle_time": 0, "topics": topics}


async def _partition(services: Services, call: Call, topic: str, index: int) -> dict[str, Any]:
    try:
        services.rights.require(call.peer, READ_TOPIC, topic)
        leader = await services.partitions.leader_soon(topic, index)
        leader.check_leading()
    except BrokerError as error:
        return {
            "partition_index": index,
            "error_code": code_of(error),
            "error_message": message_of(error),
            "active_producers": [],
        }
    pace = services.turns.pace()
    producers = []
    for one in leader.transactions.producers():
        await pace.item()
        producers.append(
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_seen_ms,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.open_since,
            }
        )
    return {
        "partition_index": index,
        "error_code": int(Code.none),
        "error_message": None,
        "active_producers": producers,
    }
