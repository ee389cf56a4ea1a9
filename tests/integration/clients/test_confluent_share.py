"""Share groups with librdkafka's share consumer, by confluent-kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.integration.clients import traffic


def prepare(servers: str, topic: str, group: str) -> None:
    """Create the topic, fill it, and let the group begin at its beginning."""
    admin = AdminClient({"bootstrap.servers": servers})
    partitions = traffic.PARTITION_COUNT
    for done in admin.create_topics([NewTopic(topic, partitions)]).values():
        done.result(30)
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
    publish(servers, topic, traffic.FIRST)


def publish(servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        producer.produce(topic, traffic.value(number).encode(), traffic.key(number).encode())
    assert producer.flush(30) == 0


def consumer(servers: str, group: str, mode: str) -> ShareConsumer:
    return ShareConsumer(
        {"bootstrap.servers": servers, "group.id": group, "share.acknowledgement.mode": mode}
    )


def values(messages: Any) -> list[str]:
    found = []
    for message in messages:
        assert message.error() is None, message.error()
        found.append(message.value().decode())
    return found


def test_two_members_take_each_record_once_and_another_one_what_comes_later(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    prepare(bootstrap_servers, topic, group)
    members = [consumer(bootstrap_servers, group, "implicit") for _ in range(2)]
    seen: list[str] = []
    for member in members:
        member.subscribe([topic])

    def poll() -> bool:
        for member in members:
            seen.extend(values(member.poll(0.2)))
        return len(seen) >= len(traffic.FIRST)

    traffic.wait_for(poll, "records")
    for member in members:
        member.commit_sync(10)  # what a next poll would have accepted
        member.close()
    assert sorted(seen) == sorted(map(traffic.value, traffic.FIRST))

    publish(bootstrap_servers, topic, traffic.SECOND)
    third = consumer(bootstrap_servers, group, "implicit")
    third.subscribe([topic])
    later: list[str] = []

    def poll_third() -> bool:
        later.extend(values(third.poll(0.2)))
        return len(later) >= len(traffic.SECOND)

    traffic.wait_for(poll_third, "the rest")
    third.close()
    assert sorted(later) == sorted(map(traffic.value, traffic.SECOND))


@pytest.mark.parametrize("how", [AcknowledgeType.RELEASE, AcknowledgeType.REJECT])
def test_what_is_released_comes_again_and_what_is_rejected_does_not(
    bootstrap_servers: str, topic: str, group: str, how: AcknowledgeType
) -> None:
    prepare(bootstrap_servers, topic, group)
    member = consumer(bootstrap_servers, group, "explicit")
    member.subscribe([topic])
    accepted: list[str] = []
    refused: set[str] = set()

    def poll() -> bool:
        for message in member.poll(0.2):
            assert message.error() is None, message.error()
            value = message.value().decode()
            if value.endswith("7") and value not in refused:
                refused.add(value)
                member.acknowledge(message, how)
            else:
                accepted.append(value)
                member.acknowledge(message, AcknowledgeType.ACCEPT)
        member.commit_sync(10)
        wanted = len(traffic.FIRST)
        if how is AcknowledgeType.REJECT:
            wanted -= sum(str(number).endswith("7") for number in traffic.FIRST)
        return len(accepted) >= wanted

    traffic.wait_for(poll, "all of it")
    member.close()
    expected = {traffic.value(number) for number in traffic.FIRST}
    if how is AcknowledgeType.REJECT:
        expected -= refused
    assert sorted(accepted) == sorted(expected)


def set_group(servers: str, group: str, **values: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def test_with_order_by_key_each_key_comes_in_order_whoever_has_it(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """Two members that release and accept; nobody ever has two records of a key."""
    set_group(bootstrap_servers, group, share_order="key")
    prepare(bootstrap_servers, topic, group)
    both = [consumer(bootstrap_servers, group, "explicit") for _ in range(2)]
    accepted: dict[str, list[int]] = {}
    released: set[int] = set()
    for member in both:
        member.subscribe([topic])

    def poll() -> bool:
        for member in both:
            some = member.poll(0.2)
            keys = [message.key() for message in some]
            assert len(keys) == len(set(keys)), "one record of each key"
            for message in some:
                assert message.error() is None, message.error()
                number = int(message.value().decode().removeprefix("value-"))
                done = accepted.setdefault(traffic.key(number), [])
                assert number == (done[-1] + 20 if done else number % 20), "the next of its key"
                if number % 7 == 0 and number not in released:
                    released.add(number)
                    member.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    done.append(number)
                    member.acknowledge(message, AcknowledgeType.ACCEPT)
            member.commit_sync(10)
        return sum(map(len, accepted.values())) >= len(traffic.FIRST)

    traffic.wait_for(poll, "all of it")
    for member in both:
        member.close()
    assert sorted(n for some in accepted.values() for n in some) == list(traffic.FIRST)
