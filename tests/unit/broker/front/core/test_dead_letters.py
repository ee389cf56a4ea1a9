"""Dead letters: how they look, where they may go, how repeats are known."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.cluster.core.topology import TopicInfo
from broker.errors import InvalidTopicName, PolicyViolation, UnknownTopicOrPartition
from broker.front.core.dead_letters import (
    EXCEEDED,
    OURS,
    REJECTED,
    SWITCH,
    Letter,
    Numbers,
    Source,
    check_target,
    dead_letter,
    letters_of,
    size_of,
)
from broker.partition.core.shares.share_updates import RecordState, StoredRange
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import Record, build_batch

SOURCE = Source("t", 3, "grüppe")


def archiving(first: int, last: int, deliveries: int) -> StoredRange:
    return StoredRange(Offset(first), Offset(last), RecordState.ARCHIVING, deliveries)


def topic(*, takes: bool) -> TopicInfo:
    config = TopicConfig.parse({SWITCH: str(takes).lower()})
    return TopicInfo(
        name="dlq.t", topic_id=UUID(int=1), partition_count=1, replication_factor=3, config=config
    )


def test_the_cause_is_told_by_the_sign() -> None:
    found = list(letters_of([archiving(4, 5, 5), archiving(9, 9, -1)]))
    assert found == [(4, 5, False), (5, 5, False), (9, 1, True)]
    assert [one.message for one in found] == [EXCEEDED, EXCEEDED, REJECTED]


def test_headers_are_kafkas_and_stand_behind_those_of_the_record() -> None:
    letter = Letter(Offset(7), 2, True)
    plain = dead_letter(SOURCE, letter, None, 99)
    values = (b"t", b"3", b"7", "grüppe".encode(), b"2", REJECTED.encode())
    assert plain == Record(None, None, 99, tuple(zip(OURS, values, strict=True)))
    copied = dead_letter(SOURCE, letter, Record(b"k", b"v", 5, (("h", None),)), 99)
    assert copied == Record(b"k", b"v", 99, (("h", None), *plain.headers))
    for one in (plain, copied):
        assert len(build_batch([one])) <= size_of(one) + 61


@pytest.mark.parametrize(
    ("name", "known", "may_create", "error"),
    [
        ("", None, True, PolicyViolation),
        ("__dlq", None, True, InvalidTopicName),
        ("dead", None, True, InvalidTopicName),
        ("dlq.a b", None, True, InvalidTopicName),
        ("dlq.t", None, False, UnknownTopicOrPartition),
        ("dlq.t", topic(takes=False), True, PolicyViolation),
    ],
)
def test_names_and_topics_that_are_refused(
    name: str, known: TopicInfo | None, *, may_create: bool, error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_target(name, "dlq.", known, may_create=may_create)


def test_names_and_topics_that_are_not() -> None:
    check_target("dlq.t", "dlq.", topic(takes=True), may_create=False)
    check_target("dlq.t", "dlq.", None, may_create=True)
    check_target("anything", "", None, may_create=True)


def test_what_is_attempted_is_counted_when_it_is_stored() -> None:
    numbers = Numbers((UUID(int=1), 0, False), ProducerId(9))
    numbers.attempted = [archiving(0, 4, 1), archiving(9, 9, 1)]
    numbers.on_refused()
    assert (numbers.sequence, numbers.attempted) == (0, ())
    numbers.attempted = [archiving(0, 4, 1), archiving(9, 9, 1)]
    numbers.on_stored()
    assert (numbers.sequence, numbers.attempted, numbers.are_spent) == (6, (), False)
    numbers.sequence = 1 << 30
    assert numbers.are_spent
    numbers.attempted = [archiving(0, 0, 1)]
    assert not numbers.are_spent, "its outcome comes first"
