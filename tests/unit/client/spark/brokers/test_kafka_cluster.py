"""Questions to brokers: whom they are asked, and what is waited out."""

from collections.abc import Callable
from typing import Any

import pytest

from client.spark.brokers import kafka_cluster
from client.spark.brokers.kafka_cluster import EARLIEST, LATEST, KafkaCluster, PartitionLeader
from client.spark.brokers.kafka_link import LinkBroken
from client.spark.errors import BrokersUnreachable, RequestRefused
from client.spark.splits import TopicPartition
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import decode_request, encode_body
from client.wire.kafka.requests import decode_response_body, encode_request_body

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER, UNKNOWN_TOPIC, NOT_AUTHORIZED, LOADING = 6, 3, 29, 14
SERVED = {
    ApiKey.METADATA: 12, ApiKey.LIST_OFFSETS: 7, ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.FIND_COORDINATOR: 3, ApiKey.OFFSET_COMMIT: 8,
}  # fmt: skip


class Cluster:
    """Two brokers at h:0 and h:1. Requests and answers pass through the wire's own code."""

    def __init__(self) -> None:
        self.leaders = {0: 0, 1: 1}
        self.exists = True
        self.dead: set[int] = set()
        self.codes: dict[ApiKey, list[int]] = {}
        self.asked: list[tuple[int, str]] = []
        self.committed: list[Any] = []
        self.patience_s: list[float] = []

    def connect(self, host: str, port: int, timeout_s: float, _: object) -> "Link":
        if port in self.dead:
            raise LinkBroken(f"{host}:{port}: Connection refused")
        return Link(self, port)

    def code(self, api: ApiKey) -> int:
        codes = self.codes.get(api, [])
        return codes.pop(0) if codes else 0


class Link:
    def __init__(self, cluster: Cluster, broker: int) -> None:
        self.cluster = cluster
        self.broker = broker

    def close(self) -> None:
        """Nothing is open."""

    def version(self, api: ApiKey, at_most: int) -> int:
        return min(at_most, SERVED[api])

    def ask(self, api: ApiKey, fields: dict[str, Any], timeout_s: float, *, version: int) -> Any:
        self.cluster.patience_s.append(timeout_s)
        if self.broker in self.cluster.dead:
            raise LinkBroken(f"broker {self.broker} died")
        self.cluster.asked.append((self.broker, api.name))
        body = encode_request_body(api, version, fields)
        request = decode_request(api, version, memoryview(body))
        answer = getattr(self, api.name.lower())(request)
        return decode_response_body(api, version, memoryview(encode_body(api, version, answer)))

    def metadata(self, request: Any) -> dict[str, Any]:
        rows = [
            {
                "error_code": 0, "partition_index": index, "leader_id": leader, "leader_epoch": 4,
                "replica_nodes": [], "isr_nodes": [], "offline_replicas": [],
            }
            for index, leader in self.cluster.leaders.items()
        ]  # fmt: skip
        code = self.cluster.code(ApiKey.METADATA) if self.cluster.exists else UNKNOWN_TOPIC
        topic = {
            "error_code": code, "name": "t", "topic_id": None, "is_internal": False,
            "partitions": rows if self.cluster.exists else [],
        }  # fmt: skip
        brokers = [{"node_id": n, "host": "h", "port": n, "rack": None} for n in (0, 1)]
        return {
            "brokers": brokers, "cluster_id": "c", "controller_id": 0, "topics": [topic],
        }  # fmt: skip

    def list_offsets(self, request: Any) -> dict[str, Any]:
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                index = int(row.partition_index)
                wrong = self.cluster.leaders.get(index) != self.broker
                code = NOT_LEADER if wrong else self.cluster.code(ApiKey.LIST_OFFSETS)
                offset = {LATEST: 100 + index, EARLIEST: index}.get(int(row.timestamp), 50)
                rows.append(
                    {
                        "partition_index": index, "error_code": code, "timestamp": -1,
                        "offset": offset, "leader_epoch": 4,
                    }
                )  # fmt: skip
            topics.append({"name": topic.name, "partitions": rows})
        return {"topics": topics}

    def describe_log_dirs(self, request: Any) -> dict[str, Any]:
        rows = [
            {"partition_index": int(index), "partition_size": 1000 + int(index), "offset_lag": 0,
             "is_future_key": False}
            for topic in request.topics for index in topic.partitions
        ]  # fmt: skip
        topics = [{"name": "t", "partitions": rows}]
        return {"error_code": 0, "results": [
            {"error_code": 0, "log_dir": "d", "topics": topics}
        ]}  # fmt: skip

    def describe_configs(self, request: Any) -> dict[str, Any]:
        (resource,) = request.resources
        assert (int(resource.resource_type), resource.resource_name) == (4, str(self.broker))
        rows = [
            {
                "name": name, "value": "zk:2181", "read_only": True, "config_source": 4,
                "is_sensitive": False, "synonyms": [], "config_type": 2, "documentation": None,
            }
            for name in resource.configuration_keys if name == "zookeeper.connect"
        ]  # fmt: skip
        code = self.cluster.code(ApiKey.DESCRIBE_CONFIGS)
        return {
            "results": [
                {
                    "error_code": code,
                    "error_message": None,
                    "resource_type": 4,
                    "resource_name": resource.resource_name,
                    "configs": rows,
                }
            ]
        }

    def find_coordinator(self, request: Any) -> dict[str, Any]:
        code = self.cluster.code(ApiKey.FIND_COORDINATOR)
        return {"error_code": code, "error_message": None, "node_id": 1, "host": "h", "port": 1}

    def offset_commit(self, request: Any) -> dict[str, Any]:
        self.cluster.committed.append(request)
        code = self.cluster.code(ApiKey.OFFSET_COMMIT)
        topics = [
            {"name": topic.name, "partitions": [
                {"partition_index": int(row.partition_index), "error_code": code}
                for row in topic.partitions
            ]}
            for topic in request.topics
        ]  # fmt: skip
        return {"topics": topics}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(kafka_cluster, "KafkaLink", made.connect)
    return made


