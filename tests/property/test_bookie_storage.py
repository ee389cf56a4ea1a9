"""A bookie against a dictionary: random requests, deletions, reclaim, crashes, lost indexes.

The model knows, for each entry, which bytes a read may return: the last acknowledged write, or
any write after it that was not acknowledged (it may or may not have survived). Absence is allowed
only for entries that were never acknowledged. A start settles what is there: from then on it
stays. A fence that was answered holds for ever, even beyond the ledger's deletion; one that was not
may or may not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.ids import LedgerId
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import (
    LIMITS,
    NOW_MS,
    BookieBox,
    add,
    fence,
    payload_of,
    read,
    settle,
)

LEDGERS = range(3)
ENTRIES = range(6)
ABSENT = None


class Model:
    """What the outside may see."""

    def __init__(self) -> None:
        self.allowed: dict[tuple[int, int], set[bytes | None]] = {}
        self.fenced: dict[int, bool] = {}
        """True: certainly; False: perhaps, an unanswered fence may have been written."""

    def sent(self, key: tuple[int, int], payload: bytes) -> None:
        self.allowed.setdefault(key, {ABSENT}).add(payload)

    def acknowledged(self, key: tuple[int, int], payloads: list[bytes]) -> None:
        """The last of `payloads`, sent in this order, was acknowledged, so all were written."""
        self.allowed[key] = {payloads[-1]}

    def settled(self, key: tuple[int, int], found: bytes | None) -> None:
        allowed = self.allowed.get(key, {ABSENT})
        assert found in allowed, f"{key}: {found!r} is not one of {allowed}"
        self.allowed[key] = {found}


class Run:
    """One random history."""

    def __init__(self, seed: int, log_file_bytes_max: int, cache_bytes_max: int) -> None:
        self.rng = random.Random(seed)
        checkpoint_bytes = self.rng.choice([200, 2000, 1 << 20])
        limits = LIMITS._replace(
            cache_bytes_max=cache_bytes_max,
            checkpoint=LIMITS.checkpoint._replace(checkpoint_bytes=checkpoint_bytes),
        )
        self.box = BookieBox(seed, limits=limits, log_file_bytes_max=log_file_bytes_max)
        self.model = Model()
        self.count = 0
        self.in_flight: list[tuple[Callable[[Status], None], asyncio.Future[Any]]] = []
        self.deleted_at: dict[int, int] = {}
        """Ledger -> how many adds were sent when its deletion was."""
        self.going: set[int] = set()
        """Ledgers that are being deleted."""

    async def step(self) -> None:
        kind = self.rng.random()
        self.box.disk.hold = self.rng.random() < 0.5
        if kind < 0.55:
            self.add()
        elif kind < 0.62:
            self.fence()
        elif kind < 0.66:
            self.delete()
        elif kind < 0.69:
            await self.box.reclaim(self.rng.choice([0.0, 0.5, 1.1]))
        elif kind < 0.75:
            await self.let_go()
        elif kind < 0.85:
            await self.look()
        else:
            await self.crash()
        await settle(self.rng.choice([0, 1, 2, 10]))
        self.collect()

    def add(self) -> None:
        ledger, entry = self.rng.choice(LEDGERS), self.rng.choice(ENTRIES)
        self.count += 1
        payload = b"%d " % self.count * self.rng.choice([1, 10, 100])
        recovery = self.rng.random() < 0.2
        answer = self.box.send(add(ledger, entry, payload, recovery=recovery))
        if answer.done() and answer.result().status is Status.FENCED:
            assert ledger in self.model.fenced
            assert not recovery
            return
        if answer.done() and answer.result().status is Status.IO_ERROR:
            assert ledger in self.going
            return
        assert recovery or self.model.fenced.get(ledger) is not True
        if not recovery and not answer.done():
            self.model.fenced.pop(ledger, None)
        self.model.sent((ledger, entry), payload)

        def on_status(status: Status) -> None:
            assert status is Status.OK
            allowed = self.model.allowed[ledger, entry]
            # Writes behind this one are still undecided, those before it are overwritten.
            number = int(payload.split()[0])
            if number <= self.deleted_at.get(ledger, 0):
                return  # and those behind a deletion count no more
            self.model.allowed[ledger, entry] = {
                other for other in allowed if other is not None and int(other.split()[0]) >= number
            }

        self.in_flight.append((on_status, answer))

    def fence(self) -> None:
        ledger = self.rng.choice(LEDGERS)
        answer = self.box.send(fence(ledger, self.rng.choice(ENTRIES)))
        self.model.fenced.setdefault(ledger, False)

        def on_status(status: Status) -> None:
            if status is Status.IO_ERROR:
                return  # the ledger was going
            assert status in (Status.OK, Status.NO_ENTRY, Status.NO_LEDGER)
            self.model.fenced[ledger] = True

        self.in_flight.append((on_status, answer))

    def delete(self) -> None:
        ledger = self.rng.choice(LEDGERS)
        if ledger in self.going:
            return
        self.going.add(ledger)
        self.deleted_at[ledger] = self.count
        for key, allowed in self.model.allowed.items():
            if key[0] == ledger:
                allowed.add(ABSENT)

        def on_done(status: Status) -> None:
            assert status is Status.OK
            self.going.discard(ledger)
            for key in self.model.allowed:
                if key[0] == ledger:
                    self.model.allowed[key] = {ABSENT}

        self.box.storage.delete(LedgerId(ledger), NOW_MS, on_done)

    def collect(self) -> None:
        """Tell the model about the answers that came."""
        waiting = []
        for on_status, answer in self.in_flight:
            if answer.done():
                on_status(answer.result().status)
            else:
                waiting.append((on_status, answer))
        self.in_flight = waiting

    async def let_go(self) -> None:
        self.box.disk.release()
        await settle()

    async def look(self) -> None:
        key = (self.rng.choice(LEDGERS), self.rng.choice(ENTRIES))
        found = await self.find(*key)
        assert found in self.model.allowed.get(key, {ABSENT})

    async def find(self, ledger: int, entry: int) -> bytes | None:
        answer = await self.box.call(read(ledger, entry))
        if answer.status is Status.OK:
            return payload_of(ledger, answer.entry)
        assert answer.status in (Status.NO_ENTRY, Status.NO_LEDGER)
        return ABSENT

    async def crash(self) -> None:
        self.collect()
        if self.box.disk.flying and self.rng.random() < 0.5:
            self.box.disk.write_without_sync()
        if self.rng.random() < 0.5:
            self.box.kill()
        else:
            self.box.lose_power()
        self.in_flight.clear()
        self.going.clear()
        self.box.index_store.corrupt = self.rng.random() < 0.2
        self.box.start()
        assert not self.box.storage.has_damage
        await self.look_at_everything()

    async def look_at_everything(self) -> None:
        for ledger in LEDGERS:
            found = {entry: await self.find(ledger, entry) for entry in ENTRIES}
            for entry, payload in found.items():
                self.model.settled((ledger, entry), payload)
            await self.check_last(ledger, found)

    async def check_last(self, ledger: int, found: dict[int, bytes | None]) -> None:
        there = [entry for entry, payload in found.items() if payload is not ABSENT]
        answer = await self.box.call(read(ledger, -1))
        if there:
            assert payload_of(ledger, answer.entry) == found[max(there)]
        else:
            assert answer.status in (Status.NO_ENTRY, Status.NO_LEDGER)


async def one_history(seed: int, steps: int, log_file_bytes_max: int, cache: int) -> None:
    run = Run(seed, log_file_bytes_max, cache)
    for _ in range(steps):
        await run.step()
    run.box.disk.hold = False
    while run.box.disk.flying:
        await run.let_go()
    await settle()
    run.collect()
    await run.box.storage.close()
    run.in_flight.clear()
    run.box.restart()
    await run.look_at_everything()


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.sampled_from([200, 600, 5000, 1 << 20]),
    st.sampled_from([0, 500, 1 << 20]),
)
def test_random_histories(seed: int, steps: int, log_file_bytes_max: int, cache: int) -> None:
    asyncio.run(one_history(seed, steps, log_file_bytes_max, cache))


@pytest.mark.parametrize("seed", range(30))
async def test_long_histories(seed: int) -> None:
    await one_history(seed, 300, [300, 3000][seed % 2], [0, 1000][seed % 3 == 0])
