"""What a task does with answers to Fetch: holes, errors, damage, aborted transactions."""

from collections.abc import Iterator
from typing import Any

import pytest

from client.ids import Offset
from client.spark.decode.decode import Wanted, decode_runs
from client.spark.decode.record_fields import PADDING
from client.spark.errors import (
    BrokersUnreachable,
    DataLost,
    RequestRefused,
    SparkSourceError,
    TopicReplaced,
)
from client.spark.read import broker_fetch, task_reader
from client.spark.read.broker_fetch import RangeFetch, whole_batches
from client.spark.splits import AbortedTransaction, BrokerSplit, TopicPartition
from client.wire.kafka.batches.records import Record, build_batch
from client.wire.kafka.fetch_client import encode_fetch
from tests.fakes.kafka_brokers import CONTROL, TRANSACTIONAL, FakeBrokers, batch
from tests.unit.client.spark.test_options import parse

A0 = TopicPartition("t", 0)
NOT_LEADER, UNKNOWN_TOPIC, NOT_AUTHORIZED = 6, 3, 29


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_fetch.time, "sleep", lambda _s: None)


@pytest.fixture
def brokers() -> FakeBrokers:
    made = FakeBrokers()
    made.create("t")
    for _ in range(10):
        made.logs[A0].append(5)
    return made


def fetch(brokers: FakeBrokers, start: int, end: int, **options: str) -> list[bytes]:
    split = BrokerSplit(brokers.ids.get("t", "gone"), "t", 0, 3, start, end)
    chunks = RangeFetch(brokers, split, parse(**options)).chunks()  # type: ignore[arg-type]
    return [bytes(chunk.run.records) for chunk in chunks]


def log(brokers: FakeBrokers, first: int, last: int) -> bytes:
    return b"".join(data for base, data in brokers.logs[A0].batches if first <= base <= last)


def padded(records: bytes) -> memoryview:
    return memoryview(records + PADDING)


def test_whole_batches_that_hold_the_range(brokers: FakeBrokers) -> None:
    assert fetch(brokers, 7, 21) == [log(brokers, 5, 20)]


def test_a_large_range_takes_several_answers(brokers: FakeBrokers) -> None:
    answers = fetch(brokers, 0, 50, arrowBatchBytes="300")
    assert len(answers) == 5
    assert b"".join(answers) == log(brokers, 0, 45)


