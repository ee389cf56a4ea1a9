"""Attacks on a bookie, which the honest producer's records need as well."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper import v2, v3
from client.wire.bookkeeper.entry import DigestType, EntryCodec
from client.wire.bookkeeper.messages import MASTER_KEY_BYTES, AddRequest, ReadRequest
from tests.hostile import bookie_stalls
from tests.hostile.attacks.target import Attack, Target
from tests.hostile.bookie_stalls import frames, send
from tests.integration.memory_crowd import crowd

_FIRST: Final = 1 << 41
_LEDGERS: Final = 5_000
_READS: Final = 20_000


async def many_ledgers(target: Target) -> str:
    """Adds to thousands of ledgers that nobody has created."""
    key = bytes(MASTER_KEY_BYTES)
    adds = []
    for number in range(_LEDGERS):
        ledger_id = LedgerId(_FIRST + number)
        codec = EntryCodec(ledger_id, DigestType.CRC32C, b"")
        sealed = b"".join(codec.seal(EntryId(0), NO_ENTRY, 0, [b"x" * 100]))
        adds.append(AddRequest(ledger_id, EntryId(0), key, sealed))
    for at in range(0, _LEDGERS, 1_000):
        some = adds[at : at + 1_000]
        await send(target.bookie_port, frames(some, v2.encode_request), len(some))
    return f"{_LEDGERS} ledgers"


async def wrong_ids(target: Target) -> str:
    """Reads of ledgers and entries that do not exist, or could not."""
    rng, asked = random.Random(1), []
    for _ in range(_READS):
        ledger_id = LedgerId(rng.choice((0, 1, rng.getrandbits(62), (1 << 63) - 1)))
        asked.append(ReadRequest(ledger_id, EntryId(rng.choice((0, rng.getrandbits(62))))))
    for encode in (v2.encode_request, v3.encode_request):
        for at in range(0, _READS, 2_000):
            await send(target.bookie_port, frames(asked[at : at + 2_000], encode), 2_000)
    return f"{2 * _READS} reads"


async def garbage(target: Target) -> str:
    """Frames of random bytes, and good ones of both versions with some bytes changed."""
    rng = random.Random(2)
    good = [
        b"".join(encode(ReadRequest(LedgerId(7), EntryId(0)), 1))  # type: ignore[operator]
        for encode in (v2.encode_request, v3.encode_request)
    ]
    says = []
    for _ in range(400):
        size = rng.randrange(1, 300)
        says.append(size.to_bytes(4, "big") + rng.randbytes(size))
        changed = bytearray(rng.choice(good))
        changed[rng.randrange(4, len(changed))] ^= 1 << rng.randrange(8)
        says.append(bytes(changed))
    for _ in range(5):
        async with crowd(says, target.bookie_port, len(says)):
            await asyncio.sleep(0.2)
    return f"{5 * len(says)} connections"


async def costly(target: Target) -> str:
    """What `bookie_stalls.py` sends, to a large ledger."""
    for first in range(0, 60_000, 3_000):
        some = bookie_stalls.adds(first, 3_000)
        await send(target.bookie_port, frames(some, v2.encode_request), len(some))
    for attack in bookie_stalls.ATTACKS:
        await send(target.bookie_port, attack.bytes(), attack.answers)
    return f"{len(bookie_stalls.ATTACKS)} attacks"


ATTACKS: Final = (
    Attack("bookie: adds to thousands of ledgers", many_ledgers),
    Attack("bookie: reads of wrong ids", wrong_ids),
    Attack("bookie: garbage", garbage),
    Attack("bookie: costly requests", costly),
)
