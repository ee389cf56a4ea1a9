"""Parse and check the options of a writer, and the columns it is given.

Names and rules are those of Spark's Kafka sink. `WRITER_OPTIONS` is the table that the README shows
and that unknown names are checked against.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from client.errors import ConfigError
from client.pubsub.brokers import Brokers
from client.pubsub.errors import check_topic_name
from client.spark.option_values import choice, positive, size_bytes, truth
from client.spark.options import (
    brokers_of,
    check_kafka_option,
    check_supported,
    is_security,
    names_by_lower_case,
)
from client.wire.kafka.batches.records import Codec

log = logging.getLogger(__name__)

WRITER_OPTIONS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "required: `host:port[,host:port...]`",
    "topic": "where all rows go; without it each row needs a value in column topic",
    "kafka.acks": "`all` (default) or `1`; also `acks`",
    "kafka.compression.type": (
        "`none` (default), `gzip`, `snappy`, `lz4` or `zstd`; also `compression.type`"
    ),
    "kafka.batch.size": "bytes of a record batch before compression; default `512k`",
    "kafka.linger.ms": (
        "rows wait for others to fill batches, but no longer than this; default: until they are"
        " full; also `linger.ms`"
    ),
    "kafka.delivery.timeout.ms": "how long a batch may stay unacknowledged; default 120000",
    "kafka.security.protocol": "`PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`",
    "deliveryGuarantee": "streams: `at-least-once` (default) or `exactly-once`",
    "sinkId": "exactly once: names this sink for the brokers; one query at a time may use it",
    "progressTopic": (
        "exactly once without option topic: an existing topic, as whose offset the sink's progress"
        " is kept; nothing is written to it for that"
    ),
    "transactionTimeoutMs": (
        "exactly once: brokers abort what is not ended by then; default 900000, which is Kafka's"
        " maximum unless configured"
    ),
    "failOnDataLoss": (
        "exactly once: `true` (default) ends the query when a batch counts and somebody else ended"
        " transactions of it; `false`: a warning"
    ),
}

_ALIASES: Final[Mapping[str, str]] = {
    "acks": "kafka.acks",
    "compression.type": "kafka.compression.type",
    "linger.ms": "kafka.linger.ms",
    "linger": "kafka.linger.ms",
    "batch.size": "kafka.batch.size",
}
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "includeheaders"})
"""Spark hands its own options of a stream over as well; headers are written if they are there."""

_NO_EFFECT: Final = frozenset(
    {
        "kafka.client.id", "kafka.buffer.memory", "kafka.max.block.ms", "kafka.max.request.size",
        "kafka.request.timeout.ms", "kafka.retries", "kafka.retry.backoff.ms",
        "kafka.enable.idempotence", "kafka.max.in.flight.requests.per.connection",
        "kafka.metadata.max.age.ms", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes",
        "kafka.connections.max.idle.ms", "kafka.reconnect.backoff.ms",
    }
)  # fmt: skip
"""Settings of a Java producer that jobs may carry: there is none here. Taken with a warning."""

_TEXT: Final = (StringType(), BinaryType())
_HEADERS: Final = StructType().add("key", StringType()).add("value", BinaryType()).simpleString()

EXACTLY_ONCE: Final = "exactly-once"
GUARANTEES: Final = ("at-least-once", EXACTLY_ONCE)

_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")

ACKS: Final = {"all": -1, "-1": -1, "1": 1}


@dataclass(frozen=True)
class WriterOptions:
    """What a sink was asked for. Pickled to the tasks."""

    bootstrap_servers: Brokers
    topic: str = ""
    """Empty: column topic says where each row goes."""
    acks: int = -1
    codec: Codec = Codec.NONE
    batch_bytes: int = 512 << 10
    linger_ms: int | None = None
    delivery_timeout_ms: int = 120_000
    sink_id: str = ""
    """Empty: at least once."""
    progress_topic: str = ""
    """Exactly once: the topic as whose offset the sink's progress is kept."""
    transaction_timeout_ms: int = 900_000
    fail_on_data_loss: bool = True


