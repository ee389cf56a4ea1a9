"""What is wrong with a heartbeat whatever the group; Kafka's texts."""

from __future__ import annotations

import pytest

from broker.errors import InvalidRegularExpression, InvalidRequest, UnsupportedAssignor
from broker.groups.core.consumer_heartbeat import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    UNKNOWN,
    ConsumerHeartbeat,
    check_heartbeat,
)
from broker.groups.core.group_types import ASSIGNOR_NAMES

FIRST = ConsumerHeartbeat(
    "g", "m", JOINING, None, None, "c", "/h", 60_000, ("t",), None, None, {}, lambda _: True
)
NEXT = FIRST._replace(epoch=3, rebalance_timeout_ms=UNKNOWN, topics=None, owned=None)


@pytest.mark.parametrize(
    "request_",
    [
        FIRST,
        FIRST._replace(topics=None, pattern="t.*"),
        FIRST._replace(topics=(), assignor="range"),
        NEXT,
        NEXT._replace(epoch=LEAVING),
        NEXT._replace(epoch=LEAVING_STATIC, instance_id="i"),
        NEXT._replace(pattern=""),
    ],
)
def test_good_ones(request_: ConsumerHeartbeat) -> None:
    check_heartbeat(request_, ASSIGNOR_NAMES)


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (FIRST._replace(member_id=""), InvalidRequest, "MemberId"),
        (FIRST._replace(instance_id=""), InvalidRequest, "InstanceId can't be empty"),
        (FIRST._replace(rack_id=""), InvalidRequest, "RackId"),
        (FIRST._replace(rebalance_timeout_ms=UNKNOWN), InvalidRequest, "must be provided"),
        (FIRST._replace(rebalance_timeout_ms=-2), InvalidRequest, "is invalid"),
        (FIRST._replace(owned=None), InvalidRequest, "TopicPartitions"),
        (FIRST._replace(topics=None), InvalidRequest, "SubscribedTopicRegex"),
        (FIRST._replace(assignor="x"), UnsupportedAssignor, "uniform, range"),
        (NEXT._replace(epoch=LEAVING_STATIC), InvalidRequest, "InstanceId can't be null"),
        (NEXT._replace(epoch=-3), InvalidRequest, "-3"),
        (NEXT._replace(pattern="["), InvalidRegularExpression, ""),
    ],
)
def test_bad_ones(request_: ConsumerHeartbeat, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check_heartbeat(request_, ASSIGNOR_NAMES)


def test_bytes_that_are_kept() -> None:
    assert FIRST._replace(topics=("abc", "d"), pattern="ef").kept_bytes == 4 + 2 + 1 + 1
