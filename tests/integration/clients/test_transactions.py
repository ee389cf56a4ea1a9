"""Transactional producers from three code bases, unmodified, and who reads what they wrote.

Readers of committed records see exactly what was committed, in order; others see everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clients.kafka_tools import run
from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.shell import Shell

PATIENCE_S = 30.0
PARTITIONS = 3
TOOLS = "org.apache.kafka.tools"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"
FEATURES = f"{TOOLS}.FeatureCommand"
COPIER = f"{TOOLS}.TransactionalMessageCopier"
PERFORMANCE = f"{TOOLS}.ProducerPerformance"


def create(bootstrap_servers: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(PATIENCE_S)


def producer(bootstrap_servers: str, name: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 1,
         **settings}
    )  # fmt: skip
    made.init_transactions(PATIENCE_S)
    return made


def write(made: Producer, topic: str, *values: str) -> None:
    for value in values:
        made.produce(topic, value, on_delivery=None)
    assert made.flush(PATIENCE_S) == 0


def read(
    bootstrap_servers: str, topic: str, *, committed: bool = True, partitions: int = PARTITIONS
) -> list[str]:
    """Read a topic from its beginning to its end, as far as the isolation level goes."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()

    def is_over() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return len(ended) == partitions

    wait_until(is_over, f"the end of {topic}", PATIENCE_S)
    consumer.close()
    return sorted(values)


@pytest.mark.smoke
def test_readers_of_committed_records_see_what_was_committed(
    bootstrap_servers: str, topic: str
) -> None:
    create(bootstrap_servers, topic)
    made = producer(bootstrap_servers, topic)
    expected: list[str] = []
    everything: list[str] = []
    for number in range(12):
        values = [f"{number}-{at}" for at in range(10)]
        made.begin_transaction()
        write(made, topic, *values)
        everything += values
        if number % 3 == 2:
            made.abort_transaction(PATIENCE_S)
        else:
            made.commit_transaction(PATIENCE_S)
            expected += values
    assert read(bootstrap_servers, topic) == sorted(expected)
    assert read(bootstrap_servers, topic, committed=False) == sorted(everything)


def test_an_open_transaction_is_not_seen_and_holds_the_others_back(
    bootstrap_servers: str, topic: str
) -> None:
    create(bootstrap_servers, topic, 1)
    slow, fast = (producer(bootstrap_servers, f"{topic}-{name}") for name in ("slow", "fast"))
    slow.begin_transaction()
    write(slow, topic, "first")
    fast.begin_transaction()
    write(fast, topic, "second")
    fast.commit_transaction(PATIENCE_S)
    assert read(bootstrap_servers, topic, partitions=1) == []
    assert read(bootstrap_servers, topic, committed=False, partitions=1) == ["first", "second"]
    slow.commit_transaction(PATIENCE_S)
    wait_until(
        lambda: read(bootstrap_servers, topic, partitions=1) == ["first", "second"],
        "both transactions", PATIENCE_S,
    )  # fmt: skip


def test_a_successor_fences_its_predecessor(bootstrap_servers: str, topic: str) -> None:
    create(bootstrap_servers, topic, 1)
    first = producer(bootstrap_servers, topic)
    first.begin_transaction()
    write(first, topic, "lost")
    second = producer(bootstrap_servers, topic)
    second.begin_transaction()
    write(second, topic, "kept")
    second.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    assert read(bootstrap_servers, topic, partitions=1) == ["kept"]


