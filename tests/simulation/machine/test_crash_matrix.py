"""A bookie's storage ends at every single step of its disk, then again while it starts.

The first life writes entries of two ledgers over several log files, fences one, takes
checkpoints, meets a full disk. Another one also deletes a ledger and gives log files back: it
copies what lives in them and removes them. A life ends (killed, or without power) after k
elementary disk operations; the next start ends after j; the one after that must come up without a
refusal or damage, and everything that was ever answered must be there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bookie.errors import DiskFull
from bookie.metrics import BookieMetrics
from bookie.storage.compactor import Compactor, CompactorLimits
from bookie.storage.core.append_log import file_number, is_copy
from bookie.storage.core.group_commit import Backlog
from bookie.storage.core.read_turns import ReadLimits
from bookie.storage.index.indexer import CheckpointLimits
from bookie.storage.replay import init_log, replay
from bookie.storage.storage import Storage, StorageLimits
from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.entry import DigestType, EntryCodec
from client.wire.bookkeeper.messages import AddRequest, Status
from tests.simulation.bookies.swarm import DiskOptions
from tests.simulation.machine.disk import DiskTimes, SimDisk
from tests.simulation.machine.hosts import Host
from tests.simulation.machine.index import LevelStore, SimIndex
from tests.simulation.machine.loop import SimLoop, Violation
from tests.simulation.machine.volume import Volume

KEY = b"k" * 20
LEDGERS = (LedgerId(7), LedgerId(8))
LOG_FILE_BYTES = 400
NOW_MS = 1_700_000_000_000
LIMITS = StorageLimits(
    group_bytes_max=1 << 20,
    cache_bytes_max=0,
    reads=ReadLimits(rest_times=8.0, bytes_per_s_min=16 << 20, wait_s_max=0.5),
    checkpoint=CheckpointLimits(600, 1000, 1000.0),
    index_gather_s=0.0,
    disk_full_retry_s=0.01,
)


class Machine:
    """One disk, one storage at a time, and what it has promised."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(random.Random(seed))
        self.volume = Volume(random.Random(seed + 1))
        self.index = LevelStore(random.Random(seed + 2), self.volume, write_buffer_bytes=400)
        self.times = DiskTimes(random.Random(seed + 3), DiskOptions())
        self.host = Host("bookie", "10.0.0.1")
        self.stored: dict[tuple[int, int], bytes] = {}
        """Entries that were answered OK."""
        self.fenced: set[int] = set()
        """Ledgers whose fence was answered."""
        self.deleted: set[int] = set()
        """Ledgers whose deletion was begun."""
        self.buried: set[int] = set()
        """Ledgers whose deletion was answered."""
        self.steps = 0
        self.storage: Storage
        self.failed: list[BaseException] = []

    def live(self, work: Callable[[], Any], *, stop_after: int, power_loss: bool) -> bool:
        """Run `work` as a process; False if it was stopped before its end."""
        done: list[bool] = []

        async def main() -> None:
            await work()
            done.append(True)

        self.volume.stops_in = stop_after
        self.volume.on_stop = partial(self._stop, power_loss)

        async def drive() -> None:
            process = self.loop.start_process(self.host, main)
            while process.alive:  # noqa: ASYNC110  the loop is simulated
                await asyncio.sleep(0.01)

        try:
            self.loop.run_until_complete(drive())
        except RuntimeError:
            raise self.loop.failure or Violation("HARNESS stopped") from None
        self.steps = 10_000 - self.volume.stops_in
        self.volume.stops_in = -1
        return bool(done)

    def _stop(self, power_loss: bool) -> None:
        assert self.host.process is not None
        self.loop.kill(self.host.process)
        if power_loss:
            self.volume.power_lost()
            self.index.power_lost()

    async def start(self) -> None:
        """Bring the storage up on what the disk holds."""
        disk = SimDisk(self.volume, self.times, free_bytes_min=1000)
        init_log(disk, random.Random(5))
        replayed = await disk.index_job(
            partial(
                replay,
                disk,
                lambda wipe: SimIndex(self.index, wipe=wipe),
                log_file_bytes_max=LOG_FILE_BYTES,
            )
        )
        metrics = BookieMetrics()
        self.storage = Storage(
            replayed,
            disk,
            LIMITS,
            backlog=Backlog(1 << 20),
            loop=self.loop,
            metrics=metrics,
            on_failed=self.failed.append,
        )
        self.compactor = Compactor(
            disk,
            replayed.index,
            self.storage.indexer,
            CompactorLimits(LOG_FILE_BYTES, 1 << 40, 0, deletion_memory_ms=1 << 40),
            salt=replayed.checkpoint.salt,
            next_copy=replayed.next_copy,
            metrics=metrics,
        )

    async def start_if_there_is_room(self) -> None:
        """Start where the disk may still be full: then nothing may be taken for damage."""
        with suppress(DiskFull):
            await self.start()

    async def first_life(self) -> None:
        """Write, fence, fill the disk, write on."""
        await self.start()
        for round_ in range(6):
            answers = [self._add(ledger, round_) for ledger in LEDGERS]
            if round_ == 2:
                answers.append(self._fence(LEDGERS[0]))
            if round_ == 3:
                self.volume.capacity_bytes = self.volume.used_bytes + 1000
            for answer in answers:
                await answer
            if round_ == 3:
                self.volume.capacity_bytes = 1 << 30
                await asyncio.sleep(0.02)

    async def reclaiming_life(self) -> None:
        """Delete a fenced ledger and give files back, twice, writing on in between."""
        await self.start()
        for round_ in range(4):
            for ledger in LEDGERS:
                await self._add(ledger, round_)
        await self._fence(LEDGERS[0])
        await self._delete(LEDGERS[0])
        await self.compactor.run(1.1, NOW_MS)
        for round_ in range(4, 6):
            await self._add(LEDGERS[1], round_)
        await self.compactor.run(1.1, NOW_MS)

    async def check(self) -> None:
        """Read everything that was promised."""
        assert not self.storage.has_damage, "nothing was damaged, only lost before a sync"
        for (ledger, entry), data in self.stored.items():
            if ledger in self.deleted:
                continue
            found = self.loop.create_future()
            self.storage.reads.read(
                LedgerId(ledger),
                EntryId(entry),
                lambda status, body, found=found: found.set_result((status, body)),
            )
            status, body = await found
            assert (status, bytes(body or b"")) == (Status.OK, data), (ledger, entry)
        for ledger in self.buried:
            answer = self.loop.create_future()
            self.storage.reads.read(
                LedgerId(ledger),
                EntryId(0),
                lambda status, _, answer=answer: answer.set_result(status),
            )
            assert await answer is Status.NO_LEDGER
        for ledger in self.fenced:
            assert await self._add_one(LedgerId(ledger), 100) is Status.FENCED

    def _add(self, ledger: LedgerId, entry: int) -> Any:
        return self._add_one(ledger, entry)

    def _add_one(self, ledger: LedgerId, entry: int) -> Any:
        payload = b"%d/%d" % (ledger, entry) * 5
        codec = EntryCodec(ledger, DigestType.CRC32C, b"")
        data = b"".join(
            bytes(part) for part in codec.seal(EntryId(entry), EntryId(-1), 0, [payload])
        )
        answer = self.loop.create_future()

        def on_done(status: Status) -> None:
            if status is Status.OK:
                self.stored[ledger, entry] = data
            answer.set_result(status)

        self.storage.add(AddRequest(ledger, EntryId(entry), KEY, data), on_done)
        return answer

    def _fence(self, ledger: LedgerId) -> Any:
        answer = self.loop.create_future()

        def on_done(status: Status) -> None:
            if status is Status.OK:
                self.fenced.add(ledger)
            answer.set_result(status)

        self.storage.fence(ledger, KEY, on_done)
        return answer

    def _delete(self, ledger: LedgerId) -> Any:
        answer = self.loop.create_future()
        self.deleted.add(ledger)

        def on_done(status: Status) -> None:
            if status is Status.OK:
                self.buried.add(ledger)
            answer.set_result(status)

        self.storage.delete(ledger, NOW_MS, on_done)
        return answer

    def last_life(self) -> None:
        """Start undisturbed and check every promise."""

        async def start_and_check() -> None:
            await self.start()
            await self.check()

        assert self.live(start_and_check, stop_after=10_000, power_loss=False)
        assert self.loop.failure is None, self.loop.failure
        self.loop.dispose()


