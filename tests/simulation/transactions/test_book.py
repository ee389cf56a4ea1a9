"""The judge of transactions on logs made by hand: what is well, and each contradiction."""

from __future__ import annotations

import pytest

from broker.transactions.core.transaction import TransactionMetadata, TransactionState
from broker.transactions.core.transaction_records import transaction_record
from client.ids import ProducerId
from client.wire.kafka.batches.control_batch import Marker, build_marker
from client.wire.kafka.batches.records import Record, build_batch
from tests.simulation.clusters.oracle import PartitionBook
from tests.simulation.kafka.connection import Aborted, Fetched
from tests.simulation.kafka.entries import batches_of
from tests.simulation.kafka.transaction_link import ProducerKey
from tests.simulation.kafka.transaction_readers import filtered
from tests.simulation.transactions.book import TransactionBook
from tests.simulation.transactions.log import Fate, PartitionState, TransactionLog

KEY = ProducerKey(7, 0)


class Contradiction(Exception):
    """The judge has found one."""


class StubOracle:
    """Topics with one partition each, whose books are named after them."""

    forgets_producers = False

    def fail(self, name: str, text: str) -> None:
        raise Contradiction(f"{name}: {text}")

    def count(self, what: str) -> None:
        pass

    def partition_count(self, topic: str) -> int:
        return 0

    def topic_of(self, book: PartitionBook) -> str:
        return book.name.partition("/")[0]


class Bench:
    """A judge, and partitions whose logs are written by the test."""

    def __init__(self) -> None:
        self.book = TransactionBook(StubOracle())  # type: ignore[arg-type]
        self.logs: dict[str, TransactionLog] = {}
        self.book.starting("id", "c")
        self.book.given("id", "c", KEY)

    def log(self, topic: str) -> TransactionLog:
        if topic not in self.logs:
            book = PartitionBook(f"{topic}/0")
            oracle = StubOracle()
            self.logs[topic] = TransactionLog(oracle, book, self.book)  # type: ignore[arg-type]
        return self.logs[topic]

    def put(self, topic: str, batch: bytes) -> None:
        """Append a batch, at the next offset."""
        log = self.log(topic)
        (parsed,) = batches_of(batch)
        count = parsed.next_offset - parsed.base_offset
        base = log.end_offset
        log.end_offset = base + count
        log._take(parsed._replace(base_offset=base, next_offset=base + count))

    def data(self, topic: str, value: bytes, epoch: int = 0) -> None:
        """Append a value of a transaction."""
        self.put(
            topic,
            build_batch(
                [Record(None, value)],
                producer_id=ProducerId(7),
                producer_epoch=epoch,
                base_sequence=0,
                transactional=True,
            ),
        )

    def marker(self, topic: str, epoch: int = 0, coordinator: int = 1, *, commit: bool) -> None:
        """Append a marker."""
        self.put(topic, build_marker(Marker(ProducerId(7), epoch, commit, coordinator), 0))

    def transaction(self, number: int = 1, topics: str = "t") -> None:
        """A client sends a value to each topic, and asks to commit."""
        transaction = self.book.begin("id", "c", number)
        for topic in topics:
            transaction.values[topic, 0] = [b"tx:c:%d:0:" % number]
        self.book.asked(transaction, KEY, is_commit=True)
        self.made = transaction


def test_a_transaction_that_commits_everywhere_is_well() -> None:
    bench = Bench()
    bench.transaction(topics="tu")
    for topic in "tu":
        bench.data(topic, b"tx:c:1:0:")
        assert bench.log(topic).fates == {0: Fate.OPEN}
        bench.marker(topic, commit=True)
    bench.book.answered(bench.made)
    bench.book.judge()
    assert bench.log("t").fates == {0: Fate.COMMITTED, 1: Fate.CONTROL}


@pytest.mark.parametrize("with_data", [True, False])
def test_a_transaction_is_whole_or_nothing(with_data: bool) -> None:
    bench = Bench()
    bench.transaction(topics="tu")
    bench.data("t", b"tx:c:1:0:")
    bench.marker("t", commit=True)
    if with_data:
        bench.data("u", b"tx:c:1:0:")
        with pytest.raises(Contradiction, match="X3"):
            bench.marker("u", commit=False)
    else:
        with pytest.raises(Contradiction, match="X3"):
            bench.book.judge()


def test_an_answered_commit_does_not_abort() -> None:
    bench = Bench()
    bench.transaction()
    bench.data("t", b"tx:c:1:0:")
    bench.book.answered(bench.made)
    with pytest.raises(Contradiction, match="X2"):
        bench.marker("t", commit=False)


def test_nothing_commits_that_nobody_asked_to_commit() -> None:
    bench = Bench()
    bench.book.begin("id", "c", 1)
    bench.data("t", b"tx:c:1:0:")
    with pytest.raises(Contradiction, match="X2"):
        bench.marker("t", commit=True)