@pytest.mark.smoke
def test_read_process_write_happens_once(
    bootstrap_servers: str, fresh_name: Callable[[str], str]
) -> None:
    source, target, group = fresh_name("source"), fresh_name("target"), fresh_name("group")
    create(bootstrap_servers, source)
    create(bootstrap_servers, target)
    feeder = producer(bootstrap_servers, fresh_name("feeder"))
    feeder.begin_transaction()
    inputs = [f"{number:03d}" for number in range(200)]
    write(feeder, source, *inputs)
    feeder.commit_transaction(PATIENCE_S)
    worker_id = fresh_name("worker")
    done = 0
    for attempt in range(4):
        done += _work(bootstrap_servers, source, target, group, worker_id, is_last=attempt == 3)
    assert done == len(inputs)
    assert read(bootstrap_servers, target) == sorted(f"<{value}>" for value in inputs)


def _work(
    bootstrap_servers: str, source: str, target: str, group: str, name: str, *, is_last: bool
) -> int:
    """Copy some records, every other batch in vain; then vanish. Returns how many are copied."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([source])
    made = producer(bootstrap_servers, name)
    count = idle = 0
    for batch in range(100):
        messages = [one for one in consumer.consume(30, 3) if one.error() is None]
        if not messages:
            idle += 1
            if idle == (3 if is_last else 2):
                break
            continue
        made.begin_transaction()
        write(made, target, *(f"<{one.value().decode()}>" for one in messages))
        positions = consumer.position(consumer.assignment())
        made.send_offsets_to_transaction(
            [one for one in positions if one.offset >= 0],
            consumer.consumer_group_metadata(), PATIENCE_S,
        )  # fmt: skip
        if batch % 2 and not is_last:
            made.abort_transaction(PATIENCE_S)
            break
        made.commit_transaction(PATIENCE_S)
        count += len(messages)
    consumer.close()
    return count


def test_a_broker_without_transactions_ends_the_client(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    environ = {"QUIRE_BROKER_TRANSACTIONS_ENABLED": "false"}
    cluster = start_cluster(brokers=1, environ=environ)
    made = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "nobody"})
    with pytest.raises(KafkaException) as caught:
        made.init_transactions(PATIENCE_S)
    error = caught.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    assert not error.retriable()


class TestJava:
    def test_a_transactional_producer(self, bootstrap_servers: str, topic: str) -> None:
        create(bootstrap_servers, topic)
        printed = run(
            PERFORMANCE,
            *("--topic", topic, "--num-records", "2000", "--record-size", "100"),
            *("--throughput", "-1", "--transactional-id", topic),
            *("--transaction-duration-ms", "100"),
            *("--producer-props", f"bootstrap.servers={bootstrap_servers}"),
        )
        assert "2000 records sent" in printed
        assert len(read(bootstrap_servers, topic)) == 2000
        described = run(
            TRANSACTIONS, "--bootstrap-server", bootstrap_servers,
            "describe", "--transactional-id", topic,
        )  # fmt: skip
        head, row = (line.split() for line in described.splitlines()[-2:])
        epoch = int(row[head.index("ProducerEpoch")])
        assert epoch > 0, "in the classic protocol it would have its first one still"

    def test_a_copy_is_exact(
        self, bootstrap_servers: str, fresh_name: Callable[[str], str]
    ) -> None:
        source, target, group = fresh_name("source"), fresh_name("target"), fresh_name("group")
        for name in (source, target):
            create(bootstrap_servers, name, 1)
        feeder = producer(bootstrap_servers, fresh_name("feeder"))
        feeder.begin_transaction()
        inputs = [f"{number:04d}" for number in range(1000)]
        write(feeder, source, *inputs)
        feeder.commit_transaction(PATIENCE_S)
        printed = run(
            COPIER,
            *("--broker-list", bootstrap_servers, "--transactional-id", fresh_name("copier")),
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--consumer-group", group, "--transaction-size", "50"),
            *("--max-messages", "1000", "--enable-random-aborts"),
        )
        assert '"remaining":0' in printed.replace(" ", "")
        assert read(bootstrap_servers, target, partitions=1) == inputs


class TestKafkaTransactions:
    """`kafka-transactions`, as it is."""

    def _run(self, bootstrap_servers: str, *arguments: str) -> str:
        return run(TRANSACTIONS, "--bootstrap-server", bootstrap_servers, *arguments)

    def test_it_lists_describes_and_ends(self, bootstrap_servers: str, topic: str) -> None:
        create(bootstrap_servers, topic, 1)
        made = producer(bootstrap_servers, topic)
        made.begin_transaction()
        write(made, topic, "hangs")
        listed = self._run(bootstrap_servers, "list")
        row = next(line.split() for line in listed.splitlines() if line.startswith(topic))
        producer_id, state = row[2], row[3]
        assert state == "Ongoing"
        described = self._run(bootstrap_servers, "describe", "--transactional-id", topic)
        assert re.search(rf"\bOngoing\b.*\b{topic}-0\b", described)
        open_here = self._run(
            bootstrap_servers, "describe-producers", "--topic", topic, "--partition", "0"
        )
        assert re.search(rf"^{producer_id}\s+0\s", open_here, re.M)
        hanging = self._run(
            bootstrap_servers, "find-hanging", "--topic", topic,
            "--max-transaction-timeout", "0",
        )  # fmt: skip
        assert producer_id not in hanging, "its coordinator knows it"
        self._run(bootstrap_servers, "forceTerminateTransaction", "--transactionalId", topic)
        # It begins an incarnation, as the next producer would: that aborts what is open.
        described = self._run(bootstrap_servers, "describe", "--transactional-id", topic)
        assert re.search(r"\bEmpty\b", described)
        assert read(bootstrap_servers, topic, partitions=1) == []
        with pytest.raises(KafkaException):
            made.commit_transaction(PATIENCE_S)

    def test_it_aborts_from_the_partition(self, bootstrap_servers: str, topic: str) -> None:
        create(bootstrap_servers, topic, 1)
        made = producer(bootstrap_servers, topic)
        made.begin_transaction()
        write(made, topic, "hangs")
        self._run(
            bootstrap_servers, "abort", "--topic", topic, "--partition", "0",
            "--start-offset", "0",
        )  # fmt: skip
        other = producer(bootstrap_servers, f"{topic}-other")
        other.begin_transaction()
        write(other, topic, "goes on")
        other.commit_transaction(PATIENCE_S)
        wait_until(
            lambda: read(bootstrap_servers, topic, partitions=1) == ["goes on"],
            "what follows it", PATIENCE_S,
        )  # fmt: skip


def test_quire_says_whose_transaction_holds_a_groups_offsets(
    bootstrap_servers: str, topic: str, shell: Shell
) -> None:
    create(bootstrap_servers, topic, 1)
    reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
    made = producer(bootstrap_servers, f"{topic}-writer")
    made.begin_transaction()
    offsets = [TopicPartition(topic, 0, 5)]
    made.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE_S)
    (row,) = (
        line.split()
        for line in shell.ok(f"quire group describe {topic}").splitlines()
        if f"{topic}-writer" in line
    )
    assert (row[0], *row[1:3]) == (topic, "0", "5")
    made.abort_transaction(PATIENCE_S)
    reader.close()


def test_kafka_features_describes_and_changes(start_cluster: Callable[..., LocalCluster]) -> None:
    """`kafka-features`, as it is; what a feature's level is, new clients go by."""
    servers = ("--bootstrap-server", start_cluster(brokers=1).bootstrap_servers)

    def level() -> int | None:
        described = run(FEATURES, *servers, "describe")
        found = re.search(r"transaction\.version\s.*FinalizedVersionLevel: (\d+)", described)
        return None if found is None else int(found[1])

    feature = ("--feature", "transaction.version=1")
    assert level() == 2
    run(FEATURES, *servers, "downgrade", *feature, "--dry-run")
    assert level() == 2
    run(FEATURES, *servers, "downgrade", *feature)
    assert level() == 1
    run(FEATURES, *servers, "upgrade", "--feature", "transaction.version=2")
    assert level() == 2