@pytest.fixture
def ask(cluster: Cluster) -> Callable[..., KafkaCluster]:
    return lambda timeout_ms=2000: KafkaCluster("h:9,h:1", timeout_ms)


def test_topics_and_their_leaders(cluster: Cluster, ask: Callable[..., KafkaCluster]) -> None:
    cluster.dead = {9}  # the first address of the list
    kafka = ask()
    assert kafka.topics(["t"])["t"].leaders == {0: PartitionLeader(0, 4), 1: PartitionLeader(1, 4)}
    cluster.exists = False
    assert kafka.topics(["t"]) == {}
    assert kafka.leader(T0).broker_id == -1


def test_each_leader_is_asked_for_its_own(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    kafka = ask()
    assert kafka.offsets({T0: LATEST, T1: EARLIEST}) == {T0: 100, T1: 1}
    assert cluster.asked == [(9, "METADATA"), (0, "LIST_OFFSETS"), (1, "LIST_OFFSETS")]
    assert kafka.sizes(["t"]) == {T0: 1000, T1: 1001}
    assert kafka.offsets({}) == {}


def test_a_partition_that_does_not_exist_is_left_out(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    assert ask().offsets({T0: LATEST, TopicPartition("t", 7): LATEST}) == {T0: 100}


def test_leaders_that_moved_are_found_again(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    kafka = ask()
    kafka.topics(["t"])
    cluster.leaders = {0: 1, 1: 1}
    assert kafka.offsets({T0: LATEST, T1: LATEST}) == {T0: 100, T1: 101}


def test_a_broker_that_died_is_asked_no_more(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    kafka = ask()
    kafka.offsets({T0: LATEST})
    cluster.dead = {0, 9}
    cluster.leaders = {0: 1, 1: 1}
    assert kafka.offsets({T0: LATEST}) == {T0: 100}


def test_a_broker_that_hangs_leaves_time_to_ask_another(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    kafka = ask(3000)
    kafka.offsets({T0: LATEST, T1: LATEST})
    kafka.sizes(["t"])
    kafka.commit("g", {T0: 5})
    assert set(cluster.patience_s) == {1.0}


def test_nobody_answers(cluster: Cluster, ask: Callable[..., KafkaCluster]) -> None:
    cluster.dead = {0, 1, 9}
    with pytest.raises(BrokersUnreachable) as caught:
        ask(100).topics(None)
    told = str(caught.value)
    assert told.startswith("asking h:9,h:1 for topics failed for 0.1 s (fetch.timeoutMs): h:9: ")
    assert "h:1: Connection refused" in told


def test_what_does_not_pass_is_not_waited_for(
    cluster: Cluster, ask: Callable[..., KafkaCluster]
) -> None:
    cluster.codes[ApiKey.METADATA] = [NOT_AUTHORIZED]
    with pytest.raises(RequestRefused, match="topic t was refused: TOPIC_AUTHORIZATION_FAILED"):
        ask().topics(["t"])
    cluster.codes[ApiKey.LIST_OFFSETS] = [NOT_AUTHORIZED]
    with pytest.raises(RequestRefused, match="asking for offsets of t-0 was refused"):
        ask().offsets({T0: LATEST})


def test_offsets_of_a_group(cluster: Cluster, ask: Callable[..., KafkaCluster]) -> None:
    cluster.codes[ApiKey.FIND_COORDINATOR] = [15]
    cluster.codes[ApiKey.OFFSET_COMMIT] = [LOADING]
    ask().commit("g", {T1: 7, T0: 5})
    request = cluster.committed[-1]
    assert request.group_id == "g"
    assert int(request.generation_id_or_member_epoch) == -1
    assert [int(row.committed_offset) for row in request.topics[0].partitions] == [5, 7]


def test_a_broker_tells_its_settings(cluster: Cluster) -> None:
    brokers = KafkaCluster("h:1", 5_000)
    assert brokers.setting("zookeeper.connect") == "zk:2181"
    assert brokers.setting("no.such") == ""
