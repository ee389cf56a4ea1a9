"""Records over HTTP, for people who only have curl: publish a few, look at a few.

JSON carries text as it is and other bytes as base64. With `application/octet-stream` the body is
one record's value. What is published here is acknowledged like anything else: once it is durable on
the ack quorum.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.admin import problems
from broker.admin.context import AdminContext, at_leader
from broker.admin.operation import Operation, Role
from broker.admin.problems import Problem, impossible, wrong_field
from broker.admin.request import BYTES, JSON, AdminRequest, Answer
from broker.admin.resources.partitions import led_here
from broker.admin.schema import (
    INT_MAX,
    LONG_MIN,
    NAME_CHARS_MAX,
    Fault,
    Schema,
    list_of,
    nullable,
    record,
    ref,
    text,
    truth,
    whole,
)
from broker.cluster.core.topology import TopicInfo
from broker.errors import OffsetOutOfRange, PolicyViolation, RequestTimedOut
from broker.partition.partition import Partition
from client.errors import LogCorrupt, QuireError, RemoteProtocolError
from client.ids import Offset
from client.wire.kafka.batches.record_scan import records_from
from client.wire.kafka.batches.records import Record, build_batch, headers
from client.wire.kafka.partitioner import partition_of

_TEXT: Final = "text"
_BASE64: Final = "base64"
_ON_THE_WAY_S: Final = 5.0
_RECORDS_MAX: Final = 1_000
_HEADERS_MAX: Final = 1_000
"""Of a record that is published or shown."""
_PEEK_BYTES: Final = 1 << 20
_TIMESTAMP_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""

_ENCODING: Final = text("How its bytes are written here.", enum=[_TEXT, _BASE64], default=_TEXT)
_HEADER: Final = {
    "name": text("Its name.", maxLength=32_767),
    "value": nullable(text("Its value.")),
    "encoding": _ENCODING,
}
_KEY_VALUE: Final = {
    "key": nullable(text("Records with the same key go to the same partition, in order.")),
    "key_encoding": _ENCODING,
    "value": nullable(text("The value; null marks the key as deleted in a compacted topic.")),
    "value_encoding": _ENCODING,
}
SCHEMAS: Final[Mapping[str, Schema]] = {
    "NewRecord": record(
        "A record to publish.",
        {
            **_KEY_VALUE,
            "headers": list_of(
                record("A header.", _HEADER, optional=("encoding",)), "Headers.", 0, _HEADERS_MAX
            ),
            "timestamp_ms": whole("When it happened; missing: now.", 0, _TIMESTAMP_MAX),
        },
        optional=("key", "key_encoding", "value_encoding", "headers", "timestamp_ms"),
    ),
    "NewRecords": record(
        "Records to publish.",
        {"records": list_of(ref("NewRecord"), "In this order.", 1, _RECORDS_MAX)},
    ),
    "Published": record(
        "Where records were stored.",
        {
            "records": list_of(
                record(
                    "One record.",
                    {"partition": whole("Its partition."), "offset": whole("Its offset.")},
                ),
                "In the order of the request.",
            )
        },
    ),
    "Record": record(
        "A stored record.",
        {
            "partition": whole("Its partition."),
            "offset": whole("Its offset."),
            "timestamp_ms": whole("Its timestamp; -1: it has none.", LONG_MIN),
            **_KEY_VALUE,
            "value_size": whole("Bytes of the whole value."),
            "is_truncated": truth("Whether `value` is only the beginning."),
            "headers": list_of(record("A header.", _HEADER), "Headers."),
        },
    ),
    "Records": record(
        "Records from an offset on.",
        {
            "records": list_of(ref("Record"), "In order."),
            "unreadable": list_of(
                record(
                    "A batch that cannot be read, or is too large to be shown.",
                    {
                        "offset": whole("Its first offset."),
                        "next_offset": whole("The offset after it, to skip to."),
                        "reason": text("What is wrong with it."),
                    },
                ),
                "Batches among them, in order.",
            ),
            "next_offset": whole("Where to continue."),
            "log_start_offset": whole("First offset that can be read."),
            "high_watermark": whole("Offset after the last confirmed record."),
        },
    ),
}


# --- publishing -----------------------------------------------------------------------------


async def publish_to_topic(context: AdminContext, request: AdminRequest) -> Answer:
    """Publish records, each to the partition of its key; those without one stay together."""
    topic = await context.topic(request.path["topic"])
    rows = _new_rows(request)
    found = decoded(rows, context.broker.services.clock.now_ms())
    anywhere = context.broker.services.rng.randrange(topic.partition_count)
    parts: dict[int, list[int]] = {}
    for at, one in enumerate(found):
        index = anywhere if one.key is None else partition_of(one.key, topic.partition_count)
        parts.setdefault(index, []).append(at)
    offsets: dict[int, Mapping[str, int]] = {}
    for index, members in parts.items():
        try:
            stored = await publish_anywhere(
                context, topic, index, [rows[at] for at in members], [found[at] for at in members]
            )
        except QuireError as error:
            if not offsets:
                raise
            raise _in_part(error, index, len(offsets), len(rows)) from error
        offsets |= zip(members, stored, strict=True)
    return Answer({"records": [offsets[at] for at in range(len(rows))]})


def _in_part(error: QuireError, index: int, done: int, count: int) -> Problem:
    problem = Problem(
        problems.of(error)["status"], "published-in-part",
        f"{done} of {count} records were stored; those for partition {index} failed: {error}",
        "Send only the others again: sending all of them would store some twice.",
        may_have_happened=True,
    )  # fmt: skip
    problem.may_work_later = False
    return problem


async def publish_anywhere(
    context: AdminContext,
    topic: TopicInfo,
    index: int,
    rows: Sequence[Any],
    found: Sequence[Record],
) -> list[Mapping[str, int]]:
    """Publish to one partition, wherever it is led."""
    if context.broker.partitions.find(topic.name, index) is None:
        leader = context.leader_of(topic, index)
        if leader.id != context.me:
            path = f"/topics/{topic.name}/partitions/{index}/records"
            # The other one gives up after the same time, and knows better what became of it.
            timeout_s = context.config.produce_timeout_max_ms / 1000 + _ON_THE_WAY_S
            answer = await context.peer_client.ask(
                leader, path, body={"records": rows}, timeout_s=timeout_s
            )
            return list(answer["records"])
    return await _publish(context, led_here(context, topic, index), found)


async def publish_to_partition(context: AdminContext, request: AdminRequest) -> Answer:
    """Publish records to one partition, all or none."""
    topic, index = await context.partition(request)
    found = decoded(_new_rows(request), context.broker.services.clock.now_ms())
    return Answer({"records": await _publish(context, led_here(context, topic, index), found)})


async def _publish(
    context: AdminContext, partition: Partition, found: Sequence[Record]
) -> list[Mapping[str, int]]:
    if partition.topic.internal:
        raise PolicyViolation(f"topic {partition.topic.name!r} is internal")
    codecs = context.broker.services.codecs
    batch = await codecs.as_wanted(build_batch(found), partition.admission.limits)
    append = partition.append(batch)
    context.broker.metrics.on_produced(partition.topic.name, len(found), len(batch))
    done = asyncio.Event()
    append.on_done(lambda _: done.set())
    try:
        async with asyncio.timeout(context.config.produce_timeout_max_ms / 1000):
            await done.wait()
    except TimeoutError as error:
        raise RequestTimedOut("the append was not confirmed in time") from error
    if append.error is not None:
        raise append.error
    base = append.base_offset
    return [{"partition": partition.index, "offset": base + at} for at in range(len(found))]


def _new_rows(request: AdminRequest) -> list[Mapping[str, Any]]:
    """Return the records of a request as JSON has them; a body of bytes is one record."""
    if not isinstance(request.body, bytes):
        if "key" in request.query:
            raise wrong_field("key", "can only be given with a body of application/octet-stream")
        return list(request.body["records"])
    value = base64.b64encode(request.body).decode()
    return [
        {
            "key": request.query.get("key"), "key_encoding": _TEXT,
            "value": value, "value_encoding": _BASE64,
        }
    ]  # fmt: skip


def decoded(rows: Sequence[Mapping[str, Any]], now_ms: int) -> list[Record]:
    """Return the records that rows describe. Raises Problem that names what is no base64."""
    faults: list[Fault] = []

    def data(word: str | None, encoding: str, at: str) -> bytes | None:
        if word is None or encoding == _TEXT:
            return None if word is None else word.encode()
        try:
            return base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            faults.append(Fault(at, "is not base64"))
            return None

    found = [
        Record(
            key=data(row.get("key"), row["key_encoding"], f"records[{at}].key"),
            value=data(row["value"], row["value_encoding"], f"records[{at}].value"),
            timestamp_ms=row.get("timestamp_ms", now_ms),
            headers=tuple(
                (
                    one["name"],
                    data(one["value"], one["encoding"], f"records[{at}].headers[{place}].value"),
                )
                for place, one in enumerate(row.get("headers", ()))
            ),
        )
        for at, row in enumerate(rows)
    ]
    if faults:
        raise impossible(faults)
    return found


# --- looking --------------------------------------------------------------------------------


async def peek(context: AdminContext, request: AdminRequest) -> Answer:
    """Show records from an offset on, or the last ones."""
    topic, index = await context.partition(request)
    partition = led_here(context, topic, index)
    query = request.query
    if "offset" in query and "last" in query:
        raise wrong_field("last", "cannot be given together with offset")
    start: int = query.get("offset", partition.log_start_offset)
    if "last" in query:
        start = max(partition.log_start_offset, partition.high_watermark - query["last"])
    found, unreadable, next_offset = await read_from(
        context, partition, Offset(start), query["limit"]
    )
    return Answer(
        {
            "records": [shown(index, one, query["value_bytes_max"]) for one in found],
            "unreadable": [one._asdict() for one in unreadable],
            "next_offset": next_offset,
            "log_start_offset": partition.log_start_offset,
            "high_watermark": partition.high_watermark,
        }
    )


async def fetch_record(context: AdminContext, request: AdminRequest) -> Answer:
    """Return one record, whole; as bytes its value only."""
    topic, index = await context.partition(request)
    offset = Offset(request.path["offset"])
    partition = led_here(context, topic, index)
    found, unreadable, _ = await read_from(context, partition, offset, 1)
    if unreadable and unreadable[0].offset <= offset:
        bad = unreadable[0]
        raise LogCorrupt(
            f"{partition.name}: the batch of offsets {bad.offset} to {bad.next_offset - 1} cannot"
            f" be read: {bad.reason}"
        )
    if not found or found[0].offset != offset:
        raise Problem(
            404, "no-such-record", f"{partition.name} has no record at offset {offset}",
            "GET the partition to see its first and last offset.", field="offset",
        )  # fmt: skip
    if not request.accepts_bytes:
        return Answer(shown(index, found[0], None))
    marks = {"Quire-Offset": str(offset), "Quire-Timestamp-Ms": str(found[0].timestamp_ms)}
    if found[0].value is None:
        return Answer(None, 204, marks)
    return Answer(found[0].value, 200, marks)


class _Unreadable(NamedTuple):
    """A batch that cannot be read: a row of its own, which hides no other."""

    offset: Offset
    next_offset: Offset
    reason: str


async def read_from(
    context: AdminContext, partition: Partition, start: Offset, limit: int
) -> tuple[list[Record], list[_Unreadable], Offset]:
    """Return up to `limit` records and unreadable batches, and the offset after them.

    Raises BrokerError, and LogCorrupt where no further batch can be found.
    """
    turns = context.broker.services.turns
    found: list[Record] = []
    unreadable: list[_Unreadable] = []
    at = start
    if at > partition.high_watermark:
        raise OffsetOutOfRange(at, partition.log_start_offset, partition.high_watermark)
    while at < partition.high_watermark:
        fetched = await partition.reader.read(
            at, _PEEK_BYTES, at_least_one=True, read_committed=False
        )
        data = b"".join(fetched.buffers)
        try:
            for place, header in headers(data):
                if header.is_control:
                    continue
                wanted = limit - len(found) - len(unreadable)
                batch = data[place : place + header.size]
                try:
                    more = await turns.run(records_from(batch, at, wanted, _HEADERS_MAX))
                except RemoteProtocolError as error:
                    unreadable.append(
                        _Unreadable(header.base_offset, header.next_offset, str(error))
                    )
                    if wanted == 1:
                        return found, unreadable, header.next_offset
                    continue
                found += more
                if len(more) == wanted:
                    return found, unreadable, Offset(more[-1].offset + 1)
        except RemoteProtocolError as error:
            raise LogCorrupt(f"{partition.name} at offset {at}: {error}") from error
        if fetched.next_offset <= at:
            break
        at = fetched.next_offset
    return found, unreadable, at


def shown(index: int, one: Record, value_bytes_max: int | None) -> dict[str, Any]:
    value = one.value
    if value is not None and value_bytes_max is not None:
        value = value[:value_bytes_max]
    key_text, key_encoding = _written(one.key)
    value_text, value_encoding = _written(value, whole=value == one.value)
    size = 0 if one.value is None else len(one.value)
    return {
        "partition": index,
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "key": key_text,
        "key_encoding": key_encoding,
        "value": value_text,
        "value_encoding": value_encoding,
        "value_size": size,
        "is_truncated": value is not None and len(value) < size,
        "headers": [
            {"name": name, "value": written[0], "encoding": written[1]}
            for name, content in one.headers
            for written in (_written(content),)
        ],
    }


def _written(data: bytes | None, *, whole: bool = True) -> tuple[str | None, str]:
    """Return bytes as JSON can carry them. Text that was cut may end within a character."""
    if data is None:
        return None, _TEXT
    for cut in range(1 if whole else 4):
        try:
            return data[: len(data) - cut].decode(), _TEXT
        except UnicodeDecodeError:
            continue
    return base64.b64encode(data).decode(), _BASE64


_AT: Final = "/topics/{topic}/partitions/{partition}/records"
_OCTETS: Final[Schema] = {"type": "string", "contentMediaType": BYTES, "description": "A value."}
_PUBLISH: Final[Mapping[str, Any]] = {
    "takes": {JSON: ref("NewRecords"), BYTES: _OCTETS},
    "gives": {JSON: ref("Published")},
    "query": {"key": text("With a body of bytes: the record's key.", maxLength=NAME_CHARS_MAX)},
    "problems": (404, 409, 502, 504),
    "is_frequent": True,
}
OPERATIONS: Final = (
    Operation(
        name="publish_to_topic", role=Role.OPERATE, method="POST", path="/topics/{topic}/records",
        summary="Publish records, each to the partition of its key.",
        handle=publish_to_topic, **_PUBLISH,
    ),
    Operation(
        name="publish_to_partition", role=Role.OPERATE, method="POST", path=_AT,
        summary="Publish records to one partition, all or none.",
        handle=publish_to_partition, where=at_leader, **_PUBLISH,
    ),
    Operation(
        name="peek_records", role=Role.OPERATE, method="GET", path=_AT,
        summary="Show records, from an offset on, or the last ones.",
        handle=peek, where=at_leader, gives={JSON: ref("Records")}, problems=(404,),
        query={
            "offset": whole("The first; missing: the first there is."),
            "last": whole("Instead: this many before the end.", 1, _RECORDS_MAX),
            "limit": whole("Most records.", 1, _RECORDS_MAX, default=20),
            "value_bytes_max": whole("Show at most this much of each value.", 0, INT_MAX,
                                     default=65_536),
        },
    ),
    Operation(
        name="fetch_record", role=Role.OPERATE, method="GET", path=_AT + "/{offset}",
        summary="Fetch one record; with `Accept: application/octet-stream` only its value. 204: it"
        " has none.",
        handle=fetch_record, where=at_leader, status=(200, 204), problems=(404,),
        gives={JSON: ref("Record"), BYTES: _OCTETS},
    ),
)  # fmt: skip
