"""What a micro-batch's decision says: which transactions belong to it, whatever happens after.

It is stored as the metadata of an offset that the sink's group commits for partition 0 of one
topic, always the same; the offset is the batch's number. Brokers keep at most 4,096 bytes there
(`offset.metadata.max.bytes`), so it is packed by columns, in differences, and compressed: a
thousand tasks take about half of that.

    "1" | query id | base64 of zlib of JSON: four lists of the same length (task, slot, producer id,
    epoch), of which the first and the third hold the differences to the one before
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import zlib
from typing import Final, NamedTuple

from client.spark.errors import SparkSourceError

METADATA_BYTES_MAX: Final = 4096
"""Kafka's default of `offset.metadata.max.bytes`."""

_JSON_BYTES_MAX: Final = 1 << 20
_VERSION: Final = "1"
_SEPARATOR: Final = "|"


class TaskTransaction(NamedTuple):
    """A transaction that a task has written, and only the driver may end."""

    task: int
    """Number of the task within its stage: Spark's partition id."""
    slot: int
    """Which of the task's transactional ids."""
    producer_id: int
    epoch: int


class Decision(NamedTuple):
    """A micro-batch that counts."""

    query_id: str
    """Spark's, from the checkpoint: another checkpoint's batches have the same numbers."""
    batch_id: int
    transactions: tuple[TaskTransaction, ...]


class TooManyTransactions(SparkSourceError):
    """The decision does not fit into the metadata of an offset."""


def encode(decision: Decision) -> str:
    """Return the metadata of a decision; its batch number is the offset. Raises
    TooManyTransactions."""
    rows = sorted(decision.transactions)
    tasks, slots, producers, epochs = zip(*rows, strict=True) if rows else ((),) * 4
    columns = [_differences(tasks), slots, _differences(producers), epochs]
    packed = zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 9)
    metadata = _SEPARATOR.join([_VERSION, decision.query_id, base64.b64encode(packed).decode()])
    if len(metadata) > METADATA_BYTES_MAX:
        raise TooManyTransactions(
            f"batch {decision.batch_id} was written by {len(rows)} tasks, whose transactions do not"
            f" fit into one decision of {METADATA_BYTES_MAX} bytes: coalesce() to fewer tasks"
        )
    return metadata


def decode(batch_id: int, metadata: str) -> Decision:
    """Return the decision that an offset and its metadata are. Raises SparkSourceError."""
    try:
        version, query_id, packed = metadata.split(_SEPARATOR)
        if version != _VERSION:
            raise ValueError(f"version {version}")
        columns = json.loads(_inflate(base64.b64decode(packed, validate=True)))
        tasks, slots, producers, epochs = columns
        if any(type(number) is not int for column in columns for number in column):
            raise ValueError("not everything is a whole number")
        tasks, producers = itertools.accumulate(tasks), itertools.accumulate(producers)
        rows = zip(tasks, slots, producers, epochs, strict=True)
        return Decision(query_id, batch_id, tuple(TaskTransaction(*row) for row in rows))
    except (ValueError, TypeError, RecursionError, binascii.Error, zlib.error) as error:
        raise SparkSourceError(
            f"the offset {batch_id} of the sink's group is not a decision of this sink ({error}):"
            " does another program commit offsets of a group with the name of option sinkId?"
        ) from error


def _inflate(packed: bytes) -> bytes:
    """Raises ValueError for more than a decision can be."""
    inflater = zlib.decompressobj()
    data = inflater.decompress(packed, _JSON_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("it is cut off, or much too long")
    return data


def _differences(numbers: tuple[int, ...]) -> list[int]:
    return [after - before for before, after in itertools.pairwise((0, *numbers))]
