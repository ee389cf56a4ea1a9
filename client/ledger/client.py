"""The ledger client: create, open, recover, delete and list replicated ledgers.

Covers the public API and what a ledger's password gives access to.

    async with LedgerClient(store, rng=rng, clock=clock) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.append(b"first")
        await writer.close()
        reader = await ledgers.open(writer.ledger_id)
        async for entry in reader.entries():
            ...

A ledger has one writer, the one that `create` returned. Anybody may `recover` it: that fences
the writer, settles where the ledger ends, and closes it for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Final

from client.errors import LedgerExists
from client.held_memory import HeldMemory
from client.ids import BookieId, Clock, EntryId, LedgerId, Rng
from client.ledger.bookies.bookie_choice import BookieChoice
from client.ledger.bookies.bookie_directory import BookieDirectory, HealthSwitch
from client.ledger.bookies.bookies import Bookies, BookieSet
from client.ledger.config import LedgerClientConfig
from client.ledger.context import BatchAbility, LedgerContext
from client.ledger.core.bookie_health import BookieHealth
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    Schedule,
    VersionedMetadata,
    fitting,
    schedule_of,
)
from client.ledger.core.placement import Placement, RackPlacement
from client.ledger.joined_changes import PlannedLedger
from client.ledger.ledger_ids import LedgerIds
from client.ledger.ledger_nodes import LedgerNodes
from client.ledger.metrics import LedgerStats
from client.ledger.read.reader import LedgerReader
from client.ledger.recoveries import Recoveries, reader_of
from client.ledger.under_replication import HoleMarks
from client.ledger.write.writer import LedgerWriter, add_rules
from client.ledger.write.writer_room import ActiveWriters
from client.metadata import bookkeeper
from client.metadata.store import MetadataStore
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key

log = logging.getLogger(__name__)

_C_TOKEN_BITS: Final = 63
_WRITERS_FEW: Final = 64
_LINGER_S: Final = 1.0
"""How long closing a client waits for answers to its last adds, and for its last marks."""


class LedgerClient:
    """Access to the ledgers of one BookKeeper cluster.

    All coroutines raise LedgerErrors, and MetadataErrors when the metadata store stays out of
    reach.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        rng: Rng,
        clock: Clock,
        config: LedgerClientConfig | None = None,
        bookies: BookieSet | ClusterSecurity | None = None,
        placement: Placement | None = None,
        stats: LedgerStats | None = None,
    ) -> None:
        """`bookies`, `placement`: how bookies are reached and chosen, if not in plain text and the
        usual way. Raises ConfigError if files of `ClusterSecurity` cannot be read.

        `stats`: where to count.
        """
        self._config = config or LedgerClientConfig()
        root = self._config.ledgers_root
        self._store = store
        self._rng = rng
        self._clock = clock
        self.stats = stats or LedgerStats()
        self.memory = HeldMemory()
        """Bytes of entries that its writers hold; other parts of the process may count theirs."""
        if bookies is None or isinstance(bookies, ClusterSecurity):
            directory, security = BookieDirectory(store, root), bookies or OPEN_CLUSTER
            bookies = Bookies(directory, self._config, self.stats, security)
        self._bookies: BookieSet = bookies
        health = BookieHealth(self._config.health_limits())
        self._health_switch = HealthSwitch(store, root, health)
        choice = BookieChoice(self._bookies, placement or self._rack_placement(), health, rng)
        self._nodes = LedgerNodes(
            store,
            root,
            attempts_max=self._config.metadata_attempts_max,
            retry_delay_s=self._config.metadata_retry_delay_ms / 1000,
        )
        self.requests = self._nodes.requests
        """What changes of ledgers leave with, for others that have requests at the same time."""
        marks = HoleMarks(store, self._nodes, clock, root=root)
        self.context = LedgerContext(
            self._nodes,
            self._bookies,
            choice,
            health,
            marks,
            self._config,
            self.stats,
            BatchAbility(),
            self.memory,
            add_rules(self._config),
            ActiveWriters(),
        )
        """What the parts of this client share, for others that work on ledgers themselves."""
        self.recoveries = Recoveries(self.context)
        """For others that join a recovery's changes with their own."""
        self._ids = LedgerIds(store, self._nodes, root)
        self._writers: list[LedgerWriter] = []
        self._writers_max = _WRITERS_FEW
        """At this many it forgets the settled ones: each time twice of what was left."""

    async def start(self) -> None:
        """Check that the cluster is one we understand, and learn which bookies there are.

        Raises NoNode when there is no cluster, MetadataCorrupt for one of another kind.
        """
        await bookkeeper.check_layout(self._store, root=self._config.ledgers_root)
        await self._bookies.start()
        if self._config.quarantine_errors_max:
            await self._health_switch.start()

    async def close(self) -> None:
        """Abandon all writers and close all connections. The store stays open.

        Gives bookies a moment to answer what they were sent: only so is known whether all of
        them have what others confirmed.
        """
        for writer in self._writers:
            writer.abandon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await asyncio.gather(*map(_settled, self._writers))
        self._writers.clear()
        await self.context.marks.close(_LINGER_S)
        self._health_switch.close()
        self._bookies.close()

    @property
    def writable_bookies(self) -> tuple[BookieId, ...]:
        """Bookies that take new entries, as far as this client knows."""
        return self._bookies.writable

    def on_bookies_changed(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever bookies may have come or gone."""
        self._bookies.add_listener(listener)

    async def __aenter__(self) -> LedgerClient:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def create(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        write_quorum_min: int | None = None,
        ledger_id: int | None = None,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> LedgerWriter:
        """Create a ledger and return its writer.

        `ensemble_size`: bookies that entries are striped over; `write_quorum`: copies of each
        entry; `ack_quorum`: copies on stable storage before an add is confirmed.
        `write_quorum_min`: take fewer copies rather than none while bookies are missing, but no
        fewer than this. `ledger_id`: an id of your own choice. Raises IncorrectParameter unless
        E >= Qw >= Qa >= 1, NotEnoughBookies, LedgerExists for a chosen id that is taken.
        """
        metadata = self._new_metadata(
            schedule_of(ensemble_size, write_quorum, ack_quorum),
            write_quorum_min,
            digest_type,
            password,
            custom_metadata,
        )
        made_id, current = await self._create_node(ledger_id, metadata)
        return self._new_writer(made_id, current)

    async def plan(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        write_quorum_min: int | None = None,
        ledger_id: int | None = None,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> PlannedLedger:
        """Return a ledger as `create` would make it, for somebody else's transaction to create.

        Raises what `create` raises, but for LedgerExists: the transaction is refused then.
        """
        metadata = self._new_metadata(
            schedule_of(ensemble_size, write_quorum, ack_quorum),
            write_quorum_min,
            digest_type,
            password,
            custom_metadata,
        )
        planned_id = await self._ids.take() if ledger_id is None else LedgerId(ledger_id)
        self._ids.tidy()
        change = self._nodes.creation(planned_id, metadata)
        current = VersionedMetadata(metadata, 0)
        return PlannedLedger(planned_id, (change,), partial(self._new_writer, planned_id, current))

    async def take_id(self) -> LedgerId:
        """Take an id for `create`: newer than those of all ledgers there are, but for ids that
        somebody chose. One that is not used is wasted. Raises MetadataError.
        """
        return await self._ids.take()

    async def open(self, ledger_id: int, *, password: bytes | None = b"") -> LedgerReader:
        """Open a ledger without disturbing its writer; reads go up to the LAC found.

        `password` None takes the one in the metadata, as administrators may. Raises
        NoSuchLedger, UnauthorizedAccess, ReadFailed when too few bookies know the LAC.
        """
        ledger_id = LedgerId(ledger_id)
        current = await self._nodes.read(ledger_id)
        reader = reader_of(ledger_id, current, password, self.context)
        if not current.metadata.is_closed:
            await reader.refresh()
        return reader

    async def recover(self, ledger_id: int, *, password: bytes | None = b"") -> LedgerReader:
        """Fence a ledger's writer, find its end and close it; return a reader of all of it.

        Raises NoSuchLedger, UnauthorizedAccess, RecoveryInconclusive (try again later).
        """
        return await self.recoveries.recover(LedgerId(ledger_id), password=password)

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger; bookies reclaim its space by themselves. Absent is fine."""
        await self._nodes.delete(LedgerId(ledger_id))

    async def describe(self, ledger_id: int) -> LedgerMetadata:
        """Return a ledger's metadata. Raises NoSuchLedger, MetadataCorrupt."""
        return (await self._nodes.read(LedgerId(ledger_id))).metadata

    def ledgers(self) -> AsyncIterator[LedgerId]:
        """Yield the ids of all ledgers; those created or deleted meanwhile may be missed."""
        return self._nodes.ids()

    def _remember(self, writer: LedgerWriter) -> None:
        """Keep a writer for `close`, at least until it is settled."""
        if len(self._writers) >= self._writers_max:
            self._writers = [known for known in self._writers if not known.progress.is_settled]
            self._writers_max = max(_WRITERS_FEW, 2 * len(self._writers))
        self._writers.append(writer)

    async def _create_node(
        self, chosen_id: int | None, metadata: LedgerMetadata
    ) -> tuple[LedgerId, VersionedMetadata]:
        """Create the znode, if need be under a fresh id; one that somebody took is skipped."""
        if chosen_id is not None:
            ledger_id = LedgerId(chosen_id)
            self._ids.tidy()
            return ledger_id, await self._nodes.create(ledger_id, metadata)
        while True:
            ledger_id = await self._ids.next()
            try:
                return ledger_id, await self._nodes.create(ledger_id, metadata)
            except LedgerExists:
                log.warning("ledger.id_taken ledger=%d", ledger_id)

    def _new_metadata(
        self,
        asked: Schedule,
        write_quorum_min: int | None,
        digest_type: DigestType,
        password: bytes,
        custom_metadata: Mapping[str, bytes] | None,
    ) -> LedgerMetadata:
        """Choose bookies for a ledger. Raises NotEnoughBookies."""
        schedule = fitting(
            asked,
            len(self._bookies.writable),
            striping=self._config.opportunistic_striping,
            write_quorum_min=write_quorum_min,
        )
        ensemble = self.context.choice.ensemble(schedule.ensemble_size, schedule.write_quorum)
        return LedgerMetadata(
            ensemble_size=schedule.ensemble_size,
            write_quorum=schedule.write_quorum,
            ack_quorum=schedule.ack_quorum,
            fragments=(Fragment(EntryId(0), ensemble),),
            digest_type=digest_type,
            password=password,
            ctime_ms=self._clock.now_ms() if self._config.store_creation_time else None,
            custom_metadata=dict(custom_metadata or {}),
            c_token=self._rng.getrandbits(_C_TOKEN_BITS),
        )

    def _new_writer(self, ledger_id: LedgerId, current: VersionedMetadata) -> LedgerWriter:
        metadata = current.metadata
        self.stats.created += 1
        log.info(
            "ledger.created ledger=%d ensemble=%s",
            ledger_id,
            ",".join(metadata.last_fragment.ensemble),
        )
        password = metadata.password or b""
        codec = EntryCodec(ledger_id, metadata.digest_type or DigestType.CRC32, password)
        writer = LedgerWriter(codec, master_key(password), current, self.context)
        self._remember(writer)
        return writer

    def _rack_placement(self) -> RackPlacement:
        config = self._config
        return RackPlacement(
            self._bookies.rack,
            racks_min=config.racks_min,
            enforced=config.racks_enforced,
            local_rack=config.local_rack,
        )


async def _settled(writer: LedgerWriter) -> None:
    """Wait until every bookie has answered that was asked."""
    while not writer.progress.is_settled:
        await writer.room.changed()
