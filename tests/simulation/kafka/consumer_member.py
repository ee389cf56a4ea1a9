"""A consumer of the group protocol of KIP-848 as unmodified clients behave, for simulations.

It makes its own member id and sends one heartbeat after the other. What has not changed since the
last one that was answered it leaves out; after an error, or an answer that did not come, it says
everything again. Of what it was told it first gives up what it has to, and then takes what is new,
and names that in its next heartbeat. It joins anew, at epoch 0 and with the same id, when it is
told that it is no member.

Commits carry its member id and epoch, as does its question where the group was. What it sends and
hears goes to a `ConsumerBook`, the judge of all members together.

Source: Kafka's ConsumerMembershipManager and ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.simulation.kafka.consumer_book import Place, Tenure
from tests.simulation.kafka.group_member import PORT, Refused

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable
    from typing import Any

    from tests.simulation.kafka.consumer_book import ConsumerBook

SILENCE_S = 2.0
"""How long it waits for an answer."""
TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError)
_LOOK_AGAIN = {
    "coordinator_not_available",
    "coordinator_load_in_progress",
    "not_coordinator",
}
_NO_MEMBER = {"unknown_member_id", "fenced_member_epoch", "fenced_instance_id"}
_LEAVING, _LEAVING_STATIC = -1, -2
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What the members of a group are like."""

    session_s: float
    rebalance_s: float
    subscriptions: tuple[Subscription, ...]
    """What a member may want; one is drawn at each start, and now and then another one later."""
    change_p: float
    """How often, of heartbeats."""
    lose_p: float
    """How often it does not wait for a heartbeat's answer: its connection breaks."""
    late_p: float
    """How often the last commit of what it gives up arrives late, over another connection."""
    late_s: float
    """How much later, on average."""
    slow_p: float
    """How often it takes longer than it may to give something up."""
    acks_early_p: float
    """How often it says that it gave something up before it takes what is new."""
    hasty_p: float
    """How often it takes what it was told before it says again what an answer was lost of."""
    take_s: float
    """How long at most an application takes to begin with what it was told."""
    by_id_p: float
    """How often it commits with topic ids."""

    def calm(self) -> ConsumerOptions:
        """Return the same without what keeps a group from coming together."""
        return replace(self, change_p=0.0, lose_p=0.0, late_p=0.0, slow_p=0.0, hasty_p=0.0)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants: topics by name, by a pattern, or both."""

    names: tuple[str, ...]
    pattern: str = ""


async def find_coordinator(host: str, group_id: str) -> WireClient:
    """Ask a broker for a group's coordinator and connect to it. Raises Refused, OSError."""
    async with asyncio.timeout(SILENCE_S):
        asked = await WireClient.connect(PORT, host)
        try:
            answer = await asked.call(
                ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[group_id], key_type=0
            )
        finally:
            await asked.close()
        (found,) = answer.coordinators
        if found.error_code:
            raise Refused(found.error_code.name)
        return await WireClient.connect(PORT, found.host)


