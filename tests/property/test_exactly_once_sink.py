"""The exactly-once sink under every schedule that a seed finds: each batch once, all or nothing.

Runs of one streaming query write micro-batches through the steps of `protocol.py` to brokers in
memory. Between any two requests a driver may die or be joined by a second one that believes the
first to be dead, tasks fail, are run again and twice at a time under the same number, go on after
their driver is gone, requests and answers are lost, transactions time out before they are decided.
At the end one driver runs undisturbed; then every row of every batch is visible once.

Each rule of the protocol is switched off in turn: some seed has to find out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from client.ids import ProducerId
from client.pubsub.core import verdicts
from client.pubsub.core.verdicts import Refused, Verdict, worst
from client.spark.errors import BatchTorn, BrokersUnreachable, SparkSourceError
from client.spark.splits import TopicPartition
from client.spark.write.exactly_once import protocol
from client.spark.write.exactly_once.decision import Decision, TaskTransaction
from client.spark.write.exactly_once.protocol import EVERY_BROKER, Ask, Begun, Sink, Steps
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from tests.fakes.transactional_kafka import TransactionalKafka

SEEDS = 600
BATCHES = 4
ROWS = 5
TARGETS = (TopicPartition("out", 1), TopicPartition("second", 0))
"""Where rows go, in turn."""
QUERY = "query"
SINK = Sink("sink", "progress", 1_000_000)
_BROKER = 2


class Actor:
    """A generator of steps, advanced one request at a time."""

    def __init__(self, steps: Steps[Any], on_done: Callable[[Any], None]) -> None:
        self._steps = steps
        self._on_done = on_done
        self._ask: Ask | None = None
        self.alive = True
        self._go(lambda: next(steps))

    def advance(self, kafka: TransactionalKafka, fate: str) -> None:
        ask = self._ask
        assert ask is not None
        if fate == "lost":
            return
        answer = handled(kafka, ask)
        if fate == "twice":
            answer = handled(kafka, ask)
        answers = [answer] if ask.kind == EVERY_BROKER else answer
        code, verdict = worst(ask.codes(answer), ask.judge)
        if verdict is Verdict.DONE:
            self._go(lambda: self._steps.send(answers))
        elif verdict not in (Verdict.RETRY, Verdict.LOOK_UP):
            refused = Refused(verdict, code, str(code))
            self._go(lambda: self._steps.throw(refused))

    def give_up(self, kafka: TransactionalKafka, *, after_all: bool) -> None:
        """No answer came for too long; the request may have been carried out."""
        assert self._ask is not None
        if after_all:
            handled(kafka, self._ask)
        self._go(lambda: self._steps.throw(BrokersUnreachable("no answer")))

    def _go(self, step: Callable[[], Ask]) -> None:
        try:
            self._ask = step()
        except StopIteration as done:
            self.alive = False
            self._on_done(done.value)
        except (Refused, SparkSourceError) as error:
            self.alive = False
            self._on_done(error)


def handled(kafka: TransactionalKafka, ask: Ask) -> Any:
    version = 8 if ask.api is ApiKey.PRODUCE else ask.version_max
    return kafka.handle(ask.api, version, ask.fields)


def write(begun: Begun, batch: int, task: int, rows: list[bytes]) -> Steps[TaskTransaction | None]:
    """One attempt of a task."""
    if begun.is_decided(QUERY, batch) or not rows:
        return None
    one = yield from protocol.open_transaction(SINK, task)
    sequences = dict.fromkeys(TARGETS, 0)
    for row in rows:
        at = TARGETS[row[-1] % len(TARGETS)]
        yield from protocol.enrol(SINK, one, [at])
        data = build_batch(
            [Record(None, row)],
            producer_id=ProducerId(one.producer_id),
            producer_epoch=one.epoch,
            base_sequence=sequences[at],
            transactional=True,
        )
        partitions = [{"index": at.partition, "records": data}]
        yield Ask(
            _BROKER,
            "",
            ApiKey.PRODUCE,
            {
                "transactional_id": SINK.name(one),
                "topic_data": [{"name": at.topic, "partition_data": partitions}],
            },
            lambda found: [r.error_code for t in found.responses for r in t.partition_responses],
            verdicts.of_produce,
        )
        sequences[at] += 1
    return one


class Run:
    """A driver, from its start to its death, and the tasks that it started."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.alive = True
        self.tasks: dict[int, list[Actor]] = {}
        self.accepted: dict[int, TaskTransaction | None] = {}
        self.is_committing = False
        self._batch = world.done + 1
        self._begun: Begun | None = None
        self.driver: Actor | None = None
        if self._batch < BATCHES:
            self.driver = Actor(protocol.begin(SINK, 0.0), self._on_begun)

    def actors(self) -> list[Actor]:
        """Those that can go on; tasks do so without their driver, too."""
        driver = [self.driver] if self.alive and self.driver is not None else []
        tasks = [actor for attempts in self.tasks.values() for actor in attempts]
        return [actor for actor in [*driver, *tasks] if actor.alive]

    def again(self, task: int) -> None:
        """Run a task once more, whatever became of it."""
        rows = self._rows[task]
        assert self._begun is not None
        steps = write(self._begun, self._batch, task, rows)
        attempts = self.tasks.setdefault(task, [])
        attempts.append(Actor(steps, lambda result: self._on_written(task, result)))

    def _on_begun(self, begun: Begun | Exception) -> None:
        if isinstance(begun, Exception):
            self.alive = False
            return
        self._begun = begun
        count = self._world.rng.randint(1, 3)
        rows = [b"%d.%d" % (self._batch, number) for number in range(ROWS)]
        self._rows = {task: rows[task::count] for task in range(count)}
        for task in self._rows:
            self.again(task)

    def _on_written(self, task: int, result: TaskTransaction | Exception | None) -> None:
        if not self.alive or self.is_committing or task in self.accepted:
            return
        if isinstance(result, Exception):
            self.again(task)
            return
        self.accepted[task] = result
        if len(self.accepted) == len(self._rows):
            self.is_committing = True
            steps = protocol.commit(SINK, self._its_begun, self._decision, 0.0)
            self.driver = Actor(steps, self._on_committed)

    def _on_committed(self, result: Exception | None) -> None:
        if isinstance(result, BatchTorn):
            self._world.torn += 1
        if isinstance(result, Exception):
            steps = protocol.abort(SINK, self._its_begun, self._decision)
            self.driver = Actor(steps, self._on_aborted)
            return
        self.alive = False
        if not self._world.is_calm and self._world.rng.random() < 0.2:
            return  # dead before the checkpoint knows
        self._world.done = max(self._world.done, self._batch)
        self._world.start()

    def _on_aborted(self, _result: object) -> None:
        self.alive = False

    @property
    def _its_begun(self) -> Begun:
        assert self._begun is not None
        return self._begun

    @property
    def _decision(self) -> Decision:
        found = tuple(one for one in self.accepted.values() if one is not None)
        return Decision(QUERY, self._batch, found)


