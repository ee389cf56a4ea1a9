"""A member of a share group (KIP-932) as unmodified clients behave, for simulations.

It makes its own member id and sends heartbeats to the group's coordinator, which tell it its
partitions. Of each broker that leads some of them it reads over a session of its own: ShareFetch
brings records and carries acknowledgements, ShareAcknowledge carries them alone. It accepts,
releases and rejects records, asks for more time, keeps some until their locks have passed, vanishes
with others, and names now and then what it does not have. What it sends and hears goes to a
`ShareBook`.

Source: Kafka's ShareConsumeRequestManager, ShareSessionHandler and ShareHeartbeatRequestManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.simulation.kafka.connection import PORT, KafkaLink, Leader
from tests.simulation.kafka.connection import Refused as RefusedCode
from tests.simulation.kafka.consumer_book import Place
from tests.simulation.kafka.consumer_member import SILENCE_S, TROUBLE, find_coordinator
from tests.simulation.kafka.entries import batches_of
from tests.simulation.kafka.group_member import Refused
from tests.simulation.kafka.share_book import (
    ACCEPT,
    GAP,
    NONE,
    REFUSED,
    REJECT,
    RELEASE,
    RENEW,
    Acks,
    Session,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from tests.simulation.kafka.share_book import ShareBook

_LOOK_AGAIN = {
    "coordinator_not_available",
    "coordinator_load_in_progress",
    "not_coordinator",
    "unsupported_version",
}
_NO_MEMBER = {"unknown_member_id", "fenced_member_epoch", "group_id_not_found"}
_LEAVING = -1
_FINAL = -1
_PAUSE_S = 0.05
_WAIT_MS = 200
_BYTES_MAX = 1 << 20
_ALL_AT_ONCE, _STRICT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """What the members of a group are like."""

    work_s: float
    """How long an application takes for records, on average."""
    records_max: int
    """How many it asks for."""
    strict_p: float
    """How often it wants no record more than that."""
    release_p: float
    reject_p: float
    renew_p: float
    keep_p: float
    """How often it keeps records until after their lock, and acknowledges them then."""
    forget_p: float
    """How often it never acknowledges them."""
    vanish_p: float
    """How often it closes a session's connection without a word, instead of a request."""
    lose_p: float
    """How often it does not wait for an answer."""
    bad_p: float
    """How often it names records, too, that it does not have."""
    alone_p: float
    """How often acknowledgements do not ride on a fetch."""

    def calm(self) -> ShareOptions:
        """Return the same for whoever settles everything."""
        return replace(
            self, work_s=0.02, release_p=0.0, reject_p=0.0, renew_p=0.0, keep_p=0.0, forget_p=0.0,
            vanish_p=0.0, lose_p=0.0, bad_p=0.0,
        )  # fmt: skip


class _Task(NamedTuple):
    """Records that are to be acknowledged together."""

    place: Place
    first: int
    last: int
    due_s: float
    kind: int
    alone: bool = False
    """Whether it goes without others: with others it was refused."""

    @property
    def types(self) -> dict[int, int]:
        return dict.fromkeys(range(self.first, self.last + 1), self.kind)


class _Asked(NamedTuple):
    """Acknowledgements of one partition in a request, and the tasks that they do."""

    acks: Acks
    tasks: Sequence[_Task]


class _Link:
    """A session with one broker, as its member sees it."""

    def __init__(self, client: WireClient, session: Session) -> None:
        self.client = client
        self.session = session
        self.epoch = 0
        self.places: set[Place] = set()
        self.tasks: list[_Task] = []
        self.gaps: set[tuple[Place, int]] = set()
        """Offsets that were given, and of which there was no record."""
        self.epochs: dict[Place, int] = {}
        """Leader epochs when the last request left."""

    def next_epoch(self) -> int:
        """Return the number of the next request."""
        self.epoch += 1
        return self.epoch - 1


