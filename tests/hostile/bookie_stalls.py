"""Measures how long a bookie serves nobody while it is sent requests that are costly on purpose.

    python -m tests.hostile.bookie_stalls

starts a cluster, sends one of its bookies many requests at once and a few that name very much, and
asks meanwhile, every two milliseconds and on another connection, for an entry of a ledger that does
not exist, which costs next to nothing. The longest answer is the longest stall.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.entry import DigestType, EntryCodec
from client.wire.bookkeeper.messages import (
    MASTER_KEY_BYTES,
    AddRequest,
    BatchReadRequest,
    ListEntriesRequest,
    ReadRequest,
    Request,
)
from tests.hostile.stalls import shown_stall
from tests.integration.cluster import LocalCluster

_ASK_EVERY_S: Final = 0.002
_ANSWER_S_MAX: Final = 120.0
_LEDGER: Final = LedgerId(1 << 40)
_ABSENT: Final = LedgerId((1 << 40) + 1)
_KEY: Final = bytes(MASTER_KEY_BYTES)
_ENTRIES: Final = 300_000


class Attack(NamedTuple):
    """What is sent at once."""

    name: str
    bytes: Callable[[], bytes]
    answers: int


def frames(requests: Iterable[Request], encode: Callable[..., Sequence[object]]) -> bytes:
    """Return requests as they are sent."""
    return b"".join(b"".join(encode(one, n)) for n, one in enumerate(requests))  # type: ignore[arg-type]


def adds(first: int, count: int) -> list[Request]:
    """Return adds of empty entries."""
    codec = EntryCodec(_LEDGER, DigestType.CRC32C, b"")
    return [
        AddRequest(_LEDGER, EntryId(n), _KEY, b"".join(codec.seal(EntryId(n), NO_ENTRY, 0, [b""])))
        for n in range(first, first + count)
    ]


def reads(count: int, ledger_id: LedgerId = _ABSENT) -> list[Request]:
    """Return reads of one entry each."""
    return [ReadRequest(ledger_id, EntryId(n)) for n in range(count)]


ATTACKS: Final = (
    Attack("9,000 reads of no ledger", lambda: frames(reads(9_000), v2.encode_request), 9_000),
    Attack("the same in version 3", lambda: frames(reads(9_000), v3.encode_request), 9_000),
    Attack("9,000 of entries", lambda: frames(reads(9_000, _LEDGER), v2.encode_request), 9_000),
    Attack("9,000 adds", lambda: frames(adds(_ENTRIES, 9_000), v2.encode_request), 9_000),
    Attack(
        "50 lists of the entries of a large ledger",
        lambda: frames([ListEntriesRequest(_LEDGER)] * 50, v3.encode_request),
        50,
    ),
    Attack(
        "50 batches of as much as fits",
        lambda: frames(
            [BatchReadRequest(_LEDGER, EntryId(0), n, 0, 1 << 30) for n in range(50)],
            v2.encode_request,
        ),
        50,
    ),
)


async def send(port: int, data: bytes, answers: int) -> int:
    """Send and read that many answers; return their bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    size = 0
    async with asyncio.timeout(_ANSWER_S_MAX):
        for _ in range(answers):
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length)
            size += length
    writer.close()
    return size


async def measure(port: int, attack: Attack) -> tuple[float, float, int]:
    """Send one attack and ask meanwhile; return how long it took, the longest stall, its bytes."""
    data = attack.bytes()
    attacking = asyncio.create_task(
        asyncio.to_thread(lambda: asyncio.run(send(port, data, attack.answers)))
    )
    ask = b"".join(v2.encode_request(ReadRequest(_ABSENT, EntryId(0))))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began_s, longest_s = time.perf_counter(), 0.0
    while not attacking.done():
        asked_s = time.perf_counter()
        writer.write(ask)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        longest_s = max(longest_s, time.perf_counter() - asked_s)
        await asyncio.sleep(_ASK_EVERY_S)
    writer.close()
    return time.perf_counter() - began_s, longest_s, await attacking


async def _all(port: int, admin_port: int) -> None:
    for first in range(0, _ENTRIES, 3_000):
        await send(port, frames(adds(first, 3_000), v2.encode_request), 3_000)
    print("| requests | took, s | longest stall, ms | answers, bytes |\n|---|---|---|---|")
    for attack in ATTACKS:
        took_s, longest_s, size = await measure(port, attack)
        print(f"| {attack.name} | {took_s:.2f} | {longest_s * 1000:.0f} | {size} |", flush=True)
    print(f"\nThe bookie's own measure: {shown_stall(admin_port)}")


def main() -> None:
    """Run all of them."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(Path(folder), brokers=1) as cluster,
    ):
        bookie = cluster.about["bookies"][0]
        port = int(bookie["port"])
        asyncio.run(_all(port, int(bookie["admin"])))


if __name__ == "__main__":
    sys.exit(main())
