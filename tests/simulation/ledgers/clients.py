"""The workload of ledger schedules: what writers, recoverers, readers and the judge do.

Every payload is unique, so that the oracle knows what belongs where. Workload code tells the
oracle about each call of the ledger client and swallows the errors the client declares; anything
else that it raises ends the schedule as a violation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from client.errors import LedgerError, NoSuchLedger, QuireError
from client.ids import EntryId, LedgerId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from tests.simulation.bookies.durable_records import mark
from tests.simulation.bookies.swarm import LITTLE_BYTES
from tests.simulation.machine.hosts import Host, Process, SimClock

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from client.ledger.read.reader import LedgerReader
    from client.ledger.write.writer import LedgerWriter
    from tests.simulation.ledgers.world import LedgerWorld

PASSWORD = b"sesame"
_ADDS_AFTER_HEALING = 3


class LedgerClients:
    """All client programs of one schedule and what they know of each other's ledgers."""

    def __init__(self, world: LedgerWorld) -> None:
        self._world = world
        self._roles: dict[str, str] = {}
        self.known: list[int] = []
        """Ids of the ledgers that were created, in order."""
        self._adds_left: dict[str, int] = {}
        self._little: set[str] = set()
        """Writers that add little."""
        self._bursts: list[tuple[Process, _Burst]] = []
        timeout_ms = int(world.options.request_timeout_s * 1000)
        self._config = LedgerClientConfig(
            request_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
            reconnect_delay_min_ms=10,
            reconnect_delay_max_ms=100,
            recovery_window_entries=world.options.recovery_window,
            read_window_entries=world.options.in_flight,
            read_window_bytes=0,
            quarantine_interval_ms=500,
            quarantine_ms=1000,
            **{"metadata_retry_delay_ms": 20, **world.options.client},
        )

    def assign(self, host: Host, role: str) -> None:
        """Decide what a client host runs."""
        self._roles[host.name] = role
        self._adds_left[host.name] = self._world.options.adds
        if role == "writer" and len(self._little) < self._world.options.little_writers:
            self._little.add(host.name)

    def wind_down(self) -> None:
        """Leave every writer no more to do than shows that it goes on."""
        for name, left in self._adds_left.items():
            self._adds_left[name] = min(left, _ADDS_AFTER_HEALING)

    def main_of(self, host: Host) -> Coroutine[Any, Any, None]:
        """Return the main of a client host's next process."""
        mains = {"writer": self._write, "recoverer": self._recover, "reader": self._read}
        return mains[self._roles[host.name]](host)

    async def _client(self, host: Host) -> LedgerClient:
        world = self._world
        client = LedgerClient(
            world.store.session(),
            config=self._config,
            rng=world.fork_rng(f"{host.name} {host.starts}"),
            clock=SimClock(world.loop, host),
        )
        while True:
            try:
                await client.start()
            except QuireError:
                await asyncio.sleep(0.05)
            else:
                return client

    # ---------------------------------------------------------------- writers

    async def _write(self, host: Host) -> None:
        client = await self._client(host)
        rng = self._world.fork_rng(f"writer {host.name} {host.starts}")
        options = self._world.options
        in_flight, payload_bytes = options.in_flight, options.payload_bytes
        if host.name in self._little:
            in_flight, payload_bytes = 1, LITTLE_BYTES
        ensemble_size, write_quorum, ack_quorum = options.quorums
        while self._adds_left[host.name] > 0:
            try:
                writer = await client.create(
                    ensemble_size=ensemble_size,
                    write_quorum=write_quorum,
                    ack_quorum=ack_quorum,
                    password=PASSWORD,
                )
            except QuireError as error:
                self._world.oracle.note("%s cannot create: %r", host.name, error)
                await asyncio.sleep(0.05)
                continue
            self.known.append(writer.ledger_id)
            burst = _Burst(self._world, writer)
            assert host.process is not None
            self._bursts.append((host.process, burst))
            while self._adds_left[host.name] > 0 and burst.goes_on(options.adds_per_ledger):
                if not burst.add(payload_bytes):
                    break
                self._adds_left[host.name] -= 1
                if options.pace_s:
                    await asyncio.sleep(options.pace_s)
                if burst.in_flight >= in_flight:
                    await burst.room(in_flight)
                    if options.think_s:
                        await asyncio.sleep(rng.expovariate(1 / options.think_s))
            await self._finish(host, burst, rng.random())
        await self._world.loop.create_future()

    async def _finish(self, host: Host, burst: _Burst, fate: float) -> None:
        writer = burst.writer
        if fate < 0.5:
            await burst.room(1)
        if fate < 0.75:
            try:
                await writer.close()
            except QuireError as error:
                self._world.oracle.note("close of %d: %r", writer.ledger_id, error)
            else:
                self._world.oracle.closed(
                    writer.ledger_id, writer.progress.last_add_confirmed, host.name
                )
        elif fate < 0.85:
            writer.abandon()

    # ---------------------------------------------------------------- recoverers and readers

    async def _recover(self, host: Host) -> None:
        client = await self._client(host)
        rng = self._world.fork_rng(f"recoverer {host.name} {host.starts}")
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(self._world.looks_per_s))
            if not self.known:
                continue
            ledger_id = self.known[-1 - rng.randrange(min(2, len(self.known)))]
            try:
                reader = await self._recover_one(client, ledger_id, host.name)
                if reader is not None and rng.random() < 0.5:
                    await self._read_all(reader, host.name)
                if reader is not None and rng.random() < self._world.options.deletes_p:
                    await client.delete(reader.ledger_id)
                    self._world.oracle.count("ledgers deleted")
            except QuireError as error:
                self._world.oracle.note("%s cannot recover %d: %r", host.name, ledger_id, error)

        await self._world.loop.create_future()

    async def _recover_one(
        self, client: LedgerClient, ledger_id: int, by: str
    ) -> LedgerReader | None:
        self._world.oracle.note("%s recovers %d", by, ledger_id)
        try:
            reader = await client.recover(LedgerId(ledger_id), password=PASSWORD)
        except NoSuchLedger:
            if not self._world.oracle.ledger(ledger_id).deleted:
                raise
            return None
        self._world.oracle.recovered(ledger_id, reader.last_entry, by)
        return reader

    async def _read_all(self, reader: LedgerReader, by: str) -> None:
        last = reader.last_entry
        if last < 0:
            return
        entries = await reader.read(EntryId(0), last)
        if len(entries) != last + 1:
            self._world.oracle.fail(
                "L3",
                f"{by} asked for {last + 1} entries of {reader.ledger_id} and got {len(entries)}",
            )
        for number, entry in enumerate(entries):
            assert entry.entry_id == number
            self._world.oracle.read(reader.ledger_id, number, bytes(entry.payload), by)

    async def _read(self, host: Host) -> None:
        client = await self._client(host)
        rng = self._world.fork_rng(f"reader {host.name} {host.starts}")
        while not self._world.healed:
            await asyncio.sleep(rng.expovariate(self._world.looks_per_s))
            if not self.known:
                continue
            ledger_id = self.known[rng.randrange(len(self.known))]
            try:
                reader = await client.open(LedgerId(ledger_id), password=PASSWORD)
                await self._read_all(reader, host.name)
                await reader.refresh()
                await self._read_all(reader, host.name)
            except QuireError as error:
                self._world.oracle.note("%s cannot read %d: %r", host.name, ledger_id, error)
        await self._world.loop.create_future()

    # ---------------------------------------------------------------- the judge

    async def judge(self, host: Host, done: asyncio.Future[None]) -> None:
        """See every add answered, recover every ledger, read all of it; then `done`.

        A writer that lives must answer its adds without anybody's help; only then is it fenced.
        """
        client = await self._client(host)
        oracle = self._world.oracle
        for process, burst in self._bursts:
            self._world.doing = f"waiting for adds to {burst.writer.ledger_id} of {process.name}"
            while process.alive and burst.in_flight:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        for ledger_id in list(self.known):
            while not oracle.ledger(ledger_id).deleted:
                self._world.doing = f"recovering {ledger_id}"
                try:
                    reader = await self._recover_one(client, ledger_id, "judge")
                    self._world.doing = f"reading {ledger_id}"
                    if reader is not None:
                        await self._read_all(reader, "judge")
                        break
                except QuireError as error:
                    oracle.note("judge at %d: %r", ledger_id, error)
                    self._world.doing = f"{self._world.doing}: {error!r}"
                    await asyncio.sleep(0.3)
        if not done.done():
            done.set_result(None)


