"""One broker of each kind, fresh, each the only one of its cluster and with the id 0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.integration.cluster import LocalCluster
from tests.integration.differential.kafka_node import KafkaNode

_AS_KAFKA = {
    "QUIRE_BROKER_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "QUIRE_BROKER_OFFSETS_TOPIC_PARTITIONS": "4",
    "QUIRE_BROKER_TRANSACTIONS_TOPIC_PARTITIONS": "4",
}
"""Settings that `KafkaNode` has for Kafka."""


@contextlib.contextmanager
def both(folder: Path) -> Iterator[tuple[int, int]]:
    """Start Apache Kafka and Quire; give their ports."""
    node = KafkaNode(folder / "kafka")
    try:
        node.start()
        with LocalCluster(folder / "quire", bookies=1, brokers=1, environ=_AS_KAFKA) as quire:
            yield node.port, int(quire.bootstrap_servers.rpartition(":")[2])
    finally:
        node.kill()
