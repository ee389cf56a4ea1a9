"""kafka-python, unmodified: admin, idempotent producer (its default), gzip, groups."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.integration.clients import traffic
from tests.integration.clients.traffic import Received

pytestmark = pytest.mark.smoke


def _create(bootstrap_servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(topic, traffic.PARTITION_COUNT, -1)])
    admin.close()


def _publish(bootstrap_servers: str, topic: str, numbers: range, codec: str | None = None) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", compression_type=codec
    )
    sent = [
        producer.send(
            topic,
            traffic.value(number).encode(),
            traffic.key(number).encode(),
            headers=[traffic.HEADER],
        )
        for number in numbers
    ]
    producer.flush(30)
    offsets = {(future.get(30).partition, future.get(30).offset) for future in sent}
    assert len(offsets) == len(numbers)
    producer.close()


class _Member(threading.Thread):
    """A consumer in a thread of its own, polled all the time, as applications do.

    It must not be polled in turn with others: this client forgets a join that completes between
    two polls and joins again, which makes the whole group rebalance.
    """

    def __init__(self, bootstrap_servers: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
        )
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.assigned = 0
        self.received: list[Received] = []

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._poll()
            self._consumer.commit()
            self._consumer.close()
        except BaseException as error:
            self._failure = error

    def _poll(self) -> None:
        batches = self._consumer.poll(timeout_ms=500)
        self.assigned = len(self._consumer.assignment())
        for records in batches.values():
            for r in records:
                assert [tuple(header) for header in r.headers] == [traffic.HEADER]
                record = Received(r.partition, r.offset, r.key.decode(), r.value.decode())
                self.received.append(record)

    def finish(self) -> None:
        """Commit, leave, and raise what went wrong in the thread."""
        self._stopping.set()
        self.join(traffic.PATIENCE_S)
        if self._failure is not None:
            raise self._failure


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    def poll() -> bool:
        time.sleep(0.05)
        return condition()

    traffic.wait_for(poll, what)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str, codec: str | None
) -> None:
    _create(bootstrap_servers, topic)
    members = [_Member(bootstrap_servers, topic, group) for _ in range(2)]
    for member in members:
        member.start()
    _wait_for(
        lambda: [member.assigned for member in members] == [2, 2],
        "two partitions for each of two members",
    )
    _publish(bootstrap_servers, topic, traffic.FIRST, codec)
    _wait_for(lambda: sum(len(m.received) for m in members) >= len(traffic.FIRST), "records")
    for member in members:
        member.finish()
    assert all(member.received for member in members)
    traffic.check([*members[0].received, *members[1].received], traffic.FIRST)

    _publish(bootstrap_servers, topic, traffic.SECOND, codec)
    member = _Member(bootstrap_servers, topic, group)
    member.start()
    _wait_for(lambda: len(member.received) >= len(traffic.SECOND), "the rest")
    member.finish()
    traffic.check(member.received, traffic.SECOND)


def test_publishing_creates_the_topic(bootstrap_servers: str, topic: str) -> None:
    _publish(bootstrap_servers, topic, traffic.FIRST)
