"""Committed offsets that an open transaction is about to move are waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError
from kio.schema.errors import ErrorCode as Code

from client.pubsub.kafka_requests import Answer, KafkaRequest
from client.pubsub.stable_offsets import OffsetsNotStable, StableConsumer
from client.wire.kafka.apis import ApiKey

AT = TopicPartition("t", 0)


class FakeCoordinator:
    group_id = "g"

    def __init__(self, *codes: Code) -> None:
        self.codes = list(codes)
        self.dead = False

    def coordinator_dead(self) -> None:
        self.dead = True

    async def _send_req(self, request: KafkaRequest) -> Answer:
        prepared = request.prepare({ApiKey.OFFSET_FETCH: (0, 9)})
        assert (prepared.API_VERSION, request._fields["require_stable"]) == (7, True)
        code = self.codes.pop(0)
        row = SimpleNamespace(partition_index=0, committed_offset=5, metadata="", error_code=code)
        none = SimpleNamespace(partition_index=1, committed_offset=-1, metadata="", error_code=0)
        topic = SimpleNamespace(name="t", partitions=[row, none])
        return Answer(7, SimpleNamespace(error_code=0, topics=[topic]))


def asked(*codes: Code) -> Any:
    """Return a coordinator as `start` of a consumer would make it."""
    consumer = StableConsumer.__new__(StableConsumer)
    consumer._closed = True
    consumer._coordinator = FakeCoordinator(*codes)
    return consumer._coordinator


async def test_what_is_stable_is_taken() -> None:
    found = await asked(Code.none)._do_fetch_commit_offsets([AT, TopicPartition("t", 1)])
    assert {at: one.offset for at, one in found.items()} == {AT: 5}


async def test_what_is_not_is_asked_for_again() -> None:
    with pytest.raises(OffsetsNotStable) as raised:
        await asked(Code.unstable_offset_commit)._do_fetch_commit_offsets([AT])
    assert raised.value.retriable


async def test_another_coordinator_is_looked_for() -> None:
    coordinator = asked(Code.not_coordinator)
    with pytest.raises(OffsetsNotStable):
        await coordinator._do_fetch_commit_offsets([AT])
    assert coordinator.dead


async def test_what_will_not_pass_is_raised() -> None:
    with pytest.raises(GroupAuthorizationFailedError):
        await asked(Code.group_authorization_failed)._do_fetch_commit_offsets([AT])
