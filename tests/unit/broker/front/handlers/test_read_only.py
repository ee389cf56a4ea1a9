"""What clients get while too few bookies accept entries: reads and groups go on (READ-ONLY)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.coordinator.core.routing import OFFSETS_TOPIC, coordinator_partition
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, fetch, produce


async def commit(client: WireClient, offset: int) -> ErrorCode:
    """Commit an offset of partition t-0 for group g."""
    row = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    client.send(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=[{"name": "t", "partitions": [row]}],
    )  # fmt: skip
    code: ErrorCode = (await client.receive()).topics[0].partitions[0].error_code
    return code


async def committed(client: WireClient) -> tuple[ErrorCode, int]:
    """Return what group g has committed."""
    topics = [{"name": "t", "partition_indexes": [0]}]
    client.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics, require_stable=False)
    reply = await client.receive()
    return reply.error_code, reply.topics[0].partitions[0].committed_offset


def is_led(broker: Broker, topic: str, index: int, *, read_only: bool) -> bool:
    partition = broker.partitions.find(topic, index)
    return partition is not None and partition._leader.is_read_only is read_only


async def test_reads_and_groups_go_on_and_writes_come_back(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    assert (await produce(client, batch(b"a"))).base_offset == 0
    client.send(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    await client.receive()
    wanted = ErrorCode.none
    while (code := await commit(client, 1)) is not wanted:
        assert code in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)
    index = coordinator_partition("g", broker.cluster.topic(OFFSETS_TOPIC).partition_count)
    logs = ("t", 0), (OFFSETS_TOPIC, index)

    cloud.ledgers.set_bookie_count(0)
    for log in logs:
        broker.partitions.leader(*log).resign("its bookies are full")
    await until(lambda: all(is_led(broker, *log, read_only=True) for log in logs))
    refused = await produce(client, batch(b"b"))
    assert refused.error_code is ErrorCode.not_enough_replicas
    assert b"a" in bytes((await fetch(client, 0)).records)
    while (found := await committed(client)) != (ErrorCode.none, 1):
        assert found[0] in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)
    assert await commit(client, 2) is ErrorCode.coordinator_not_available
    assert await committed(client) == (ErrorCode.none, 1)

    cloud.ledgers.set_bookie_count(3)
    await until(lambda: all(is_led(broker, *log, read_only=False) for log in logs))
    assert (await produce(client, batch(b"c"))).base_offset == 1
    while (code := await commit(client, 2)) is not wanted:
        assert code in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress)
    assert await committed(client) == (ErrorCode.none, 2)
