"""Clusters with an object store: what it does to brokers, and what must be true of it all the same.

O1  a name is in the segment list, or was, before anything is stored under it (INTENT)
O2  nothing is stored twice under a name (OWN-NAME)
O3  a ledger that the list calls gone is deleted only while its object has all entries (VERIFY)
O4  no object is deleted while a segment in the list names it (LIST-FIRST)
O5  in the end, an object that the list does not name arrived when it named it no more (GRAVES)

That everything acknowledged can be read, and is read as it was, is judged as in all clusters: what
has no ledger any more comes from the store.

The store is one for all brokers. It is slow, loses answers before and after it has done what it was
asked for, says of what it has just stored that it exists, keeps half of an object or a flipped bit,
is away for seconds, and has uploads arrive when their broker is long gone.
"""

from __future__ import annotations

import contextvars
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.offload.config import OffloadConfig
from client.errors import LogCorrupt, ObjectExists, StoreUnavailable
from client.log.segment_object import TRAILER_BYTES, footer_bytes, open_block, read_footer
from client.objects.memory import Fault, MemoryObjectStore
from tests.simulation.machine.hosts import SimClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence

    from tests.simulation.clusters.oracle import ClusterOracle
    from tests.simulation.clusters.world import ClusterWorld

_AWAY_EVERY_S, _AWAY_S_MAX = 4.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadOptions:
    """Of one schedule."""

    segment_bytes: int
    local_bytes: int
    """local.retention.bytes; small: most ledgers go."""
    lag_bytes: int
    check_interval_ms: int
    grace_ms: int
    read_wait_ms: int
    fault_p: float
    """How likely something is wrong with a call."""
    is_away: bool
    """Whether the store is away at times."""


def draw_offload(rng: random.Random) -> OffloadOptions:
    """Draw the options of a schedule."""
    return OffloadOptions(
        segment_bytes=rng.choice((400, 800, 2_000)),
        local_bytes=rng.choice((0, 0, 1_000)),
        lag_bytes=rng.choice((0, 0, 1_000)),
        check_interval_ms=rng.choice((20, 100)),
        grace_ms=rng.choice((0, 0, 300)),
        read_wait_ms=rng.choice((1, 50, 500)),
        fault_p=rng.choice((0.0, 0.05, 0.2)),
        is_away=rng.random() < 0.4,
    )


def config_of(options: OffloadOptions | None) -> OffloadConfig:
    """Return the settings of brokers."""
    if options is None:
        return OffloadConfig()
    return OffloadConfig(
        check_interval_ms=options.check_interval_ms,
        bytes_per_s=0,
        ledger_grace_ms=options.grace_ms,
        object_grace_ms=options.grace_ms,
        stray_age_ms=2_000,
        copy_timeout_ms=2_000,
        read_wait_ms=options.read_wait_ms,
    )


def topic_configs(options: OffloadOptions) -> dict[str, str]:
    """Return the configuration of the topic."""
    return {
        "remote.storage.enable": "true",
        "local.retention.bytes": str(options.local_bytes),
        "remote.copy.lag.bytes": str(min(options.lag_bytes, options.local_bytes)),
        "remote.copy.lag.ms": "1" if options.lag_bytes else "0",
    }


