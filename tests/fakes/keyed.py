"""Keyed records for tests of compacted topics: built, and read back with their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from broker.partition.partition import Partition
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import Buffer, Codec, Record, build_batch, headers, records


class Kept(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: str | None
    value: str | None


def keyed(
    *pairs: tuple[str | None, str | None],
    timestamp_ms: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    producer: tuple[int, int, int] | None = None,
) -> bytes:
    """Build a batch of (key, value) pairs; no value: a tombstone.

    `producer`: id, epoch and first sequence of a transaction's batch.
    """
    made = [
        Record(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            timestamp_ms + at,
        )
        for at, (key, value) in enumerate(pairs)
    ]
    if producer is None:
        return build_batch(made, codec=codec, base_offset=Offset(base_offset))
    producer_id, epoch, sequence = producer
    return build_batch(
        made,
        codec=codec,
        base_offset=Offset(base_offset),
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def opened(batches: Iterable[Buffer]) -> list[Kept]:
    """Return the records of batches, without control records."""
    found: list[Kept] = []
    for data in batches:
        for at, header in headers(data):
            if header.is_control:
                continue
            for record in records(memoryview(data)[at : at + header.size]):
                key = None if record.key is None else record.key.decode()
                value = None if record.value is None else record.value.decode()
                found.append(Kept(record.offset, key, value))
    return found


async def read_keyed(
    partition: Partition, start: int | None = None, *, size_max: int = 1 << 20
) -> list[Kept]:
    """Read from `start` (default: the log start) to the high watermark, as a consumer would."""
    offset = partition.log_start_offset if start is None else Offset(start)
    found: list[Kept] = []
    while offset < partition.high_watermark:
        fetched = await partition.reader.read(
            offset, size_max, at_least_one=True, read_committed=False
        )
        assert fetched.next_offset > offset, (offset, fetched)
        found += [one for one in opened(map(bytes, fetched.buffers)) if one.offset >= offset]
        offset = fetched.next_offset
    return found


def newest(written: Sequence[Kept]) -> dict[str, Kept]:
    """Return the last record of each key, tombstones included."""
    return {one.key: one for one in written if one.key is not None}
