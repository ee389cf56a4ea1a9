"""Random clients, a slow log and fail-overs against the group shard: what must always hold.

The clients behave like Kafka's: they join, the leader assigns every partition to exactly one
member it was shown, all sync, commit, heartbeat, leave, restart as static members, or fall
silent. The log makes appends durable late, refuses some, and keeps a random part of what was in
flight when its coordinator dies. Checked after every step:

- within one generation a partition has one owner, over all coordinators that ever answered;
- the generation that one coordinator tells a member never decreases, nor does the stored one;
- what the shard shows is the fold of the durable log, nothing more and nothing less;
- the last acknowledged commit is never undone, and what is shown was committed by somebody;
- every request is answered at most once, and what is not answered is parked or on its way.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.core.coordinator_types import Append, LogRecord, Now, Reply, Token
from broker.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    GroupError,
    MemberIdRequired,
    NotCoordinator,
)
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import (
    Commit,
    Event,
    GroupConfig,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    Leaving,
    OffsetToCommit,
    ShardEffects,
    Sync,
    SyncReply,
)
from broker.groups.core.offset_records import GroupEntry, OffsetEntry, decode
from tests.fakes.group_topics import FakeTopics

GROUP = "g"
PARTITIONS = range(4)
CLIENTS = st.integers(0, 3)
STATIC_CLIENTS = {2: "static-2", 3: "static-3"}
CONFIG = GroupConfig(initial_rebalance_delay_ms=1_000, group_size_max=3)


class Client:
    """What one consumer knows of its membership."""

    def __init__(self, number: int) -> None:
        self.instance_id = STATIC_CLIENTS.get(number)
        self.version4 = number % 2 == 0
        self.member_id = ""
        self.protocols: tuple[tuple[str, bytes], ...] = (("range", b"0"),)
        self.joined: JoinReply | None = None
        self.waits: Token | None = None
        self.asked_generation = -1
        self.synced = False

    @property
    def generation(self) -> int:
        return self.joined.generation if self.joined else -1


class GroupCoordinatorMachine(RuleBasedStateMachine):
    """Steps of clients, time and the log."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Now(1000.0, 10**12)
        self.clients = [Client(number) for number in range(4)]
        self.log: list[LogRecord] = []
        self.held: list[Append] = []
        self.askers: dict[Token, Client] = {}
        self.commits: dict[Token, int] = {}
        self.deletes: set[Token] = set()
        self.acked_offset: int | None = None
        self.sent_offsets: set[int] = set()
        self.owners: dict[tuple[int, int], str] = {}
        self.generations: dict[str, int] = {}
        self.stored_generation = 0
        self.last_token = 0
        self.last_member = 0
        self.last_offset = 0
        self.shard = GroupShard(CONFIG, self.new_member_id, FakeTopics())
        self.perform(self.shard.loaded(self.now))

    # --- plumbing -----------------------------------------------------------------------------

    def new_member_id(self, prefix: str) -> str:
        self.last_member += 1
        return f"{prefix}-{self.last_member}"

    def token(self) -> Token:
        self.last_token += 1
        return Token(self.last_token)

    def perform(self, effects: ShardEffects) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                self.held.append(effect)
            elif isinstance(effect, Reply):
                self.answer(effect.token, effect.result)
            else:
                assert isinstance(effect, Event)
        self.shard.view.check()

    def is_durable(self, record: LogRecord) -> None:
        self.log.append(record)
        entry = decode(*record)
        if entry == GroupEntry(GROUP, None):
            self.owners.clear()
            self.stored_generation = 0  # generations start again
        elif isinstance(entry, GroupEntry) and entry.metadata is not None:
            assert entry.metadata.generation >= self.stored_generation
            self.stored_generation = entry.metadata.generation
        elif entry == OffsetEntry(GROUP, "t", 0, None):
            self.acked_offset = None

    def answer(self, token: Token, result: object) -> None:
        if token in self.deletes:
            self.deletes.remove(token)
            return
        if token in self.commits:
            offset = self.commits.pop(token)
            if result == (None,):
                assert self.acked_offset is None or offset > self.acked_offset
                self.acked_offset = offset
            return
        client = self.askers.pop(token)  # KeyError: answered twice
        assert client.waits in (None, token)
        client.waits = None
        if isinstance(result, MemberIdRequired):
            client.member_id = result.member_id
        elif isinstance(result, GroupError):
            self.give_up(client)
        elif isinstance(result, JoinReply):
            self.on_joined(client, result)
        else:
            assert isinstance(result, SyncReply)
            self.on_synced(client, result)

    def give_up(self, client: Client) -> None:
        client.joined = None

    def on_joined(self, client: Client, reply: JoinReply) -> None:
        assert reply.generation >= self.generations.get(reply.member_id, 0)
        self.generations[reply.member_id] = reply.generation
        assert (reply.leader == reply.member_id) >= bool(reply.members)
        client.member_id = reply.member_id
        client.joined = reply
        client.synced = False

    def on_synced(self, client: Client, reply: SyncReply) -> None:
        for partition in reply.assignment:
            key = (client.asked_generation, partition)
            who = client.instance_id or client.member_id
            assert self.owners.setdefault(key, who) == who, "two owners in one generation"
        client.synced = True

    def ask(self, client: Client) -> Token:
        token = self.token()
        self.askers[token] = client
        client.waits = token
        client.asked_generation = client.generation
        return token

    def refused(self, token: Token, error: BrokerError) -> None:
        self.answer(token, error)

    # --- clients ------------------------------------------------------------------------------

    @rule(number=CLIENTS, fresh=st.booleans(), blob=st.sampled_from([b"0", b"0", b"1"]))
    def join(self, number: int, fresh: bool, blob: bytes) -> None:
        client = self.clients[number]
        if fresh:  # a restarted process knows nothing, and abandons what it waited for
            client.member_id = ""
        client.joined = None
        if client.waits is not None:
            self.askers[client.waits] = Client(number)
        client.protocols = (("range", blob),)
        token = self.ask(client)
        request = Join(
            GROUP, client.member_id, client.instance_id, "c", "/h", 10_000, 20_000, "consumer",
            client.protocols, client.version4, number == 3,
        )  # fmt: skip
        try:
            self.perform(self.shard.join(request, token, self.now))
        except GroupError as error:
            client.member_id = ""
            self.refused(token, error)

    @rule(order=st.permutations(range(4)), store=st.booleans())
    def go_on(self, order: list[int], store: bool) -> None:
        """Everybody does what a client would do next."""
        for number in order:
            client = self.clients[number]
            if client.waits is None:
                if client.joined is None:
                    self.join(number, fresh=False, blob=b"0")
                elif client.synced:
                    self.heartbeat(number)
                else:
                    self.sync(number)
        self.wait(0.5)
        if store:
            self.durable(len(self.held))

    @rule(order=st.permutations(range(4)), store=st.booleans())
    def go_on_for_a_while(self, order: list[int], store: bool) -> None:
        """Long enough for a rebalance from end to end."""
        for _ in range(6):
            self.go_on(order, True)
        self.go_on(order, store)

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        joined = client.joined
        if joined is None:
            return
        if client.waits is not None:  # an answer that got lost: the client asks again
            self.askers[client.waits] = Client(number)
        assignments: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            shares: dict[str, list[int]] = {one.member_id: [] for one in joined.members}
            names = list(shares)
            for partition in PARTITIONS:
                # Leaders of different generations, and a leader's retry, decide differently.
                shares[names[(partition + self.last_token) % len(names)]].append(partition)
            assignments = {name: bytes(share) for name, share in shares.items()}
        token = self.ask(client)
        request = Sync(
            GROUP, client.member_id, client.instance_id, joined.generation, None, None,
            tuple(assignments.items()),
        )  # fmt: skip
        try:
            self.perform(self.shard.sync(request, token, self.now))
        except GroupError as error:
            self.refused(token, error)

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        request = Heartbeat(GROUP, client.member_id, client.instance_id, client.generation)
        try:
            if self.shard.heartbeat(request, self.now) is not None:
                self.give_up(client)
        except GroupError:
            client.member_id = ""
            self.give_up(client)

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        leaving = [Leaving(client.member_id, client.instance_id)]
        try:
            _, effects = self.shard.leave(GROUP, leaving, self.now)
        except GroupError:
            return
        self.perform(effects)
        self.give_up(client)
        if client.waits is None:
            client.member_id = ""

    @rule(number=CLIENTS, outsider=st.booleans())
    def commit(self, number: int, outsider: bool) -> None:
        client = self.clients[number]
        self.last_offset += 1
        token = self.token()
        self.commits[token] = self.last_offset
        who = Commit(GROUP, "", None, -1)
        if not outsider:
            who = Commit(GROUP, client.member_id, client.instance_id, client.generation)
        offsets = [OffsetToCommit("t", 0, self.last_offset, -1, "")]
        try:
            effects = self.shard.offsets.commit(who, offsets, token, self.now)
        except GroupError:
            del self.commits[token]
            return
        self.sent_offsets.add(self.last_offset)
        self.perform(effects)

    @precondition(lambda self: self.last_token % 5 == 0)
    @rule()
    def delete_group(self) -> None:
        token = self.token()
        self.deletes.add(token)
        self.perform(self.shard.delete_groups([GROUP], token, self.now))

    # --- time and log -------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0, 11.0, 25.0]))
    def wait(self, seconds: float) -> None:
        end_s = self.now.s + seconds
        while (at_s := self.shard.next_deadline()) is not None and at_s <= end_s:
            self.move(max(at_s, self.now.s))
            self.perform(self.shard.on_deadline(self.now))
        self.move(end_s)

    def move(self, at_s: float) -> None:
        self.now = Now(at_s, self.now.ms + round((at_s - self.now.s) * 1000))

    @rule(count=st.integers(1, 3))
    def durable(self, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            append = self.held.pop(0)
            for record in append.records:
                self.is_durable(record)
                self.shard.replay(record)
            self.perform(self.shard.on_stored(append.ticket, self.now))

    @precondition(lambda self: self.held)
    @rule()
    def refuse_the_newest(self) -> None:
        append = self.held.pop()
        error = CoordinatorNotAvailable("the log is full")
        self.perform(self.shard.on_store_failed(append.ticket, error, self.now))

    @precondition(lambda self: self.last_token % 3 == 0)
    @rule(surviving=st.integers(0, 3))
    def fail_over(self, surviving: int) -> None:
        for append in self.held[:surviving]:
            for record in append.records:
                self.is_durable(record)
        self.held.clear()
        old, self.shard = self.shard, GroupShard(CONFIG, self.new_member_id, FakeTopics())
        self.perform(old.unload(NotCoordinator()))  # what was given up needs no invariants
        assert not self.held
        assert not self.commits
        assert not self.deletes
        # A generation that was joined and not stored is forgotten, and its number used again.
        self.generations.clear()
        for record in self.log:
            self.shard.replay(record)
        self.perform(self.shard.loaded(self.now))

    # --- what must hold -----------------------------------------------------------------------

    @invariant()
    def shows_the_fold_of_the_log(self) -> None:
        other = GroupShard(CONFIG, self.new_member_id, FakeTopics())
        for record in self.log:
            other.replay(record)
        mine, theirs = self.shard._table.get(GROUP), other._table.get(GROUP)
        stored = None if mine is None else mine.stored
        assert stored == (None if theirs is None else theirs.stored)
        assert list(self.shard.view.committed(GROUP)) == list(other.view.committed(GROUP))
        if mine is not None and mine.state is GroupState.STABLE and not mine.stores:
            assert stored is not None
            live = {one.member_id: one.assignment for one in mine.members}
            assert live == {one.member_id: one.assignment for one in stored.members}
            assert stored.generation == mine.generation

    @invariant()
    def commits_are_not_undone(self) -> None:
        committed = self.shard.view.committed(GROUP).get("t", 0)
        if self.acked_offset is not None:
            assert committed is not None
            assert committed.offset >= self.acked_offset
        if committed is not None:
            assert committed.offset in self.sent_offsets

    @invariant()
    def nothing_is_forgotten(self) -> None:
        group = self.shard._table.get(GROUP)
        parked: set[Token] = set()
        if group is not None:
            for member in group.members:
                parked |= {one for one in (member.join_token, member.sync_token) if one is not None}
        assert set(self.askers) == parked


GroupCoordinatorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestGroupCoordinator = GroupCoordinatorMachine.TestCase
