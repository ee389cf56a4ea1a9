"""Timeouts of transactions and the expiry of transactional ids."""

from __future__ import annotations

import pytest

from broker.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    Overloaded,
    ProducerFenced,
)
from broker.transactions.core.transaction import (
    EXPIRED,
    TIMED_OUT,
    TransactionMetadata,
    TransactionVersion,
)
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_ABORT,
    EMPTY,
    FIRST,
    ID,
    NEW,
    ONGOING,
    P0,
    PID,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TIMEOUT_MS,
    TV0,
    TV2,
    Bench,
    ongoing,
    producer,
    states,
)

DAY_S = 86_400


class TestTime:
    """Timeouts of transactions, expiry of ids."""

    @pytest.mark.parametrize("version", [TV0, TV2])
    def test_a_transaction_that_ran_out_of_time_is_aborted(
        self, version: TransactionVersion
    ) -> None:
        bench = ongoing(version)
        bench.advance(TIMEOUT_MS / 1000)
        assert bench.stored.state is ONGOING
        bench.advance(10)
        assert (bench.stored.state, bench.stored.epoch) == (PREPARE_ABORT, 1)
        assert bench.markers[-1].producer == producer(NEW, 1)
        assert [event.name for event in bench.events] == [TIMED_OUT]
        assert bench.events[0].producer == FIRST
        bench.confirm()
        assert bench.stored.state is COMPLETE_ABORT
        commit = bench.replies[bench.end(FIRST, version=version)]
        assert isinstance(commit, ProducerFenced)
        abort = bench.replies[bench.end(FIRST, is_commit=False, version=version)]
        if version is TV2:
            assert abort == producer(NEW, 1)
        else:
            assert isinstance(abort, ProducerFenced)

    def test_one_with_the_last_epoch_needs_a_producer_id(self) -> None:
        bench = Bench()
        bench.store(
            TransactionMetadata(
                PID, 32_766, TIMEOUT_MS, ONGOING, (P0,), start_ms=bench.now.ms, version=TV2
            )
        )
        bench.load()
        bench.short = True
        bench.advance(75)
        assert bench.stored.state is ONGOING
        bench.allocate(CoordinatorNotAvailable("not now"))
        bench.advance(10)
        bench.allocate()
        bench.confirm()
        assert bench.stored.producer == producer(NEW, 0)
        abort = bench.end(producer(PID, 32_766), is_commit=False, version=TV2)
        assert bench.replies[abort] == producer(NEW, 0)

    def test_one_that_is_ending_is_left_alone(self) -> None:
        bench = ongoing()
        bench.slow = True
        token = bench.end(FIRST)
        bench.advance(100)
        bench.finish()
        assert bench.replies[token] == FIRST
        assert bench.stored.state is PREPARE_COMMIT
        bench.advance(1_000)
        assert not bench.events

    def test_after_a_takeover_there_is_time_to_end_it(self) -> None:
        bench = ongoing()
        bench.now = bench.now._replace(s=bench.now.s + 500, ms=bench.now.ms + 500_000)
        bench.load()
        bench.advance(9.9)
        assert bench.replies[bench.end(FIRST)] == FIRST

    def test_and_then_it_is_over(self) -> None:
        bench = ongoing()
        bench.now = bench.now._replace(s=bench.now.s + 500, ms=bench.now.ms + 500_000)
        bench.load()
        bench.advance(10)
        assert bench.stored.state is PREPARE_ABORT

    def test_an_unused_id_expires(self) -> None:
        bench = Bench(timeout_interval_ms=DAY_S * 1000)
        bench.init()
        bench.advance(7 * DAY_S - 1)
        assert bench.shard.view.ids() == [ID]
        bench.advance(3_601)
        assert bench.shard.view.ids() == []
        assert [event.name for event in bench.events] == [EXPIRED]
        assert states(bench.log)[-1] is None
        assert isinstance(bench.replies[bench.add(FIRST)], InvalidProducerIdMapping)
        bench.load()
        assert bench.shard.view.ids() == []

    def test_while_it_expires_it_is_busy(self) -> None:
        bench = Bench(timeout_interval_ms=DAY_S * 1000)
        bench.init()
        bench.slow = True
        bench.advance(8 * DAY_S)
        (append,) = bench.held
        assert states(list(append.records)) == [None]
        for token in (bench.init(), bench.add(FIRST), bench.end(FIRST)):
            assert isinstance(bench.replies[token], ConcurrentTransactions)
        bench.refuse(Overloaded("full"))
        assert bench.replies.get(bench.init()) is None
        bench.finish()
        assert bench.stored.epoch == 1

    def test_an_open_transaction_does_not_expire(self) -> None:
        bench = ongoing(timeout_interval_ms=DAY_S * 1000)
        bench.slow = True
        bench.end(FIRST)
        bench.finish()
        bench.advance(30 * DAY_S)
        assert bench.stored.state is PREPARE_COMMIT
        assert not bench.held

    def test_many_ids_expire_in_few_batches(self) -> None:
        bench = Bench(timeout_interval_ms=30 * DAY_S * 1000, expiry_interval_ms=8 * DAY_S * 1000)
        for number in range(2_500):
            unused = TransactionMetadata(PID, 0, 1, EMPTY, updated_ms=bench.now.ms)
            bench.store(unused, f"tx-{number}")
        bench.load()
        bench.slow = True
        bench.advance(8 * DAY_S)
        assert [len(append.records) for append in bench.held] == [1_000], "some at a time"
        bench.advance(1)
        bench.advance(1)
        assert [len(append.records) for append in bench.held] == [1_000, 1_000, 500]
        bench.finish(3)
        assert bench.shard.view.ids() == []
