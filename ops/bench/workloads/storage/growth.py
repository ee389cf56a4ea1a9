"""What a bookie's throughput, index and start become as it fills, and with ledgers side by side.

One bookie, one copy. Entries are of 16 KiB, what a produce request of the default batch size
becomes. They come from Quire's client, whichever the bookie is.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import time
from typing import Final

from client.ids import EntryId, LedgerId
from client.wire.bookkeeper.connection import ClientConnection
from client.wire.bookkeeper.messages import ReadRequest, Request, Status
from ops.bench.figures import Figure, Run, Scale, named
from ops.bench.load.channel import LoadProcess
from ops.bench.peers.system import BookieSystem, PeerError

ENTRY_BYTES: Final = 16_384
LEDGERS: Final = 10
"""While the bookie fills."""
_START_TIMEOUT_S: Final = 600.0
_RETRY_S: Final = 0.01


async def fill(system: BookieSystem, run: Run, size: int, ledgers: int) -> tuple[float, LedgerId]:
    """Add this many bytes; return the MB/s of the last of them, and a ledger."""
    async with LoadProcess(
        "ledgers",
        zookeeper=system.zookeeper,
        entry_bytes=ENTRY_BYTES,
        ledgers=ledgers,
        in_flight=run.scale.in_flight(ENTRY_BYTES),
        copies=1,
        acks=1,
        fill_bytes=size,
        measured_bytes=min(run.scale.growth_measured_bytes, size),
    ) as load:
        ready = await load.event("ready")
        load.say("go")
        await load.event("begin")
        end = await load.event("end")
        await load.event("done")
    return end["adds"] * ENTRY_BYTES / end["seconds"] / 1e6, LedgerId(ready["first"])


class _Question(asyncio.Protocol):
    """Asks a bookie for one entry."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._wire = ClientConnection(2)
        self.answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.writelines(self._wire.request(self._request, self._answered).buffers)

    def data_received(self, data: bytes) -> None:
        for on_response, response in self._wire.receive_data(data):
            on_response(response)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError("the bookie closed it"))

    def _answered(self, response: object) -> None:
        if not self.answer.done():
            self.answer.set_result(response)


async def has_entry(port: int, ledger: LedgerId) -> bool:
    """Tell whether a bookie serves the first entry of a ledger. Raises OSError."""
    loop = asyncio.get_running_loop()
    transport, question = await loop.create_connection(
        lambda: _Question(ReadRequest(ledger, EntryId(0))), "127.0.0.1", port
    )
    try:
        response = await question.answer
    finally:
        transport.close()
    return getattr(response, "status", None) is Status.OK


async def start_s(system: BookieSystem, ledger: LedgerId, signal_number: int) -> float:
    """End the bookie by a signal and start it; return the seconds until it served an entry."""
    await system.end_bookie(signal_number)
    began_s = time.monotonic()
    await system.revive_bookie()
    while True:
        try:
            if await has_entry(system.ports[0], ledger):
                took_s = time.monotonic() - began_s
                await system.registered()
                return took_s
        except (OSError, struct.error):
            pass  # not yet
        if time.monotonic() - began_s > _START_TIMEOUT_S:
            raise PeerError(f"a bookie did not serve within {_START_TIMEOUT_S:g} s of its start")
        await asyncio.sleep(_RETRY_S)


def label(size: int) -> str:
    """Name the row of one size."""
    return f"growth, {size / 1e9:g} GB in the bookie"


async def measure(system: BookieSystem, run: Run) -> list[Figure]:
    """Measure at each size, then with each number of ledgers on what is there by then."""
    figures: list[Figure] = []
    held = 0
    at_first = 0.0
    for size in run.scale.growth_bytes:
        await run.memory_filled()
        mb_per_s, ledger = await fill(system, run, size - held, LEDGERS)
        held = size
        at_first = at_first or mb_per_s
        figures += named(
            label(size),
            {
                "MB/s": mb_per_s,
                "MB/s as part of that at first": mb_per_s / at_first,
                "index MB": system.index_bytes() / 1e6,
                "start after a stop s": await start_s(system, ledger, signal.SIGTERM),
                "start after kill -9 s": await start_s(system, ledger, signal.SIGKILL),
            },
        )
    for ledgers in run.scale.growth_ledgers:
        await run.memory_filled()
        mb_per_s, _ = await fill(system, run, run.scale.growth_bytes[0], ledgers)
        plural = "" if ledgers == 1 else "s"
        figures += named(f"growth, {ledgers} ledger{plural} at once", {"MB/s": mb_per_s})
    return figures


def disk_bytes(scale: Scale) -> int:
    """Return what is written: BookKeeper's bookies hold a part twice, in journal and entry log."""
    return 2 * (scale.growth_bytes[-1] + len(scale.growth_ledgers) * scale.growth_bytes[0])
