"""Lag and group offsets out of Spark's progress reports."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from client.errors import ConfigError
from client.spark.errors import BrokersUnreachable
from client.spark.listener import QuireListener, lags_of, offset_of
from client.spark.plan.source_offset import SourceOffset
from client.spark.splits import TopicPartition
from tests.fakes.kafka_brokers import FakeBrokers

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def event(name: str | None, *sources: tuple[Any, Any]) -> Any:
    rows = [SimpleNamespace(endOffset=end, latestOffset=latest) for end, latest in sources]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="an-id", sources=rows))


def text(**positions: int) -> str:
    offset = SourceOffset({TopicPartition("a", int(p[1:])): o for p, o in positions.items()})
    return json.dumps(offset.to_json())


def listener(brokers: FakeBrokers, **options: Any) -> QuireListener:
    made = QuireListener("h:1", commit_group_id="g", **options)
    made._cluster = brokers  # type: ignore[assignment]
    return made


def test_trap_4_the_end_of_every_batch_is_stored_that_of_the_last_one_too() -> None:
    brokers = FakeBrokers()
    one = listener(brokers)
    one.onQueryProgress(event("q", (text(p0=5, p1=7), text(p0=9, p1=7))))
    assert brokers.committed == {"g": {A0: 5, A1: 7}}
    assert one.lags == {"q": {A0: 4, A1: 0}}


def test_others_are_told_the_lag() -> None:
    told: list[Any] = []
    one = QuireListener(on_lag=lambda name, lags: told.append((name, dict(lags))))
    one.onQueryProgress(event(None, (text(p0=5), text(p0=9))))
    assert told == [("an-id", {A0: 4})]


def test_other_queries_and_other_sources_are_left_alone() -> None:
    brokers = FakeBrokers()
    one = listener(brokers, query_name="mine")
    one.onQueryProgress(event("yours", (text(p0=5), text(p0=9))))
    one.onQueryProgress(event("mine", ("0", "1"), ("null", "null"), ('{"a":{"0":1}}', None)))
    one.onQueryProgress(event("mine", (None, None), ("not json", "")))
    assert brokers.committed == {}
    assert one.lags == {}


def test_brokers_that_are_away_stop_no_query(caplog: pytest.LogCaptureFixture) -> None:
    class Away(FakeBrokers):
        def commit(self, group: str, offsets: Any) -> None:
            raise BrokersUnreachable("nobody there")

    one = listener(Away())
    one.onQueryProgress(event("q", (text(p0=5), text(p0=9))))
    assert "offsets of group g are not stored: nobody there" in caplog.text


def test_a_group_needs_brokers() -> None:
    with pytest.raises(ConfigError):
        QuireListener(commit_group_id="g")


def test_without_a_report_of_the_ends_there_is_no_lag() -> None:
    end = offset_of(text(p0=5))
    assert end is not None
    assert lags_of(end, None) == {A0: 0}
