"""What spans groups and offsets: commits, deletions, expiry, deadlines, the copy of live state."""

from __future__ import annotations

import pytest

from broker.coordinator.core.coordinator_types import Append, LogRecord, Now, Reply, Ticket, Token
from broker.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    NonEmptyGroup,
    NotCoordinator,
    OffsetMetadataTooLarge,
    UnknownMember,
)
from broker.groups.core.group_offsets import EndedTopic, TopicPartition
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import (
    NO_TOPIC_ID,
    Commit,
    CommittedOffset,
    GroupConfig,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    OffsetToCommit,
    ShardEffects,
    Sync,
)
from broker.groups.core.offset_records import GroupEntry, OffsetEntry, UnknownEntry, decode
from tests.fakes.group_topics import FakeTopics

DAY_S = 86_400.0
KEY = TopicPartition("t", 0)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t"


class Bench:
    """A shard, its log, and time by hand. `slow`: appends wait for `finish`."""

    def __init__(self) -> None:
        self.now = Now(1000.0, 10**12)
        self.log: list[LogRecord] = []
        self.replies: dict[Token, object] = {}
        self.slow = False
        self.held: list[Append] = []
        self._tokens = 0
        self._members = 0
        self.config = GroupConfig(initial_rebalance_delay_ms=0)
        self.shard = GroupShard(self.config, self._member_id, FakeTopics())
        self.shard.loaded(self.now)

    def _member_id(self, prefix: str) -> str:
        self._members += 1
        return f"{prefix}-{self._members}"

    def token(self) -> Token:
        self._tokens += 1
        return Token(self._tokens)

    def perform(self, effects: ShardEffects) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.replies
                self.replies[effect.token] = effect.result
            elif isinstance(effect, Append):
                self.held.append(effect)
        if not self.slow:
            self.finish()
        self.shard.view.check()

    def finish(self) -> None:
        while self.held:
            append = self.held.pop(0)
            for record in append.records:
                self.log.append(record)
                self.shard.replay(record)
            self.perform(self.shard.on_stored(append.ticket, self.now))

    def advance(self, seconds: float) -> None:
        end_s = self.now.s + seconds
        while (at_s := self.shard.next_deadline()) is not None and at_s <= end_s:
            self._move(max(at_s, self.now.s))
            self.perform(self.shard.on_deadline(self.now))
        self._move(end_s)

    def _move(self, at_s: float) -> None:
        self.now = Now(at_s, self.now.ms + round((at_s - self.now.s) * 1000))

    def join(
        self, group: str = "g", protocol_type: str = "consumer", member_id: str = "",
        session_ms: int = 10_000,
    ) -> Token:  # fmt: skip
        token = self.token()
        request = Join(
            group, member_id, None, "c", "/h", session_ms, 60_000, protocol_type,
            (("range", SUBSCRIPTION),), False, False,
        )  # fmt: skip
        self.perform(self.shard.join(request, token, self.now))
        return token

    def member(
        self, group: str = "g", protocol_type: str = "consumer", session_ms: int = 10_000
    ) -> JoinReply:
        """Make a stable group of one."""
        token = self.join(group, protocol_type, session_ms=session_ms)
        self.advance(0)
        reply = self.replies[token]
        assert isinstance(reply, JoinReply)
        sync = Sync(group, reply.member_id, None, 1, None, None, ((reply.member_id, b"a"),))
        self.perform(self.shard.sync(sync, self.token(), self.now))
        return reply

    def commit(
        self, offset: int, group: str = "g", topic: str = "t", who: JoinReply | None = None,
        metadata: str = "",
    ) -> Token:  # fmt: skip
        token = self.token()
        commit = Commit(group, who.member_id if who else "", None, who.generation if who else -1)
        offsets = [OffsetToCommit(topic, 0, offset, -1, metadata)]
        self.perform(self.shard.offsets.commit(commit, offsets, token, self.now))
        return token

    def offset(self, group: str = "g", topic: str = "t") -> int | None:
        committed = self.shard.view.committed(group).get(topic, 0)
        return None if committed is None else committed.offset

    def reload(self) -> Bench:
        """A second shard that read the same log."""
        other = Bench()
        other.shard = GroupShard(self.config, other._member_id, FakeTopics())
        for record in self.log:
            other.shard.replay(record)
        other.log = list(self.log)
        other.now = self.now
        other.perform(other.shard.loaded(self.now))
        return other