class World:
    """The brokers, the checkpoint, and all drivers that there ever were."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kafka = TransactionalKafka({"out": 2, "second": 2, SINK.topic: 1})
        self.done = -1
        """The newest batch in the checkpoint."""
        self.torn = 0
        self.is_calm = False
        self.runs: list[Run] = []
        self.start()

    def start(self) -> None:
        self.runs.append(Run(self))

    def step(self) -> None:
        """Something happens."""
        chance = self.rng.random()
        alive = [run for run in self.runs if run.alive]
        if chance < 0.02 or not alive:
            self.start()
        elif chance < 0.04:
            self.rng.choice(alive).alive = False
        elif chance < 0.08:
            run = self.rng.choice(alive)
            if run.tasks:
                run.again(self.rng.choice(list(run.tasks)))
        elif chance < 0.10:
            self._time_out()
        elif chance < 0.12:
            driver = self.rng.choice(alive).driver
            if driver is not None and driver.alive:
                driver.give_up(self.kafka, after_all=self.rng.random() < 0.5)
        else:
            self._advance(alive)
        self.check()

    def _advance(self, alive: list[Run]) -> None:
        actors = [actor for run in self.runs for actor in run.actors()]
        if not actors:
            return
        fate = self.rng.choices(["ok", "lost", "twice"], [8, 1, 1])[0]
        self.rng.choice(actors).advance(self.kafka, fate)

    def _time_out(self) -> None:
        """A transaction ends by itself: one that no driver is about to decide, or has decided."""
        safe = {
            SINK.name(one)
            for run in self.runs
            if run.is_committing
            for one in run.accepted.values()
            if one is not None
        }
        names = [
            name
            for name, one in self.kafka.ids.items()
            if one.state == "Ongoing" and SINK.is_task(name) and name not in safe
        ]
        if names:
            self.kafka.expire(self.rng.choice(names))

    def check(self) -> None:
        """Nothing twice, and nothing of a batch that is not decided."""
        visible = self.kafka.committed()
        assert len(visible) == len(set(visible)), "a row is visible twice"
        decided, _list = self.kafka.offsets.get((SINK.id, (SINK.topic, 0)), (-1, ""))
        newest = max([int((row or b"").split(b".")[0]) for row in visible], default=-1)
        assert newest <= decided, "a row is visible before its batch is decided"

    def settle(self) -> None:
        """One driver runs undisturbed, and what nobody ends times out."""
        self.is_calm = True
        for run in self.runs:
            run.alive = False
            run.tasks.clear()
        self.start()
        for _ in range(10_000):
            run = self.runs[-1]
            actors = run.actors()
            if not actors:
                break
            actors[0].advance(self.kafka, "ok")
            self.check()
        for name in list(self.kafka.ids):
            self.kafka.expire(name)
        wanted = sorted(b"%d.%d" % (n, row) for n in range(BATCHES) for row in range(ROWS))
        visible = sorted(value or b"" for value in self.kafka.committed())
        assert not self.torn, "a batch that counts lost rows"
        assert self.done == BATCHES - 1, "the query does not go on"
        assert visible == wanted, "not every row is visible once"


def schedule(seed: int) -> None:
    world = World(seed)
    for _ in range(world.rng.choice([60, 200, 500])):
        if world.done == BATCHES - 1:
            break
        world.step()
    world.settle()


def found(seeds: int = SEEDS) -> int | None:
    """Return the first seed that finds a violation."""
    for seed in range(seeds):
        try:
            schedule(seed)
        except AssertionError:
            return seed
    return None


@pytest.mark.parametrize("part", range(4))
def test_every_batch_is_visible_once(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        schedule(seed)


# --- each rule switched off ---------------------------------------------------------------

Patch = pytest.MonkeyPatch


def without_fence(patch: Patch) -> None:
    """A batch does not take the sink over; a driver takes the id when it decides."""

    def begin(sink: Sink, now_s: float) -> Steps[Begun]:
        decided = yield from protocol.read_decision(sink)
        yield from protocol._clear(sink, decided)
        return Begun(-1, -1, decided, now_s)

    decide = protocol._decide

    def decides(sink: Sink, begun: Begun, decision: Decision, metadata: str) -> Steps[None]:
        answer = yield protocol._init(sink.driver, sink.timeout_ms)
        mine = begun._replace(producer_id=answer.producer_id, epoch=answer.producer_epoch)
        yield from decide(sink, mine, decision, metadata)

    patch.setattr(protocol, "begin", begin)
    patch.setattr(protocol, "_decide", decides)


def without_skip(patch: Patch) -> None:
    """A decided batch is written, and decided, again."""
    patch.setattr(Begun, "is_decided", lambda *_: False)


def without_ticket(patch: Patch) -> None:
    """All attempts of a task have the same transactional id."""
    patch.setattr(protocol, "SLOTS", 1)


def without_exact(patch: Patch) -> None:
    """A refused end is taken for one that was done before."""

    def finish(sink: Sink, decision: Decision) -> Steps[None]:
        for one in decision.transactions:
            yield from protocol.abandon(sink, one)

    patch.setattr(protocol, "_finish", finish)


def without_check(patch: Patch) -> None:
    """What timed out before the decision is decided all the same."""

    def check(_sink: Sink, _decision: Decision) -> Steps[None]:
        return
        yield

    patch.setattr(protocol, "_check", check)


def without_care_in_aborts(patch: Patch) -> None:
    """An abort after a failed commit does not ask whether the batch is decided."""

    def abort(sink: Sink, _begun: Begun, decision: Decision) -> Steps[bool]:
        for one in decision.transactions:
            yield from protocol.abandon(sink, one)
        return True

    patch.setattr(protocol, "abort", abort)


def without_clearing(patch: Patch) -> None:
    """What is decided and not ended is left to a run of the same batch."""
    clear = protocol._clear

    def clears(sink: Sink, _decided: Decision | None) -> Steps[None]:
        yield from clear(sink, None)

    patch.setattr(protocol, "_clear", clears)


@contextmanager
def switched_off(rule: Callable[[Patch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        rule(patch)
        yield


@pytest.mark.parametrize(
    "rule",
    [
        without_fence,
        without_skip,
        without_ticket,
        without_exact,
        without_check,
        without_care_in_aborts,
        without_clearing,
    ],
)
def test_a_rule_that_is_switched_off_is_missed(rule: Callable[[Patch], None]) -> None:
    with switched_off(rule):
        assert found() is not None
