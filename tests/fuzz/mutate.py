"""Bad inputs out of good ones, by a seeded random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(seeds: Sequence[bytes], rng: random.Random, bytes_max: int = 1 << 14) -> bytes:
    """Return one of the seeds with one to eight things wrong."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(8)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif what == 1 and data:
            data[at % len(data)] = rng.randrange(256)
        elif what == 2:
            number, size = rng.choice(_NUMBERS), rng.choice((1, 2, 4, 8))
            data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
        elif what == 3:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 30)))
        elif what == 4:
            del data[at : at + rng.choice((1, 2, 4, 20))]
        elif what == 5:
            del data[at:]
        elif what == 6:
            other = rng.choice(seeds)
            cut = rng.randrange(len(other) + 1)
            data[at:] = other[cut:]
        else:
            piece = data[at : at + rng.choice((2, 16))]
            data[at:at] = piece * rng.choice((1, 7, 60))
    return bytes(data[:bytes_max])
