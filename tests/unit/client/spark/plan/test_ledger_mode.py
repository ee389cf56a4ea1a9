"""Planning in ledger mode when the metadata store, or what it holds, is of no use."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from client.errors import ConfigError, LogCorrupt, MetadataError, QuireError
from client.spark.options import Options
from client.spark.plan import ledger_mode
from client.spark.splits import BrokerSplit, LedgerSplit, OffsetRange, Position, TopicPartition
from tests.fakes.ledger_source import FakeLedger, FakeLedgerSource
from tests.unit.client.spark.test_options import parse


class Access(FakeLedgerSource):
    """A ledger source with a loop to call it in, which may have no segment lists."""

    def __init__(self, error: QuireError | TimeoutError | None = None) -> None:
        ledger = FakeLedger(10, 0)
        ledger.add_snapshot()
        ledger.add_batch(50)
        ledger.close()
        super().__init__([ledger])
        self.error = error

    def call(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
        return asyncio.run(work)

    async def segments(self, topic_id: str, partition: int, start: int, end: int) -> Any:
        if self.error is not None:
            raise self.error
        return await super().segments(topic_id, partition, start, end)


def options(mode: str) -> Options:
    return parse(subscribe="t", readMode=mode, metadataServiceUri="zk:2181")


WHOLE = OffsetRange("id", "t", 0, 0, 50)
USELESS = [
    LogCorrupt("/quire/partitions/id/0: segment list is damaged: b'{'"),
    MetadataError("no ZooKeeper server answers"),
    TimeoutError(),
]


def use(monkeypatch: pytest.MonkeyPatch, access: Access) -> None:
    monkeypatch.setattr(ledger_mode, "_access", lambda options: access)


def test_ranges_are_read_from_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Access())
    (split,) = ledger_mode.plan([WHOLE], options("ledger"))
    assert isinstance(split, LedgerSplit)
    assert (split.ledger_id, split.offset_start, split.offset_end) == (10, 0, 50)
    assert ledger_mode.locate([WHOLE], options("ledger")) == {
        TopicPartition("t", 0): Position(10, 1)
    }


@pytest.mark.parametrize("error", USELESS, ids=repr)
def test_mode_ledger_fails_and_says_why(
    monkeypatch: pytest.MonkeyPatch, error: QuireError | TimeoutError
) -> None:
    use(monkeypatch, Access(error))
    with pytest.raises(MetadataError, match="planning with readMode=ledger failed") as caught:
        ledger_mode.plan([WHOLE], options("ledger"))
    assert (str(error) or "no answer in time") in str(caught.value)
    assert "metadataServiceUri is zk:2181" in str(caught.value)


@pytest.mark.parametrize("error", USELESS, ids=repr)
def test_mode_auto_reads_through_the_brokers(
    monkeypatch: pytest.MonkeyPatch, error: QuireError | TimeoutError
) -> None:
    use(monkeypatch, Access(error))
    empty = OffsetRange("id", "t", 1, 7, 7)
    assert ledger_mode.plan([WHOLE, empty], options("auto")) == [
        BrokerSplit("id", "t", 0, -1, 0, 50)
    ]
    assert ledger_mode.locate([WHOLE], options("auto")) == {}


def test_brokers_without_topic_ids_are_not_read_around() -> None:
    with pytest.raises(ConfigError, match="report no topic id"):
        ledger_mode.plan([OffsetRange("", "t", 0, 0, 50)], options("auto"))
