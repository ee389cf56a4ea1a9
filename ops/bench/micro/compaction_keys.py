"""`python -m ops.bench.micro.compaction_keys [KEYS]`: what the keys of a round of compaction take.

Fills a key map of the fixed size that this many keys need, asks it for some of them, and says bytes
for each key and keys for each second of one processor. What a partition with 100 million keys needs
is worked out from that, and said to be: as one round, and as the rounds that the default limit
makes of it, each of which reads the partition.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import click

from broker.compaction.config import CompactionConfig
from broker.compaction.core.key_map import SECRET_BYTES, SLOT_BYTES, KeyMap, slots_within
from client.ids import Offset

_KEYS: Final = 5_000_000
_ASKED: Final = 500_000
_WANTED: Final = 100_000_000
_MIB: Final = 1 << 20


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _KEYS
    before = _resident_bytes()
    keys = KeyMap(slots_within(1 << 62, count), bytes(SECRET_BYTES), Offset(0), Offset(count))
    put_s = _time(keys, count)
    each = (_resident_bytes() - before) / count
    assert len(keys) == count
    asked = min(_ASKED, count)
    began_s = time.process_time()
    for number in range(0, count, count // asked):
        assert keys.newest(b"key-%012d" % number) == number
    asked_s = time.process_time() - began_s
    click.echo(f"measured, {count:,} keys of 16 bytes:")
    click.echo(f"  memory      {each:.1f} B for each key (a slot has {SLOT_BYTES})")
    click.echo(f"  entered     {count / put_s:,.0f} keys/s")
    click.echo(f"  looked up   {asked / asked_s:,.0f} keys/s")
    limit = CompactionConfig().key_bytes_max
    of_a_round = slots_within(limit, _WANTED) * 9 // 10
    rounds = -(-_WANTED // of_a_round)
    click.echo(f"worked out from that, {_WANTED:,} keys:")
    click.echo(
        f"  in one round       {each * _WANTED / _MIB:,.0f} MiB, {put_s / count * _WANTED:,.0f} s"
    )
    click.echo(
        f"  with {limit // _MIB} MiB, the default: {of_a_round:,} keys in a round, {rounds} rounds"
    )


def _time(keys: KeyMap, count: int) -> float:
    began_s = time.process_time()
    put = keys.put
    for number in range(count):
        assert put(b"key-%012d" % number, Offset(number))
    return time.process_time() - began_s


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