class ConsumerMember:
    """One consumer process."""

    def __init__(
        self,
        name: str,
        group_id: str,
        hosts: list[str],
        book: ConsumerBook,
        rng: random.Random,
        options: Callable[[], ConsumerOptions],
        topic_name: Callable[[Any], str | None],
        *,
        is_static: bool = False,
    ) -> None:
        """`options`: asked again and again, since they change. `topic_name`: says what a topic is
        called, as clients learn it from metadata."""
        self._group_id = group_id
        self._hosts = hosts
        self._book = book
        self._rng = rng
        self._options_of = options
        self._topic_name = topic_name
        self._instance = name if is_static else None
        member_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        drawn = options()
        self.tenure = Tenure(name, member_id, drawn.session_s, drawn.rebalance_s)
        self._client: WireClient | None = None
        self._wants = rng.choice(drawn.subscriptions)
        self._wanted: Subscription | None = None
        """What the broker has been told that it wants."""
        self._said: frozenset[Place] | None = None
        """What the broker has been told that it owns; None: it is to be told everything."""
        self._interval_s = 0.3
        self._due_s = 0.0
        self._target: frozenset[Place] | None = None
        """What it is to own, if that is not what it owns."""
        self._give_up: frozenset[Place] = frozenset()
        self._give_up_s = 0.0
        """When it will have given up."""
        self._take_s = 0.0
        """When it will begin with what is new."""
        self._next: dict[Place, int] = {}
        self._late: set[Place] = set()
        """Where a commit is on its way that is late."""
        self._is_leaving = False

    @property
    def _options(self) -> ConsumerOptions:
        return self._options_of()

    @property
    def wants(self) -> Subscription:
        """What it wants at present."""
        return self._wants

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be a member until it has left."""
        self._book.begins(self.tenure)
        while not self._is_leaving:
            try:
                await self._live()
            except Refused as refused:
                await self._heed(refused.name)
            except TROUBLE:
                await self._disconnect()
            await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))
        await self._leave()

    def leave(self) -> None:
        """Leave soon: a static member for a while."""
        self._is_leaving = True

    async def _heed(self, error: str) -> None:
        if error in _NO_MEMBER:
            self._book.fenced(self.tenure, error)
            self._forget()
        elif error in _LOOK_AGAIN:
            await self._disconnect()
        elif error == "unreleased_instance_id":
            await asyncio.sleep(self._interval_s)
        elif error != "stale_member_epoch":
            raise AssertionError(error)
        self._said = None

    def _forget(self) -> None:
        """It is no member: what it read is another's."""
        self.tenure.epoch = 0
        self._target, self._give_up = None, frozenset()
        self._next.clear()
        self._said = None
        self._due_s = 0.0

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_leaving:
            if self._client is None:
                host = self._hosts[self._rng.randrange(len(self._hosts))]
                self._client = await find_coordinator(host, self._group_id)
            is_hasty = self._said is None and self._rng.random() < self._options.hasty_p
            if loop.time() >= self._due_s and not (is_hasty and self.tenure.epoch):
                await self._heartbeat()
                continue
            await self._move()
            if self.tenure.epoch and self._next and self._rng.random() < 0.3:
                await self._commit_some()
            await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))

    async def _disconnect(self) -> None:
        self._said = None
        self._due_s = 0.0
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _call(self, key: int, version: int, **fields: Any) -> Any:
        client = self._client
        assert client is not None
        client.send(key, version, **fields)
        return await client.receive(SILENCE_S)

    async def _leave(self) -> None:
        """Say good-bye, if that is possible; nobody waits for long."""
        epoch = _LEAVING if self._instance is None else _LEAVING_STATIC
        for place in sorted(self._next.keys() - self._late):
            if self._rng.random() < self._options.late_p:
                self._commit_late(place)
        self._book.ends(self.tenure.name)
        if self._client is None or not self.tenure.epoch:
            return
        try:
            answer = await self._call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self._group_id,
                member_id=self.tenure.member_id, member_epoch=epoch, instance_id=self._instance,
                topic_partitions=None,
            )  # fmt: skip
            self._book.count("members left")
            if self._instance is not None and not answer.error_code:
                self._book.goes_away(self.tenure)
        except TROUBLE:
            pass
        await self._disconnect()

    # --- heartbeats ---------------------------------------------------------------------------

    def _fields(self) -> dict[str, Any]:
        """Return what the next heartbeat says: everything, or what has changed."""
        tenure, wants = self.tenure, self._wants
        fields: dict[str, Any] = {
            "group_id": self._group_id,
            "member_id": tenure.member_id,
            "member_epoch": tenure.epoch,
            "topic_partitions": None,
        }
        is_full = self._said is None or not tenure.epoch
        if is_full:
            fields["instance_id"] = self._instance
            fields["rebalance_timeout"] = int(tenure.rebalance_s * 1000)
        if is_full or self._wanted != wants:
            fields["subscribed_topic_names"] = list(wants.names)
            fields["subscribed_topic_regex"] = wants.pattern
        if is_full or self._said != self.tenure.owned:
            fields["topic_partitions"] = _by_topic(self.tenure.owned)
        return fields

    async def _heartbeat(self) -> None:
        tenure, options, loop = self.tenure, self._options, asyncio.get_running_loop()
        if self._rng.random() < options.change_p:
            self._wants = self._rng.choice(options.subscriptions)
        epoch_min = tenure.epoch or self._book.asks_to_join(tenure)
        fields = self._fields()
        owned, wants, sent_s = tenure.owned, self._wants, loop.time()
        self._book.says(tenure, None if fields["topic_partitions"] is None else owned)
        assert self._client is not None
        self._client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **fields)
        if self._rng.random() < options.lose_p:
            self._book.count("answers lost")
            await asyncio.sleep(self._rng.random() * 0.1)
            await self._disconnect()
            return
        answer = await self._client.receive(SILENCE_S)
        if answer.error_code:
            raise Refused(answer.error_code.name)
        self._interval_s = answer.heartbeat_interval.total_seconds()
        self._due_s = loop.time() + self._interval_s * (0.8 + 0.4 * self._rng.random())
        self._said, self._wanted = owned, wants
        assigned = None if answer.assignment is None else _places(answer.assignment)
        if not tenure.epoch:
            self._book.count("joins")
        self._book.hears(tenure, sent_s, answer.member_epoch, assigned, epoch_min=epoch_min)
        if assigned is not None:
            self._turn_to(assigned)

    def _turn_to(self, assigned: frozenset[Place]) -> None:
        """It was told what it has: give up what it has no more, then take the rest."""
        if assigned == self.tenure.owned:
            self._target, self._give_up = None, frozenset()
            return
        if assigned != self._target:
            self._take_s = (
                asyncio.get_running_loop().time() + self._rng.random() * self._options.take_s
            )
        self._target = assigned
        give_up = self.tenure.owned - assigned
        if give_up != self._give_up:
            self._give_up = give_up
            rng, options = self._rng, self._options
            seconds = rng.random() * 0.3
            if rng.random() < options.slow_p:
                seconds = options.rebalance_s * (0.5 + rng.random())
            self._give_up_s = asyncio.get_running_loop().time() + seconds

    # --- partitions ---------------------------------------------------------------------------

    async def _move(self) -> None:
        """Take the next step towards what it was told that it has."""
        tenure, rng = self.tenure, self._rng
        if self._target is None:
            return
        if self._give_up:
            if asyncio.get_running_loop().time() < self._give_up_s:
                return
            await self._give_up_now()
            if rng.random() < self._options.acks_early_p:
                self._due_s = 0.0  # the rest comes behind that heartbeat
                return
        if more := self._target - tenure.owned:
            if asyncio.get_running_loop().time() < self._take_s:
                return
            await self._begin(more)
        self._target = None
        self._due_s = 0.0

    async def _give_up_now(self) -> None:
        for place in sorted(self._give_up):
            if place in self._late or place not in self._next:
                continue
            if self._rng.random() < self._options.late_p:
                self._commit_late(place)
            elif self._rng.random() < 0.7:
                await self._commit([place])
        self._book.owns(self.tenure, self.tenure.owned - self._give_up)
        for place in self._give_up:
            self._next.pop(place, None)
        self._give_up = frozenset()

    async def _begin(self, places: Iterable[Place]) -> None:
        """Ask where the group was, and read from there on. Raises Refused."""
        tenure, wanted = self.tenure, sorted(places)
        names = {place.topic_id: self._topic_name(place.topic_id) for place in wanted}
        known = [place for place in wanted if names[place.topic_id] is not None]
        floors = self._book.floors(known)
        topics = [
            {"name": names[row["topic_id"]], "partition_indexes": row["partitions"]}
            for row in _by_topic(known)
        ]
        answer = await self._call(
            ApiKey.OFFSET_FETCH, 9, require_stable=True,
            groups=[{
                "group_id": self._group_id, "topics": topics, "member_id": tenure.member_id,
                "member_epoch": tenure.epoch,
            }],
        )  # fmt: skip
        (group,) = answer.groups
        if group.error_code:
            raise Refused(group.error_code.name)
        ids = {name: topic_id for topic_id, name in names.items()}
        for topic in group.topics:
            for row in topic.partitions:
                place = Place(ids[topic.name], row.partition_index)
                self._book.begins_at(tenure, floors, place, row.committed_offset)
                self._next[place] = row.committed_offset + 1
                self._late.discard(place)
        self._book.owns(tenure, tenure.owned | set(known))

    # --- commits ------------------------------------------------------------------------------

    async def _commit_some(self) -> None:
        places = [place for place in sorted(self._next) if place not in self._late]
        if places:
            await self._commit(self._rng.sample(places, self._rng.randint(1, len(places))))

    def _commit_fields(self, places: Iterable[Place], version: int) -> dict[str, Any]:
        rows: dict[Any, list[dict[str, Any]]] = {}
        for place in places:
            rows.setdefault(place.topic_id, []).append(
                {
                    "partition_index": place.index,
                    "committed_offset": self._next[place],
                    "committed_leader_epoch": -1,
                    "committed_metadata": self.tenure.name,
                }
            )
        by_id = version >= 10
        topics = [
            {
                **({"topic_id": one} if by_id else {"name": self._topic_name(one) or ""}),
                "partitions": partitions,
            }
            for one, partitions in rows.items()
        ]
        return {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": self.tenure.epoch,
            "member_id": self.tenure.member_id,
            "group_instance_id": self._instance,
            "topics": topics,
        }

    async def _commit(self, places: list[Place]) -> None:
        """Commit the next offset of each. Raises Refused."""
        version = 10 if self._rng.random() < self._options.by_id_p else 9
        fields = self._commit_fields(places, version)
        offsets = {place: self._next[place] for place in places}
        for place, offset in offsets.items():
            self._book.commits(self.tenure, place, offset)
        answer = await self._call(ApiKey.OFFSET_COMMIT, version, **fields)
        refused = self._settle(answer, version, offsets)
        for place, offset in offsets.items():
            if place not in refused:
                self._next[place] = offset + 1
        for error in sorted(set(refused.values())):
            self._book.refused(
                self.tenure, [place for place in refused if refused[place] == error], error
            )
            if error in _NO_MEMBER or error in _LOOK_AGAIN:
                raise Refused(error)
            self._due_s = 0.0  # the next heartbeat tells it its epoch

    def _settle(self, answer: Any, version: int, offsets: dict[Place, int]) -> dict[Place, str]:
        """Tell the book what a commit came to; return what was refused, and why."""
        ids = {self._topic_name(place.topic_id): place.topic_id for place in offsets}
        refused: dict[Place, str] = {}
        for topic in answer.topics:
            topic_id = topic.topic_id if version >= 10 else ids[topic.name]
            for row in topic.partitions:
                place = Place(topic_id, row.partition_index)
                if row.error_code:
                    refused[place] = row.error_code.name
                is_stored = not row.error_code
                self._book.committed(self.tenure, place, offsets[place], stored=is_stored)
        return refused

    def _commit_late(self, place: Place) -> None:
        """Commit over a connection on which it takes long."""
        version = 9
        fields, offsets = self._commit_fields([place], version), {place: self._next[place]}
        self._late.add(place)
        self._book.commits(self.tenure, place, offsets[place])
        host, delay_s = (
            self._rng.choice(self._hosts),
            self._rng.expovariate(1 / self._options.late_s),
        )

        async def commit() -> None:
            try:
                client = await find_coordinator(host, self._group_id)
                await asyncio.sleep(delay_s)
                client.send(ApiKey.OFFSET_COMMIT, version, **fields)
                answer = await client.receive(SILENCE_S)
                refused = self._settle(answer, version, offsets)
                self._book.count("late commits refused" if refused else "late commits stored")
                self._late.discard(place)
                await client.close()
            except (Refused, *TROUBLE):
                self._book.count("late commits lost")

        asyncio.get_running_loop().create_task(commit())