class TestUnknownGroups:
    def test_membership(self) -> None:
        bench = Bench()
        with pytest.raises(UnknownMember):
            bench.join(member_id="m")
        with pytest.raises(UnknownMember):
            bench.shard.sync(Sync("g", "m", None, 1, None, None, ()), bench.token(), bench.now)
        with pytest.raises(UnknownMember):
            bench.shard.heartbeat(Heartbeat("g", "m", None, 1), bench.now)
        outcomes, effects = bench.shard.leave("g", [Leaving("m", None)], bench.now)
        assert [type(one) for one in outcomes] == [UnknownMember]
        assert not effects
        assert bench.shard.view.ids() == []

    def test_offsets(self) -> None:
        bench = Bench()
        assert bench.offset() is None
        with pytest.raises(GroupIdNotFound):
            bench.commit(1, who=JoinReply("m", 1, None, None, "m", ()))
        with pytest.raises(GroupIdNotFound):
            bench.shard.offsets.delete("g", [KEY], bench.token())
        assert bench.shard.view.describe("g") is None

    def test_a_refused_join_leaves_nothing_behind(self) -> None:
        bench = Bench()
        request = Join("g", "", None, "c", "h", 1, 1, "consumer", (("r", b""),), False, False)
        with pytest.raises(InvalidSessionTimeout):
            bench.shard.join(request, bench.token(), bench.now)
        assert bench.shard.view.ids() == []

    @pytest.mark.parametrize(
        ("group", "instance", "kind", "error"),
        [
            ("x" * 40_000, None, "consumer", InvalidGroupId),
            ("g", "x" * 40_000, "consumer", InvalidRequest),
            ("g", None, "x" * 40_000, InvalidRequest),
        ],
    )
    def test_a_join_that_no_record_holds(
        self, group: str, instance: str | None, kind: str, error: type[Exception]
    ) -> None:
        bench = Bench()
        request = Join(
            group, "", instance, "c", "h", 10_000, 10_000, kind, (("r", b""),), False, False
        )
        with pytest.raises(error):
            bench.shard.join(request, bench.token(), bench.now)

    def test_a_group_id_that_no_record_holds(self) -> None:
        bench = Bench()
        with pytest.raises(InvalidGroupId):
            bench.commit(1, group="x" * 40_000)


