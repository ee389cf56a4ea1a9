"""The judge of administered schedules: what operators asked for, and what the store came to hold.

It sees every change of topics, settings, access control entries, users and quotas in the metadata
store, reads them with a layout of its own, as facts (path, key) -> value, and holds each against
what operators have asked for and what they were told.

A change that was asked for is open until it is answered. One with an unknown outcome (no answer, or
an error that leaves it open) stays so: it may take effect whenever.

    AD1 a fact changes only to what an open change asks for, and once for each change of a topic: so
        what was revoked does not come back, and no change undoes another
    AD2 a change that was acknowledged took effect between its request and its answer
    AD3 a change that was refused, for what only its own effect can be the reason of, did not
    AD4 a topic's id is new when the topic is made, never changes, and no request makes two topics
    AD5 a topic goes only by an open request that means it, and with a tombstone; the lists of one
        that is there are not condemned
    AD6 offsets that were committed for a topic that is there are what is fetched, unless somebody
        has reset them; where nothing was, those of an earlier topic of the same name may be
    AD7 what a newer release has written stays as long as its node
    AD8 when all is healed, every broker shows what the store holds
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client.metadata import paths
from tests.simulation.clusters.spoiled_nodes import is_spoiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.simulation.machine.loop import SimLoop

Fact = tuple[str, str]
"""(path of a node, key in it)"""

_OWN: Final = ("version", "created_ms", "grown_from", "entity", "name", "resource_type", "pattern")
"""Fields of nodes that say nothing of what operators ask for."""
_BELOW: Final = ("configs", "assignments", "quotas", "scram", "acls")
"""Fields with a fact for each of their entries."""
_SPOILED: Final = (paths.TOPICS, paths.ACLS)
FUTURE: Final = "future"
"""In the key of whatever a newer release has written."""
_DIRECTORIES: Final = (paths.ACLS, paths.USERS, paths.QUOTAS, paths.BROKER_CONFIGS)
INVALID_PARTITIONS: Final = 37
_REFUSALS: Final = (3, 36, INVALID_PARTITIONS, 38, 39, 40, 42, 69, 85, 91, 100)
"""Codes that say that nothing was changed."""
NEVER: Final = -1
"""What is fetched where nothing is committed."""


@dataclass(eq=False, slots=True)
class Change:
    """What an operator asks for."""

    what: str
    wants: dict[Fact, Any] = field(default_factory=dict)
    """None: it is to go."""
    removes: Callable[[Fact], bool] | None = None
    """Of which further facts it may be that they go."""
    made: str = ""
    """The topic that it makes: path of its node."""
    doomed_name: str = ""
    doomed_id: str = ""
    """The topic that it deletes, by either."""
    sent_s: float = math.inf
    taken: dict[Fact, None] = field(default_factory=dict)
    """Which facts have changed to what it wants."""
    alone: dict[Fact, float] = field(default_factory=dict)
    """Which of them when nobody else wanted that, and when."""
    made_id: str = ""
    """The topic that it has made."""

    def asks_for(self, fact: Fact, value: Any) -> bool:
        """Say whether it is a reason for a fact to have this value from now on."""
        if fact in self.wants:
            return bool(self.wants[fact] == value)
        return value is None and self.removes is not None and self.removes(fact)


class Topic(NamedTuple):
    """A topic that is there."""

    name: str
    made_s: float


@dataclass(eq=False, slots=True)
class Commits:
    """What may be committed of one partition by one group."""

    settled: int = NEVER
    unsettled: set[int] = field(default_factory=set)
    """Of requests whose outcome nobody knows."""

    @property
    def possible(self) -> set[int]:
        """All that may be fetched."""
        return {self.settled, *self.unsettled}


class AdminBook:
    """All that operators have asked for, and all that was there."""

    def __init__(
        self,
        loop: SimLoop,
        fail: Callable[[str, str], None],
        count: Callable[[str], None],
        names: tuple[str, ...],
    ) -> None:
        self._loop = loop
        self._fail = fail
        self._count = count
        self._names = names
        self.nodes: dict[str, dict[str, Any]] = {}
        """Path -> key -> value, of nodes that are there."""
        self.history: dict[Fact, list[tuple[float, Any]]] = defaultdict(lambda: [(-math.inf, None)])
        self.living: dict[str, Topic] = {}
        """By id."""
        self.tombstones: dict[str, None] = {}
        self._buried: dict[str, None] = {}
        """Ids for which there ever was a tombstone."""
        self._ids: dict[str, str] = {}
        """Id -> name of every topic there ever was."""
        self._open: dict[Change, None] = {}
        self.commits: dict[tuple[str, str, int], Commits] = defaultdict(Commits)
        """(group, topic id, partition) -> what may be committed."""

    # ---------------------------------------------------------------- what operators do

    def begin(self, change: Change) -> None:
        """A request leaves."""
        change.sent_s = self._loop.time()
        self._open[change] = None

    def unsent(self, change: Change) -> None:
        """It did not leave."""
        del self._open[change]

    def answered(self, change: Change, code: int) -> None:
        """It was answered."""
        if code == 0:
            del self._open[change]
            for fact, value in change.wants.items():
                self._check_effect(change, fact, value)
            self._count(f"admin: {change.what.split()[0]}")
            if change.doomed_id in self.living:
                self._fail("AD2", f"{change.what}: acknowledged, and the topic is there")
        elif code in _REFUSALS:
            del self._open[change]
            self._check_refusal(change, code)
            self._count("admin: refused")
        else:
            self._count("admin: outcome unknown")

    def was_removed(self, change: Change, fact: Fact) -> None:
        """It was answered that a fact is gone."""
        self._check_effect(change, fact, None)

    def _check_effect(self, change: Change, fact: Fact, value: Any) -> None:
        held = list(self._held(fact, change.sent_s))
        if value not in held:
            self._fail("AD2", f"{change.what}: acknowledged, {fact} was never {value!r}: {held}")

    def _check_refusal(self, change: Change, code: int) -> None:
        for (path, _), at_s in change.alone.items():
            topic_id = self.nodes.get(path, {}).get("topic_id", "")
            topic = self.living.get(topic_id)
            if code == INVALID_PARTITIONS and topic is not None and topic.made_s < at_s:
                self._fail("AD3", f"{change.what}: refused with {code}, and done at {at_s:.3f}")

    def _held(self, fact: Fact, from_s: float) -> Iterator[Any]:
        """Yield what a fact was at some moment since then."""
        history = self.history[fact]
        for at, (_, value) in enumerate(history):
            if at + 1 == len(history) or history[at + 1][0] >= from_s:
                yield value

    # ---------------------------------------------------------------- what the store holds

    def node_changed(self, path: str, data: bytes | None) -> None:
        """A node of the store has a value; None: it is gone."""
        directory, _, name = path.rpartition("/")
        if directory in _SPOILED and data is not None and is_spoiled(data):
            return  # for a while; it is what it was, or nobody may change it meanwhile
        if directory == paths.TOPICS:
            self._topic_changed(path, name, data)
        elif directory in _DIRECTORIES:
            self._facts_changed(path, _facts(data))
        elif directory == paths.DELETED:
            self._tombstone_changed(name, data)
        elif path.startswith(f"{paths.PARTITIONS}/"):
            self._partition_changed(path, data)

    def is_edited(self, path: str) -> bool:
        """Say whether operators have brokers change a node."""
        directory, _, name = path.rpartition("/")
        return directory in _DIRECTORIES or (directory == paths.TOPICS and name in self._names)

    def is_changed_with(self, path: str) -> bool:
        """Say whether a node is an anchor, which is read and set with what brokers change."""
        return path in _DIRECTORIES or path.rpartition("/")[0] == paths.PARTITIONS

    def is_doomed(self, path: str) -> bool:
        """Say whether it is the node of a topic that was deleted."""
        return self.nodes.get(path, {}).get("topic_id") in self.tombstones

    def _topic_changed(self, path: str, name: str, data: bytes | None) -> None:
        facts = _facts(data)
        before, after = (
            self.nodes.get(path, {}).get("topic_id"),
            facts.get("topic_id"),
        )
        if before is None:
            self._topic_made(path, name, str(after), facts)
        elif after is None:
            self._topic_gone(name, before)
        elif after != before:
            self._fail("AD4", f"topic {name}: {before} became {after}")
        if before is None or before != after:
            self._note(path, facts)
        elif name in self._names:
            self._facts_changed(path, facts)

    def _topic_made(self, path: str, name: str, topic_id: str, facts: Mapping[str, Any]) -> None:
        if topic_id in self._ids:
            self._fail("AD4", f"topic {name} is made with the id of an earlier one: {topic_id}")
        self._ids[topic_id] = name
        self.living[topic_id] = Topic(name, self._loop.time())
        self._count("topics made")
        if name not in self._names:
            return
        for change in self._open:
            if change.made != path or any(facts.get(f[1]) != v for f, v in change.wants.items()):
                continue
            if change.made_id:
                self._fail("AD4", f"{change.what} has made {change.made_id} and {topic_id}")
            change.made_id = topic_id
            return
        self._fail("AD1", f"topic {name} is made, and nobody has asked for it: {facts}")

    def _topic_gone(self, name: str, topic_id: str) -> None:
        if topic_id not in self.tombstones:
            self._check_doomed(name, topic_id)
        del self.living[topic_id]
        self._count("topics deleted")

        def check() -> None:
            if topic_id not in self._buried:
                self._fail("AD5", f"topic {name} {topic_id} has gone without a tombstone")

        self._loop.kernel_at(self._loop.time(), check)  # once all of the transaction is made

    def _check_doomed(self, name: str, topic_id: str) -> None:
        if name in self._names and not any(
            change.doomed_id == topic_id or change.doomed_name == name for change in self._open
        ):
            self._fail("AD5", f"topic {name} {topic_id} goes, and nobody wants it")

    def _tombstone_changed(self, topic_id: str, data: bytes | None) -> None:
        if data is None:
            self.tombstones.pop(topic_id, None)
            if topic_id in self.living:
                self._fail("AD5", f"the tombstone of {topic_id} goes, and the topic is there")
            return
        self.tombstones[topic_id] = self._buried[topic_id] = None
        topic = self.living.get(topic_id)
        if topic is not None:
            self._check_doomed(topic.name, topic_id)

    def _partition_changed(self, path: str, data: bytes | None) -> None:
        topic_id, _, rest = path.removeprefix(f"{paths.PARTITIONS}/").partition("/")
        if "/" in rest or topic_id not in self.living or topic_id in self.tombstones:
            return
        if data is None or b'"deleted"' in data:
            self._fail("AD5", f"{path} goes, and the topic is there")

    def _facts_changed(self, path: str, after: dict[str, Any]) -> None:
        before = self.nodes.get(path, {})
        for key in {**before, **after}:
            value = after.get(key)
            if before.get(key) != value:
                self._justify(path, key, value, is_end=not after)
        self._note(path, after)

    def _justify(self, path: str, key: str, value: Any, *, is_end: bool) -> None:
        """Find the change that a fact changes by."""
        if FUTURE in key:
            if value is None and not is_end:
                self._fail("AD7", f"{path}: {key} of a newer release is gone")
            return
        fact = (path, key)
        asking = [change for change in self._open if change.asks_for(fact, value)]
        fresh = [change for change in asking if fact not in change.taken]
        if not asking:
            now = self.nodes.get(path, {}).get(key)
            self._fail("AD1", f"{fact} becomes {value!r}, was {now!r}: nobody has asked for it")
        elif not fresh and path.startswith(paths.TOPICS):
            what = asking[0].what
            self._fail("AD1", f"{fact} becomes {value!r} a second time, asked for once: {what}")
        elif fresh:
            fresh[0].taken[fact] = None
            if len(asking) == 1:
                fresh[0].alone[fact] = self._loop.time()

    def _note(self, path: str, after: dict[str, Any]) -> None:
        before = self.nodes.pop(path, {})
        if after:
            self.nodes[path] = after
        now_s = self._loop.time()
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                if FUTURE in key:
                    self._count("facts of a newer release")
                self.history[path, key].append((now_s, after.get(key)))

    # ---------------------------------------------------------------- offsets

    def committing(self, key: tuple[str, str, int], offset: int) -> None:
        """A request leaves to commit an offset, or to forget what was committed (NEVER)."""
        self.commits[key].unsettled.add(offset)

    def committed(self, key: tuple[str, str, int], offset: int, code: int) -> None:
        """It was answered."""
        commits = self.commits[key]
        if code == 0:
            commits.unsettled.discard(offset)
            commits.settled = offset
            self._count("admin: offsets reset" if offset == NEVER else "admin: offsets committed")

    def is_there(self, topic_id: str) -> bool:
        """Say whether there is a topic that nobody has deleted."""
        return topic_id in self.living and topic_id not in self.tombstones

    def fetched(self, key: tuple[str, str, int], offset: int) -> None:
        """A coordinator was asked for an offset after healing."""
        group, topic_id, index = key
        possible = self.commits[key].possible
        if not self.is_there(topic_id) or offset in possible:
            return
        name = self.living[topic_id].name
        if any(
            offset in commits.possible
            for (of, other, at), commits in self.commits.items()
            if (of, at) == (group, index) and self._ids.get(other) == name
        ):
            # Groups keep offsets by name, as Kafka long did; a sweep removes these later.
            self._count("offsets of an earlier topic")
        else:
            self._fail("AD6", f"{group} of {name} {topic_id}/{index}: {offset}, not {possible}")


def _facts(data: bytes | None) -> dict[str, Any]:
    """Take a node apart."""
    if not data:
        return {}
    found: dict[str, Any] = {}
    for name, value in json.loads(data).items():
        if name in _OWN:
            continue
        if name == "acls":
            found.update((f"acls/{json.dumps(row)}", True) for row in value)
        elif name == "scram":
            found.update((f"scram/{kind}", kept["salt"]) for kind, kept in value.items())
        elif name in _BELOW:
            found.update((f"{name}/{key}", entry) for key, entry in value.items())
        else:
            found[name] = value
    return found
