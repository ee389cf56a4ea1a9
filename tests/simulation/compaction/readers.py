"""The readers of a compacted partition: from its start to its end, through all that happens to it.

What a reader was shown is judged against all that was ever written (`log.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from broker.errors import BrokerError, LogReadFailed, OffsetOutOfRange
from client.errors import LogCorrupt
from tests.fakes.keyed import Kept, newest, opened
from tests.simulation.compaction.log import fail
from tests.simulation.compaction.transactions import committed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.partition.partition import Partition
    from tests.simulation.compaction.world import CompactionWorld

_STUCK_READS: Final = 200
_GONE: Final = ("NoSuchLedger", "NoNode")
"""What is said of a ledger, or of a page of the list, that is not there any more."""


class CompactionReaders:
    """Reads the partition of one schedule."""

    def __init__(self, world: CompactionWorld) -> None:
        self._world = world
        self._plan = world.plan
        self._rng = world.rng

    async def read_again_and_again(self) -> None:
        """Read until the task is cancelled. Raises Violation."""
        while True:
            await self.read(self._rng.choice((0.0, 0.0, 0.01, 0.1)))
            await asyncio.sleep(self._rng.random() * 0.3)

    async def read(self, pause_s: float, *, is_committed: bool | None = None) -> list[Kept] | None:
        """Read from the log's start to its end, and judge; None: a trim came in between."""
        loop = asyncio.get_running_loop()
        began_s, stuck = loop.time(), 0
        leader = self._world.leader
        assert leader is not None
        start = position = leader.log_start_offset
        seen: list[Kept] = []
        size_max = self._rng.choice((1, 300, 1 << 20))
        if is_committed is None:
            is_committed = self._rng.random() < 0.5
        while position < (leader.last_stable_offset if is_committed else leader.high_watermark):
            if self._world.is_healed or self._rng.random() < 0.5:
                _forget(leader)
            try:
                fetched = await leader.reader.read(
                    position, size_max, at_least_one=True, read_committed=is_committed
                )
            except OffsetOutOfRange:
                return None
            except (BrokerError, LogCorrupt) as error:
                if isinstance(error, LogCorrupt):
                    fail("Z8", f"{error}")
                if isinstance(error, LogReadFailed) and any(what in str(error) for what in _GONE):
                    self._check_gone(leader, error)
                stuck += 1
                if stuck > _STUCK_READS:
                    fail("Z8", f"a reader at {position} gets {error!r}")
                await asyncio.sleep(0.05)
                leader = self._world.leader
                assert leader is not None
                continue
            if fetched.next_offset <= position:
                fail("Z8", f"a reader at {position} is given nothing below the end")
            given = committed(fetched) if is_committed else opened(map(bytes, fetched.buffers))
            seen += [one for one in given if one.offset >= position]
            position = fetched.next_offset
            if pause_s:
                await asyncio.sleep(self._rng.random() * pause_s)
        took_ms = (loop.time() - began_s) * 1000
        self._judge(seen, start, position, took_ms, is_committed=is_committed)
        return seen

    def _check_gone(self, leader: Partition, error: BaseException) -> None:
        """A ledger or a page that is gone was trimmed, or replaced: then there is a new list."""
        if leader is self._world.leader and leader.is_open and not self._trims:
            fail("Z3", f"a reader is cut off: {error!r}")

    @property
    def _trims(self) -> bool:
        return bool(self._plan.trim_p or self._plan.deletes)

    def _judge(
        self, seen: Sequence[Kept], start: int, end: int, took_ms: float, *, is_committed: bool
    ) -> None:
        self._world.count("committed readers" if is_committed else "readers")
        written = self._world.known.truth()
        truth = {one.record.offset: one for one in written if start <= one.record.offset < end}
        before = -1
        for one in seen:
            known = truth.get(one.offset)
            if known is None or known.record != one:
                fail("Z2", f"{one} is shown, {known} was written")
            elif is_committed and not known.is_committed:
                fail("Z5", f"{known} is shown to a reader of committed data")
            if one.offset <= before:
                fail("Z3", f"{one.offset} is shown after {before}")
            before = one.offset
        ended = newest([one for one in seen if truth[one.offset].is_committed])
        for key, last in newest([one.record for one in truth.values() if one.is_committed]).items():
            found = ended.get(key)
            if last.value is not None:
                if found != last:
                    fail("Z3", f"{key} ends with {found}, written was {last}")
            elif found is not None and found.value is not None and took_ms <= self._plan.retain_ms:
                fail("Z4", f"{found} is shown, but not {last}")


def _forget(leader: Partition) -> None:
    """Let a leader know what it has in memory as it would after it has led for long."""
    reader = leader.reader
    reader.tail.clear()
    reader.log._aborted._indexes.clear()
    reader.log._aborted._blocks.clear()