class SimObjects(MemoryObjectStore):
    """The store of one schedule."""

    def __init__(self, world: ClusterWorld, options: OffloadOptions) -> None:
        super().__init__(SimClock(world.loop, world.brokers[0]), self._draw)
        self._world = world
        self._options = options
        self._rng = world.fork_rng("object store")
        self._environment = contextvars.copy_context()
        self._away_until_s = 0.0
        self._away_at_s = world.loop.time() + self._rng.expovariate(1 / _AWAY_EVERY_S)
        self._stored: set[str] = set()
        self._strays: set[str] = set()
        """Names of what arrived when the list had let go of them: the sweep's."""

    async def put(self, name: str, parts: AsyncIterable[bytes]) -> None:
        """See `ObjectStore`. It may arrive later, whatever becomes of its broker."""
        data = b"".join([part async for part in parts])
        fault = await self._begin("put", name)
        if self._faulty() and self._rng.random() < 0.3:
            delay_s = self._rng.expovariate(1 / 2.0)
            self._world.loop.call_later(
                delay_s, self._arrive, name, data, context=self._environment
            )
            self._world.oracle.count("uploads that arrive later")
            raise StoreUnavailable("no answer")
        if fault.cuts:
            data = data[: self._rng.randrange(len(data))]
        elif fault.flips:
            at = self._rng.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << self._rng.randrange(8)]) + data[at + 1 :]
        self._arrive(name, data)
        if fault.says_exists:
            raise ObjectExists(name)
        if fault.loses_answer:
            raise StoreUnavailable("the answer was lost")

    async def delete(self, name: str) -> None:
        """See `ObjectStore`."""
        fault = await self._begin("delete", name)
        if self._world.oracle.is_object_needed(name):
            self._world.oracle.fail("O4", f"{name} is deleted, and a segment is in it")
        self.objects.pop(name, None)
        if fault.loses_answer:
            raise StoreUnavailable("the answer was lost")

    def _arrive(self, name: str, data: bytes) -> None:
        oracle = self._world.oracle
        if name not in oracle.object_names:
            oracle.fail("O1", f"{name} is stored, and no list ever named it")
        if name in self._stored:
            oracle.fail("O2", f"{name} is stored twice")
        if not oracle.is_object_named(name):
            self._strays.add(name)
        self._stored.add(name)
        self.objects[name] = data
        self.modified_ms[name] = self._clock.now_ms()
        oracle.count("objects stored")

    def judge(self) -> None:
        """See that nothing is left behind that nobody knows of."""
        for name in self.objects:
            if name not in self._strays and not self._world.oracle.is_object_named(name):
                self._world.oracle.fail("O5", f"{name} is left, and the list does not name it")
        self._world.oracle.counts["object reads"] = self.requests["read"]

    def _faulty(self) -> bool:
        is_on = not self._world.healed
        return is_on and self._rng.random() < self._options.fault_p

    def _draw(self, call: str, name: str) -> Fault:
        now_s = self._world.loop.time()
        if self._options.is_away and not self._world.healed:
            if now_s >= self._away_at_s:
                self._away_until_s = now_s + self._rng.uniform(0.1, _AWAY_S_MAX)
                self._away_at_s = self._away_until_s + self._rng.expovariate(1 / _AWAY_EVERY_S)
            if now_s < self._away_until_s:
                self._world.oracle.count("calls while the store was away")
                return Fault(delay_s=0.01, refuses=StoreUnavailable("503 Service Unavailable"))
        delay_s = self._rng.expovariate(1 / 0.005)
        if not self._faulty():
            return Fault(delay_s=delay_s)
        kind = self._rng.choice((0, 1, 2, 3, 4, 5, 5, 5) if call in ("put", "read") else range(6))
        self._world.oracle.count("faults of the object store")
        return Fault(
            delay_s=delay_s * (50 if kind == 0 else 1),
            refuses=StoreUnavailable("500") if kind == 1 else None,
            loses_answer=kind == 2,
            says_exists=kind == 3,
            cuts=kind == 4 and call in ("put", "read"),
            flips=kind == 5 and call in ("put", "read"),
        )


def check_object(
    oracle: ClusterOracle, store: MemoryObjectStore, path: str, entries: Sequence[bytes]
) -> None:
    """The only other copy of these entries is about to be an object (O3)."""
    data = store.objects.get(path, b"")
    try:
        size = footer_bytes(data[-TRAILER_BYTES:], len(data))
        footer = read_footer(data[-size:], len(data))
        found = [
            bytes(entry.payload)
            for index, block in enumerate(footer.blocks)
            for entry in open_block(footer, index, data[block.position : block.end])
        ]
    except LogCorrupt as error:
        oracle.fail("O3", f"{path} is all that is left, and is no good: {error}")
        return
    if found != [*entries]:
        oracle.fail("O3", f"{path} has {len(found)} entries, other ones than the ledger")
    oracle.count("ledgers given up")
