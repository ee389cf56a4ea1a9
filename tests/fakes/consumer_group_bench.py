"""A shard of groups with members of the consumer protocol, its log, and time by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from broker.coordinator.core.coordinator_types import Append, LogRecord, Now, Reply, Token
from broker.errors import BrokerError
from broker.groups.core.consumer_heartbeat import ConsumerHeartbeat, ConsumerHeartbeatReply
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import (
    Commit,
    Event,
    GroupConfig,
    OffsetToCommit,
    ShardEffects,
)
from tests.fakes.group_topics import FakeTopics

GROUP = "g"


class ConsumerBench:
    """`slow`: appends wait for `finish` or `refuse`."""

    def __init__(self, config: GroupConfig | None = None, topics: FakeTopics | None = None) -> None:
        self.now = Now(1000.0, 10**12)
        self.config = config or GroupConfig(consumer_assignment_interval_ms=0)
        self.topics = topics or FakeTopics(t=4)
        self.log: list[LogRecord] = []
        self.events: list[Event] = []
        self.replies: dict[Token, object] = {}
        self.slow = False
        self.held: list[Append] = []
        self._tokens = 0
        self.shard = self._new_shard()
        self.shard.loaded(self.now)

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.config, lambda prefix: f"{prefix}-1", self.topics)

    # --- carrying out -------------------------------------------------------------------------

    def ask(self, start: Callable[[Token], ShardEffects]) -> Token:
        """Begin a request; its answer is, or will be, in `replies`."""
        self._tokens += 1
        token = Token(self._tokens)
        try:
            self.perform(start(token))
        except BrokerError as error:
            self.replies[token] = error
        return token

    def perform(self, effects: ShardEffects) -> None:
        """Carry effects out as the shell does."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.replies, "one answer each"
                self.replies[effect.token] = effect.result
            elif isinstance(effect, Append):
                self.held.append(effect)
            elif isinstance(effect, Event):
                self.events.append(effect)
        if not self.slow:
            self.finish()
        self.shard.view.check()

    def finish(self) -> None:
        """What is on its way becomes durable."""
        while self.held:
            append = self.held.pop(0)
            for record in append.records:
                self.log.append(record)
                self.shard.replay(record)
            self.perform(self.shard.on_stored(append.ticket, self.now))

    def refuse(self, error: BrokerError) -> None:
        """The log refuses what is on its way."""
        held, self.held = self.held, []
        for append in held:
            self.perform(self.shard.on_store_failed(append.ticket, error, self.now))

    def advance(self, seconds: float) -> None:
        """Let time pass, with everything that falls due."""
        end_s = self.now.s + seconds
        while (at_s := self.shard.next_deadline()) is not None and at_s <= end_s:
            self._move(max(at_s, self.now.s))
            self.perform(self.shard.on_deadline(self.now))
        self._move(end_s)

    def _move(self, at_s: float) -> None:
        self.now = Now(at_s, self.now.ms + round((at_s - self.now.s) * 1000))

    def move_coordinator(self) -> None:
        """Another coordinator reads the log: what is not in it is gone."""
        self.held.clear()
        self.shard = self._new_shard()
        for record in self.log:
            self.shard.replay(record)
        self.perform(self.shard.loaded(self.now))

    def copy_log(self) -> None:
        """The log is copied, and trimmed before the copy."""
        self.log = [
            record
            for key in self.shard.view.ids()
            for record in self.shard.view.snapshot(key).records
        ]

    # --- members ------------------------------------------------------------------------------

    def heartbeat(
        self,
        member: str,
        epoch: int,
        *,
        owned: Mapping[str, Sequence[int]] | None = None,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = -1,
        group: str = GROUP,
        sees: Callable[[str], bool] = lambda _: True,
    ) -> Token:
        """Send a heartbeat; `owned` by the names of topics."""
        named = None
        if owned is not None:
            named = {self.topics.id(name): frozenset(some) for name, some in owned.items() if some}
        request = ConsumerHeartbeat(
            group, member, epoch, instance_id, None, "c", "/h", rebalance_timeout_ms,
            None if topics is None else tuple(topics), pattern, assignor, named, sees,
        )  # fmt: skip
        return self.ask(lambda token: self.shard.heartbeat_consumer(request, token, self.now))

    def join(self, member: str, topics: Sequence[str] | None = ("t",), **more: object) -> Token:
        """Send the first heartbeat."""
        more = {"rebalance_timeout_ms": 60_000, **more}
        return self.heartbeat(member, 0, owned={}, topics=topics, **more)  # type: ignore[arg-type]

    def reply(self, token: Token) -> ConsumerHeartbeatReply:
        """Return the answer to a heartbeat that succeeded."""
        found = self.replies[token]
        assert isinstance(found, ConsumerHeartbeatReply), found
        return found

    def error(self, token: Token) -> type[BaseException]:
        """Return the kind of the answer to a request that did not."""
        found = self.replies[token]
        assert isinstance(found, BrokerError), found
        return type(found)

    def told(self, token: Token) -> dict[str, list[int]] | None:
        """Return the assignment in an answer, by the names of topics; None: as before."""
        assignment = self.reply(token).assignment
        if assignment is None:
            return None
        found = {}
        for topic_id, held in assignment.items():
            name = self.topics.name(topic_id)
            assert name is not None
            found[name] = sorted(held)
        return found

    def commit(self, offset: int, partition: int = 0, member: str = "", epoch: int = -1,
               topic: str = "t", **more: object) -> Token:  # fmt: skip
        """Commit an offset."""
        commit = Commit(GROUP, member, None, epoch)._replace(**more)
        offsets = [OffsetToCommit(topic, partition, offset, -1, "", self.topics.id(topic))]
        return self.ask(lambda token: self.shard.offsets.commit(commit, offsets, token, self.now))

    def offset(self, partition: int = 0, topic: str = "t") -> int | None:
        """Return what is committed."""
        committed = self.shard.view.committed(GROUP).get(topic, partition)
        return None if committed is None else committed.offset


class Member:
    """A consumer as clients are: it gives up at once what it is not told any more."""

    def __init__(self, bench: ConsumerBench, name: str, **joining: object) -> None:
        self.bench = bench
        self.name = name
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}
        self._instance = {"instance_id": joining.get("instance_id")}
        self._hear(bench.join(name, **joining))  # type: ignore[arg-type]

    def beat(self, **more: object) -> Token:
        """Send a heartbeat that says what it owns, and hear the answer."""
        more = {**self._instance, **more}
        token = self.bench.heartbeat(self.name, self.epoch, owned=self.owned, **more)  # type: ignore[arg-type]
        self._hear(token)
        return token

    def _hear(self, token: Token) -> None:
        reply = self.bench.reply(token)
        self.epoch = reply.epoch
        told = self.bench.told(token)
        if told is not None:
            self.owned = told


def settle(*members: Member, rounds: int = 4) -> None:
    """Let all members send heartbeats until they are where they are to be."""
    for _ in range(rounds):
        for member in members:
            member.beat()
