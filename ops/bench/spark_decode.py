"""What it costs to turn record batches into Arrow: CPU time per record.

    python -m ops.bench.spark_decode
    python -m ops.bench.spark_decode --rounds 9 --json result.json

Process CPU time, median of the rounds, of the decoder that Spark tasks run; beside it aiokafka's
C extension into the same Arrow columns. No Spark, no network. The shapes are those of
`client/spark`'s reference figures: 130 records of 100 bytes are a batch of 16 KiB.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import click
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch
from rich.console import Console
from rich.table import Table

from client.ids import Offset
from client.spark.decode.decode import BATCH_ROWS, Wanted, decode
from client.spark.schema import COLUMNS, PLAIN_COLUMNS
from client.wire.kafka.batches.records import Codec, Record, build_batch, headers

FOUR: Final = ("key", "value", "offset", "timestamp")
_FIRST_MS: Final = 1_700_000_000_000


class Shape(NamedTuple):
    """What a log looks like."""

    name: str
    records_per_batch: int
    value_bytes: int
    record_count: int
    columns: Sequence[str] = FOUR
    header_count: int = 0
    codec: Codec = Codec.NONE


SHAPES: Final = (
    Shape("100 B, 130 per batch", 130, 100, 260_000),
    Shape("100 B, 8000 per batch", 8_000, 100, 240_000),
    Shape("100 B, 10 per batch", 10, 100, 100_000),
    Shape("1 KiB, 15 per batch", 15, 1024, 60_000),
    Shape("100 B, all columns but headers", 130, 100, 260_000, PLAIN_COLUMNS),
    Shape("100 B, value alone", 130, 100, 260_000, ("value",)),
    Shape("100 B, all columns, 1 header", 130, 100, 130_000, COLUMNS, 1),
    Shape("100 B, all columns, 3 headers", 130, 100, 130_000, COLUMNS, 3),
    Shape("100 B, lz4", 130, 100, 130_000, FOUR, 0, Codec.LZ4),
    Shape("100 B, zstd", 130, 100, 130_000, FOUR, 0, Codec.ZSTD),
    Shape("100 B, snappy", 130, 100, 130_000, FOUR, 0, Codec.SNAPPY),
    Shape("100 B, gzip", 130, 100, 130_000, FOUR, 0, Codec.GZIP),
)


def make_log(shape: Shape) -> list[bytes]:
    """Return the batches of a log of that shape; the same ones every time."""
    rng = random.Random(1)  # noqa: S311  nothing here is secret
    words = [rng.randbytes(4).hex() for _ in range(200)]
    names = tuple((f"header{number}", b"0123456789") for number in range(shape.header_count))
    batches = []
    for base_offset in range(0, shape.record_count, shape.records_per_batch):
        records = []
        for offset in range(base_offset, base_offset + shape.records_per_batch):
            text = " ".join(rng.choices(words, k=shape.value_bytes // 9 + 1)).encode()
            value = text[: shape.value_bytes - offset % 3]
            timestamp_ms = _FIRST_MS + offset // 3
            records.append(Record(b"key-%012d" % offset, value, timestamp_ms, names))
        batches.append(build_batch(records, base_offset=Offset(base_offset), codec=shape.codec))
    return batches


def count_ours(batches: Sequence[bytes], columns: Sequence[str]) -> int:
    """Decode a log as Spark tasks do; return the rows."""
    return sum(rows.num_rows for rows in decode(batches, Wanted("t", 0, 0, 1 << 60, columns)))


def count_aiokafka(batches: Sequence[bytes]) -> int:
    """Decode a log with aiokafka into the four plain columns; return the rows."""
    count = 0
    lists: list[list[object]] = [[], [], [], []]
    for batch in batches:
        for record in DefaultRecordBatch(batch):
            for column, cell in zip(
                lists, (record.key, record.value, record.offset, record.timestamp), strict=True
            ):
                column.append(cell)
        if len(lists[0]) >= BATCH_ROWS:
            count += _arrow(lists)
            lists = [[], [], [], []]
    return count + _arrow(lists)


def _arrow(lists: list[list[object]]) -> int:
    types = [pa.binary(), pa.binary(), pa.int64(), pa.int64()]
    arrays = [pa.array(cells, kind) for cells, kind in zip(lists, types, strict=True)]
    return int(pa.RecordBatch.from_arrays(arrays, names=list(FOUR)).num_rows)


def cpu_ns(run: Callable[[], int], rounds: int) -> float:
    """Return the median CPU time per record, in nanoseconds, after one round to warm up."""
    run()
    found = []
    for _ in range(rounds):
        begun = time.process_time_ns()
        count = run()
        found.append((time.process_time_ns() - begun) / count)
    return statistics.median(found)


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--rounds", default=5, show_default=True, help="Timed rounds of each shape.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write figures there.")
def main(rounds: int, json_path: Path | None) -> None:
    """Measure every shape and print a table."""
    table = Table("log", "bytes", "ns/record", "MB/s", "aiokafka ns/record")
    figures = []
    for shape in SHAPES:
        batches = make_log(shape)
        size = sum(header.size for batch in batches for _at, header in headers(batch))
        ours = cpu_ns(partial(count_ours, batches, shape.columns), rounds)
        theirs = None
        if shape.columns is FOUR:
            theirs = cpu_ns(partial(count_aiokafka, batches), rounds)
        per_record = size / shape.record_count
        table.add_row(
            shape.name, f"{per_record:.0f}", f"{ours:.0f}", f"{per_record / ours * 1000:,.0f}",
            "" if theirs is None else f"{theirs:.0f}",
        )  # fmt: skip
        figures.append({"log": shape.name, "ns_per_record": ours, "aiokafka_ns_per_record": theirs})
    Console().print(table)
    if json_path is not None:
        json_path.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