Life = Callable[[Machine], Coroutine[Any, Any, None]]


def steps_of(life: Life) -> int:
    """Count the steps of a life that nothing disturbs."""
    machine = Machine(0)
    assert machine.live(partial(life, machine), stop_after=10_000, power_loss=False)
    assert len(machine.stored) >= 7
    assert machine.fenced == {LEDGERS[0]}
    steps = machine.steps
    if life is Machine.reclaiming_life:
        numbers = [file_number(name) for name in machine.volume.files]
        assert 1 not in numbers
        assert any(number is not None and is_copy(number) for number in numbers)
        assert machine.buried == {LEDGERS[0]}
    machine.last_life()
    return steps


LIVES = {life: steps_of(life) for life in (Machine.first_life, Machine.reclaiming_life)}


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("then_power_loss", [False, True])
def test_promises_survive_an_end_at_every_step_and_another_while_starting(
    life: Life, power_loss: bool, then_power_loss: bool
) -> None:
    for first_stop in range(LIVES[life]):
        # The longer life has more first stops, and takes turns with the second ones.
        fates = range(4) if life is Machine.first_life else (first_stop % 4,)
        for fate in fates:
            for second_stop in range(fate, 40, 4):
                machine = Machine(first_stop * 1000 + fate * 100 + second_stop)
                work = partial(life, machine)
                machine.live(work, stop_after=first_stop, power_loss=power_loss)
                complete = machine.live(
                    machine.start_if_there_is_room,
                    stop_after=second_stop,
                    power_loss=then_power_loss,
                )
                machine.volume.capacity_bytes = 1 << 30
                if complete:
                    machine._stop(then_power_loss)
                machine.last_life()
                if complete:
                    break
