"""COMPLETE-LATER: when the end of a transaction goes into the log, and with what."""

from __future__ import annotations

import pytest

from broker.errors import ConcurrentTransactions, CoordinatorNotAvailable, Overloaded
from broker.transactions.core.transaction import TransactionMetadata, TransactionVersion
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_COMMIT,
    EMPTY,
    FIRST,
    ID,
    NEW,
    ONGOING,
    P0,
    P1,
    P2,
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


class TestCompleteLater:
    """COMPLETE-LATER: Complete* goes into the log with what follows it, or after a moment."""

    @staticmethod
    def marked(version: TransactionVersion = TV0, **config: int) -> Bench:
        """A commit whose markers are all written, and that is not stored as complete."""
        bench = ongoing(version, **config)
        bench.end(FIRST, version=version)
        bench.confirm()
        assert states(bench.log)[-1] is PREPARE_COMMIT
        assert bench.stored.state is COMPLETE_COMMIT
        assert bench.stored.partitions == ()
        return bench

    def test_the_next_transaction_takes_it_along(self) -> None:
        bench = self.marked()
        bench.slow = True
        token = bench.add(FIRST, P2)
        (append,) = bench.held
        assert states(list(append.records)) == [COMPLETE_COMMIT, ONGOING]
        bench.finish()
        assert bench.replies[token] is None
        bench.advance(1)
        assert not bench.held

    def test_so_do_other_requests(self) -> None:
        bench = self.marked()
        bench.init()
        assert states(bench.log)[-2:] == [COMPLETE_COMMIT, EMPTY]
        bench = self.marked(TV2)
        bench.end(producer(NEW, 1), is_commit=False, version=TV2)
        assert states(bench.log)[-2:] == [COMPLETE_COMMIT, PREPARE_ABORT]
        bench = self.marked()
        retry = bench.end(FIRST)
        assert states(bench.log)[-2:] == [PREPARE_COMMIT, COMPLETE_COMMIT]
        assert bench.replies[retry] == FIRST

    def test_after_a_moment_it_is_appended_alone(self) -> None:
        bench = self.marked(complete_linger_ms=125)
        bench.advance(0.12)
        assert states(bench.log)[-1] is PREPARE_COMMIT
        bench.advance(0.14)
        assert states(bench.log)[-2:] == [PREPARE_COMMIT, COMPLETE_COMMIT]
        bench.advance(5)
        assert len(states(bench.log)) == 4

    def test_all_that_are_due_are_appended_at_one_time(self) -> None:
        bench = self.marked(complete_linger_ms=125)
        bench.init(transactional_id="other")
        bench.add(producer(NEW + 1, 0), transactional_id="other")
        bench.end(producer(NEW + 1, 0), transactional_id="other")
        bench.advance(0.05)
        bench.confirm()
        bench.slow = True
        bench.advance(0.199)
        assert not bench.held
        bench.perform(bench.shard.on_deadline(bench.now._replace(s=bench.now.s + 0.002)))
        assert [states(list(one.records)) for one in bench.held] == 2 * [[COMPLETE_COMMIT]]

    @pytest.mark.parametrize("version", [TV0, TV2])
    def test_who_takes_over_before_writes_the_markers_again(
        self, version: TransactionVersion
    ) -> None:
        bench = self.marked(version)
        who = bench.stored.producer
        bench.load()
        assert bench.stored.state is PREPARE_COMMIT
        (markers,) = bench.markers
        assert markers.is_commit
        assert markers.partitions == (P0, P1)
        following = bench.add(who, version=version)
        assert following not in bench.replies
        bench.confirm()
        assert bench.replies[following] is None
        assert states(bench.log)[-3:] == [PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING]

    @pytest.mark.parametrize("version", [TV0, TV2])
    def test_nobody_vouches_for_the_next_transaction_before_that_is_durable(
        self, version: TransactionVersion
    ) -> None:
        """Else a successor, which finds the decision, would end it by the markers of the last."""
        bench = self.marked(version)
        who = bench.stored.producer
        bench.slow = True
        token = bench.add(who, P0, version=version)
        assert token not in bench.replies
        with pytest.raises(ConcurrentTransactions):
            bench.shard.requests.verify(ID, who, (P0,))
        bench.finish()
        assert bench.replies[token] is None
        assert bench.shard.requests.verify(ID, who, (P0,)) == (None,)
        bench.load()
        assert bench.stored.state is ONGOING
        assert not bench.markers, "they are not written again"

    def test_a_copy_holds_what_is_stored(self) -> None:
        bench = self.marked()
        (record,) = bench.shard.view.snapshot(ID).records
        assert states([record]) == [PREPARE_COMMIT]
        assert bench.shard.view.summary().state_counts[COMPLETE_COMMIT] == 1

    def test_what_went_with_it_is_refused(self) -> None:
        bench = self.marked()
        bench.slow = True
        token = bench.add(FIRST)
        bench.refuse(Overloaded("full"))
        assert isinstance(bench.replies[token], Overloaded)
        again = bench.add(FIRST)
        assert states(list(bench.held[0].records)) == [COMPLETE_COMMIT, ONGOING]
        bench.finish()
        assert bench.replies[again] is None

    def test_while_a_producer_id_is_allocated_it_waits(self) -> None:
        bench = Bench()
        bench.store(TransactionMetadata(PID, 32_766, TIMEOUT_MS, PREPARE_COMMIT, (P0,), 5, 5))
        bench.load()
        bench.confirm()
        bench.short = True
        token = bench.init()
        bench.linger()
        assert len(bench.log) == 1
        bench.allocate(CoordinatorNotAvailable("not now"))
        assert isinstance(bench.replies[token], CoordinatorNotAvailable)
        again = bench.init()
        bench.allocate()
        assert states(bench.log)[-2:] == [COMPLETE_COMMIT, EMPTY]
        assert bench.replies[again] == producer(NEW, 0)
