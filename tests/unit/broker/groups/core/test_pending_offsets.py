"""Offsets of transactions: pending until the marker, then published or gone."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.coordinator.core.coordinator_types import (
    CopiedRecord,
    CorruptCoordinatorRecord,
    LogRecord,
    Reply,
    Snapshot,
    Token,
    TransactionalRecord,
)
from broker.errors import (
    BrokerError,
    FencedInstanceId,
    IllegalGeneration,
    InvalidGroupId,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMember,
)
from broker.groups.core.group_offsets import (
    EPOCH_MAX,
    EndedTopic,
    HeardMarker,
    PendingOffset,
    PendingOffsets,
    Published,
    TopicPartition,
)
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    AppendPending,
    Commit,
    CommittedOffset,
    GroupState,
    JoinReply,
    OffsetToCommit,
    ProducerEpoch,
    ShardEffects,
)
from broker.groups.core.offset_records import group_record, offset_record
from broker.partition.core.held_batches import ProducerTransaction
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker
from tests.unit.broker.groups.core.test_group_shard import DAY_S, Bench

KEY = TopicPartition("t", 0)
ONE, TWO = ProducerId(1), ProducerId(2)


def pending(offset: int, position: int, epoch: int = 0) -> PendingOffset:
    return PendingOffset(CommittedOffset(offset, -1, "", 0, -1), epoch, Offset(position))


class TestPendingOffsets:
    def test_a_commit_publishes_and_an_abort_drops(self) -> None:
        offsets = PendingOffsets()
        offsets.put(ONE, "g", KEY, pending(5, 10))
        offsets.put(TWO, "h", KEY, pending(6, 11))
        assert ("g", KEY) in offsets
        assert list(offsets) == ["g", "h"]
        assert offsets.end(ONE, is_commit=True) == [
            Published("g", KEY, CommittedOffset(5, -1, "", 0, -1))
        ]
        assert offsets.end(TWO, is_commit=False) == []
        assert not offsets
        offsets.check()

    def test_the_last_offset_of_a_transaction_counts(self) -> None:
        offsets = PendingOffsets()
        for number in range(3):
            offsets.put(ONE, "g", KEY, pending(number, 10 + number))
        (published,) = offsets.end(ONE, is_commit=True)
        assert published.committed.offset == 2

    def test_what_is_published_later_in_the_log_wins(self) -> None:
        for first, second in ((ONE, TWO), (TWO, ONE)):
            offsets = PendingOffsets()
            offsets.put(ONE, "g", KEY, pending(5, 10))
            offsets.put(TWO, "g", KEY, pending(6, 11))
            found = [
                one.committed.offset
                for producer in (first, second)
                for one in offsets.end(producer, is_commit=True)
            ]
            assert found == ([5, 6] if first == ONE else [6])

    def test_a_plain_commit_ends_what_is_pending(self) -> None:
        offsets = PendingOffsets()
        offsets.put(ONE, "g", KEY, pending(5, 10))
        offsets.put(TWO, "g", KEY, pending(6, 11))
        offsets.overtake("g", KEY)
        assert not offsets
        assert offsets.end(ONE, is_commit=True) == []

    def test_an_old_marker_does_not_end_the_next_transaction(self) -> None:
        offsets = PendingOffsets()
        offsets.put(ONE, "g", KEY, pending(5, 10, epoch=4))
        assert offsets.end(ONE, is_commit=True, epoch_max=3) == []
        assert ("g", KEY) in offsets
        assert len(offsets.end(ONE, is_commit=True, epoch_max=4)) == 1

    def test_the_log_is_needed_from_the_oldest_on(self) -> None:
        offsets = PendingOffsets()
        assert offsets.first_position() is None
        offsets.put(ONE, "g", KEY, pending(5, 10))
        offsets.put(TWO, "h", KEY, pending(6, 11))
        assert offsets.first_position() == 10
        offsets.drop(ONE, "g", KEY)
        offsets.drop(ONE, "g", KEY)
        assert offsets.first_position() == 11


class TransactionBench(Bench):
    """A shard whose transactional appends wait for `accept`."""

    def __init__(self) -> None:
        self.announced: list[AppendPending] = []
        self.positions = 0
        super().__init__()

    def perform(self, effects: ShardEffects) -> None:
        self.announced += (one for one in effects if isinstance(one, AppendPending))
        super().perform(effects)

    def send(
        self,
        offset: int,
        producer_id: ProducerId = ONE,
        *,
        who: JoinReply | None = None,
        commit: Commit | None = None,
        metadata: str = "",
        topic_id: UUID = NO_TOPIC_ID,
    ) -> Token:
        """A TxnOffsetCommit arrives."""
        token = self.token()
        member = Commit("g", who.member_id, None, who.generation) if who else None
        producer = ProducerEpoch(producer_id, 0, ProducerTransaction("x", is_tv2=False))
        self.perform(
            self.shard.offsets.commit_in_transaction(
                commit or member or Commit("g", "", None, -1),
                [OffsetToCommit("t", 0, offset, -1, metadata, topic_id, is_named=True)],
                producer,
                token,
                self.now,
            )
        )
        return token

    def accept(self) -> None:
        """What was sent is durable."""
        for effect in self.announced:
            for record in effect.records:
                self.positions += 1
                producer = effect.producer
                self.shard.replay(
                    TransactionalRecord(
                        record, producer.producer_id, producer.epoch, Offset(self.positions)
                    )
                )
            self.perform(self.shard.on_stored(effect.ticket, self.now))
        self.announced.clear()

    def add(self, offset: int, producer_id: ProducerId = ONE) -> None:
        token = self.send(offset, producer_id)
        self.accept()
        assert self.replies[token] == (None,)

    def end(self, producer_id: ProducerId = ONE, *, commit: bool = True) -> None:
        self.shard.replay(Marker(producer_id, 0, commit, 1))
        self.shard.view.check()

    def refusal(self, commit: Commit) -> BrokerError:
        with pytest.raises(BrokerError) as caught:
            self.send(1, commit=commit)
        return caught.value

    @property
    def is_unstable(self) -> bool:
        return KEY in self.shard.view.unstable("g")


class TestCommits:
    def test_nobody_sees_it_before_the_marker(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        token = bench.send(5)
        assert token not in bench.replies, "not durable yet"
        assert bench.is_unstable, "who sent it may have been replaced meanwhile"
        bench.accept()
        assert bench.replies[token] == (None,)
        assert bench.offset() == 1
        assert bench.is_unstable
        bench.end()
        assert bench.offset() == 5
        assert not bench.is_unstable

    def test_an_abort_leaves_what_was_there(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        bench.add(5)
        bench.end(commit=False)
        assert bench.offset() == 1
        assert not bench.is_unstable

    def test_a_group_that_only_a_transaction_knows_goes_with_its_abort(self) -> None:
        bench = TransactionBench()
        bench.add(5)
        assert bench.shard.view.ids() == ["g"]
        bench.end(commit=False)
        assert bench.shard.view.ids() == []

    def test_a_later_plain_commit_wins_over_an_open_transaction(self) -> None:
        bench = TransactionBench()
        bench.add(5)
        bench.commit(9)
        bench.end()
        assert bench.offset() == 9

    def test_what_the_log_refused_is_no_longer_unstable(self) -> None:
        bench = TransactionBench()
        token = bench.send(5)
        (effect,) = bench.announced
        bench.perform(bench.shard.on_store_failed(effect.ticket, NotCoordinator("no"), bench.now))
        assert isinstance(bench.replies[token], NotCoordinator)
        assert not bench.is_unstable
        assert bench.shard.view.ids() == []

    def test_unload_answers_who_waits(self) -> None:
        bench = TransactionBench()
        token = bench.send(5)
        bench.perform(bench.shard.unload(NotCoordinator("gone")))
        assert isinstance(bench.replies[token], NotCoordinator)

    def test_a_text_that_is_too_long_keeps_only_its_own_partition_out(self) -> None:
        bench = TransactionBench()
        token = bench.send(5, metadata="x" * 5_000)
        (outcome,) = bench.replies[token]  # type: ignore[misc]
        assert isinstance(outcome, OffsetMetadataTooLarge)
        assert not bench.announced


class TestWhoMayCommit:
    def test_an_unknown_group(self) -> None:
        bench = TransactionBench()
        assert isinstance(bench.refusal(Commit("g", "m", None, 3)), IllegalGeneration)
        assert isinstance(bench.refusal(Commit("g" * 40_000, "", None, -1)), InvalidGroupId)
        bench.send(1)

    def test_a_group_with_members(self) -> None:
        bench = TransactionBench()
        who = bench.member()
        bench.send(1, who=who)
        bench.send(1)
        assert isinstance(bench.refusal(Commit("g", who.member_id, None, 9)), IllegalGeneration)
        assert isinstance(bench.refusal(Commit("g", "stranger", None, 1)), UnknownMember)
        assert isinstance(
            bench.refusal(Commit("g", who.member_id, "static", 1)), UnknownMember | FencedInstanceId
        )
        assert isinstance(bench.refusal(Commit("g", who.member_id, None, -1)), IllegalGeneration)

    def test_a_producer_of_this_generation_may_while_the_leader_assigns(self) -> None:
        bench = TransactionBench()
        token = bench.join()
        bench.advance(0)
        who = bench.replies[token]
        assert isinstance(who, JoinReply)
        assert bench.shard.view.state_counts()[GroupState.COMPLETING] == 1
        with pytest.raises(RebalanceInProgress):
            bench.commit(1, who=who)
        bench.send(1, who=who)
        assert len(bench.announced) == 1


class TestTime:
    def test_what_a_transaction_may_change_does_not_expire(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        bench.add(5)
        bench.advance(9 * DAY_S)
        assert bench.offset() == 1
        bench.end(commit=False)
        bench.advance(1 * DAY_S)
        assert bench.offset() is None

    def test_nor_does_a_group_that_waits_for_one(self) -> None:
        bench = TransactionBench()
        bench.send(5)
        bench.advance(9 * DAY_S)
        bench.accept()
        bench.end()
        assert bench.offset() == 5


class TestRemoval:
    def test_a_deleted_offset_is_no_longer_pending(self) -> None:
        bench = TransactionBench()
        bench.add(5)
        bench.perform(bench.shard.offsets.delete("g", [KEY], bench.token()))
        assert not bench.is_unstable
        bench.end()
        assert bench.offset() is None

    def test_a_deleted_group_neither(self) -> None:
        bench = TransactionBench()
        bench.add(5)
        bench.perform(bench.shard.delete_groups(["g"], bench.token(), bench.now))
        bench.end()
        assert bench.shard.view.ids() == []

    def test_a_deleted_topic_takes_what_is_on_its_way_along(self) -> None:
        bench = TransactionBench()
        bench.send(5)
        bench.slow = True
        bench.perform(bench.shard.offsets.delete_topic(EndedTopic("t", None)))
        bench.accept()  # it is before the removal in the log
        bench.slow = False
        bench.finish()
        bench.end()
        assert bench.offset() is None

    def test_offsets_older_than_the_topic_go_but_not_what_is_pending(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        bench.advance(60)
        bench.add(5)
        bench.perform(
            bench.shard.offsets.delete_topic(EndedTopic("t", NO_TOPIC_ID, bench.now.ms - 1))
        )
        bench.end()
        assert bench.offset() == 5

    @pytest.mark.parametrize("was_made_after_s", [-60, 60])
    def test_what_a_transaction_committed_while_our_view_lagged_is_the_new_topics(
        self, was_made_after_s: int
    ) -> None:
        """Nobody knows before its marker; what was committed before it was made goes then."""
        old, new = UUID(int=1), UUID(int=2)
        bench = TransactionBench()
        bench.advance(100)
        token = bench.send(5, topic_id=old)
        bench.accept()
        assert bench.replies[token] == (None,)
        made_ms = bench.now.ms + was_made_after_s * 1000
        bench.perform(bench.shard.offsets.delete_topic(EndedTopic("t", old, made_ms, new)))
        bench.perform(bench.shard.end_transaction(HeardMarker(Marker(ONE, 0, True, 1), EPOCH_MAX)))
        if was_made_after_s > 0:
            assert bench.offset() is None
        else:
            assert bench.offset() == 5
            assert bench.shard.view.committed("g").of_topic("t", new) == [KEY]


class TestTheLog:
    def test_what_may_change_is_left_out_of_a_copy(self) -> None:
        bench = TransactionBench()
        view = bench.shard.view
        bench.commit(1)
        assert view.kept_from(Offset(50)) == 50
        bench.add(5)
        committed = view.committed("g").get("t", 0)
        assert view.snapshot("g") == Snapshot([], {KEY: committed})
        assert view.kept_from(Offset(50)) == bench.positions

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_what_was_left_out_is_copied_once_it_is_decided(self, is_commit: bool) -> None:
        """Unless something newer is in the log by then."""
        bench = TransactionBench()
        view = bench.shard.view
        bench.commit(1)
        bench.add(5)
        before = view.committed("g").get("t", 0)
        (_, left) = view.snapshot("g")
        assert view.snapshot("g", left) == Snapshot([], {KEY: before})
        bench.end(commit=is_commit)
        copied = [] if is_commit else [offset_record("g", "t", 0, before)]
        assert view.snapshot("g", left) == Snapshot(copied)

    def test_a_marked_copy_of_an_older_broker_is_no_news(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        old = bench.shard.view.committed("g").get("t", 0)
        bench.add(5)
        bench.shard.replay(CopiedRecord(offset_record("g", "t", 0, old)))
        assert bench.shard.view.unstable("g") == {KEY}
        bench.end()
        assert bench.offset() == 5
        bench.shard.replay(CopiedRecord(offset_record("g", "t", 0, old)))
        assert bench.offset() == 5

    def test_a_marked_copy_counts_if_the_log_holds_nothing_else(self) -> None:
        bench = TransactionBench()
        bench.commit(1)
        copy = CopiedRecord(offset_record("g", "t", 0, bench.shard.view.committed("g").get("t", 0)))
        later = TransactionBench()
        later.shard.replay(copy)
        assert later.offset() == 1

    def test_a_transaction_of_what_is_no_offset_is_damage(self) -> None:
        bench = TransactionBench()
        with pytest.raises(CorruptCoordinatorRecord):
            bench.shard.replay(TransactionalRecord(group_record("g", None), ONE, 0, Offset(1)))

    def test_a_removal_in_a_transaction_takes_its_own_offset_back(self) -> None:
        bench = TransactionBench()
        bench.add(5)
        removal = offset_record("g", "t", 0, None)
        bench.shard.replay(TransactionalRecord(removal, ONE, 0, Offset(9)))
        bench.end()
        assert bench.offset() is None

    def test_replies_come_once(self) -> None:
        bench = TransactionBench()
        effects = bench.shard.offsets.commit_in_transaction(
            Commit("g", "", None, -1),
            [],
            ProducerEpoch(ONE, 0, ProducerTransaction("x", is_tv2=False)),
            Token(99),
            bench.now,
        )
        assert effects == (Reply(Token(99), ()),)
        assert isinstance(offset_record("g", "t", 0, None), LogRecord)
