"""Kafka's own tools for brokers, their settings and directories, unmodified."""

from __future__ import annotations

import asyncio
import json

from confluent_kafka import Producer

from tests.fakes.live_brokers import LiveBrokers, in_thread
from tests.integration.clients.kafka_tools import run
from tests.integration.clients.test_java_tools import TOOLS
from tests.interop.test_group_consumers import produce

CONFIGS = "kafka.admin.ConfigCommand"
CLIENT_METRICS = f"{TOOLS}.ClientMetricsCommand"
PERFORMANCE = f"{TOOLS}.ProducerPerformance"


async def test_kafka_configs_changes_brokers_while_they_run() -> None:
    async with LiveBrokers() as brokers:
        first, second = brokers.brokers

        async def configs(*arguments: str) -> str:
            server = ("--bootstrap-server", brokers.bootstrap, "--entity-type", "brokers")
            return await in_thread(run, CONFIGS, *server, *arguments)

        every, mine = ("--entity-default",), ("--entity-name", "1")
        await configs(*every, "--alter", "--add-config", "num.partitions=7,log.retention.ms=9")
        await configs(*mine, "--alter", "--add-config", "num.partitions=8")
        assert (first.config.num_partitions, second.config.num_partitions) == (8, 7)
        shown = await configs(*every, "--describe")
        assert "num.partitions=7 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG" in shown
        shown = await configs(*mine, "--describe")
        assert "num.partitions=8" in shown and "STATIC_BROKER_CONFIG:num.partitions=4" in shown
        everything = await configs(*mine, "--describe", "--all")
        assert "log.retention.ms=9" in everything and "zookeeper.connect=" in everything
        await configs(*mine, "--alter", "--delete-config", "num.partitions")
        await configs(*every, "--alter", "--delete-config", "num.partitions,log.retention.ms")
        assert first.config == first.services.settings.of_file


async def test_kafka_log_dirs_shows_every_broker_and_each_byte_once() -> None:
    async with LiveBrokers() as brokers:
        await produce(brokers)
        server = ("--bootstrap-server", brokers.bootstrap)
        shown = await in_thread(run, f"{TOOLS}.LogDirsCommand", *server, "--describe")
        found = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
        assert {row["broker"] for row in found["brokers"]} == {1, 2}
        sizes = {
            partition["partition"]: (row["broker"], partition["size"])
            for row in found["brokers"]
            for folder in row["logDirs"]
            for partition in folder["partitions"]
        }
        mine = {f"t-{index}" for index in range(4)}
        assert mine <= set(sizes)
        for broker in brokers.brokers:
            for partition in broker.partitions:
                size = partition.usage.size_bytes
                assert sizes[partition.name] == (broker.config.node_id, size)
        assert all(sizes[name][1] > 0 for name in mine)


def pushed(brokers: LiveBrokers, software: str) -> set[str]:
    """Return the names of metrics that clients of a kind have pushed."""
    found = set()
    for broker in brokers.brokers:
        for labels, _ in broker.services.telemetry.samples(0.0):
            if labels["software"].startswith(software):
                found.add(labels["metric"])
    return found


async def test_clients_push_the_metrics_that_kafka_client_metrics_subscribes_to() -> None:
    async with LiveBrokers() as brokers:
        server = ("--bootstrap-server", brokers.bootstrap)

        async def metrics(*arguments: str) -> str:
            return await in_thread(run, CLIENT_METRICS, *server, *arguments)

        wanted = "org.apache.kafka.producer.,org.apache.kafka.consumer."
        await metrics("--alter", "--name", "all", "--metrics", wanted, "--interval", "200")
        assert (await metrics("--list")).split() == ["all"]
        shown = await metrics("--describe", "--name", "all")
        assert "interval.ms=200" in shown and "org.apache.kafka.producer." in shown
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "client.id": "crdk"})
        for number in range(200):
            producer.produce("t", b"v")
            await in_thread(producer.flush, 5)
            if number > 20 and pushed(brokers, "confluent"):
                break
            await asyncio.sleep(0.1)
        assert any(name.endswith("connection.creation.total") for name in pushed(brokers, "conf"))
        await in_thread(
            run, PERFORMANCE, "--topic", "t", "--num-records", "30", "--record-size", "9",
            "--throughput", "10", "--command-property", f"bootstrap.servers={brokers.bootstrap}",
        )  # fmt: skip
        java = pushed(brokers, "apache-kafka-java")
        assert "org.apache.kafka.producer.record.send.total" in java, java
        text = brokers.brokers[0].metrics.exposition() + brokers.brokers[1].metrics.exposition()
        assert b'quire_client_metric{metric="org.apache.kafka.producer.' in text
        await metrics("--delete", "--name", "all")
        assert (await metrics("--list")).split() == []