class ShareMember:
    """One member's process."""

    def __init__(
        self,
        name: str,
        topic: str,
        hosts: list[str],
        book: ShareBook,
        rng: random.Random,
        options: Callable[[], ShareOptions],
        epoch_of: Callable[[str, Place], int],
    ) -> None:
        """`options`: asked again and again, since they change. `epoch_of`: which leader epoch the
        broker on a host has of a partition, -1: nobody knows."""
        self.name = name
        self._topic = topic
        self._hosts = hosts
        self._book = book
        self._rng = rng
        self._options_of = options
        self._epoch_of = epoch_of
        self._member_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        self._epoch = 0
        self._interval_s = 0.3
        self._coordinator: WireClient | None = None
        self._assigned: frozenset[Place] = frozenset()
        self._leaders: dict[int, Leader] = {}
        self._is_leaving = False
        self.on_closed: Callable[[str, str, str], None] = lambda host, group_id, member_id: None
        """Told when a session was ended in peace, with the host of its broker."""

    @property
    def _options(self) -> ShareOptions:
        return self._options_of()

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # --- life ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave soon."""
        self._is_leaving = True

    async def run(self) -> None:
        """Be a member until it has left."""
        self._book.members[self.name] = "joins"
        readers = [asyncio.get_running_loop().create_task(self._read(host)) for host in self._hosts]
        while not self._is_leaving:
            try:
                await self._beat()
                await asyncio.sleep(self._interval_s * (0.5 + self._rng.random()))
            except Refused as refused:
                if refused.name in _NO_MEMBER:
                    self._book.count("members fenced")
                    self._epoch = 0
                elif refused.name in _LOOK_AGAIN:
                    await self._drop_coordinator()
                else:
                    raise AssertionError(refused.name) from None
                await asyncio.sleep(_PAUSE_S)
            except TROUBLE:
                await self._drop_coordinator()
                await asyncio.sleep(_PAUSE_S)
        await asyncio.gather(*readers)
        await self._say_goodbye()
        self._book.members.pop(self.name, None)

    async def _drop_coordinator(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.close()
            self._coordinator = None

    async def _beat(self) -> None:
        if self._coordinator is None:
            host = self._rng.choice(self._hosts)
            self._coordinator = await find_coordinator(host, self._book.group_id)
        answer = await self._heartbeat(self._epoch)
        if not self._epoch:
            self._book.count("joins")
        self._epoch = answer.member_epoch
        self._interval_s = answer.heartbeat_interval.total_seconds()
        if answer.assignment is not None:
            self._assigned = frozenset(
                Place(topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
            self._book.members[self.name] = f"reads {len(self._assigned)}"

    async def _heartbeat(self, epoch: int) -> Any:
        client = self._coordinator
        assert client is not None
        client.send(
            ApiKey.SHARE_GROUP_HEARTBEAT, 1, group_id=self._book.group_id,
            member_id=self._member_id, member_epoch=epoch,
            subscribed_topic_names=[self._topic] if not epoch else None,
        )  # fmt: skip
        answer = await client.receive(SILENCE_S)
        if answer.error_code:
            raise Refused(answer.error_code.name)
        return answer

    async def _say_goodbye(self) -> None:
        try:
            if self._coordinator is not None and self._epoch:
                await self._heartbeat(_LEAVING)
                self._book.count("members left")
        except (Refused, *TROUBLE):
            pass
        await self._drop_coordinator()

    # --- leaders ------------------------------------------------------------------------------

    async def _find_leaders(self) -> None:
        link = await KafkaLink.connect(self._rng.choice(self._hosts), SILENCE_S)
        try:
            for index, leader in (await link.leaders(self._topic, SILENCE_S)).items():
                known = self._leaders.get(index)
                if known is None or leader.epoch >= known.epoch:
                    self._leaders[index] = leader
        finally:
            link.close()

    def _led_by(self, host: str) -> set[Place]:
        return {
            place
            for place in self._assigned
            if place.index in self._leaders and self._leaders[place.index].host == host
        }

    # --- one broker's records -------------------------------------------------------------------

    async def _read(self, host: str) -> None:
        """Read what a broker leads of what is assigned, over one session after the other."""
        while not self._is_leaving:
            link: _Link | None = None
            try:
                await self._find_leaders()
                if not self._led_by(host):
                    await asyncio.sleep(4 * _PAUSE_S)
                    continue
                client = await self._connect(host)
                link = _Link(client, Session(self.name, host))
                while not self._is_leaving:
                    await self._step(link)
                if self._rng.random() > self._options.vanish_p:
                    await self._close(link)
            except (Refused, RefusedCode, *TROUBLE):
                if link is not None:
                    self._book.count("sessions lost")
            if link is not None:
                self._book.ends(link.session)
                await link.client.close()
            await asyncio.sleep(_PAUSE_S * (0.5 + self._rng.random()))

    @staticmethod
    async def _connect(host: str) -> WireClient:
        async with asyncio.timeout(SILENCE_S):
            return await WireClient.connect(PORT, host)

    async def _step(self, link: _Link) -> None:
        """Send one request of a session. Raises Refused, OSError, TimeoutError."""
        options, rng = self._options, self._rng
        if link.epoch and rng.random() < options.vanish_p:
            self._book.count("members that vanished")
            raise TimeoutError
        due = self._due(link) if link.epoch else []
        renewals = [task for task in due if task.kind == RENEW]
        others = [task for task in due if task.kind != RENEW]
        if renewals:
            link.tasks += others
            await self._acknowledge(link, renewals, is_renewal=True)
        elif others and (others[0].alone or rng.random() < options.alone_p):
            await self._acknowledge(link, others[:1] if others[0].alone else others)
        else:
            await self._fetch(link, others)

    def _due(self, link: _Link) -> list[_Task]:
        """Return what is to be acknowledged now: first what goes alone."""
        now_s = self._now_s
        due = [task for task in link.tasks if task.due_s <= now_s]
        link.tasks = [task for task in link.tasks if task.due_s > now_s]
        alone = [task for task in due if task.alone]
        if alone:
            link.tasks += [task for task in due if task is not alone[0]]
            return alone[:1]
        return due

    # --- requests -------------------------------------------------------------------------------

    async def _fetch(self, link: _Link, tasks: Sequence[_Task], *, is_final: bool = False) -> None:
        options, rng = self._options, self._rng
        wanted = self._led_by(link.session.host)
        added, forgotten = wanted - link.places, link.places - wanted
        link.places = wanted
        acks = self._acks(link, tasks)
        epoch = _FINAL if is_final else link.next_epoch()
        fields = {
            "group_id": self._book.group_id,
            "member_id": self._member_id,
            "share_session_epoch": epoch,
            "max_wait": 0 if tasks or is_final else _WAIT_MS,
            "min_bytes": 1,
            "max_bytes": 0 if is_final else _BYTES_MAX,
            "max_records": 0 if is_final else options.records_max,
            "batch_size": options.records_max,
            "share_acquire_mode": _STRICT if rng.random() < options.strict_p else _ALL_AT_ONCE,
            "topics": _topics(acks, () if is_final else added),
            "forgotten_topics_data": _by_topic(forgotten if epoch > 0 else ()),
        }
        self._book.fetches(link.places, sent_s := self._now_s)
        asked = frozenset(link.places)
        rows = await self._call(link, ApiKey.SHARE_FETCH, fields, acks)
        self._book.fetched(asked, sent_s)
        self._outcomes(link, acks, {at: row.acknowledge_error_code for at, row in rows.items()})
        for place, row in rows.items():
            if row.error_code:
                self._leaders.pop(place.index, None)
                link.places.discard(place)
            else:
                self._take(link, place, row, sent_s)
        if any(place.index not in self._leaders for place in self._assigned):
            with contextlib.suppress(RefusedCode, *TROUBLE):
                await self._find_leaders()

    async def _acknowledge(
        self, link: _Link, tasks: Sequence[_Task], *, is_renewal: bool = False
    ) -> None:
        acks = self._acks(link, tasks)
        fields = {
            "group_id": self._book.group_id,
            "member_id": self._member_id,
            "share_session_epoch": link.next_epoch(),
            "is_renew_ack": is_renewal,
            "topics": _topics(acks, ()),
        }
        rows = await self._call(link, ApiKey.SHARE_ACKNOWLEDGE, fields, acks)
        self._outcomes(link, acks, {at: int(row.error_code) for at, row in rows.items()})
        if is_renewal:
            now_s = self._now_s
            for task in tasks:
                more = now_s + self._rng.random() * self._book.terms.lock_s
                link.tasks.append(task._replace(kind=ACCEPT, due_s=more))

    async def _close(self, link: _Link) -> None:
        """End a session in peace, with what is left in it, or without."""
        tasks = [one for one in link.tasks if one.kind == ACCEPT and not one.alone]
        if not link.epoch:
            return
        await self._fetch(link, tasks if self._rng.random() < 0.5 else [], is_final=True)
        self._book.count("sessions closed")
        self.on_closed(link.session.host, self._book.group_id, self._member_id)

    async def _call(
        self, link: _Link, key: ApiKey, fields: Mapping[str, Any], acks: Sequence[_Asked]
    ) -> dict[Place, Any]:
        """Send a request and return the rows of its answer. Raises Refused, OSError,
        TimeoutError."""
        sent_s = self._now_s
        link.epochs = {place: self._epoch_of(link.session.host, place) for place in self._assigned}
        for one in acks:
            self._book.asks(one.acks)
        try:
            link.client.send(key, 2, **fields)
            if self._rng.random() < self._options.lose_p:
                self._book.count("answers lost")
                await asyncio.sleep(self._rng.random() * 0.05)
                raise TimeoutError
            answer = await link.client.receive(SILENCE_S)
            if answer.error_code:
                self._book.count(f"refused: {answer.error_code.name}")
                raise Refused(answer.error_code.name)
        except (Refused, *TROUBLE):
            for one in acks:
                self._book.lost(one.acks)
            raise
        self._book.hears(link.session, sent_s)
        return {
            Place(topic.topic_id, row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }

    # --- what is in the answers -----------------------------------------------------------------

    def _acks(self, link: _Link, tasks: Sequence[_Task]) -> list[_Asked]:
        """Return what is acknowledged of each partition; at times with something too much."""
        types: dict[Place, dict[int, int]] = {}
        for task in sorted(tasks, key=lambda one: one.first):
            kinds = types.setdefault(task.place, {})
            kinds.update(task.types)
            if task.kind != RENEW:
                kinds.update((at, GAP) for at in task.types if (task.place, at) in link.gaps)
        found = []
        for place, each in types.items():
            mine = {
                at for task in (*tasks, *link.tasks) if task.place == place for at in task.types
            }
            foreign = max(each) + self._rng.randrange(1, 4)
            if foreign not in mine and self._rng.random() < self._options.bad_p:
                each[foreign] = ACCEPT
            acks = Acks(link.session, place, each)
            found.append(_Asked(acks, [task for task in tasks if task.place == place]))
        return found

    def _outcomes(self, link: _Link, asked: Sequence[_Asked], codes: Mapping[Place, int]) -> None:
        for acks, tasks in asked:
            code = codes[acks.place]
            self._book.answered(acks, code, self._epoch_since(link, acks.place))
            if code in REFUSED and (len(tasks) > 1 or acks.strange):
                now_s = self._now_s
                link.tasks += [task._replace(alone=True, due_s=now_s) for task in tasks]
            elif code not in (NONE, *REFUSED):
                self._leaders.pop(acks.place.index, None)

    def _epoch_since(self, link: _Link, place: Place) -> int:
        """Return which leader epoch has answered; -1: it may be one of two."""
        now = self._epoch_of(link.session.host, place)
        return now if link.epochs.get(place, now) in (now, -1) else -1

    def _take(self, link: _Link, place: Place, row: Any, sent_s: float) -> None:
        """Take the records of a partition, and decide what becomes of them."""
        if not row.acquired_records:
            return
        values = dict(
            record for batch in batches_of(bytes(row.records)) for record in batch.values()
        )
        epoch = self._epoch_since(link, place)
        for one in row.acquired_records:
            wanted = range(one.first_offset, one.last_offset + 1)
            found = {at: values.get(at, b"") for at in wanted}
            link.gaps.update((place, at) for at in wanted if at not in values)
            self._book.lends(link.session, place, found, one.delivery_count, epoch, sent_s)
            cut = self._rng.randrange(wanted.start, wanted.stop)
            for first, last in ((wanted.start, cut), (cut + 1, wanted.stop - 1)):
                if first <= last:
                    self._plan(link, place, first, last)

    def _plan(self, link: _Link, place: Place, first: int, last: int) -> None:
        options, rng, lock_s = self._options, self._rng, self._book.terms.lock_s
        due_s = self._now_s + rng.expovariate(1 / options.work_s)
        kind, at = ACCEPT, rng.random()
        for share, other in (
            (options.release_p, RELEASE), (options.reject_p, REJECT), (options.renew_p, RENEW)
        ):  # fmt: skip
            if at < share:
                kind = other
                break
            at -= share
        else:
            if at < options.forget_p:
                return
            if at < options.forget_p + options.keep_p:
                due_s = self._now_s + lock_s * (0.9 + 0.4 * rng.random())
        link.tasks.append(_Task(place, first, last, due_s, kind))


def _ranges(types: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return acknowledgement batches of consecutive records."""
    found: list[tuple[int, list[int]]] = []
    for offset, kind in sorted(types.items()):
        if found and found[-1][0] + len(found[-1][1]) == offset:
            found[-1][1].append(kind)
        else:
            found.append((offset, [kind]))
    return [
        {
            "first_offset": first,
            "last_offset": first + len(kinds) - 1,
            "acknowledge_types": kinds[:1] if len(set(kinds)) == 1 else kinds,
        }
        for first, kinds in found
    ]


def _topics(asked: Sequence[_Asked], added: Collection[Place]) -> list[dict[str, Any]]:
    batches = {one.acks.place: _ranges(one.acks.types) for one in asked}
    topics: dict[Any, list[dict[str, Any]]] = {}
    for place in sorted({*batches, *added}):
        row = {"partition_index": place.index, "acknowledgement_batches": batches.get(place, [])}
        topics.setdefault(place.topic_id, []).append(row)
    return [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()]


def _by_topic(places: Iterable[Place]) -> list[dict[str, Any]]:
    topics: dict[Any, list[int]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic_id, []).append(place.index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]
