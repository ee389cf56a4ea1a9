"""The offset table of a group, its in-flight counts and when offsets end."""

from __future__ import annotations

import pytest

from broker.groups.core.group_offsets import GroupOffsets, TopicPartition, Usage, lag
from broker.groups.core.group_types import CommittedOffset, GroupState

KEY = TopicPartition("t", 0)
RETENTION_MS = 1_000


def committed(commit_ms: int = 0, expire_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(5, 2, "m", commit_ms, expire_ms)


def test_a_durable_commit_is_returned_with_all_its_parts() -> None:
    offsets = GroupOffsets()
    assert not offsets
    offsets.replay("t", 0, committed())
    assert offsets
    assert offsets.get("t", 0) == committed()
    assert offsets.get("t", 1) is None
    assert offsets.get("u", 0) is None
    assert list(offsets) == [(KEY, committed())]


def test_a_tombstone_removes() -> None:
    offsets = GroupOffsets()
    offsets.replay("t", 0, None)
    offsets.replay("t", 0, committed())
    offsets.replay("t", 1, committed())
    offsets.replay("t", 0, None)
    assert [key for key, _ in offsets] == [TopicPartition("t", 1)]
    offsets.replay("t", 1, None)
    assert not offsets


def test_in_flight_keys_count() -> None:
    offsets = GroupOffsets()
    offsets.sent([KEY])
    offsets.sent([KEY])
    offsets.settled([KEY])
    assert offsets
    assert offsets.is_in_flight(KEY)
    assert offsets.keys() == [KEY]
    assert offsets.keys("t") == [KEY]
    assert offsets.keys("u") == []
    assert offsets.get("t", 0) is None
    offsets.settled([KEY])
    assert not offsets


@pytest.mark.parametrize(
    ("usage", "commit_ms", "end_ms"),
    [
        (Usage(GroupState.EMPTY, 500, "consumer", frozenset()), 100, 1500),
        (Usage(GroupState.EMPTY, 500, "consumer", frozenset()), 700, 1700),
        (Usage(GroupState.EMPTY, -1, "consumer", frozenset()), 700, 1700),
        (Usage(GroupState.EMPTY, 500, None, None), 100, 1100),
        (Usage(GroupState.STABLE, 500, "consumer", frozenset({"other"})), 100, 1100),
        (Usage(GroupState.STABLE, 500, "consumer", frozenset({"t"})), 100, None),
        (Usage(GroupState.STABLE, 500, "consumer", None), 100, None),
        (Usage(GroupState.STABLE, 500, "connect", None), 100, None),
        (Usage(GroupState.PREPARING, 500, "consumer", frozenset()), 100, None),
        (Usage(GroupState.COMPLETING, 500, "consumer", frozenset()), 100, None),
    ],
)
def test_when_an_offset_ends(usage: Usage, commit_ms: int, end_ms: int | None) -> None:
    offsets = GroupOffsets()
    offsets.replay("t", 0, committed(commit_ms))
    if end_ms is None:
        assert offsets.expired(usage, 10**12, RETENTION_MS) == []
    else:
        assert offsets.expired(usage, end_ms - 1, RETENTION_MS) == []
        assert offsets.expired(usage, end_ms, RETENTION_MS) == [KEY]


def test_a_retention_of_its_own_wins() -> None:
    usage = Usage(GroupState.EMPTY, 0, "consumer", frozenset())
    offsets = GroupOffsets()
    offsets.replay("t", 0, committed(0, expire_ms=9_000))
    assert offsets.expired(usage, 8_999, RETENTION_MS) == []
    assert offsets.expired(usage, 9_000, RETENTION_MS) == [KEY]


def test_nothing_expires_under_a_commit_in_flight() -> None:
    usage = Usage(GroupState.EMPTY, 0, "consumer", frozenset())
    offsets = GroupOffsets()
    offsets.replay("t", 0, committed())
    offsets.sent([KEY])
    assert offsets.expired(usage, 10**9, RETENTION_MS) == []


@pytest.mark.parametrize(("offset", "expected"), [(10, 10), (20, 0), (25, 0), (0, 15), (-1, 15)])
def test_lag(offset: int, expected: int) -> None:
    assert lag(offset, log_start_offset=5, high_watermark=20) == expected
