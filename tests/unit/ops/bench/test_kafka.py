"""Apache Kafka as a system under test: what needs no Kafka."""

from confluent_kafka.admin import AdminClient

from ops.bench.peers.kafka import elect_preferred


def test_preferred_leaders_can_be_asked_for() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    asked = elect_preferred(admin)
    assert not asked.done(), "nobody answers"
