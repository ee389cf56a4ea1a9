"""The smaller APIs: versions, producer ids, offsets, epochs, record deletion, descriptions."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.wire.kafka import apis
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import NOW_MS, batch, breathe, create_topic, produce


class TestApiVersions:
    """What is advertised is what is served."""

    @pytest.mark.parametrize("version", range(6))
    async def test_the_table(self, client: WireClient, version: int) -> None:
        answer = await client.call(
            ApiKey.API_VERSIONS, version, client_software_name="test-client",
            client_software_version="1.0.0", cluster_id=None, node_id=-1,
        )  # fmt: skip
        assert answer.error_code is ErrorCode.none
        table = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        assert table[ApiKey.PRODUCE] == (0, 13)
        assert table[ApiKey.FETCH] == (4, 18)
        assert table[ApiKey.JOIN_GROUP][0] == 0
        assert table.keys() == set(map(int, ApiKey))
        assert list(table) == sorted(table)
        for key, (low, high) in table.items():
            schema_low, schema_high = apis.schema_versions(key)
            assert schema_low <= low or key == ApiKey.PRODUCE
            assert low <= high <= schema_high

    @pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a", "1_")])
    async def test_software_names_are_checked(
        self, client: WireClient, name: str, version: str
    ) -> None:
        answer = await client.call(
            ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version=version
        )
        assert answer.error_code is ErrorCode.invalid_request

    @pytest.mark.parametrize(
        ("cluster_id", "node_id", "is_wanted"),
        [(None, 7, True), ("ours", 1, True), ("ours", 2, False), ("ours", -1, False),
         ("another", 1, False)],
    )  # fmt: skip
    async def test_whoever_wants_another_node_is_told(
        self,
        broker: Broker,
        client: WireClient,
        cluster_id: str | None,
        node_id: int,
        is_wanted: bool,
    ) -> None:
        """As KafkaApis of 4.4.0: the node counts only if the cluster is named."""
        named = broker.cluster.cluster_id if cluster_id == "ours" else cluster_id
        answer = await client.call(
            ApiKey.API_VERSIONS, 5, client_software_name="test", client_software_version="1",
            cluster_id=named, node_id=node_id,
        )  # fmt: skip
        wanted = ErrorCode.none if is_wanted else ErrorCode.rebootstrap_required
        assert (answer.error_code, bool(answer.api_keys)) == (wanted, is_wanted)

    async def test_a_version_above_ours_is_answered_in_version_0(self, client: WireClient) -> None:
        frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1) + b"\x00whatever"
        client.send_raw(struct.pack(">i", len(frame)) + frame)
        answer = await client.receive_raw()
        assert answer == struct.pack(">ihihhh", 7, 35, 1, ApiKey.API_VERSIONS, 0, 5)
        # The connection is still good.
        assert (await client.call(ApiKey.API_VERSIONS, 0)).api_keys


class TestInitProducerId:
    """Ids for idempotent producers."""

    @pytest.mark.parametrize("version", range(6))
    async def test_every_call_gets_a_new_id(self, cloud: FakeCloud, version: int) -> None:
        found = []
        for node_id in (1, 2):
            broker = await cloud.start_broker(node_id)
            client = await WireClient.connect(broker.port)
            for _ in range(3):
                answer = await client.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None)
                assert (answer.error_code, answer.producer_epoch) == (ErrorCode.none, 0)
                found.append(answer.producer_id)
            await client.close()
        assert len(set(found)) == 6


async def list_offset(client: WireClient, timestamp: int, version: int = 8, **f: Any) -> Any:
    row = {"partition_index": f.get("partition", 0), "timestamp": timestamp,
           "current_leader_epoch": f.get("epoch", -1)}  # fmt: skip
    answer = await client.call(
        ApiKey.LIST_OFFSETS, version, replica_id=-1, isolation_level=f.get("isolation", 0),
        topics=[{"name": f.get("topic", "t"), "partitions": [row]}],
    )  # fmt: skip
    return answer.topics[0].partitions[0]


class TestListOffsets:
    """Offsets by meaning and by time."""

    @pytest.fixture
    async def broker(self, broker: Broker) -> Broker:
        """Timestamps: 10, 30, 20 in one batch, 40 in another."""
        await create_topic(broker)
        client = await WireClient.connect(broker.port)
        for times in ((10, 30, 20), (40,)):
            rows = [Record(None, b"v", NOW_MS + ms) for ms in times]
            assert (await produce(client, build_batch(rows))).error_code is ErrorCode.none
        await client.close()
        return broker

    @pytest.mark.parametrize("version", [2, 11])
    async def test_isolation_levels_that_do_not_exist(
        self, client: WireClient, version: int
    ) -> None:
        for isolation in (2, -1):
            row = await list_offset(client, -1, version, isolation=isolation)
            assert (row.error_code, row.offset) == (ErrorCode.invalid_request, -1)

    @pytest.mark.parametrize("version", range(1, 12))
    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            (-1, (4, -1)),
            (-2, (0, -1)),
            (0, (0, NOW_MS + 10)),
            (NOW_MS + 11, (1, NOW_MS + 30)),
            (NOW_MS + 31, (3, NOW_MS + 40)),
            (NOW_MS + 41, (-1, -1)),
        ],
    )
    async def test_answers(
        self, client: WireClient, version: int, asked: int, found: tuple[int, int]
    ) -> None:
        for isolation in (0, 1):
            row = await list_offset(client, asked, version, isolation=isolation)
            assert row.error_code is ErrorCode.none
            assert (row.offset, row.timestamp) == found
            if version >= 4:
                assert row.leader_epoch == (0 if found[0] >= 0 else -1)

    async def test_special_values(self, client: WireClient) -> None:
        row = await list_offset(client, -3, 7)
        assert (row.offset, row.timestamp) == (3, NOW_MS + 40)
        assert (await list_offset(client, -4, 8)).offset == 0
        for asked, version in ((-5, 9), (-6, 11)):  # nothing is tiered
            row = await list_offset(client, asked, version)
            assert (row.error_code, row.offset) == (ErrorCode.none, -1)
        for asked, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 10), (-99, 11)):
            row = await list_offset(client, asked, version)
            assert row.error_code is ErrorCode.unsupported_version

    async def test_refusals(self, client: WireClient) -> None:
        row = await list_offset(client, -1, topic="none")
        assert row.error_code is ErrorCode.unknown_topic_or_partition
        assert (await list_offset(client, -1, epoch=9)).error_code is ErrorCode.unknown_leader_epoch
        assert (await list_offset(client, -1, epoch=0)).error_code is ErrorCode.none

    async def test_an_empty_partition_has_no_largest_timestamp(
        self, broker: Broker, client: WireClient
    ) -> None:
        await create_topic(broker, "empty")
        row = await list_offset(client, -3, topic="empty")
        assert (row.error_code, row.offset, row.timestamp) == (ErrorCode.none, -1, -1)

    async def test_a_search_that_ends_in_doubt_says_nothing(
        self, cloud: FakeCloud, broker: Broker, client: WireClient
    ) -> None:
        partition = broker.partitions.find("t", 0)
        assert partition is not None
        gate = cloud.ledgers.stop_at("read")
        row = {"partition_index": 0, "timestamp": 0, "current_leader_epoch": -1}
        client.send(
            ApiKey.LIST_OFFSETS, 8, replica_id=-1, topics=[{"name": "t", "partitions": [row]}]
        )
        await breathe()
        partition._services.lease.end()
        gate.set()
        found = (await client.receive()).topics[0].partitions[0]
        assert found.error_code is ErrorCode.not_leader_or_follower

    async def test_a_broker_in_doubt_says_nothing(self, broker: Broker, client: WireClient) -> None:
        partition = broker.partitions.find("t", 0)
        assert partition is not None
        partition._services.lease.end()
        row = await list_offset(client, -1)
        assert row.error_code is ErrorCode.not_leader_or_follower


class TestOffsetForLeaderEpoch:
    """Where epochs ended."""

    @pytest.mark.parametrize("version", range(2, 5))
    async def test_known_and_unknown_epochs(
        self, broker: Broker, client: WireClient, version: int
    ) -> None:
        await create_topic(broker)
        await produce(client, batch(b"a", b"b"))

        async def end(epoch: int, topic: str = "t", current: int = -1) -> Any:
            row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            answer = await client.call(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1,
                topics=[{"topic": topic, "partitions": [row]}],
            )  # fmt: skip
            return answer.topics[0].partitions[0]

        row = await end(0)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (ErrorCode.none, 0, 2)
        row = await end(7)
        assert (row.leader_epoch, row.end_offset) == (-1, -1)
        assert (await end(0, "none")).error_code is ErrorCode.unknown_topic_or_partition
        assert (await end(0, current=3)).error_code is ErrorCode.unknown_leader_epoch


class TestDeleteRecords:
    """Moving the log start."""

    async def delete(self, client: WireClient, before: int, version: int = 2, **f: Any) -> Any:
        rows = [{"partition_index": 0, "offset": before}]
        answer = await client.call(
            ApiKey.DELETE_RECORDS, version, topics=[{"name": f.get("topic", "t"),
                                                     "partitions": rows}],
        )  # fmt: skip
        return answer.topics[0].partitions[0]

    @pytest.mark.parametrize("version", range(3))
    async def test_the_log_start_moves(
        self, broker: Broker, client: WireClient, version: int
    ) -> None:
        await create_topic(broker)
        await produce(client, batch(b"a", b"b", b"c"))
        row = await self.delete(client, 2, version)
        assert (row.error_code, row.low_watermark) == (ErrorCode.none, 2)
        assert (await self.delete(client, 1, version)).low_watermark == 2
        assert (await self.delete(client, -1, version)).low_watermark == 3
        assert (await self.delete(client, 4, version)).error_code is ErrorCode.offset_out_of_range

    async def test_refusals(self, broker: Broker, client: WireClient) -> None:
        await create_topic(broker, "c", config={"cleanup.policy": "compact"})
        await create_topic(broker, "__consumer_offsets", internal=True)
        assert (await self.delete(client, 0, topic="c")).error_code is ErrorCode.policy_violation
        row = await self.delete(client, 0, topic="__consumer_offsets")
        assert row.error_code is ErrorCode.invalid_topic_exception
        row = await self.delete(client, 0, topic="none")
        assert row.error_code is ErrorCode.unknown_topic_or_partition


class TestDescriptions:
    """DescribeCluster and DescribeLogDirs."""

    @pytest.mark.parametrize("version", range(3))
    async def test_the_cluster(self, broker: Broker, client: WireClient, version: int) -> None:
        answer = await client.call(
            ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=1, include_fenced_brokers=True
        )
        assert answer.cluster_id == broker.cluster.cluster_id
        assert answer.controller_id == 1
        (node,) = answer.brokers
        assert (node.broker_id, node.host, node.port) == (1, "127.0.0.1", broker.port)

    async def test_there_are_no_separate_controllers(self, client: WireClient) -> None:
        for kind, code in (
            (2, ErrorCode.mismatched_endpoint_type),
            (3, ErrorCode.unsupported_endpoint_type),
        ):
            answer = await client.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
            assert answer.error_code is code
            assert answer.brokers == ()

    @pytest.mark.parametrize("version", range(1, 6))
    async def test_sizes(self, broker: Broker, client: WireClient, version: int) -> None:
        await create_topic(broker, "a", partition_count=2)
        await create_topic(broker, "b")
        records = batch(b"x" * 1000)
        await produce(client, records, topic="a", partition=1)
        answer = await client.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
        (directory,) = answer.results
        assert [topic.name for topic in directory.topics] == ["a", "b"]
        sizes = {row.partition_index: row.partition_size for row in directory.topics[0].partitions}
        assert sizes[1] >= sizes[0] + len(records)
        some = [{"topic": "a", "partitions": [0]}, {"topic": "none", "partitions": [0]}]
        answer = await client.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=some)
        (topic,) = answer.results[0].topics
        assert [row.partition_index for row in topic.partitions] == [0]


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0)])
async def test_a_producer_id_comes_with_its_epoch(
    client: WireClient, version: int, producer_id: int, epoch: int
) -> None:
    answer = await client.call(
        ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=1000,
        producer_id=producer_id, producer_epoch=epoch,
    )  # fmt: skip
    assert (answer.error_code, answer.producer_id) == (ErrorCode.invalid_request, -1)


async def test_no_operations_of_an_endpoint_that_is_not_there(client: WireClient) -> None:
    answer = await client.call(
        ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=9
    )
    assert answer.error_code is ErrorCode.unsupported_endpoint_type
    assert answer.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_null_list_where_none_may_be_ends_the_connection(
    client: WireClient, version: int
) -> None:
    """As in Kafka: v0 counts in four bytes, v1 in one."""
    frame = client.frame(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": [], "strict": 0})
    head = 4 + 2 + 2 + 4 + 2 + 4 + version
    size = 1 if version else 4
    null = b"\x00" if version else b"\xff" * 4
    client.send_raw(frame[:head] + null + frame[head + size :])
    assert await client.is_closed()
