"""Takes the partitions that this broker leads to the object store, one piece of work after another.

What is to be done is decided by `core/plan.py`, and done by `core/procedures.py`, whose acts are
carried out here. Only the leader lists anything, through its partition; whoever was replaced fails
at its next step. A partition that fails waits for a while, and says why; the others go on.

Ledgers are read on the event loop, as consumers' are, within `bytes_per_s`. What is made of them,
and what is read back, is cut, checked and summed up off the loop (`off_loop`), and sent by the
store's own threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, assert_never

from broker.compaction.core.attempts import Attempts
from broker.compaction.ledger_output import ByteRate
from broker.errors import BrokerError, NotLeader, SegmentsChanged
from broker.offload.config import OffloadConfig
from broker.offload.core.plan import Log, Plan, plan
from broker.offload.core.procedures import (
    Act,
    Delete,
    Failed,
    List,
    Look,
    Prove,
    TrimTo,
    Upload,
    bury,
    copy,
    drop,
    withdraw,
)
from broker.partition.archive import Archive, fetch_footer
from broker.partition.log_services import LogServices
from broker.partition.partition import Partition
from broker.partition.segment_node import SegmentNode
from client.errors import (
    LedgerError,
    LogCorrupt,
    MetadataError,
    NoNode,
    NoObject,
    ObjectStoreError,
    QuireError,
    StoreUnavailable,
)
from client.ids import EntryId, Offset
from client.log.offload_state import OffloadState
from client.log.offloaded import Abandon, name_of
from client.log.segment import Segment, StoredObject
from client.log.segment_object import (
    BLOCK_BYTES,
    Description,
    Footer,
    ObjectCheck,
    ObjectName,
    SegmentObjectWriter,
    folder_of,
    parse_name,
)
from client.log.segments import SegmentList
from client.metadata import paths
from client.node import background
from client.objects.store import PART_BYTES, ObjectStore
from client.segments.pages import SegmentPages

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

COPY_BYTES_MAX: Final = 5 * PART_BYTES + 2 * BLOCK_BYTES
"""What a copy holds at most: a part that is filled, those that are being sent, what was read."""
_PROVEN_AT_ONCE: Final = 4 << 20
_NOTHING: Final = Plan()
_TURN_COUNT: Final = 8
"""Segments of one partition that are copied or dropped before the others have their turn."""


async def in_place(work: Callable[[], T]) -> T:
    """Do it on the loop: in tests, and where there are no threads."""
    return work()


class Objects(NamedTuple):
    """What a broker is given to offload with."""

    store: ObjectStore
    off_loop: Callable[[Callable[[], Any]], Awaitable[Any]] = in_place
    """Does what takes long somewhere else than on the event loop."""

    def archive(self, config: OffloadConfig) -> Archive:
        """Return what reads the store."""
        return Archive(
            self.store,
            cache_bytes_max=config.read_cache_bytes_max,
            wait_s=config.read_wait_ms / 1000,
        )


class OffloadStatus(NamedTuple):
    """How one partition stands, for people."""

    state: OffloadState
    plan: Plan
    doing: str
    """copying, dropping or cleaning up; empty: nothing."""
    reason: str
    """Why the last piece of work failed; empty: it did not."""
    failure_count: int


@dataclass(slots=True)
class _Watch:
    """What is known of one led partition."""

    attempts: Attempts = field(default_factory=Attempts)
    listed: SegmentList | None = None
    segments: Sequence[Segment] = ()
    """Of `listed`."""
    plan: Plan = _NOTHING
    swept_s: float = float("-inf")
    """When its folder was last searched for objects that no list names."""


class Offloader:
    """A background task of every broker that has an object store."""

    def __init__(
        self,
        services: LogServices,
        partitions: Iterable[Partition],
        config: OffloadConfig,
        cluster_id: Callable[[], str],
        off_loop: Callable[[Callable[[], Any]], Awaitable[Any]] = in_place,
    ) -> None:
        """`off_loop` does what takes long somewhere else."""
        self._services = services
        self._partitions = partitions
        self._config = config
        self._cluster_id = cluster_id
        self._off_loop = off_loop
        self._rate = ByteRate(config.bytes_per_s)
        self._watches: dict[str, _Watch] = {}
        self._doing: tuple[str, str] = ("", "")
        """The partition whose turn it is, and what is done for it."""
        self.held_bytes = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def archive(self) -> Archive | None:
        """The object store; None: this broker has none."""
        return self._services.archive

    def start(self) -> None:
        """Begin, if there is an object store."""
        if self.archive is not None:
            self._task = background.keep(self._run, "offloader")

    async def close(self) -> None:
        """Stop, in the middle of a copy if need be: the next leader goes on."""
        await background.stop(self._task)
        if self.archive is not None:
            await self.archive.close()

    def status(self, partition: Partition) -> OffloadStatus:
        """Return how a partition stands."""
        watch = self._watches.get(partition.name, _Watch())
        name, doing = self._doing
        return OffloadStatus(
            partition.usage.listed.offload,
            watch.plan,
            doing if name == partition.name else "",
            watch.attempts.reason,
            watch.attempts.failure_count,
        )

    def statuses(self) -> list[OffloadStatus]:
        """Return how all led partitions stand that have to do with the object store."""
        return [self.status(one) for one in self._partitions if _concerns(one)]

    async def visit_all(self) -> None:
        """Look at all partitions, and do what is due for each; one that fails is left for later."""
        names = {one.name for one in self._partitions if one.is_open}
        self._watches = {name: one for name, one in self._watches.items() if name in names}
        for partition in list(self._partitions):
            if not partition.is_open or not _concerns(partition):
                continue
            watch = self._watches.setdefault(partition.name, _Watch())
            if not watch.attempts.may_try(self._now_s()):
                continue
            try:
                failed = await self._visit(partition, watch)
            except SegmentsChanged:
                continue  # a trim, a takeover: the next look is at another list
            except TimeoutError:
                failed = Failed(StoreUnavailable("it took longer than offload.copy_timeout_ms"))
            except (BrokerError, LedgerError, MetadataError, ObjectStoreError, LogCorrupt) as error:
                failed = Failed(error)
            finally:
                self._doing = "", ""
                self.held_bytes = 0
            self._note(partition, watch, failed)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.check_interval_ms / 1000)
            await self.visit_all()

    def _note(self, partition: Partition, watch: _Watch, failed: Failed | None) -> None:
        if failed is None:
            watch.attempts.on_done()
        elif partition.is_open:  # else whoever leads it now goes on
            error = failed.error or StoreUnavailable("what was sent is not in the object store")
            watch.attempts.on_failed(str(error) or repr(error), self._now_s())
            self._services.metrics.offload_failures += 1
            _LOG.warning(
                "offload.failed topic=%s partition=%d failures=%d error=%r",
                partition.topic.name, partition.index, watch.attempts.failure_count, error,
            )  # fmt: skip

    async def _visit(self, partition: Partition, watch: _Watch) -> Failed | None:
        """Do what is due for a partition, but not so much of it that others wait for long. Raises
        what its acts raise."""
        remote = partition.topic.config.remote
        if not remote.is_on and not remote.deletes:
            return None  # set by an older release: the store keeps what it has
        if not remote.is_on:
            return await self._withdraw(partition, watch)
        for _ in range(_TURN_COUNT):
            await self._look(partition, watch)
            log = Log(
                partition.usage.listed,
                watch.segments,
                Offset(min(partition.last_stable_offset, partition.high_watermark)),
                partition.usage.size_bytes - partition.usage.listed.size_bytes,
            )
            now_ms = self._services.clock.now_ms()
            watch.plan = found = plan(log, remote, self._config.ledger_grace_ms, now_ms)
            failed: Failed | None = None
            if found.copy is not None:
                self._doing = partition.name, "copying"
                intent = log.listed.offload.intent
                work = copy(found.copy, self._fresh(found.copy), intent, now_ms)
                failed = await self._go(partition, work)
                self._services.metrics.offload_copied_segments += failed is None
            elif found.drop is not None:
                self._doing = partition.name, "dropping"
                failed = await self._go(partition, drop(found.drop))
                self._services.metrics.offload_dropped_ledgers += failed is None
            else:
                await self._clean_up(partition, watch)
                return None
            if failed is not None:
                return failed
        return None

    async def _withdraw(self, partition: Partition, watch: _Watch) -> Failed | None:
        await self._look(partition, watch)
        state = partition.usage.listed.offload
        self._doing = partition.name, "cleaning up"
        local_from = max(
            (one.end_offset or 0 for one in watch.segments if one.is_ledger_gone), default=0
        )
        await self._go(partition, withdraw(watch.segments, state.intent, Offset(local_from)))
        watch.plan = Plan()
        await self._clean_up(partition, watch)
        return None

    async def _clean_up(self, partition: Partition, watch: _Watch) -> None:
        """Delete what nobody needs: what was intended, if nothing more is copied; what is buried;
        and what no list names."""
        intent = partition.usage.listed.offload.intent
        if intent is not None and not partition.topic.config.remote.copies:
            await partition.changes.offload(Abandon(intent.name))
        before_ms = self._services.clock.now_ms() - self._config.object_grace_ms
        graves = partition.usage.listed.offload.graves
        due = [grave for grave in graves if grave.since_ms <= before_ms]
        if due:
            self._doing = partition.name, "cleaning up"
            await self._go(partition, bury(due))
        if self._now_s() - watch.swept_s >= self._config.stray_age_ms / 1000:
            await self._sweep(partition)
            watch.swept_s = self._now_s()

    async def _sweep(self, partition: Partition) -> None:
        """Delete objects that no list names (STRAY): the list is read back after they were seen,
        and names every object before it is sent. Only those that are old, so that one that is being
        sent by a broker that was replaced is not deleted before it is there."""
        store = self._store()
        before_ms = self._services.clock.now_ms() - self._config.stray_age_ms
        folder = _folder(partition)
        seen = [each.name async for each in store.list(folder) if each.modified_ms <= before_ms]
        if not seen:
            return
        node = SegmentNode(
            self._services.requests, partition.topic, partition.index, self._services.pages
        )
        listed, _ = await node.read_back()
        if listed.leader_epoch != partition.leader_epoch:
            raise NotLeader(f"{partition.name} was taken over")
        segments = [one async for one in node.pages.segments(listed)]
        marked = [*listed.offload.graves, *filter(None, [listed.offload.intent])]
        names = {one.name for one in marked} | {name_of(one) for one in segments}
        for path in seen:
            name = parse_name(path)
            if name is not None and name not in names and path == name.path(folder):
                _LOG.info("offload.stray store=%s object=%s", store.place, path)
                await store.delete(path)

    async def _look(self, partition: Partition, watch: _Watch) -> None:
        """Have all segments of the list as it is. Raises MetadataError, SegmentsChanged."""
        listed = partition.usage.listed
        if listed is watch.listed:
            return
        path = paths.partition(partition.topic.id_text, partition.index)
        pages = SegmentPages(self._services.store, path, self._services.pages)
        try:
            watch.segments = [one async for run in pages.runs(listed) for one in run]
        except NoNode as error:
            if listed is partition.usage.listed:
                raise
            raise SegmentsChanged("a trim let a page of the list go") from error
        watch.listed = listed

    def _fresh(self, segment: Segment) -> ObjectName:
        assert segment.base_offset is not None
        attempt = self._services.rng.getrandbits(64)
        return ObjectName(segment.base_offset, segment.ledger_id, attempt)

    # --- acts ---------------------------------------------------------------------------

    async def _go(self, partition: Partition, work: Any) -> Failed | None:
        """Carry a procedure out, act by act."""
        outcome: Any = None
        while True:
            try:
                act = work.send(outcome)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # a generator of another's type
            outcome = await self._do(partition, act)

    async def _do(self, partition: Partition, act: Act) -> Any:
        path_of = partial(ObjectName.path, folder=_folder(partition))
        match act:
            case List(step):
                await partition.changes.offload(step)
            case Upload(name, segment):
                return await self._upload(partition, path_of(name), name, segment)
            case Look(name):
                return await self._footer(path_of(name))
            case Prove(name, stored):
                return await self._prove(path_of(name), stored)
            case Delete(name):
                return await self._delete(path_of(name))
            case TrimTo(offset):
                if offset > partition.log_start_offset:
                    await partition.changes.delete_records(offset)
            case _:
                assert_never(act)
        return None

    async def _upload(
        self, partition: Partition, path: str, name: ObjectName, segment: Segment
    ) -> QuireError | None:
        description = Description(
            self._cluster_id(), partition.topic.name, partition.topic.id_text, partition.index,
            name.attempt, segment,
        )  # fmt: skip
        self.held_bytes = COPY_BYTES_MAX
        try:
            async with asyncio.timeout(self._config.copy_timeout_ms / 1000):
                await self._store().put(path, self._parts(description))
        except ObjectStoreError as error:
            return error  # what is there now, only a look tells
        finally:
            self.held_bytes = 0
        return None

    async def _parts(self, description: Description) -> AsyncIterator[bytes]:
        """Make the object. Raises LedgerError, LogCorrupt."""
        reader = await self._services.ledgers.open(description.segment.ledger_id)
        writer = SegmentObjectWriter(description, PART_BYTES)
        first, metrics = EntryId(0), self._services.metrics
        while first <= reader.last_entry:
            entries = await reader.read_some(first, reader.last_entry)
            payloads = [entry.payload for entry in entries]
            size = sum(map(len, payloads))
            await self._rate.use(size)
            metrics.offload_copied_bytes += size
            for part in await self._off_loop(partial(writer.add, payloads)):
                yield part
            first = EntryId(entries[-1].entry_id + 1)
        for part in await self._off_loop(writer.finish):
            yield part

    async def _footer(self, path: str) -> Footer | None:
        try:
            return await fetch_footer(self._store(), path)
        except (NoObject, LogCorrupt):
            return None

    async def _prove(self, path: str, stored: StoredObject) -> QuireError | None:
        """Read an object back as a whole. Raises StoreUnavailable, StoreRefuses: nobody knows."""
        self.held_bytes = COPY_BYTES_MAX
        try:
            async with asyncio.timeout(self._config.copy_timeout_ms / 1000):
                footer = await fetch_footer(self._store(), path)
                if (footer.size, footer.crc) != (stored.footer_bytes, stored.footer_crc):
                    raise LogCorrupt(f"{path} is not the object that was listed")
                check, start = ObjectCheck(footer), 0
                while start < len(footer.blocks):
                    start = await self._prove_some(path, footer, check, start)
                check.finish()
        except (NoObject, LogCorrupt) as error:
            return error
        finally:
            self.held_bytes = 0
        return None

    async def _prove_some(self, path: str, footer: Footer, check: ObjectCheck, start: int) -> int:
        """Check some blocks from `start` on; return where to go on."""
        end, at = start + 1, footer.blocks[start].position
        while end < len(footer.blocks) and footer.blocks[end].end - at <= _PROVEN_AT_ONCE:
            end += 1
        data = memoryview(await self._store().read(path, at, footer.blocks[end - 1].end))
        await self._rate.use(len(data))

        def work() -> None:
            for block in footer.blocks[start:end]:
                check.add(data[block.position - at : block.end - at])

        await self._off_loop(work)
        return end

    async def _delete(self, path: str) -> bool:
        await self._store().delete(path)
        try:
            await self._store().head(path)
        except NoObject:
            return True
        return False

    def _store(self) -> ObjectStore:
        assert self.archive is not None
        return self.archive.store

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _folder(partition: Partition) -> str:
    return folder_of(partition.topic.id_text, partition.index)


def _concerns(partition: Partition) -> bool:
    """Whether a partition has to do with the object store: by its settings, or by what it has."""
    return partition.topic.config.remote.is_on or partition.usage.listed.offload.used
