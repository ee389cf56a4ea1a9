"""Adds entries to ledgers with Quire's client: `java-bookkeeper/LedgerLoad.java` is its twin.

Each ledger has this many adds in flight, and each confirmation sends the next. Latencies are from
the call of `add` to the confirmation, in entry order, as an application sees it.
"""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from typing import Final

import uvloop

from client.errors import LedgerError
from client.ids import EntryId
from client.ledger.client import LedgerClient
from client.ledger.standalone import connect
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.entry import DigestType
from ops.bench.load.channel import LoadFailed, hear, tell
from ops.bench.spread import percentile

_POLL_S: Final = 0.005


class _Sender:
    """One ledger: keeps its adds in flight and notes what came back."""

    def __init__(self, writer: LedgerWriter, payload: bytes, window: int) -> None:
        self.writer = writer
        self._payload = payload
        self._window = window
        self._sent_s: dict[int, float] = {}
        # Arrays, which the garbage collector passes over: there may be a million.
        self.ends_s = array("d")
        """When each confirmed entry was confirmed."""
        self.latencies_s = array("d")
        """And how long after it was added."""
        self.left: int | None = None
        """How many more to send; None for any number."""
        self.failure: LedgerError | None = None

    def start(self) -> None:
        """Fill the window."""
        for _ in range(self._window):
            self._send()

    def _send(self) -> None:
        if self.left is not None:
            if self.left <= 0:
                return
            self.left -= 1
        now_s = time.monotonic()
        try:
            entry = self.writer.add([self._payload], self._on_done)
        except LedgerError as error:
            self.failure = error
        else:
            self._sent_s[entry] = now_s

    def _on_done(self, entry: EntryId, error: LedgerError | None) -> None:
        if error is not None:
            self.failure = error
            return
        now_s = time.monotonic()
        self.ends_s.append(now_s)
        self.latencies_s.append(now_s - self._sent_s.pop(entry))
        self._send()


class _Load:
    """All ledgers of one load."""

    def __init__(self, senders: list[_Sender]) -> None:
        self._senders = senders

    def added(self) -> int:
        """Return how many entries are confirmed. Raises LoadFailed when one failed."""
        for sender in self._senders:
            if sender.failure is not None:
                raise LoadFailed(f"an entry was not added: {sender.failure}")
        return sum(len(sender.ends_s) for sender in self._senders)

    def start(self) -> None:
        for sender in self._senders:
            sender.start()

    async def until(self, count: int) -> None:
        """Wait until this many entries are confirmed."""
        while self.added() < count:  # noqa: ASYNC110  (a callback per entry would be measured)
            await asyncio.sleep(_POLL_S)

    async def finish(self) -> None:
        """Send nothing more; wait for every confirmation and close the ledgers."""
        for sender in self._senders:
            sender.left = 0
            await sender.writer.close()
        self.added()

    def tell_end(self, begin_s: float, end_s: float, cpu_s: float) -> None:
        """Report what was confirmed in a span."""
        took_s = sorted(
            late_s
            for sender in self._senders
            for at_s, late_s in zip(sender.ends_s, sender.latencies_s, strict=True)
            if begin_s <= at_s < end_s
        )
        tell(
            "end",
            adds=len(took_s),
            seconds=end_s - begin_s,
            cpu_s=cpu_s,
            p50_ms=percentile(took_s, 0.5) * 1e3,
            p99_ms=percentile(took_s, 0.99) * 1e3,
        )


def run(
    zookeeper: str,
    entry_bytes: int,
    ledgers: int,
    in_flight: int,
    copies: int,
    acks: int,
    warm_up_s: float = 0.0,
    measure_s: float = 0.0,
    fill_bytes: int = 0,
    measured_bytes: int = 0,
) -> None:
    """Events: ready (first: the id of the first ledger); after "go" begin, end (adds, seconds,
    cpu_s, p50_ms, p99_ms) and done.

    `copies`: ensemble and write quorum; `acks`: ack quorum. With `fill_bytes` it adds that much
    and measures the last `measured_bytes` of it instead.
    """
    uvloop.run(
        _run(
            zookeeper, entry_bytes, ledgers, in_flight, copies, acks,
            warm_up_s, measure_s, fill_bytes // entry_bytes, measured_bytes // entry_bytes,
        )
    )  # fmt: skip


async def _open(
    client: LedgerClient, entry_bytes: int, ledgers: int, in_flight: int, copies: int, acks: int
) -> list[_Sender]:
    payload = os.urandom(entry_bytes)
    window = max(1, in_flight // ledgers)
    return [
        _Sender(
            await client.create(
                ensemble_size=copies,
                write_quorum=copies,
                ack_quorum=acks,
                digest_type=DigestType.CRC32C,
            ),
            payload,
            window,
        )
        for _ in range(ledgers)
    ]


async def _run(
    zookeeper: str,
    entry_bytes: int,
    ledgers: int,
    in_flight: int,
    copies: int,
    acks: int,
    warm_up_s: float,
    measure_s: float,
    fill: int,
    measured: int,
) -> None:
    async with connect(zookeeper) as client:
        senders = await _open(client, entry_bytes, ledgers, in_flight, copies, acks)
        load = _Load(senders)
        tell("ready", first=senders[0].writer.ledger_id)
        await asyncio.to_thread(hear)
        if fill:
            for sender in senders:
                sender.left = fill // ledgers
        load.start()
        if fill:
            await load.until(fill // ledgers * ledgers - measured)
        else:
            await load.until(1)  # a cold client must not use the warm-up up
            await asyncio.sleep(warm_up_s)
        begin_s, begin_cpu_s = time.monotonic(), time.process_time()
        tell("begin")
        if fill:
            await load.until(fill // ledgers * ledgers)
        else:
            begun = load.added()
            await asyncio.sleep(measure_s)
            await load.until(begun + 1)  # bookies may be slower than the span is long
        end_s, cpu_s = time.monotonic(), time.process_time() - begin_cpu_s
        load.tell_end(begin_s, end_s, cpu_s)
        await load.finish()
        tell("done")
