"""Checks of a running cluster, on rows as the admin API gives them."""

from __future__ import annotations

from typing import Any

import pytest

from ops.doctor.cluster import (
    check_bookies,
    check_brokers,
    check_clocks,
    check_transactions,
    check_versions,
)
from ops.doctor.examine import version_in
from ops.doctor.findings import Level


def bookies(*states: str) -> list[dict[str, str]]:
    return [{"bookie_id": f"b{n}", "state": state} for n, state in enumerate(states)]


def topic(copies: int, acks: int) -> dict[str, Any]:
    return {"topic": "t", "replication_factor": copies, "min_insync_replicas": acks}


@pytest.mark.parametrize(
    ("states", "level", "word"),
    [
        (["writable"] * 3, Level.FINE, "enough"),
        (["writable"] * 2, Level.WARNING, "write quorum of t"),
        (["writable"], Level.TROUBLE, "ack quorum of t"),
    ],
)
def test_fewer_bookies_than_quorums(states: list[str], level: Level, word: str) -> None:
    (found,) = check_bookies(bookies(*states), [topic(3, 2)])
    assert found.level is level
    assert word in found.what


def test_full_bookies_say_what_frees_space() -> None:
    found = check_bookies(bookies("writable", "read_only", "read_only"), [topic(3, 2)])
    assert found[-1].level is Level.TROUBLE
    assert "read and trimmed" in found[-1].what
    assert "retention.ms" in found[-1].advice
    assert "bookie gc" in found[-1].advice


def test_bookies_that_are_down_or_read_only() -> None:
    found = check_bookies(bookies("writable", "down", "read_only"), [topic(1, 1)])
    assert [one.level for one in found] == [Level.WARNING, Level.WARNING, Level.FINE]
    assert "decommission" in found[0].advice
    many = check_bookies([], [{**topic(1, 1), "topic": f"t{n}"} for n in range(5)])
    assert "t0, t1, t2 and 2 more topics" in many[0].what


def test_mixed_versions() -> None:
    assert check_versions({"a": "1", "b": "1"}).level is Level.FINE
    assert check_versions({}).level is Level.FINE
    found = check_versions({"a": "1", "b": "2", "c": "1"})
    assert found.level is Level.WARNING
    assert "1: a, c; 2: b" in found.what


def test_clocks() -> None:
    assert check_clocks({"a": 1.5, "b": -1.5}).level is Level.FINE
    found = check_clocks({"a": 1.5, "b": -7.2})
    assert found.level is Level.WARNING
    assert "b by -7 s" in found.what


def broker(number: int, host: str = "h", **live: Any) -> dict[str, Any]:
    return {
        "broker_id": number,
        "host": host,
        "is_unloaded": False,
        "silence": None,
        "live": {"is_ready": True, "not_ready": [], **live},
    }


def test_brokers_by_their_own_words() -> None:
    well = broker(1)
    silent = {**broker(2), "live": None, "silence": "refused"}
    late = broker(3, is_ready=False, not_ready=["t-0 is not led yet"])
    away = {**broker(4), "is_unloaded": True}
    found = check_brokers([well, silent, late, away])
    assert [one.level for one in found] == [
        Level.FINE,
        Level.TROUBLE,
        Level.TROUBLE,
        Level.WARNING,
    ]
    assert "t-0 is not led yet" in found[2].what


def test_loopback_among_others() -> None:
    mixed = check_brokers([broker(1, "127.0.0.1"), broker(2, "10.0.0.2")])
    assert mixed[0].level is Level.TROUBLE
    assert "brokers 1 send clients to loopback" in mixed[0].what
    local = check_brokers([broker(1, "127.0.0.1"), broker(2, "127.0.0.1")])
    assert all(one.level is Level.FINE for one in local)


def test_transactions_that_hang_and_whose() -> None:
    row = {
        "transactional_id": "pay-1",
        "state": "Ongoing",
        "open_seconds": 90.4,
        "partition_count": 2,
        "client_id": "payments",
        "client_host": "10.0.0.7",
    }
    decided = {**row, "transactional_id": "pay-2", "state": "PrepareCommit"}
    unseen = {**row, "client_id": None, "client_host": None}
    found = check_transactions([row, decided, unseen])
    assert [one.level for one in found] == [Level.WARNING, Level.TROUBLE, Level.WARNING]
    assert (
        "pay-1 has a transaction open for 90 s, from client payments at 10.0.0.7" in found[0].what
    )
    assert "quire transaction abort pay-1" in found[0].advice
    assert "2 partitions have not confirmed it" in found[1].what
    assert "not seen since a takeover" in found[2].what
    assert [one.level for one in check_transactions([])] == [Level.FINE]


def test_the_version_is_read_from_metrics() -> None:
    text = '# TYPE quire_info gauge\nquire_info{program="broker",version="0.1.0"} 1.0\n'
    assert version_in(text) == "0.1.0"
    assert version_in("# TYPE other gauge\nother 1.0\n") is None
    assert version_in("500 Internal Server Error\n") is None
