"""Computes consumer lag, wherever in the cluster the partitions are led.

The coordinator of a group knows what was committed; leaders know where the log ends and how old a
record is. Lag in records is the distance from the committed offset, or from the log start if that
is later, to the high watermark. Lag in seconds is the age of the first unread record, by its
timestamp; if nothing is unread there is no lag.

For a single group it is computed on request. For metrics and lists, all groups coordinated here are
examined every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappush, heappushpop
from operator import itemgetter
from typing import Any, Final, NamedTuple

from broker.admin.peer_client import PeerClient
from broker.admin.problems import Problem
from broker.app import Broker
from broker.coordinator.runtime import Phase
from broker.groups.core.group_offsets import GroupOffsets, TopicPartition, lag
from broker.partition.partition import Partition
from client.errors import QuireError
from client.ids import BrokerId, Offset
from client.node import background
from client.wire.kafka.batches.records import HEADER_BYTES, parse_header

log = logging.getLogger(__name__)

PLACES_MAX: Final = 10_000
"""Most offsets that one request to another broker asks about."""
_AGES_MAX: Final = 10_000


class Place(NamedTuple):
    """A committed offset."""

    topic: str
    partition: int
    offset: int


class Lag(NamedTuple):
    """How far behind a place is."""

    high_watermark: int
    records: int
    oldest_ms: int | None
    """Timestamp of the first unread record; None: there is none, or it cannot be read now."""

    def seconds(self, now_ms: int) -> float:
        """Return the age of the first unread record."""
        return 0.0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms) / 1000


class GroupLag(NamedTuple):
    """One group in one partition."""

    group: str
    key: TopicPartition
    lag: Lag


class Lags:
    """Computes lags; after `start`, those of the groups coordinated here are kept ready."""

    def __init__(self, broker: Broker, peer_client: PeerClient) -> None:
        self._broker = broker
        self._peer_client = peer_client
        self._ages: dict[Place, int] = {}
        """Timestamps of the records at committed offsets: they do not change."""
        self._latest: list[GroupLag] = []
        self._largest: Sequence[GroupLag] = ()
        self._task: asyncio.Task[None] | None = None
        provide = broker.metrics.provide
        provide("quire_group_lag_records", lambda: self.samples(lambda lag: lag.records))
        provide(
            "quire_group_lag_seconds",
            lambda: self.samples(lambda lag: lag.seconds(self.now_ms())),
        )

    def start(self) -> None:
        """Examine all groups every `lag_interval_ms`, unless that is 0."""
        if self._broker.config.lag_interval_ms:
            self._task = background.keep(self._follow, "lags")

    async def close(self) -> None:
        """Stop examining groups."""
        await background.stop(self._task)

    @property
    def latest(self) -> Sequence[GroupLag]:
        """What the last round found, by group, topic and partition."""
        return self._latest

    def samples(self, value: Callable[[Lag], float]) -> Iterator[tuple[dict[str, str], float]]:
        """Yield (labels, value) for metrics; the largest, if there are too many."""
        for row in self._largest:
            labels = {
                "group": row.group,
                "topic": row.key.topic,
                "partition": str(row.key.partition),
            }
            yield labels, value(row.lag)

    def now_ms(self) -> int:
        """Return the time that ages count to."""
        return self._broker.services.clock.now_ms()

    async def here(self, places: Iterable[Place]) -> dict[Place, Lag]:
        """Return the lags of places in partitions that this broker leads."""
        found: dict[Place, Lag] = {}
        pace = self._broker.services.turns.pace()
        for place in places:
            await pace.item()
            partition = self._broker.partitions.find(place.topic, place.partition)
            if partition is not None:
                found[place] = await self._lag(partition, place)
        return found

    async def everywhere(self, places: Sequence[Place]) -> dict[Place, Lag]:
        """Return the lags of places whose leaders can be asked."""
        elsewhere: dict[BrokerId, list[Place]] = {}
        pace = self._broker.services.turns.pace()
        for place in places:
            await pace.item()
            if self._broker.partitions.find(place.topic, place.partition) is None:
                owner = self._owner(place)
                if owner is not None and owner != self._broker.config.node_id:
                    elsewhere.setdefault(owner, []).append(place)
        found = await self.here(places)
        replies = await asyncio.gather(
            *(self._ask(owner, part) for owner, part in elsewhere.items())
        )
        for reply in replies:
            found |= reply
        return found

    def _owner(self, place: Place) -> BrokerId | None:
        cluster = self._broker.cluster
        topic = cluster.topics.get(place.topic)
        return None if topic is None else cluster.preferred_leader(topic, place.partition)

    async def _ask(self, owner: BrokerId, places: Sequence[Place]) -> dict[Place, Lag]:
        broker = self._broker.cluster.brokers.get(owner)
        found: dict[Place, Lag] = {}
        for start in range(0, len(places) if broker else 0, PLACES_MAX):
            body = {"places": [place._asdict() for place in places[start : start + PLACES_MAX]]}
            assert broker is not None
            try:
                answer = await self._peer_client.ask(broker, f"/brokers/{owner}/lags", body=body)
            except Problem as error:
                log.info("lags.unknown broker=%d error=%s", owner, error)
                break
            for row in answer["places"]:
                place = Place(row["topic"], row["partition"], row["offset"])
                found[place] = Lag(row["high_watermark"], row["records"], row["oldest_ms"])
        return found

    async def _lag(self, partition: Partition, place: Place) -> Lag:
        records = lag(
            place.offset,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
        )
        oldest_ms = await self._age(partition, place) if records else None
        return Lag(partition.high_watermark, records, oldest_ms)

    async def _age(self, partition: Partition, place: Place) -> int | None:
        """Return the timestamp of the first record from a place on, to the batch."""
        at = Offset(max(place.offset, partition.log_start_offset))
        key = place._replace(offset=at)
        known = self._ages.get(key)
        if known is not None:
            return known
        try:
            fetched = await partition.reader.read(at, 1, at_least_one=True, read_committed=False)
            if not fetched.buffers:
                return None
            # A batch may come in two parts: what the broker stamped, and the producer's bytes.
            parts = (bytes(memoryview(part)[:HEADER_BYTES]) for part in fetched.buffers[:2])
            header = parse_header(b"".join(parts))
        except QuireError as error:
            log.debug(
                "lags.unreadable topic=%s partition=%d offset=%d error=%r",
                place.topic, place.partition, at, error,
            )  # fmt: skip
            return None
        first = header.base_offset == at and not header.has_log_append_time
        timestamp_ms = header.base_timestamp if first else header.max_timestamp
        if timestamp_ms < 0:
            return None
        while len(self._ages) >= _AGES_MAX:
            del self._ages[next(iter(self._ages))]
        self._ages[key] = timestamp_ms
        return timestamp_ms

    async def _follow(self) -> None:
        interval_s = self._broker.config.lag_interval_ms / 1000
        while True:
            try:
                self._latest = await self._look()
                self._largest = await self._largest_of(self._latest)
            except Exception:  # an outermost loop: numbers for people are not worth a broker
                log.exception("lags.failed")
            await asyncio.sleep(interval_s)

    async def _largest_of(self, rows: Sequence[GroupLag]) -> Sequence[GroupLag]:
        """Return this many of the largest as metrics may show, in the same order."""
        limit = self._broker.config.lag_series_max
        if len(rows) <= limit:
            return rows
        pace = self._broker.services.turns.pace()
        largest: list[tuple[int, int]] = []
        for index, row in enumerate(rows):
            await pace.item()
            if len(largest) < limit:
                heappush(largest, (row.lag.records, -index))
            elif limit:
                heappushpop(largest, (row.lag.records, -index))
        return [rows[index] for index in sorted(-index for _, index in largest)]

    async def _look(self) -> list[GroupLag]:
        groups: list[tuple[str, GroupOffsets]] = []
        for coordinator in self._broker.groups.coordinators():
            if coordinator.phase is Phase.ACTIVE:
                view = coordinator.last_view
                groups += ((group_id, view.committed(group_id)) for group_id in view.ids())
        # Of all groups there may be a million offsets: they are sorted group by group.
        groups.sort(key=itemgetter(0))
        committed: list[tuple[str, Place]] = []
        pace = self._broker.services.turns.pace()
        for group, offsets in groups:
            for key, one in sorted(offsets):
                await pace.item()
                committed.append((group, Place(*key, one.offset)))
        found = await self.everywhere([place for _, place in committed])
        rows = []
        for group, place in committed:
            await pace.item()
            if place in found:
                key = TopicPartition(place.topic, place.partition)
                rows.append(GroupLag(group, key, found[place]))
        return rows


def totals(rows: Iterable[Lag], now_ms: int) -> Mapping[str, Any]:
    """Return the sum in records and the worst in seconds; nulls if nothing is known."""
    known = list(rows)
    if not known:
        return {"lag_records": None, "lag_seconds": None}
    return {
        "lag_records": sum(row.records for row in known),
        "lag_seconds": max(row.seconds(now_ms) for row in known),
    }
