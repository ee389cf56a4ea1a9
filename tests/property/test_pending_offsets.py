"""Offsets of transactions against a naive fold of the log, through copies, trims and fail-overs.

The fold is Kafka's rule: an offset counts from its marker on, if its record lies behind the one
that is committed. It reads the whole log, and knows nothing of copies. The shard sees what is
durable, hears of markers late, reads only what a trim has left, and copies while everything goes
on, producers that ignore every rule included. A stranger reads what is left of the log, too, record
by record up to where it is stable, and takes each for news.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from broker.coordinator.core.coordinator_types import (
    Append,
    LogItem,
    LogRecord,
    Now,
    Reply,
    Ticket,
    Token,
    TransactionalRecord,
    Undecided,
)
from broker.errors import NotCoordinator
from broker.groups.core.group_offsets import EndedTopic, HeardMarker, TopicPartition
from broker.groups.core.group_shard import GroupShard
from broker.groups.core.group_types import (
    AppendPending,
    Commit,
    GroupConfig,
    OffsetToCommit,
    ProducerEpoch,
    ShardEffects,
)
from broker.groups.core.offset_records import OffsetEntry, decode
from broker.partition.core.held_batches import ProducerTransaction
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.control_batch import Marker
from tests.fakes.group_topics import FakeTopics

GROUPS = ("a", "b")
PARTITIONS = range(2)
PRODUCERS = tuple(ProducerId(number) for number in (1, 2, 3))
NOW = Now(1000.0, 10**12)
STEPS = (
    "commit", "pending", "pending", "accept", "accept", "refuse", "marker", "confirm", "confirm",
    "confirm", "hear", "hear", "delete", "topic", "copy", "copy", "crash",
)  # fmt: skip
KEYS = [(group, TopicPartition("t", index)) for group in GROUPS for index in PARTITIONS]

COPY = Ticket(-1)
"""Of what a copy has appended."""

Place = tuple[str, TopicPartition]


class Accepted(NamedTuple):
    """Something in the log; a ticket on the last item of an append."""

    item: LogItem
    ticket: Ticket | None = None


class Fold:
    """The naive model: the whole log, item by item."""

    def __init__(self, log: list[Accepted]) -> None:
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[ProducerId, dict[Place, tuple[int, int]]] = {}
        for at, accepted in enumerate(log):
            self.take(at, accepted.item)

    def take(self, at: int, item: LogItem) -> None:
        match item:
            case LogRecord(key, value):
                entry = decode(key, value)
                assert isinstance(entry, OffsetEntry)
                place = entry.group_id, TopicPartition(entry.topic, entry.partition)
                if entry.committed is None:
                    self.committed.pop(place, None)
                    for places in self.pending.values():
                        places.pop(place, None)
                else:
                    self.committed[place] = entry.committed.offset, at
            case TransactionalRecord(record, producer_id):
                entry = decode(record.key, record.value)
                assert isinstance(entry, OffsetEntry)
                assert entry.committed is not None
                place = entry.group_id, TopicPartition(entry.topic, entry.partition)
                self.pending.setdefault(producer_id, {})[place] = entry.committed.offset, at
            case Marker(producer_id, _, is_commit):
                for place, (offset, record_at) in self.pending.pop(producer_id, {}).items():
                    if is_commit and record_at > self.committed.get(place, (0, -1))[1]:
                        self.committed[place] = offset, record_at

    def offsets(self) -> dict[Place, int]:
        return {place: offset for place, (offset, _) in self.committed.items()}

    def unstable(self) -> set[Place]:
        return {
            place
            for places in self.pending.values()
            for place, (_, at) in places.items()
            if at > self.committed.get(place, (0, -1))[1]
        }


class Told:
    """What a reader of committed records knows who takes each for news."""

    def __init__(self, log: list[Accepted], whole: list[Accepted]) -> None:
        self.offsets: dict[Place, int] = {}
        self._log = log
        self._whole = whole

    def take_all(self, start: int) -> None:
        for at, (item, _) in enumerate(self._log):
            if at < start or isinstance(item, Marker):
                continue
            if isinstance(item, TransactionalRecord):
                if not self._is_committed(at, item.producer_id):
                    continue
                item = item.record
            assert isinstance(item, LogRecord)
            entry = decode(item.key, item.value)
            assert isinstance(entry, OffsetEntry)
            place = entry.group_id, TopicPartition(entry.topic, entry.partition)
            if entry.committed is None:
                self.offsets.pop(place, None)
            else:
                self.offsets[place] = entry.committed.offset

    def _is_committed(self, at: int, producer_id: ProducerId) -> bool:
        for item, _ in self._whole[at:]:
            if isinstance(item, Marker) and item.producer_id == producer_id:
                return item.is_commit
        raise AssertionError("what is stable is decided")


class World:
    """A log, and the shard that serves it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[Accepted] = []
        self.trimmed = 0
        self.confirmed = 0
        self.unheard: list[Marker] = []
        """Markers that are durable, and that the shard has not been told of."""
        self.open: dict[ProducerId, None] = {}
        self.held: list[AppendPending] = []
        self.copying: dict[str, Undecided | None] | None = None
        self.left: dict[str, Undecided | None] = {}
        """What the copy has left out so far."""
        self.kept = self.copied_to = 0
        self.values = 0
        self.tokens = 0
        self.shard = self.fresh()

    def fresh(self) -> GroupShard:
        shard = GroupShard(GroupConfig(), str, FakeTopics())
        for accepted in self.log[self.trimmed :]:
            shard.replay(accepted.item)
        for effect in shard.loaded(NOW):
            assert not isinstance(effect, Append | AppendPending)
        return shard

    def token(self) -> Token:
        self.tokens += 1
        return Token(self.tokens)

    def perform(self, effects: ShardEffects) -> None:
        for effect in effects:
            if isinstance(effect, Append):
                for record in effect.records[:-1]:
                    self.log.append(Accepted(record))
                self.log.append(Accepted(effect.records[-1], effect.ticket))
            elif isinstance(effect, AppendPending):
                self.held.append(effect)
            else:
                assert isinstance(effect, Reply)
        self.shard.view.check()

    def value(self) -> list[OffsetToCommit]:
        self.values += 1
        places = self.rng.sample(PARTITIONS, self.rng.randint(1, 2))
        return [OffsetToCommit("t", index, self.values, -1, "") for index in places]

    def step(self) -> None:
        rng, shard = self.rng, self.shard
        group = rng.choice(GROUPS)
        match rng.choice(STEPS):
            case "commit":
                commit = Commit(group, "", None, -1)
                self.perform(shard.offsets.commit(commit, self.value(), self.token(), NOW))
            case "pending":
                producer = ProducerEpoch(rng.choice(PRODUCERS), 0, ProducerTransaction("x", False))
                self.perform(
                    shard.offsets.commit_in_transaction(
                        Commit(group, "", None, -1), self.value(), producer, self.token(), NOW
                    )
                )
            case "accept" if self.held:
                self.accept(self.held.pop(rng.randrange(len(self.held))))
            case "refuse" if self.held and rng.random() < 0.3:
                effect = self.held.pop()
                self.perform(shard.on_store_failed(effect.ticket, NotCoordinator("no"), NOW))
            case "marker" if self.open:
                producer_id = rng.choice(list(self.open))
                del self.open[producer_id]
                self.log.append(Accepted(Marker(producer_id, 0, rng.random() < 0.6, 1)))
            case "confirm" if self.confirmed < len(self.log):
                self.confirm()
            case "hear" if self.unheard:
                self.shard.replay(HeardMarker(self.unheard.pop(0), 0))
                self.shard.view.check()
            case "delete" if rng.random() < 0.3 and group in shard.view.ids():
                key = TopicPartition("t", rng.choice(PARTITIONS))
                self.perform(shard.offsets.delete(group, [key], self.token()))
            case "topic" if rng.random() < 0.05:
                self.perform(shard.offsets.delete_topic(EndedTopic("t", None)))
            case "copy":
                self.copy()
            case "crash" if rng.random() < 0.2:
                self.crash()

    def accept(self, effect: AppendPending) -> None:
        """The partition takes it: for an open transaction, or a new one if its marker was heard."""
        producer_id = effect.producer.producer_id
        is_ending = any(marker.producer_id == producer_id for marker in self.unheard) or any(
            isinstance(one.item, Marker) and one.item.producer_id == producer_id
            for one in self.log[self.confirmed :]
        )
        if producer_id not in self.open and is_ending:
            self.perform(self.shard.on_store_failed(effect.ticket, NotCoordinator("no"), NOW))
            return
        self.open[producer_id] = None
        for position, record in enumerate(effect.records):
            is_last = position == len(effect.records) - 1
            item = TransactionalRecord(record, producer_id, 0, Offset(len(self.log)))
            self.log.append(Accepted(item, effect.ticket if is_last else None))

    def confirm(self) -> None:
        """The next append is durable, as a whole."""
        while True:
            item, ticket = self.log[self.confirmed]
            self.confirmed += 1
            if isinstance(item, Marker):
                self.unheard.append(item)
                return
            if ticket == COPY:
                return
            self.shard.replay(item)
            if ticket is not None:
                self.perform(self.shard.on_stored(ticket, NOW))
                return

    def copy(self) -> None:
        """A copy goes on by one group, or begins, or ends with a trim."""
        view = self.shard.view
        if self.copying is None:
            if self.rng.random() < 0.3:
                # Everything below was durable and applied, but for markers that nobody heard of.
                self.kept = view.kept_from(Offset(self.confirmed))
                self.copying, self.left = dict.fromkeys(view.ids()), {}
            return
        if self.copying:
            group, undecided = self.copying.popitem()
            found = view.snapshot(group, undecided)
            self.log += [Accepted(record, COPY) for record in found.records]
            if found.undecided:
                self.left[group] = found.undecided
            self.copied_to = len(self.log)
        elif self.left:
            self.copying, self.left = self.left, {}
        elif self.stable() >= self.copied_to:
            self.trimmed = max(self.trimmed, self.kept)
            self.copying = None

    def stable(self) -> int:
        """Return where the oldest transaction that is open begins, or what is confirmed ends."""
        begun: dict[ProducerId, int] = {}
        for at, (item, _) in enumerate(self.log[: self.confirmed]):
            if isinstance(item, TransactionalRecord):
                begun.setdefault(item.producer_id, at)
            elif isinstance(item, Marker):
                begun.pop(item.producer_id, None)
        return min(begun.values(), default=self.confirmed)

    def check_strangers(self) -> None:
        """What is left tells a stranger what the whole log would have told without copies."""
        end = self.stable()
        told, wanted = Told(self.log[:end], self.log), Told(self.of_producers()[:end], self.log)
        told.take_all(self.trimmed)
        wanted.take_all(0)
        assert told.offsets == wanted.offsets

    def crash(self) -> None:
        """Another coordinator reads what is there: some of what was not confirmed may be lost."""
        end = self.rng.randint(self.confirmed, len(self.log))
        while (
            end > self.confirmed
            and isinstance(self.log[end - 1].item, LogRecord | TransactionalRecord)
            and self.log[end - 1].ticket is None
        ):
            end -= 1  # batches are there as a whole
        del self.log[end:]
        self.settle_log()
        self.shard = self.fresh()

    def settle_log(self) -> None:
        self.confirmed = len(self.log)
        self.unheard.clear()
        self.held.clear()
        self.copying = None
        self.open = dict.fromkeys(Fold(self.of_producers()).pending)

    def of_producers(self) -> list[Accepted]:
        """The log without copies; places stay what they were."""
        nothing = Accepted(Marker(ProducerId(99), 0, False, 1))
        return [nothing if one.ticket == COPY else one for one in self.log]

    def compare(self, shard: GroupShard, log: list[Accepted]) -> None:
        fold = Fold(log)
        shown = {
            (group, key): committed.offset
            for group in GROUPS
            for key, committed in shard.view.committed(group)
        }
        assert shown == fold.offsets()
        assert {
            place for place in KEYS if place[1] in shard.view.unstable(place[0])
        } == fold.unstable()


@pytest.mark.parametrize("seed", range(400))
def test_what_is_shown_is_the_naive_fold_of_the_log(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(200):
        world.step()
        if not world.unheard and not world.held and world.confirmed == len(world.log):
            world.compare(world.shard, world.of_producers())
        if world.rng.random() < 0.1:
            world.check_strangers()
            # Whoever reads all that is accepted knows what the fold of it knows.
            world.compare(world.fresh(), world.of_producers())
