"""`quire schemas`: Confluent's own serializers as judges, and several registries on one topic."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
    dual_schema_id_deserializer,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.schema_registry import RegistryProcess

USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}


Start = Callable[[str], RegistryProcess]


@pytest.fixture
def start(cluster: LocalCluster) -> Iterator[Start]:
    """Start registries on a topic; all of them end with the test."""
    started: list[RegistryProcess] = []

    def begin(topic: str) -> RegistryProcess:
        started.append(RegistryProcess(cluster, topic))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def through_topic(cluster: LocalCluster, topic: str, data: bytes) -> bytes:
    """Publish a value and return what a consumer gets."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, data)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None and message.error() is None
    value = message.value()
    consumer.close()
    assert value is not None
    return value


def test_serializers_of_all_three_languages(cluster: LocalCluster, start: Start) -> None:
    registry = start("schemas-languages").client
    user = {"name": "anna", "age": 41}

    where = SerializationContext("schemas-avro", MessageField.VALUE)
    data = AvroSerializer(registry, json.dumps(USER))(user, where)
    found = through_topic(cluster, "schemas-avro", data)
    assert AvroDeserializer(registry)(found, where) == user

    where = SerializationContext("schemas-json", MessageField.VALUE)
    described = {
        "title": "User",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    }
    data = JSONSerializer(json.dumps(described), registry)(user, where)
    assert data is not None
    found = through_topic(cluster, "schemas-json", data)
    assert (
        JSONDeserializer(json.dumps(described), schema_registry_client=registry)(found, where)
        == user
    )

    where = SerializationContext("schemas-protobuf", MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    at = Timestamp(seconds=5)
    data = ProtobufSerializer(Timestamp, registry, settings)(at, where)
    assert data is not None
    found = through_topic(cluster, "schemas-protobuf", data)
    read: Any = ProtobufDeserializer(Timestamp, settings)(found, where)
    assert read == at
    assert set(registry.get_subjects()) == {
        "schemas-avro-value",
        "schemas-json-value",
        "schemas-protobuf-value",
    }


def test_evolution_references_and_deletes(start: Start) -> None:
    registry = start("schemas-evolution").client
    user = Schema(json.dumps(USER), "AVRO")
    first = registry.register_schema("users", user)
    assert registry.register_schema("users", user) == first
    assert registry.register_schema("others", user) == first

    needs_email = {**USER, "fields": [*USER["fields"], {"name": "email", "type": "string"}]}
    with pytest.raises(SchemaRegistryError, match="email") as refused:
        registry.register_schema("users", Schema(json.dumps(needs_email), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert not registry.test_compatibility("users", Schema(json.dumps(needs_email), "AVRO"))
    needs_email["fields"][-1]["default"] = ""  # type: ignore[index]
    second = registry.register_schema("users", Schema(json.dumps(needs_email), "AVRO"))
    assert second > first
    assert registry.get_versions("users") == [1, 2]
    assert registry.get_latest_version("users").schema_id == second

    team = {
        "type": "record",
        "name": "Team",
        "fields": [{"name": "lead", "type": "User"}],
    }
    references = [SchemaReference("User", "users", 1)]
    registry.register_schema("teams", Schema(json.dumps(team), "AVRO", references))
    with pytest.raises(SchemaRegistryError) as refused:
        registry.delete_version("users", 1)
    assert refused.value.error_code == 42206

    assert registry.delete_subject("teams") == [1]
    assert registry.delete_subject("teams", permanent=True) == [1]
    assert registry.delete_subject("users") == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.get_versions("users")
    assert refused.value.error_code == 40401
    deleted = registry.get_schema(second)  # what was written with it can still be read
    assert json.loads(deleted.schema_str or "") == needs_email
    registry.set_config(
        "users", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL_TRANSITIVE)
    )
    assert registry.get_config("users").compatibility_level == "FULL_TRANSITIVE"


def test_registries_on_one_topic_agree_and_forget_nothing(start: Start) -> None:
    topic = "schemas-together"
    both = [start(topic), start(topic)]

    def register(number: int) -> tuple[int, int]:
        """Each schema twice, at both; each subject gets all of them."""
        schema = Schema(json.dumps({"type": "fixed", "name": f"f{number // 2}", "size": 4}), "AVRO")
        client = SchemaRegistryClient({"url": both[number % 2].url})
        return number // 2, client.register_schema(f"subject-{number // 2 % 3}", schema)

    both[0].client.set_config(None, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        given = sorted(pool.map(register, range(24)))
    ids = dict(given)
    assert all(ids[number] == schema_id for number, schema_id in given), "one schema has two ids"
    assert sorted(ids.values()) == list(range(1, 13))
    both[0].end(signal.SIGKILL)
    assert both[1].client.get_versions("subject-1") == [1, 2, 3, 4]
    assert both[1].end() == 0
    again = start(topic).client
    for number, schema_id in ids.items():
        found = json.loads(again.get_schema(schema_id).schema_str or "")
        assert found["name"] == f"f{number}"
    assert again.get_config().compatibility_level == "NONE"


@pytest.mark.timeout(300)
def test_the_example_for_spark(cluster: LocalCluster, start: Start) -> None:
    """With Spark's own Avro functions: each record by the schema that it was written with."""
    jars = sorted((ROOT / "tests/integration/spark/jars/lib").glob("spark-avro_*.jar"))
    assert jars, "Spark's Avro functions are not here: run `make clients`"
    environ = {
        **os.environ,
        "QUIRE_BOOTSTRAP": cluster.bootstrap_servers,
        "QUIRE_SCHEMAS": start("schemas-spark").url,
        "QUIRE_TOPIC": "spark-users",
        "QUIRE_SPARK_AVRO": str(jars[0]),
    }
    done = subprocess.run(
        [sys.executable, "examples/spark_from_avro.py"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert [row for row in rows if row and row[0] != "name"] == [
        ["anna", "41", "unknown"],
        ["ben", "7", "unknown"],
        ["carla", "29", "carla@example.org"],
    ]


def test_a_schema_is_named_in_a_header_by_its_guid(start: Start) -> None:
    registry = start("guids")
    write = AvroSerializer(
        registry.client,
        json.dumps(USER),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    context = SerializationContext("named", MessageField.VALUE, [])
    value = write({"name": "somebody", "age": 7}, context)
    assert value is not None and len(value) == 10, "nothing but the record"
    read = AvroDeserializer(
        SchemaRegistryClient({"url": registry.url}),
        conf={"schema.id.deserializer": dual_schema_id_deserializer},
    )
    assert read(value, context) == {"name": "somebody", "age": 7}
