"""What the sink may be told, and which columns it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

import client.spark
from client.errors import ConfigError
from client.pubsub.brokers import Brokers
from client.spark.write.stream_writer import make_stream_writer
from client.spark.write.writer import make_writer
from client.spark.write.writer_options import (
    WRITER_OPTIONS,
    WriterOptions,
    check_columns,
    parse_writer_options,
)
from client.wire.kafka.batches.records import Codec

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parsed(**given: str) -> WriterOptions:
    return parse_writer_options({**SERVERS, **given})


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map": MapType(StringType(), IntegerType()),
    "strings": ArrayType(StringType()),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
}


def schema(text: str) -> StructType:
    found = StructType()
    for column in text.split(","):
        name, kind = column.split()
        found.add(name, TYPES[kind])
    return found


def test_defaults() -> None:
    assert parsed() == WriterOptions(Brokers("127.0.0.1:9092"))


def test_names_of_kafka_and_short_ones() -> None:
    long = parsed(
        **{
            "Kafka.Acks": "1", "kafka.compression.type": "zstd", "kafka.linger.ms": "5",
            "kafka.batch.size": "64k", "kafka.delivery.timeout.ms": "9000", "topic": "t",
        }
    )  # fmt: skip
    assert long == WriterOptions(Brokers("127.0.0.1:9092"), "t", 1, Codec.ZSTD, 64 << 10, 5, 9000)
    short = parsed(**{"acks": "-1", "compression.type": "lz4", "linger.ms": "0"})
    assert short == WriterOptions(Brokers("127.0.0.1:9092"), acks=-1, codec=Codec.LZ4, linger_ms=0)


def test_what_spark_and_java_jobs_carry_along_is_taken() -> None:
    carried = {
        "checkpointLocation": "/x", "queryName": "q", "includeHeaders": "true",
        "kafka.request.timeout.ms": "1", "kafka.enable.idempotence": "true",
    }  # fmt: skip
    assert parsed(**carried) == parsed()


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("sinkId", "a", "is for deliveryGuarantee=exactly-once"),
        ("progressTopic", "a", "is for deliveryGuarantee=exactly-once"),
        ("kafka.acks", "0", "lose rows"),
        ("kafka.acks", "2", "is not one of all"),
        ("kafka.compression.type", "brotli", "is not one of none, gzip"),
        ("kafka.key.serializer", "x", "cast"),
        ("kafka.security.protocol", "SASL_SSL", "needs sasl.mechanism"),
        ("kafka.ssl.keystore.location", "x", "has no effect with"),
        ("path", "/x", "option topic"),
        ("tpoic", "t", "did you mean topic"),
        ("subscribe", "t", "no option 'subscribe' for writing"),
        ("kafka.batch.size", "big", "is not a size"),
    ],
)
def test_refused(option: str, value: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parsed(**{option: value})


def test_brokers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is required"):
        parse_writer_options({"topic": "t"})


@pytest.mark.parametrize(
    "columns",
    [
        "value string",
        "key binary, value binary, topic string, partition int, timestamp timestamp,"
        " headers headers",
        "value binary, something_else map",
    ],
)
def test_columns_that_do(columns: str) -> None:
    check_columns(schema(columns), parsed(topic="t"))


@pytest.mark.parametrize(
    ("columns", "topic", "part"),
    [
        ("key string", "t", "required attribute 'value' not found"),
        ("value string", "", "topic option required"),
        ("value int", "t", "attribute 'value' must be a string or binary, not int"),
        ("value string, key bigint", "t", "attribute 'key' must be"),
        ("value string, topic binary", "t", "attribute 'topic' must be a string"),
        ("value string, partition bigint", "t", "attribute 'partition' must be an int"),
        ("value string, timestamp bigint", "t", "attribute 'timestamp' must be a timestamp"),
        ("value string, headers strings", "t", "attribute 'headers' must be an array"),
    ],
)
def test_columns_that_do_not(columns: str, topic: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        check_columns(schema(columns), WriterOptions(Brokers("127.0.0.1:9092"), topic))


def test_writers_are_made_of_options_and_columns() -> None:
    given = {**SERVERS, "topic": "t"}
    make_stream_writer(given, schema("value string"))
    make_writer(given, schema("value string"))
    with pytest.raises(ConfigError, match="append"):
        make_writer(given, schema("value string"), overwrite=True)
    with pytest.raises(ConfigError, match="value"):
        make_writer(given, schema("key string"))


EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once", "sinkId": "job", "topic": "t"}


def test_exactly_once() -> None:
    options = parsed(**EXACTLY_ONCE)
    assert (options.sink_id, options.transaction_timeout_ms) == ("job", 900_000)
    assert options.fail_on_data_loss
    writer = make_stream_writer({**SERVERS, **EXACTLY_ONCE}, schema("value string"))
    assert type(writer).__name__ == "ExactlyOnceStreamWriter"


def test_exactly_once_to_several_topics() -> None:
    options = parsed(**{**EXACTLY_ONCE, "topic": "", "progressTopic": "p"})
    assert (options.topic, options.progress_topic) == ("", "p")
    assert parsed(**EXACTLY_ONCE).progress_topic == "t"
    with pytest.raises(ConfigError, match="no 'topic' attribute"):
        check_columns(schema("value string"), options)
    check_columns(schema("value string, topic string"), options)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"sinkId": ""}, "needs a name"),
        ({"sinkId": "a:b"}, "needs a name"),
        ({"topic": ""}, "option progressTopic is required"),
        ({"progressTopic": "p"}, "option progressTopic: with option topic"),
        ({"kafka.acks": "1"}, "needs all"),
        ({"deliveryGuarantee": "twice"}, "is not one of at-least-once, exactly-once"),
        ({"deliveryGuarantee": "at-least-once"}, "option sinkId is for"),
        ({"transactionTimeoutMs": "soon"}, "is not a whole number"),
    ],
)
def test_what_does_not_go_with_exactly_once_is_refused(change: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        parsed(**{**EXACTLY_ONCE, **change})


def test_exactly_once_is_for_streams() -> None:
    with pytest.raises(ConfigError, match="is for streams"):
        make_writer({**SERVERS, **EXACTLY_ONCE}, schema("value string"))


def test_the_readme_lists_every_option() -> None:
    text = Path(str(client.spark.__file__)).with_name("README.md").read_text()
    rows = re.findall(r"^\| `([^|]*)` \| (.*) \|$", text.partition("## Writing\n")[2], re.MULTILINE)
    assert dict(rows[: len(WRITER_OPTIONS)]) == WRITER_OPTIONS
