"""What spans many requests: durability, markers, parked requests, takeovers, time, limits."""

from __future__ import annotations

import pytest

from broker.coordinator.core.coordinator_types import LogRecord
from broker.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotCoordinator,
    Overloaded,
    ProducerFenced,
)
from broker.transactions.core.transaction_records import TransactionEntry, decode
from broker.transactions.core.transaction_types import (
    EXPIRED,
    FENCED,
    TIMED_OUT,
    MarkerWritten,
    TransactionMetadata,
    TransactionState,
    TransactionVersion,
)
from client.ids import ProducerId
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
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
    producer,
)

FIRST = producer(NEW, 0)
DAY_S = 86_400


def ongoing(version: TransactionVersion = TV0, **config: int) -> Bench:
    """A transaction of P0 and P1 that is open."""
    bench = Bench(**config)
    bench.init()
    bench.add(FIRST, P0, P1, version=version)
    assert bench.stored.state is ONGOING
    return bench


def states(records: list[LogRecord]) -> list[TransactionState | None]:
    found = []
    for record in records:
        entry = decode(*record)
        assert isinstance(entry, TransactionEntry)
        found.append(None if entry.metadata is None else entry.metadata.state)
    return found


class TestDecideFirst:
    """DECIDE-FIRST: durable, then markers and answers; all markers, then Complete*."""

    def test_nobody_is_answered_before_it_is_durable(self) -> None:
        bench = Bench()
        bench.slow = True
        for start in (
            bench.init,
            lambda: bench.add(FIRST),
            lambda: bench.end(FIRST),
        ):
            token = start()
            assert token not in bench.replies
            assert not bench.markers
            bench.finish()
            assert not isinstance(bench.replies[token], Exception)
        assert len(bench.markers) == 1

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_complete_waits_for_every_marker(self, is_commit: bool) -> None:
        bench = ongoing()
        bench.end(FIRST, is_commit=is_commit)
        (markers,) = bench.markers
        assert markers.partitions == (P0, P1)
        assert (markers.is_commit, markers.number, markers.version) == (is_commit, 1, TV0)
        bench.confirm(P1)
        assert bench.stored.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
        assert bench.stored.partitions == (P0,)  # what tools are shown: without a marker yet
        bench.confirm(P1)
        bench.confirm(P0)
        assert bench.stored.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
        bench.linger()
        assert states(bench.log) == [
            EMPTY,
            ONGOING,
            PREPARE_COMMIT if is_commit else PREPARE_ABORT,
            COMPLETE_COMMIT if is_commit else COMPLETE_ABORT,
        ]

    def test_a_decision_without_partitions_is_complete_at_once(self) -> None:
        bench = Bench()
        bench.init()
        assert bench.replies[bench.end(FIRST, is_commit=False, version=TV2)] == producer(NEW, 1)
        bench.linger()
        assert states(bench.log) == [EMPTY, PREPARE_ABORT, COMPLETE_ABORT]
        assert not bench.markers

    def test_markers_of_another_transaction_count_for_nothing(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        for number, who in ((0, FIRST), (1, producer(NEW, 1)), (2, FIRST)):
            written = [MarkerWritten(ID, number, who, one) for one in (P0, P1)]
            bench.perform(bench.shard.on_marker_written(written, bench.now))
        bench.perform(
            bench.shard.on_marker_written([MarkerWritten("other", 1, FIRST, P0)], bench.now)
        )
        assert bench.stored.state is PREPARE_COMMIT
        bench.confirm()
        bench.confirm()
        assert bench.stored.state is COMPLETE_COMMIT

    def test_a_refused_append_changes_nothing(self) -> None:
        bench = ongoing()
        bench.slow = True
        before = bench.stored
        tokens = []
        for start in (
            lambda: bench.add(FIRST, P2),
            lambda: bench.end(FIRST),
            lambda: bench.init(),
        ):
            tokens.append(start())
            bench.refuse(Overloaded("full"))
            assert bench.stored == before
        assert all(isinstance(bench.replies[token], Overloaded) for token in tokens)
        bench.slow = False
        # The epoch of a fence that is not in the log is not used up (KAFKA-8803).
        bench.init()
        assert bench.stored.epoch == 1

    def test_a_refused_completion_is_tried_again(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        bench.slow = True
        bench.confirm()
        bench.linger()
        for _ in range(3):
            bench.refuse(Overloaded("full"))
            assert not bench.held
            bench.advance(bench.config.retry_ms / 1000)
        bench.finish()
        assert states(bench.log)[-2:] == [PREPARE_COMMIT, COMPLETE_COMMIT]
        assert bench.stored.state is COMPLETE_COMMIT

    def test_a_new_id_that_could_not_be_stored_is_forgotten(self) -> None:
        bench = Bench(transactional_ids_max=1)
        bench.slow = True
        bench.init()
        bench.refuse(Overloaded("full"))
        assert bench.shard.view.ids() == []
        bench.slow = False
        assert bench.replies[bench.init()] == producer(NEW + 1, 0)

    def test_a_producer_id_that_cannot_be_had(self) -> None:
        bench = Bench()
        bench.short = True
        token = bench.init()
        bench.allocate(CoordinatorNotAvailable("no metadata store"))
        assert isinstance(bench.replies[token], CoordinatorNotAvailable)
        assert bench.shard.view.ids() == []
        assert bench.shard.view.snapshot(ID) == []


class TestParked:
    """Requests to add partitions while the last transaction ends."""

    def test_the_next_transaction_begins_in_the_same_batch(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        first, second = bench.add(FIRST, P1), bench.add(FIRST, P2, P1)
        bench.slow = True
        bench.confirm()
        assert states(list(bench.held[0].records)) == [COMPLETE_COMMIT, ONGOING]
        third = bench.add(FIRST, P0)
        assert not {first, second, third} & bench.replies.keys()
        bench.finish()
        assert bench.replies[first] is bench.replies[second] is None
        assert bench.stored.partitions == (P1, P2)
        assert bench.stored.number == 2
        bench.finish()
        assert bench.replies[third] is None
        assert bench.stored.partitions == (P0, P1, P2)
        assert not bench.held

    def test_partitions_added_at_the_same_time(self) -> None:
        """With TV2 the leaders of several partitions ask at once."""
        bench = Bench()
        bench.init()
        bench.slow = True
        tokens = [bench.add(FIRST, one, version=TV2) for one in (P0, P1, P2)]
        bench.finish()
        assert bench.replies[tokens[0]] is None
        assert tokens[1] not in bench.replies
        bench.finish()
        assert all(bench.replies[token] is None for token in tokens)
        assert bench.stored.partitions == (P0, P1, P2)
        assert not bench.held

    def test_only_for_so_long(self) -> None:
        bench = ongoing(parked_ms_max=5_000)
        bench.end(FIRST)
        early = bench.add(FIRST)
        bench.advance(3)
        late = bench.add(FIRST)
        bench.advance(2)
        assert isinstance(bench.replies[early], ConcurrentTransactions)
        assert late not in bench.replies
        bench.confirm()
        assert bench.replies[late] is None

    def test_only_so_many(self) -> None:
        bench = ongoing(parked_requests_max=2)
        bench.end(FIRST)
        tokens = [bench.add(FIRST) for _ in range(3)]
        assert [token in bench.replies for token in tokens] == [False, False, True]
        bench.confirm()
        bench.end(FIRST)
        assert bench.add(FIRST) not in bench.replies

    def test_fenced_ones_do_not_wait(self) -> None:
        bench = ongoing(TV2)
        bench.end(FIRST, version=TV2)
        assert isinstance(bench.replies[bench.add(FIRST, version=TV2)], ProducerFenced)
        assert bench.add(producer(NEW, 1), version=TV2) not in bench.replies

    def test_when_the_completion_is_refused_they_are_told(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        parked = bench.add(FIRST)
        bench.slow = True
        bench.confirm()
        bench.refuse(Overloaded("full"))
        assert isinstance(bench.replies[parked], Overloaded)
        again = bench.add(FIRST)
        bench.advance(1)
        bench.finish()
        assert bench.replies[again] is None
        assert states(bench.log)[-2:] == [COMPLETE_COMMIT, ONGOING]

    def test_the_one_before_was_refused(self) -> None:
        bench = Bench()
        bench.init()
        bench.slow = True
        first, second = bench.add(FIRST, P0), bench.add(FIRST, P1)
        bench.refuse(Overloaded("full"))
        assert isinstance(bench.replies[first], Overloaded)
        bench.finish()
        assert bench.replies[second] is None
        assert bench.stored.partitions == (P1,)

    def test_too_many_partitions_are_refused_there_too(self) -> None:
        bench = ongoing(transaction_partitions_max=2)
        assert isinstance(bench.replies[bench.add(FIRST, P2)], InvalidRequest)
        bench.end(FIRST)
        parked = bench.add(FIRST, P0, P1, P2)
        bench.confirm()
        assert isinstance(bench.replies[parked], InvalidRequest)
        assert bench.stored.state is COMPLETE_COMMIT


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
        (record,) = bench.shard.view.snapshot(ID)
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


class TestTakeover:
    """Another coordinator reads the same log."""

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_decisions_are_resumed(self, is_commit: bool) -> None:
        bench = ongoing()
        bench.end(FIRST, is_commit=is_commit)
        bench.confirm(P0)
        bench.load()
        (markers,) = bench.markers
        assert (markers.partitions, markers.is_commit) == ((P0, P1), is_commit)
        assert markers.producer == FIRST
        bench.confirm()
        assert bench.stored.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)

    def test_a_decision_whose_markers_are_all_written_is_completed(self) -> None:
        bench = Bench()
        bench.store(
            TransactionMetadata(PID, 3, TIMEOUT_MS, PREPARE_ABORT, updated_ms=5, start_ms=5)
        )
        bench.load()
        assert bench.stored.state is COMPLETE_ABORT

    def test_everybody_who_waits_is_told(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        tokens = [bench.add(FIRST)]
        bench.slow = bench.short = True
        tokens.append(bench.init(transactional_id="new"))
        bench.allocate()
        tokens.append(bench.init(transactional_id="newer"))
        bench.perform(bench.shard.unload(NotCoordinator("lost")))
        assert all(isinstance(bench.replies[token], NotCoordinator) for token in tokens)
        bench.perform(bench.shard.unload(NotCoordinator("lost")))

    def test_records_of_the_future_are_passed_over(self) -> None:
        bench = Bench()
        bench.log.append(LogRecord(b"\0\x07?", b"?"))
        bench.load()
        assert bench.shard.view.ids() == []


class TestCopy:
    """What the copy of a log takes over."""

    def test_what_is_stored_and_nothing_in_flight(self) -> None:
        bench = ongoing()
        view = bench.shard.view
        assert view.ids() == [ID]
        assert view.snapshot(ID) == [bench.log[-1]]
        bench.slow = True
        bench.end(FIRST)
        assert view.snapshot(ID) == []
        bench.finish()
        assert view.snapshot(ID) == [bench.log[-1]]
        # Some markers are confirmed: that is not stored, so that all are written again.
        bench.confirm(P0)
        assert view.snapshot(ID) == [bench.log[-1]]
        assert view.snapshot("nobody") == []
        assert view.describe("nobody") is None

    def test_an_id_waits_for_a_producer_id(self) -> None:
        bench = Bench()
        bench.short = True
        bench.init()
        assert bench.shard.view.snapshot(ID) == []
        assert bench.shard.view.describe(ID) is None
        assert sum(bench.shard.view.summary().state_counts.values()) == 0
        bench.allocate()
        assert bench.shard.view.summary().state_counts[EMPTY] == 1


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


class TestRequests:
    """What is wrong with a request itself."""

    def test_ids(self) -> None:
        bench = Bench()
        for name in ("", "x" * 40_000, "☃" * 20_000):
            for token in (
                bench.init(transactional_id=name),
                bench.add(FIRST, transactional_id=name),
                bench.end(FIRST, transactional_id=name),
            ):
                assert isinstance(bench.replies[token], InvalidRequest)
            with pytest.raises(InvalidRequest):
                bench.shard.requests.verify(name, FIRST, (P0,))
        assert bench.replies[bench.init(transactional_id="x" * 32_767)] == FIRST

    @pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
    def test_timeouts(self, timeout_ms: int) -> None:
        bench = Bench()
        token = bench.init(timeout_ms=timeout_ms)
        assert isinstance(bench.replies[token], InvalidTransactionTimeout)

    def test_half_a_producer(self) -> None:
        bench = Bench()
        for half in (producer(5, -1), producer(-1, 5)):
            assert isinstance(bench.replies[bench.init(half)], InvalidRequest)

    def test_the_last_timeout_counts(self) -> None:
        bench = Bench()
        bench.init(timeout_ms=5_000)
        bench.init(timeout_ms=900_000)
        assert bench.stored.timeout_ms == 900_000

    def test_too_many_ids(self) -> None:
        bench = Bench(transactional_ids_max=2)
        for name in ("a", "b"):
            bench.init(transactional_id=name)
        assert isinstance(
            bench.replies[bench.init(transactional_id="c", connection=1)], CoordinatorNotAvailable
        )
        assert bench.replies[bench.init(transactional_id="a")] == producer(NEW, 1)

    def test_a_new_incarnation_fences_the_transaction_of_the_old_one(self) -> None:
        bench = ongoing()
        assert isinstance(bench.replies[bench.init()], ConcurrentTransactions)
        assert [event.name for event in bench.events] == [FENCED]
        assert isinstance(bench.replies[bench.init()], ConcurrentTransactions)
        bench.confirm()
        assert bench.replies[bench.init()] == producer(NEW, 2)
        for token in (bench.add(FIRST), bench.end(FIRST)):
            assert isinstance(bench.replies[token], ProducerFenced)

    def test_ids_do_not_disturb_each_other(self) -> None:
        bench = Bench()
        bench.slow = True
        first, second = bench.init(transactional_id="a"), bench.init(transactional_id="b")
        assert len(bench.held) == 2
        bench.finish(2)
        assert bench.replies[first] == producer(NEW, 0)
        assert bench.replies[second] == producer(NEW + 1, 0)

    def test_the_number_counts_transactions(self) -> None:
        bench = Bench()
        bench.init()
        for number in range(1, 4):
            bench.add(FIRST, P0)
            bench.add(FIRST, P1)
            assert bench.stored.number == number
            bench.end(FIRST)
            assert bench.markers[-1].number == number
            bench.confirm()

    def test_a_topic_that_was_created_again_is_another_one(self) -> None:
        bench = ongoing()
        again = P0._replace(topic_id=None)
        bench.add(FIRST, again)
        assert set(bench.stored.partitions) == {P0, P1, again}
        assert ProducerId(NEW) == bench.stored.producer_id


class TestProven:
    """PROVEN: who says "it is done" or "never again" has to be the coordinator still."""

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_a_retry_is_answered_when_the_log_has_confirmed_something(
        self, is_commit: bool
    ) -> None:
        bench = ongoing()
        bench.end(FIRST, is_commit=is_commit)
        bench.confirm()
        before = bench.stored
        bench.slow = True
        retry = bench.end(FIRST, is_commit=is_commit)
        assert retry not in bench.replies
        bench.finish()
        assert bench.replies[retry] == FIRST
        assert bench.stored == before
        assert not bench.markers[1:]

    def test_a_coordinator_that_was_taken_over_does_not_answer(self) -> None:
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.slow = True
        retry = bench.end(FIRST)  # or the end of the next transaction, of which we did not hear
        bench.perform(bench.shard.unload(NotCoordinator("fenced")))
        assert isinstance(bench.replies[retry], NotCoordinator)

    def test_an_epoch_for_each_transaction_needs_no_proof(self) -> None:
        bench = ongoing(TV2)
        bench.end(FIRST, version=TV2)
        bench.confirm()
        bench.slow = True
        retry = bench.end(FIRST, version=TV2)
        assert bench.replies[retry] == producer(NEW, 1)

    def test_a_refusal_that_ends_a_client_is_answered_when_the_log_has_confirmed_something(
        self,
    ) -> None:
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.linger()
        bench.init(transactional_id="other")
        bench.slow = True
        before = bench.stored
        refused = {
            bench.end(FIRST, transactional_id="nobody"): InvalidProducerIdMapping,
            bench.add(FIRST, transactional_id="nobody"): InvalidProducerIdMapping,
            bench.add(producer(NEW + 7, 0)): InvalidProducerIdMapping,
            bench.end(FIRST, is_commit=False): InvalidTransactionState,
            bench.add(producer(NEW + 1, -1), transactional_id="other"): ProducerFenced,
            bench.init(producer(NEW + 7, 0)): ProducerFenced,
        }
        assert not refused.keys() & bench.replies.keys()
        bench.finish(len(refused))
        assert {token: type(bench.replies[token]) for token in refused} == refused
        assert bench.stored == before
        bench.load()
        assert bench.stored == before

    def test_who_was_taken_over_sends_such_a_client_to_its_successor(self) -> None:
        """It would end: the id is new, it has a new producer id, or a new transaction."""
        bench = ongoing()
        bench.end(FIRST)
        bench.confirm()
        bench.slow = True
        asked = (
            bench.end(FIRST, transactional_id="nobody"),
            bench.add(producer(NEW + 7, 0)),
            bench.end(FIRST, is_commit=False),
        )
        bench.perform(bench.shard.unload(NotCoordinator("fenced")))
        assert {type(bench.replies[token]) for token in asked} == {NotCoordinator}

    def test_a_log_that_refuses_the_proof_answers_instead(self) -> None:
        bench = Bench()
        bench.slow = True
        token = bench.end(FIRST)
        bench.refuse(NotCoordinator("fenced"))
        assert isinstance(bench.replies[token], NotCoordinator)

    def test_an_epoch_of_the_next_producer_id_is_ahead_too(self) -> None:
        """AHEAD: whoever has it got it from a coordinator that knows more than this one."""
        bench = Bench()
        value = TransactionMetadata(
            PID, 32_767, TIMEOUT_MS, PREPARE_COMMIT, (P0,), 1, 1,
            next_producer_id=ProducerId(NEW), version=TV2,
        )  # fmt: skip
        bench.store(value)
        bench.load()
        token = bench.end(producer(NEW, 1), version=TV2)
        assert isinstance(bench.replies[token], NotCoordinator)
        assert isinstance(bench.replies[bench.add(producer(NEW, 2))], NotCoordinator)