class TestCommit:
    def test_metadata_limit_is_per_partition(self) -> None:
        bench = Bench()
        token = bench.token()
        offsets = [
            OffsetToCommit("t", 0, 5, -1, "é" * 2048),
            OffsetToCommit("t", 1, 6, -1, "é" * 2048 + "x"),
        ]
        commit = Commit("g", "", None, -1)
        bench.perform(bench.shard.offsets.commit(commit, offsets, token, bench.now))
        good, bad = bench.replies[token]  # type: ignore[misc]
        assert good is None
        assert isinstance(bad, OffsetMetadataTooLarge)
        assert bench.offset() == 5
        assert bench.shard.view.committed("g").get("t", 1) is None

    def test_nothing_to_store_is_answered_at_once(self) -> None:
        bench = Bench()
        token = bench.commit(1, metadata="x" * 5000)
        assert isinstance(bench.replies[token][0], OffsetMetadataTooLarge)  # type: ignore[index]
        assert bench.log == []
        assert bench.shard.view.ids() == []

    def test_one_request_is_one_append(self) -> None:
        bench = Bench()
        bench.slow = True
        offsets = [OffsetToCommit("t", index, index, -1, "") for index in range(5)]
        commit = Commit("g", "", None, -1)
        bench.perform(bench.shard.offsets.commit(commit, offsets, bench.token(), bench.now))
        assert [len(append.records) for append in bench.held] == [5]

    def test_a_refused_append_commits_nothing(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        token = bench.commit(2)
        (append,) = bench.held
        bench.held.clear()
        error = CoordinatorNotAvailable("full")
        bench.perform(bench.shard.on_store_failed(append.ticket, error, bench.now))
        assert bench.replies[token] is error
        assert bench.offset() == 1

    def test_a_refused_first_commit_leaves_no_group(self) -> None:
        bench = Bench()
        bench.slow = True
        bench.commit(2)
        (append,) = bench.held
        error = CoordinatorNotAvailable("full")
        bench.perform(bench.shard.on_store_failed(append.ticket, error, bench.now))
        assert bench.shard.view.ids() == []

    def test_a_commit_renews_the_session(self) -> None:
        bench = Bench()
        who = bench.member()
        for offset in range(5):
            bench.advance(9)
            bench.commit(offset, who=who)
        assert bench.shard.view.state_counts()[GroupState.STABLE] == 1


class TestDeleteGroups:
    def test_outcomes_and_tombstones(self) -> None:
        bench = Bench()
        bench.commit(1, group="a")
        bench.commit(1, group="a", topic="u")
        bench.member("b")
        token = bench.token()
        bench.perform(bench.shard.delete_groups(["a", "b", "c"], token, bench.now))
        outcomes = bench.replies[token]
        assert [type(one) for one in outcomes] == [  # type: ignore[attr-defined]
            type(None),
            NonEmptyGroup,
            GroupIdNotFound,
        ]
        assert bench.offset("a") is None
        assert bench.shard.view.ids() == ["b"]
        assert bench.reload().shard.view.ids() == ["b"]

    def test_the_group_refuses_everything_until_that_is_durable(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        token = bench.token()
        bench.perform(bench.shard.delete_groups(["g"], token, bench.now))
        with pytest.raises(CoordinatorNotAvailable):
            bench.commit(2)
        with pytest.raises(CoordinatorNotAvailable):
            bench.join()
        with pytest.raises(GroupIdNotFound):
            bench.shard.offsets.delete("g", [KEY], bench.token())
        again = bench.token()
        bench.perform(bench.shard.delete_groups(["g"], again, bench.now))
        assert isinstance(bench.replies[again][0], GroupIdNotFound)  # type: ignore[index]
        bench.slow = False
        bench.finish()
        assert bench.replies[token] == (None,)
        bench.commit(3)
        assert bench.offset() == 3

    def test_commits_on_their_way_are_deleted_too(self) -> None:
        bench = Bench()
        bench.slow = True
        bench.commit(1)
        bench.perform(bench.shard.delete_groups(["g"], bench.token(), bench.now))
        bench.finish()
        assert bench.offset() is None
        assert bench.shard.view.ids() == []
        assert bench.reload().offset() is None

    def test_a_refused_delete_keeps_the_group(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        bench.perform(bench.shard.delete_groups(["g"], bench.token(), bench.now))
        (append,) = bench.held
        bench.held.clear()
        error = CoordinatorNotAvailable("full")
        bench.perform(bench.shard.on_store_failed(append.ticket, error, bench.now))
        bench.slow = False
        assert bench.offset() == 1
        bench.commit(2)
        assert bench.offset() == 2

    def test_a_deleted_topic_does_not_hold_the_group_back(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        bench.perform(bench.shard.delete_groups(["g"], bench.token(), bench.now))
        bench.perform(bench.shard.offsets.delete_topic(EndedTopic("t", None)))
        bench.finish()
        assert bench.shard.view.ids() == []


class TestDeleteOffsets:
    def test_an_empty_group(self) -> None:
        bench = Bench()
        bench.commit(1)
        token = bench.token()
        keys = [KEY, TopicPartition("t", 9)]
        bench.perform(bench.shard.offsets.delete("g", keys, token))
        assert bench.replies[token] == (None, None)
        assert bench.offset() is None

    def test_topics_of_a_live_consumer_group(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.commit(1, who=who)
        bench.commit(1, topic="u", who=who)
        token = bench.token()
        keys = [KEY, TopicPartition("u", 0)]
        bench.perform(bench.shard.offsets.delete("g", keys, token))
        busy, gone = bench.replies[token]  # type: ignore[misc]
        assert isinstance(busy, GroupSubscribedToTopic)
        assert gone is None
        assert (bench.offset(), bench.offset(topic="u")) == (1, None)

    def test_live_groups_of_other_types(self) -> None:
        bench = Bench()
        bench.member(protocol_type="connect")
        with pytest.raises(NonEmptyGroup):
            bench.shard.offsets.delete("g", [KEY], bench.token())

    def test_nothing_to_delete_writes_nothing(self) -> None:
        bench = Bench()
        bench.commit(1)
        token = bench.token()
        size = len(bench.log)
        bench.perform(bench.shard.offsets.delete("g", [TopicPartition("x", 1)], token))
        assert bench.replies[token] == (None,)
        assert len(bench.log) == size


class TestDeleteTopic:
    def test_only_offsets_older_than_a_time(self) -> None:
        bench = Bench()
        bench.commit(1, group="a")
        bench.advance(10)
        bench.commit(2, group="b")
        bench.perform(bench.shard.offsets.delete_topic(EndedTopic("t", NO_TOPIC_ID, bench.now.ms)))
        assert (bench.offset("a"), bench.offset("b")) == (None, 2)

    def test_nothing_to_delete(self) -> None:
        bench = Bench()
        assert not bench.shard.offsets.delete_topic(EndedTopic("t", None))


class TestExpiry:
    def test_an_empty_group_goes_after_the_retention(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.commit(1, who=who)
        leaving = [Leaving(who.member_id, None)]
        bench.perform(bench.shard.leave("g", leaving, bench.now)[1])
        bench.advance(6.9 * DAY_S)
        assert bench.offset() == 1
        bench.advance(0.2 * DAY_S)
        assert bench.offset() is None
        assert bench.shard.view.ids() == []
        assert isinstance(decode(*bench.log[-1]), GroupEntry)
        assert bench.reload().shard.view.ids() == []

    def test_a_live_group_keeps_what_it_subscribes_to(self) -> None:
        bench = Bench()
        who = bench.member(session_ms=100_000)
        bench.commit(1, who=who)
        bench.commit(1, topic="u", who=who)
        for _ in range(8 * 24 * 45):
            bench.shard.heartbeat(Heartbeat("g", who.member_id, None, 1), bench.now)
            bench.advance(80)
        assert (bench.offset(), bench.offset(topic="u")) == (1, None)
        assert bench.shard.view.state_counts()[GroupState.STABLE] == 1

    def test_a_group_that_never_committed_goes_with_the_next_sweep(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.perform(bench.shard.leave("g", [Leaving(who.member_id, None)], bench.now)[1])
        assert bench.shard.view.ids() == ["g"]
        bench.advance(601)
        assert bench.shard.view.ids() == []

    def test_nothing_goes_under_a_commit_on_its_way(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        bench.commit(2)
        commit = bench.held.pop()
        bench.advance(8 * DAY_S)
        assert bench.held == []
        bench.held.append(commit)
        bench.finish()
        assert bench.offset() == 2

    def test_a_group_stays_while_its_first_commit_is_on_its_way(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.perform(bench.shard.leave("g", [Leaving(who.member_id, None)], bench.now)[1])
        bench.slow = True
        bench.commit(1)
        bench.advance(601)
        assert len(bench.held) == 1
        bench.finish()
        assert bench.offset() == 1

    def test_a_sweep_is_one_append(self) -> None:
        bench = Bench()
        for group in "abc":
            bench.commit(1, group=group)
        bench.slow = True
        bench.advance(7 * DAY_S)
        assert [len(append.records) for append in bench.held] == [6]
        bench.finish()
        assert bench.shard.view.ids() == []


class TestDeadlines:
    def test_each_group_keeps_its_own_time(self) -> None:
        bench = Bench()
        early = bench.member("a")
        bench.advance(5)
        bench.member("b")
        bench.shard.heartbeat(Heartbeat("a", early.member_id, None, 1), bench.now)
        bench.advance(9)
        counts = bench.shard.view.state_counts()
        assert counts[GroupState.STABLE] == 2
        bench.advance(2)
        assert bench.shard.view.state_counts()[GroupState.EMPTY] == 2

    def test_there_is_always_the_sweep(self) -> None:
        bench = Bench()
        assert bench.shard.next_deadline() == bench.now.s + 600
        assert GroupShard(bench.config, str, FakeTopics()).next_deadline() is None


class TestReload:
    def test_offsets_and_groups(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.commit(5, who=who)
        bench.commit(6, group="simple")
        other = bench.reload()
        assert other.offset() == 5
        assert other.offset("simple") == 6
        assert other.shard.view.describe("g") == bench.shard.view.describe("g")
        other.commit(7, who=who)
        assert other.offset() == 7

    def test_a_simple_group_can_get_members(self) -> None:
        bench = Bench()
        bench.commit(6)
        other = bench.reload()
        other.member()
        assert other.shard.view.state_counts()[GroupState.STABLE] == 1

    def test_unload_answers_everybody(self) -> None:
        bench = Bench()
        bench.member()
        parked = bench.join()
        bench.slow = True
        commit = bench.commit(1, group="other")
        bench.perform(bench.shard.unload(NotCoordinator()))
        for token in (parked, commit):
            assert isinstance(bench.replies[token], NotCoordinator)


class TestSnapshot:
    def copy(self, bench: Bench) -> list[LogRecord]:
        return [
            record
            for group_id in bench.shard.view.ids()
            for record in bench.shard.view.snapshot(group_id).records
        ]

    def test_it_is_all_that_a_reader_needs(self) -> None:
        bench = Bench()
        who = bench.member()
        for offset in range(10):
            bench.commit(offset, who=who)
        bench.commit(3, group="simple")
        other = Bench()
        other.shard = GroupShard(bench.config, other._member_id, FakeTopics())
        copied = self.copy(bench)
        assert len(copied) == 3
        for record in copied:
            other.shard.replay(record)
        other.perform(other.shard.loaded(bench.now))
        assert other.offset() == 9
        assert other.offset("simple") == 3
        assert other.shard.view.describe("g") == bench.shard.view.describe("g")

    def test_what_is_on_its_way_is_left_out(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.commit(1, topic="u")
        bench.slow = True
        bench.commit(2)
        (entry,) = (decode(*record) for record in self.copy(bench))
        assert isinstance(entry, OffsetEntry)
        assert entry.topic == "u"

    def test_a_group_whose_metadata_is_on_its_way_is_left_out(self) -> None:
        bench = Bench()
        who = bench.member()
        bench.slow = True
        bench.perform(bench.shard.leave("g", [Leaving(who.member_id, None)], bench.now)[1])
        assert bench.held
        assert self.copy(bench) == []

    def test_a_group_that_is_being_deleted_is_left_out(self) -> None:
        bench = Bench()
        bench.commit(1)
        bench.slow = True
        bench.perform(bench.shard.delete_groups(["g"], bench.token(), bench.now))
        assert self.copy(bench) == []


def test_records_of_other_kinds_change_nothing() -> None:
    bench = Bench()
    record = LogRecord(b"\0\x09x", b"y")
    assert isinstance(decode(*record), UnknownEntry)
    bench.shard.replay(record)
    assert bench.shard.view.ids() == []


def test_tickets_are_told_apart() -> None:
    bench = Bench()
    bench.slow = True
    bench.commit(1, group="a")
    bench.commit(2, group="b")
    assert len({append.ticket for append in bench.held}) == 2
    with pytest.raises(KeyError):
        bench.shard.on_stored(Ticket(999), bench.now)


def test_expiry_of_its_own_is_kept() -> None:
    bench = Bench()
    token = bench.token()
    offsets = [OffsetToCommit("t", 0, 1, -1, "")]
    effects = bench.shard.offsets.commit(
        Commit("g", "", None, -1), offsets, token, bench.now, retention_ms=1000
    )
    bench.perform(effects)
    expected = CommittedOffset(1, -1, "", bench.now.ms, bench.now.ms + 1000)
    assert bench.shard.view.committed("g").get("t", 0) == expected
    assert bench.reload().shard.view.committed("g").get("t", 0) == expected
    bench.advance(700)
    assert bench.offset() is None
