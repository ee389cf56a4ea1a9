"""`python -m ops.bench.micro.record_reading [ROUNDS]`: what it costs to read every produced record.

A broker reads each record of a batch before it stores it (`broker/partition/core/batch_checks.py`).
Counted is the CPU of that for each GB of batches as producers send them, compiled and in Python,
beside what the rest of the check takes, which is mostly the checksum. What a broker takes for a GB
altogether is in `ops/bench/README.md`. What is compressed are random words, which the codecs bring
to a fifth.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import click

from broker.partition.core.batch_checks import BatchLimits, check_batch, check_header
from client.wire.kafka.batches.records import (
    HEADER_BYTES,
    IS_COMPILED,
    Codec,
    Record,
    build_batch,
    parse_header,
    read_slowly,
)
from client.wire.steps import finish

_ROUNDS: Final = 5
_BATCH_BYTES: Final = 300_000
_NOW_MS: Final = 1_800_000_000_000
_LIMITS: Final = BatchLimits()
_GB: Final = 1e9
_ROUND_S: Final = 0.2
_SIZES: Final = (1_000, 100, 10)
_WORDS: Final = (
    "apple",
    "order",
    "customer",
    "amount",
    "0.25",
    "shipped",
    "2026",
    "zip",
    "ä",
    "id",
)


def main() -> None:
    """Measure, and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    if not IS_COMPILED:
        click.echo("nothing is compiled here: `make setup` with gcc at hand does that", err=True)
    click.echo(f"CPU s for each GB that producers send, medians of so many rounds: {rounds}")
    click.echo(f"{'records':>8} {'codec':>7} {'header':>8} {'records':>8} {'in Python':>10}")
    for size in _SIZES:
        for codec in Codec:
            batch = memoryview(_batch(size, codec))
            whole_s = _seconds(partial(check_batch, batch, _LIMITS, _NOW_MS), batch, rounds)
            header_s = _seconds(partial(check_header, batch, _LIMITS), batch, rounds)
            python_s = ""
            if codec is Codec.NONE:
                python_s = f"{_seconds(partial(_slowly, batch), batch, 1):10.2f}"
            click.echo(
                f"{size:6} B {codec.name:>7} {header_s:8.3f} {whole_s - header_s:8.3f} {python_s}"
            )


def _batch(size: int, codec: Codec) -> bytes:
    rng = random.Random(size)  # noqa: S311 - the same text in every run
    count = _BATCH_BYTES // size
    text = " ".join(rng.choices(_WORDS, k=_BATCH_BYTES // 4)).encode()
    values = [text[at * size : (at + 1) * size] for at in range(count)]
    return build_batch([Record(b"key", value, _NOW_MS) for value in values], codec=codec)


def _slowly(batch: memoryview) -> None:
    header = parse_header(batch)
    terms = (0, _NOW_MS, False)
    finish(read_slowly(batch, HEADER_BYTES, header.record_count, header.base_timestamp, *terms))


def _seconds(check: Callable[[], object], batch: memoryview, rounds: int) -> float:
    """Return the CPU seconds of a check for each GB."""
    return statistics.median(_round(check, len(batch)) for _ in range(rounds))


def _round(check: Callable[[], object], size: int) -> float:
    done = 0
    began_s = time.process_time()
    while (took_s := time.process_time() - began_s) < _ROUND_S:
        check()
        done += size
    return took_s / done * _GB


if __name__ == "__main__":
    main()