def test_a_fenced_client_commits_nothing_that_it_asks_for_later() -> None:
    bench = Bench()
    bench.book.starting("id", "d")
    bench.book.given("id", "d", ProducerKey(7, 1))
    bench.transaction()
    bench.data("t", b"tx:c:1:0:")
    with pytest.raises(Contradiction, match="X7"):
        bench.marker("t", commit=True)


def test_a_marker_ends_one_transaction() -> None:
    bench = Bench()
    bench.transaction(1)
    bench.transaction(2)
    bench.data("t", b"tx:c:1:0:")
    bench.data("t", b"tx:c:2:0:")
    with pytest.raises(Contradiction, match="X3"):
        bench.marker("t", commit=True)


def test_nothing_follows_a_marker_of_the_same_transaction() -> None:
    bench = Bench()
    bench.transaction()
    bench.data("t", b"tx:c:1:0:")
    bench.marker("t", commit=False)
    with pytest.raises(Contradiction, match="X8"):
        bench.data("t", b"tx:c:1:0:")


def test_a_transaction_that_nobody_has_ended_is_not_continued() -> None:
    bench = Bench()
    bench.transaction(1)
    bench.transaction(2)
    bench.data("t", b"tx:c:1:0:")
    with pytest.raises(Contradiction, match="X8"):
        bench.data("t", b"tx:c:2:0:", epoch=1)


def test_what_a_leader_has_to_know_is_told() -> None:
    bench = Bench()
    bench.transaction()
    bench.marker("t", coordinator=3, commit=True)
    bench.data("t", b"tx:c:1:0:")
    assert bench.log("t").state() == PartitionState({7: 1}, {7: 0}, {7: 3})


def test_data_of_an_older_epoch_is_seen() -> None:
    bench = Bench()
    bench.transaction()
    bench.marker("t", epoch=1, commit=False)
    with pytest.raises(Contradiction, match="X7"):
        bench.data("t", b"tx:c:1:0:")


def test_a_second_marker_needs_a_newer_epoch() -> None:
    bench = Bench()
    bench.transaction()
    bench.data("t", b"tx:c:1:0:")
    bench.marker("t", commit=True)
    bench.marker("t", coordinator=2, commit=True)
    with pytest.raises(Contradiction, match="X10"):
        bench.marker("t", coordinator=2, commit=True)


def test_a_pair_is_given_once() -> None:
    bench = Bench()
    with pytest.raises(Contradiction, match="X7"):
        bench.book.given("id", "c2", KEY)


@pytest.mark.parametrize("has_rival", [False, True])
def test_only_a_client_with_rivals_is_told_that_it_is_fenced(has_rival: bool) -> None:
    bench = Bench()
    bench.book.starting("id", "c")
    bench.book.given("id", "c", KEY)
    if has_rival:
        bench.book.starting("id", "d")
        bench.book.refused("id", "c", 90, is_excused=False)
    else:
        with pytest.raises(Contradiction, match="X12"):
            bench.book.refused("id", "c", 90, is_excused=False)


@pytest.mark.parametrize(
    ("states", "is_well"),
    [
        ([(0, 0), (0, 1), (0, 2), (0, 2), (0, 4), (0, 1)], True),
        ([(0, 0), (0, 1), (1, 3), (1, 5), (2, 0)], True),
        ([(0, 1), (0, 2), (0, 3)], False),
        ([(0, 1), (0, 4)], False),
        ([(3, 0), (2, 0)], False),
        ([(3, 0), (5, 0)], False),
    ],
)
def test_the_coordinators_log_follows_the_state_machine(
    states: list[tuple[int, int]], is_well: bool
) -> None:
    book = TransactionBook(StubOracle())  # type: ignore[arg-type]

    def write() -> None:
        for epoch, state in states:
            stored = TransactionMetadata(ProducerId(7), epoch, 1000, TransactionState(state))
            record = transaction_record("id", stored)
            book._state(record.key, record.value)

    if is_well:
        write()
    else:
        with pytest.raises(Contradiction, match="X11"):
            write()


def test_an_answer_is_filtered_as_consumers_do() -> None:
    data = b""
    for number, epoch in enumerate((0, 1)):
        data += _at(2 * number, build_batch(
            [Record(None, b"v")], producer_id=ProducerId(7), producer_epoch=epoch,
            base_sequence=0, transactional=True,
        ))  # fmt: skip
        marker = Marker(ProducerId(7), epoch, number == 1, 0)
        data += _at(2 * number + 1, build_marker(marker, 0))
    got = Fetched(0, 4, 4, 0, [Aborted(7, 0)], data, -1)
    assert [(one.batch.base_offset, one.is_shown) for one in filtered(got, 0)] == [
        (0, False),
        (2, True),
    ]
    assert [one.is_shown for one in filtered(got._replace(aborted=[]), 0)] == [True, True]


def _at(offset: int, batch: bytes) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]