def _by_topic(places: Iterable[Place]) -> list[dict[str, Any]]:
    found: dict[Any, list[int]] = {}
    for place in sorted(places):
        found.setdefault(place.topic_id, []).append(place.index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in found.items()]


def _places(assignment: Any) -> frozenset[Place]:
    return frozenset(
        Place(topic.topic_id, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


async def watch(
    hosts: list[str],
    group_id: str,
    book: ConsumerBook,
    rng: random.Random,
    places: Callable[[], dict[str, list[Place]]],
) -> None:
    """Read a group's offsets for ever, as a tool does that is no member. `places`: by topic."""
    while True:
        await asyncio.sleep(0.3 * rng.random())
        try:
            client = await find_coordinator(rng.choice(hosts), group_id)
            for _ in range(3):
                if not await _look(client, group_id, book, places()):
                    break
                await asyncio.sleep(rng.random())
            await client.close()
        except (Refused, *TROUBLE):
            continue


async def _look(
    client: WireClient, group_id: str, book: ConsumerBook, places: dict[str, list[Place]]
) -> bool:
    floors = book.floors(place for found in places.values() for place in found)
    topics = [
        {"name": name, "partition_indexes": [place.index for place in found]}
        for name, found in places.items()
    ]
    client.send(ApiKey.OFFSET_FETCH, 7, group_id=group_id, topics=topics, require_stable=False)
    answer = await client.receive(SILENCE_S)
    if answer.error_code:
        return False
    for topic in answer.topics:
        by_index = {place.index: place for place in places[topic.name]}
        for row in topic.partitions:
            book.fetched(floors, by_index[row.partition_index], row.committed_offset)
    return True