def test_few_records_are_asked_for_without_many_others(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backlog stands behind what one trigger may take: it would be sent and thrown away."""
    sizes: list[int] = []

    def encoded(*about: Any, bytes_max: int, **more: Any) -> bytes:
        sizes.append(bytes_max)
        return encode_fetch(*about, bytes_max=bytes_max, **more)

    monkeypatch.setattr(broker_fetch, "encode_fetch", encoded)
    brokers.logs[A0].append(7000)  # more than the first answer may hold
    brokers.logs[A0].append(50)
    assert b"".join(fetch(brokers, 40, 7090)) == log(brokers, 40, 7050)
    assert b"".join(fetch(brokers, 40, 80)) == log(brokers, 40, 50)
    assert sizes == [4 << 20, 64 << 10, 4 << 20]


def test_holes_are_normal(brokers: FakeBrokers) -> None:
    del brokers.logs[A0].batches[2:6]
    assert b"".join(fetch(brokers, 8, 33)) == log(brokers, 5, 30)


def test_a_range_that_ends_in_a_hole(brokers: FakeBrokers) -> None:
    del brokers.logs[A0].batches[2:6]
    assert b"".join(fetch(brokers, 0, 25)) == log(brokers, 0, 5)
    assert b"".join(fetch(brokers, 12, 25)) == log(brokers, 30, 30)  # which holds none of it


def test_leaders_move_and_connections_break(brokers: FakeBrokers) -> None:
    brokers.refusals = [NOT_LEADER, NOT_LEADER]
    brokers.breaks = 2
    assert b"".join(fetch(brokers, 0, 50)) == log(brokers, 0, 45)
    assert brokers.asked.count("drop") == 2


def test_nothing_is_waited_for_for_ever(
    brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.breaks = 10**9
    clock = iter(range(10**6))
    monkeypatch.setattr(broker_fetch.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(BrokersUnreachable, match=r"reading t-0 made no progress at offset 3 .*5 s"):
        fetch(brokers, 3, 50)


def test_a_refusal_that_does_not_pass(brokers: FakeBrokers) -> None:
    brokers.refusals = [NOT_AUTHORIZED]
    with pytest.raises(RequestRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        fetch(brokers, 0, 50)


def test_offsets_that_are_gone(brokers: FakeBrokers) -> None:
    brokers.logs[A0].start = 20
    with pytest.raises(DataLost, match="t-0 now begins at offset 20: offsets 3 to 19 are gone"):
        fetch(brokers, 3, 50)
    assert fetch(brokers, 3, 50, failOnDataLoss="false") == [log(brokers, 20, 45)]
    assert fetch(brokers, 3, 10, failOnDataLoss="false") == []


def begin(brokers: FakeBrokers, start: int, end: int) -> Iterator[int]:
    """Return the offsets of the records that a task returns, as it returns them."""
    bases = range(0, 50, 5)
    brokers.logs[A0].batches = [
        (base, build_batch([Record(None, b"v")] * 5, base_offset=Offset(base))) for base in bases
    ]
    split = BrokerSplit(brokers.ids["t"], "t", 0, 3, start, end)
    options = parse(failOnDataLoss="false", arrowBatchBytes="300")
    chunks = RangeFetch(brokers, split, options).chunks()  # type: ignore[arg-type]
    wanted = Wanted.by(options, "t", 0, start, end, verified=True)._replace(columns=["offset"])
    for rows in decode_runs(task_reader._runs(chunks, []), wanted):
        yield from rows.column(0).to_pylist()


@pytest.mark.parametrize(("start", "end"), [(3, 50), (23, 50), (3, 24)])
def test_rows_that_were_reported_as_gone_are_not_returned(
    brokers: FakeBrokers, start: int, end: int
) -> None:
    """The log begins within a batch, which is fetched as a whole."""
    brokers.logs[A0].start = 22
    assert list(begin(brokers, start, end)) == list(range(max(start, 22), end))


def test_rows_that_go_while_they_are_read_are_not_returned(brokers: FakeBrokers) -> None:
    found = begin(brokers, 0, 50)
    assert next(found) == 0
    brokers.logs[A0].start = 42
    rest = list(found)
    first = rest.index(42)
    assert rest == [*range(1, first + 1), *range(42, 50)]
    assert first < 20


def test_a_topic_that_is_gone(brokers: FakeBrokers) -> None:
    brokers.refusals = [UNKNOWN_TOPIC] * 4
    with pytest.raises(DataLost, match="t-0 no longer exists"):
        fetch(brokers, 3, 50)


def test_a_topic_that_was_replaced_while_it_was_read(brokers: FakeBrokers) -> None:
    split = BrokerSplit("another id", "t", 0, 3, 0, 50)
    chunks = RangeFetch(brokers, split, parse()).chunks()  # type: ignore[arg-type]
    with pytest.raises(TopicReplaced, match="its id was another id and is 0000"):
        list(chunks)


def test_damage_is_seen(brokers: FakeBrokers) -> None:
    base, data = brokers.logs[A0].batches[3]
    brokers.logs[A0].batches[3] = (base, data[:-1] + b"x")
    with pytest.raises(SparkSourceError, match="t-0 at offset 15 is damaged"):
        fetch(brokers, 0, 50)


def test_a_batch_that_was_cut_off_is_left_for_the_next_answer() -> None:
    records = batch(0, 5) + batch(5, 5)
    chunk, position = whole_batches(A0, padded(records[:-1]), 10, [])
    assert (chunk.run.size, position) == (len(batch(0, 5)), 5)
    with pytest.raises(SparkSourceError, match="less than one record batch"):
        whole_batches(A0, padded(records[:70]), 10, [])
    with pytest.raises(SparkSourceError, match=r"less than one record batch: .* has magic 1"):
        whole_batches(A0, padded(records[:16] + b"\x01" + records[17:]), 10, [])


def test_an_aborted_transaction_ends_with_its_producers_marker() -> None:
    records = b"".join(
        (
            batch(0, 5, pid=7, attributes=TRANSACTIONAL),
            batch(5, 1, pid=8, attributes=CONTROL),
            batch(6, 1, pid=7, attributes=CONTROL),
            batch(7, 5, pid=7, attributes=TRANSACTIONAL),
            batch(12, 1, pid=7, attributes=CONTROL),
            batch(13, 5, pid=9, attributes=TRANSACTIONAL),
        )
    )
    chunk, _ = whole_batches(A0, padded(records), 100, [(7, 0), (9, 13)])
    assert chunk.aborted == [AbortedTransaction(7, 0, 6), AbortedTransaction(9, 13, 17)]
