"""What spans many requests: durability, markers, parked requests, takeovers, limits."""

from __future__ import annotations

import pytest

from broker.coordinator.core.coordinator_types import LogRecord
from broker.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotCoordinator,
    Overloaded,
    ProducerFenced,
)
from broker.transactions.core.transaction import FENCED, MarkerWritten, TransactionMetadata
from client.ids import ProducerId
from tests.unit.broker.transactions.core.transaction_driver import (
    COMPLETE_ABORT,
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
        assert bench.shard.view.snapshot(ID).records == []


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
        assert view.snapshot(ID).records == [bench.log[-1]]
        bench.slow = True
        bench.end(FIRST)
        assert view.snapshot(ID).records == []
        bench.finish()
        assert view.snapshot(ID).records == [bench.log[-1]]
        # Some markers are confirmed: that is not stored, so that all are written again.
        bench.confirm(P0)
        assert view.snapshot(ID).records == [bench.log[-1]]
        assert view.snapshot("nobody").records == []
        assert view.describe("nobody") is None

    def test_an_id_waits_for_a_producer_id(self) -> None:
        bench = Bench()
        bench.short = True
        bench.init()
        assert bench.shard.view.snapshot(ID).records == []
        assert bench.shard.view.describe(ID) is None
        assert sum(bench.shard.view.summary().state_counts.values()) == 0
        bench.allocate()
        assert bench.shard.view.summary().state_counts[EMPTY] == 1


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
