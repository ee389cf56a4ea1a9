"""One ShareFetch that reads: goes through the partitions of its session, waits for records, lends
them.

Partitions are looked at in turns: one that has given records goes to the end. Records are lent up
to the number and size that the member asks for, except that it gets one batch whatever its size. An
answer leaves as soon as it has any; what `min_bytes` asks for is not waited for. Reading is as for
Fetch: recent batches come from memory, others from bookies within the same budget.

With read_committed, records of aborted transactions are passed over, and those of open ones wait.
Markers are never lent.

With order by key, the keys of records that are not known yet are hashed out of their batches, on
the thread of codecs unless that is quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from broker.errors import (
    BrokerError,
    GroupIdNotFound,
    LogReadFailed,
    NotEnoughReplicas,
    OffsetOutOfRange,
    Overloaded,
    ShareSessionNotFound,
    UnknownMember,
)
from broker.front.core.share_sessions import Key, ShareSession
from broker.front.services import Call, Services
from broker.front.shares.share_requests import leader_of
from broker.groups.core.group_types import NO_MEMBER
from broker.partition.core.shares.key_order import NO_KEYS, key_hashes
from broker.partition.core.shares.share_partition import Acquired, Extent, SharePartition
from broker.partition.partition import Fetched, Partition
from broker.settings.core.share_settings import ShareSettings
from client.errors import QuireError
from client.ids import Offset
from client.ledger.core.placement import relation
from client.wire.kafka.batches.records import CODEC_MASK, BatchHeader, headers

_READ_BYTES_MAX: Final = 1 << 20
"""Of one partition at a time: of what is read and not lent, nothing is kept."""
_SHORT_RECORDS: Final = 200
"""Fewer, uncompressed, have their keys hashed at once."""
_ROUNDS_MAX: Final = 20
"""How often a partition is read again that gave nothing but what nobody wants."""


class Asked(NamedTuple):
    """How much a member wants."""

    wait_s: float
    bytes_max: int
    records_max: int
    is_strict: bool


class Lent(NamedTuple):
    """What it gets of a partition."""

    records: bytes = b""
    acquired: Sequence[Acquired] = ()
    error: QuireError | None = None


class ShareReading:
    """What one request reads."""

    def __init__(
        self,
        services: Services,
        call: Call,
        session: ShareSession,
        asked: Asked,
        settings: ShareSettings,
    ) -> None:
        self.found: dict[Key, Lent] = {}
        self.size = 0
        """Record bytes in `found`."""
        self._services = services
        self._call = call
        self._session = session
        self._asked = asked
        self._settings = settings
        self._records = 0
        self._cancels: list[Callable[[], None]] = []
        self._news = asyncio.Event()
        self._taken = 0
        """Bytes of the budget for reads."""

    def close(self) -> None:
        """Give back what was taken of the budget: from now on it counts as an answer."""
        taken, self._taken = self._taken, 0
        self._services.reading.give(taken)

    async def run(self) -> None:
        """Read until there is something to answer, or the time is up.

        Raises ShareSessionNotFound.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._asked.wait_s
        session = self._session
        session.on_over = self._news.set
        try:
            while True:
                self._news.clear()
                await self._look()
                left_s = until_s - loop.time()
                if self.found or left_s <= 0 or session.is_over:
                    return
                try:
                    async with asyncio.timeout(left_s):
                        await self._news.wait()
                except TimeoutError:
                    return
                finally:
                    self._stop_waiting()
        finally:
            self._stop_waiting()
            if not session.is_over:
                session.on_over = None

    def _stop_waiting(self) -> None:
        for cancel in self._cancels:
            cancel()
        self._cancels = []

    async def _look(self) -> None:
        """Go once through the partitions."""
        pace = self._services.turns.pace()
        for key in list(self._session.partitions):
            if self._session.is_over or self._left_records <= 0:
                return
            if self.size and self.size >= self._asked.bytes_max:
                return
            await pace.item()
            try:
                partition = leader_of(self._services, self._call, key)
                lent = await self._take(partition)
            except ShareSessionNotFound:
                raise
            except (NotEnoughReplicas, Overloaded) as error:
                # Of all codes for "not now" one that members of share groups know.
                self.found[key] = Lent(error=LogReadFailed(str(error)))
                continue
            except QuireError as error:
                self.found[key] = Lent(error=error)
                continue
            if lent is not None:
                self.found[key] = lent
                self.size += len(lent.records)
                self._records += sum(one.last - one.first + 1 for one in lent.acquired)
                self._session.looked_at(key)
                where = relation(self._services.config.rack, None)
                self._services.metrics.on_fetched(partition.topic.name, len(lent.records), where)

    @property
    def _left_records(self) -> int:
        return self._asked.records_max - self._records

    async def _take(self, partition: Partition) -> Lent | None:
        """Lend records of a partition; None: there are none, and news are waited for."""
        terms, committed = self._settings.terms, self._settings.read_committed
        share = await self._share(partition)
        shares = partition.shares
        for _ in range(_ROUNDS_MAX):
            wanted = shares.wanted(share, terms)
            bound = partition.last_stable_offset if committed else partition.high_watermark
            if wanted is None or wanted >= bound:
                self._await(partition, share.group_id, wanted)
                return None
            fetched = await self._read(partition, wanted)
            if fetched is None:
                return None
            data = b"".join(fetched.buffers)
            extents = [(at, header, _extent(header, fetched)) for at, header in headers(data)]
            keys = await self._keys(share, data, extents) if terms.is_ordered else NO_KEYS
            if self._session.is_over or not self._is_current(partition, share):
                return None
            if not fetched.buffers:
                continue
            acquired = shares.acquire(
                share,
                [extent for _, _, extent in extents],
                self._session.member_id,
                terms,
                read_from=wanted,
                count_max=self._left_records,
                is_strict=self._asked.is_strict,
                keys=keys,
            )
            if acquired:
                found = [(at, header) for at, header, _ in extents]
                return Lent(_cut(data, found, acquired), acquired)
        self._news.set()  # there is more: go on in the next turn
        return None

    async def _keys(
        self,
        share: SharePartition,
        data: bytes,
        extents: Sequence[tuple[int, BatchHeader, Extent]],
    ) -> Mapping[int, int]:
        """Return the hashes of keys that order by key asks for."""
        found: dict[int, int] = {}
        for at, header, extent in extents:
            if not extent.is_wanted or not share.has_unknown_keys(extent.first, extent.last):
                continue
            work = partial(key_hashes, memoryview(data)[at : at + header.size], header)
            is_short = not header.attributes & CODEC_MASK and header.record_count < _SHORT_RECORDS
            found |= work() if is_short else await self._services.codecs.do(work)
        return found

    def _is_current(self, partition: Partition, share: SharePartition) -> bool:
        """Whether the group has not begun anew, or the leadership ended, while the log was read."""
        partition.check_leading()
        return partition.shares.find(share.group_id, share.incarnation) is share

    async def _share(self, partition: Partition) -> SharePartition:
        """Return the group's window; a new one begins where the group's settings say.

        What is there of another group of that name is replaced only after the coordinator has said
        once more which one there is: the member's session may be older than the group. Raises
        ShareSessionNotFound if it is.
        """
        session, shares = self._session, partition.shares
        share = shares.find(session.group_id, session.incarnation)
        if share is not None:
            return share
        if shares.states.is_full and shares.states.get(session.group_id) is None:
            await self._make_room(partition)
        start = await self._start(partition)
        known = shares.states.get(session.group_id)
        if known is not None and known.incarnation != session.incarnation:
            await self._check_group()
        return await shares.begin(session.group_id, session.incarnation, lambda: start)

    async def _check_group(self) -> None:
        """Raise ShareSessionNotFound unless the member is still in the group of its session."""
        session = self._session
        try:
            found = await self._services.shares.members.incarnation(
                session.group_id, session.member_id
            )
        except (GroupIdNotFound, UnknownMember):
            found = None
        if found != session.incarnation:
            self._services.shares.sessions.end(session)
            raise ShareSessionNotFound(f"{session.group_id} is another group since")

    async def _start(self, partition: Partition) -> Offset:
        """Return where a new group begins."""
        reset = self._settings.reset
        if reset.is_latest:
            return partition.high_watermark
        if reset.seconds_before is None:
            return partition.log_start_offset
        since_ms = max(0, self._services.clock.now_ms() - 1000 * reset.seconds_before)
        place = await partition.reader.offset_for_timestamp(since_ms)
        return partition.high_watermark if place is None else place[0]

    async def _make_room(self, partition: Partition) -> None:
        """Forget groups of which the coordinators say that they are no more."""
        for share in list(partition.shares.states):
            try:
                found = await self._services.shares.members.incarnation(share.group_id, NO_MEMBER)
            except GroupIdNotFound:
                found = None
            except BrokerError:
                continue  # nobody knows
            if found != share.incarnation and partition.shares.states.get(share.group_id) is share:
                partition.shares.end(share.group_id)

    async def _read(self, partition: Partition, offset: Offset) -> Fetched | None:
        """Read batches; None: the budget for that has no more than was taken already."""
        budget = self._services.reading
        size_max = min(max(0, self._asked.bytes_max - self.size), _READ_BYTES_MAX)
        if not self._taken:
            await budget.acquire(size_max)
        elif not budget.take(size_max):
            return None
        size = 0
        try:
            fetched = await self._read_some(partition, offset, size_max)
            size = fetched.size
        finally:
            budget.keep(size_max, size)
            self._taken += size
        return fetched

    async def _read_some(self, partition: Partition, offset: Offset, size_max: int) -> Fetched:
        options: dict[str, Any] = {
            "at_least_one": not self.size,
            "read_committed": self._settings.read_committed,
        }
        fetched = partition.reader.read_cached(offset, size_max, **options)
        if fetched is not None:
            self._services.metrics.cache_read_bytes += fetched.size
            return fetched
        try:
            fetched = await partition.reader.read(offset, size_max, **options)
        except OffsetOutOfRange as error:  # trimmed meanwhile
            raise LogReadFailed(str(error)) from error
        self._services.metrics.ledger_read_bytes += fetched.size
        return fetched

    def _await(self, partition: Partition, group_id: str, wanted: Offset | None) -> None:
        """Look again when records of the partition are free, or new ones have come."""
        self._cancels.append(partition.shares.on_news(group_id, self._news.set))
        if wanted is not None:
            self._cancels.append(
                partition.on_high_watermark(
                    wanted, self._news.set, read_committed=self._settings.read_committed
                )
            )


def _extent(header: BatchHeader, fetched: Fetched) -> Extent:
    is_aborted = header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in fetched.aborted
    )
    last = Offset(header.next_offset - 1)
    return Extent(header.base_offset, last, not (header.is_control or is_aborted))


def _cut(
    data: bytes, found: Sequence[tuple[int, BatchHeader]], acquired: Sequence[Acquired]
) -> bytes:
    """Return the batches from the first to the last of which anything was acquired."""
    first, last = acquired[0].first, acquired[-1].last
    begin = next(at for at, header in found if header.next_offset > first)
    ends = [at for at, header in found if header.base_offset > last]
    return data[begin : ends[0] if ends else len(data)]