class _Burst:
    """A writer with its adds in flight."""

    def __init__(self, world: LedgerWorld, writer: LedgerWriter) -> None:
        self._world = world
        self.writer = writer
        self._count = 0
        self.in_flight = 0
        self.failed = False
        self._changed = asyncio.Event()

    def goes_on(self, adds_max: int) -> bool:
        """Whether the ledger is to get more."""
        return not self.failed and self._count < adds_max

    def add(self, payload_bytes: int) -> bool:
        """Send the next unique payload; False if the writer takes no more."""
        ledger_id = self.writer.ledger_id
        payload = mark(ledger_id, self._count, payload_bytes)
        try:
            entry_id = self.writer.add([payload], self._on_done)
        except LedgerError as error:
            self._world.oracle.note("add to %d refused: %r", ledger_id, error)
            return False
        self._world.oracle.sent(ledger_id, entry_id, payload)
        self._count += 1
        self.in_flight += 1
        return True

    def _on_done(self, entry_id: EntryId, error: LedgerError | None) -> None:
        self._world.oracle.added(self.writer.ledger_id, entry_id, error)
        self.in_flight -= 1
        if error is not None:
            self.failed = True
        self._changed.set()

    async def room(self, limit: int) -> None:
        """Wait until fewer than `limit` adds are in flight."""
        while self.in_flight >= limit:
            self._changed.clear()
            await self._changed.wait()