def parse_writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Turn what Spark hands over into `WriterOptions`. Raises ConfigError naming the option."""
    values = _known(given)
    brokers = brokers_of(values)
    topic = values.get("topic", "")
    sink_id, progress_topic = _sink(values)
    for name in filter(None, (topic, progress_topic)):
        check_topic_name(name)
    if values.get("kafka.acks") == "0":
        raise ConfigError("option kafka.acks: 0 would lose rows silently; use all or 1")
    codec = choice(values, "kafka.compression.type", [one.name.lower() for one in Codec])
    return WriterOptions(
        bootstrap_servers=brokers,
        topic=topic,
        acks=ACKS[choice(values, "kafka.acks", tuple(ACKS))],
        codec=Codec[codec.upper()],
        batch_bytes=size_bytes(values, "kafka.batch.size") or 512 << 10,
        linger_ms=positive(values, "kafka.linger.ms", at_least=0),
        delivery_timeout_ms=positive(values, "kafka.delivery.timeout.ms") or 120_000,
        sink_id=sink_id,
        progress_topic=progress_topic,
        transaction_timeout_ms=positive(values, "transactionTimeoutMs") or 900_000,
        fail_on_data_loss=truth(values, "failOnDataLoss", default=True),
    )


def _sink(values: Mapping[str, str]) -> tuple[str, str]:
    """Return (id, topic of its progress) of an exactly-once sink, empty for others.

    Raises ConfigError.
    """
    guarantee = choice(values, "deliveryGuarantee", GUARANTEES)
    if guarantee != EXACTLY_ONCE:
        for name in ("sinkId", "progressTopic", "transactionTimeoutMs", "failOnDataLoss"):
            if name in values:
                raise ConfigError(
                    f"option {name} is for deliveryGuarantee=exactly-once: set that, or leave this"
                    " out"
                )
        return "", ""
    found = values.get("sinkId", "")
    if not _SINK_ID.fullmatch(found):
        raise ConfigError(
            f"option sinkId: {found!r}; deliveryGuarantee=exactly-once needs a name of 1 to 200"
            " letters, digits, dots, underscores and hyphens, the same from start to start"
        )
    topic, progress_topic = values.get("topic", ""), values.get("progressTopic", "")
    if not topic and not progress_topic:
        raise ConfigError(
            "option progressTopic is required with deliveryGuarantee=exactly-once when column topic"
            " says where rows go: the sink's progress is kept as an offset of a topic that has to"
            " be the same from start to start; one of those that are written will do"
        )
    if topic and progress_topic:
        raise ConfigError(
            "option progressTopic: with option topic the sink's progress is kept as an offset of"
            " that topic; leave this out"
        )
    if ACKS[choice(values, "kafka.acks", tuple(ACKS))] != ACKS["all"]:
        raise ConfigError("option kafka.acks: deliveryGuarantee=exactly-once needs all")
    return found, topic or progress_topic


def check_columns(schema: StructType, options: WriterOptions) -> None:
    """Raise ConfigError for columns that cannot be written, as Spark's Kafka sink does."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ConfigError("required attribute 'value' not found: the rows need a column value")
    if "topic" not in types and not options.topic:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present: set option topic, or add"
            " a column topic"
        )
    _must_be(types, "value", "a string or binary", *_TEXT)
    _must_be(types, "key", "a string or binary", *_TEXT)
    _must_be(types, "topic", "a string", StringType())
    _must_be(types, "partition", "an int", IntegerType())
    _must_be(types, "timestamp", "a timestamp", TimestampType())
    headers = types.get("headers")
    if headers is not None and (
        not isinstance(headers, ArrayType) or headers.elementType.simpleString() != _HEADERS
    ):
        raise ConfigError(f"attribute 'headers' must be an array<{_HEADERS}>")


def _must_be(types: Mapping[str, DataType], name: str, what: str, *allowed: DataType) -> None:
    found = types.get(name)
    if found is not None and found not in allowed:
        raise ConfigError(
            f"attribute '{name}' must be {what}, not {found.simpleString()}: cast the column"
        )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their proper names. Raises ConfigError for others."""
    proper = names_by_lower_case([*WRITER_OPTIONS, *_ALIASES])
    values: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        check_kafka_option(name)
        check_supported(name)
        if is_security(lower):
            values[lower] = value.strip()
            continue
        if lower == "path":
            raise ConfigError("save() and start() take no path: name the topic with option topic")
        if lower in _SPARKS_OWN:
            continue
        if lower in _NO_EFFECT:
            log.warning("option %s has no effect on format quire", name)
            continue
        if lower not in proper:
            near = difflib.get_close_matches(lower, proper, n=1)
            hint = f"; did you mean {proper[near[0]]}?" if near else ""
            raise ConfigError(f"there is no option {name!r} for writing{hint}")
        values[_ALIASES.get(proper[lower], proper[lower])] = value.strip()
    return values
