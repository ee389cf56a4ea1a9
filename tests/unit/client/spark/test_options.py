"""What options mean, and what is said about wrong ones."""

from pathlib import Path
from typing import Any

import pytest

import client.spark
from client.errors import ConfigError
from client.spark.options import READER_OPTIONS, Options, parse_columns, parse_options
from client.spark.schema import COLUMNS, PLAIN_COLUMNS, arrow_schema, columns_of, spark_schema

FOLDER = Path(client.spark.__path__[0])
README = (FOLDER / "README.md").read_text(encoding="utf-8")
NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def parse(streaming: bool = False, **given: str) -> Options:
    options = {name.replace("__", "."): value for name, value in given.items()}
    return parse_options({**NEEDED, **options}, streaming=streaming)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    assert parse().starting == "earliest"
    assert parse(streaming=True).starting == "latest"
    assert parse().ending == "latest"
    assert parse().fail_on_data_loss
    assert parse().columns == PLAIN_COLUMNS
    assert parse().read_mode == "broker"
    assert not parse().read_committed


def test_names_have_no_case_as_spark_lowers_them() -> None:
    given = {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "startingoffsets": "earliest"}
    assert parse_options(given, streaming=True).starting == "earliest"


@pytest.mark.parametrize(
    ("given", "streaming", "attribute", "value"),
    [
        ({"kafka__isolation__level": "read_committed"}, False, "read_committed", True),
        ({"subscribe": "b, a,b"}, False, "subscribe", ("b", "a")),
        ({"startingOffsets": '{"t":{"0":23,"1":-2}}'}, False, "starting", {"t": {0: 23, 1: -2}}),
        ({"endingOffsets": '{"t":{"0":-1}}'}, False, "ending", {"t": {0: -1}}),
        ({"startingTimestamp": "17"}, False, "starting_time", 17),
        ({"endingTimestamp": "18"}, False, "ending_time", 18),
        ({"startingOffsetsByTimestamp": '{"t":{"0":5}}'}, True, "starting_time", {"t": {0: 5}}),
        ({"endingOffsetsByTimestamp": '{"t":{"0":5}}'}, False, "ending_time", {"t": {0: 5}}),
        ({"startingOffsetsByTimestampStrategy": "latest"}, True, "latest_if_no_time", True),
        ({"maxOffsetsPerTrigger": "7"}, True, "trigger_offsets_max", 7),
        ({"minOffsetsPerTrigger": "7"}, True, "trigger_offsets_min", 7),
        ({"maxTriggerDelay": "2m"}, True, "trigger_delay_ms", 120_000),
        ({"maxBytesPerTrigger": "64m"}, True, "trigger_bytes_max", 64 << 20),
        ({"minPartitions": "9"}, False, "partition_count_min", 9),
        ({"maxRecordsPerPartition": "9"}, False, "partition_records_max", 9),
        ({"maxBytesPerPartition": "1g"}, False, "partition_bytes_max", 1 << 30),
        ({"failOnDataLoss": "FALSE"}, False, "fail_on_data_loss", False),
        ({"includeHeaders": "true"}, False, "columns", COLUMNS),
        ({"columns": "Value,offset"}, False, "columns", ("value", "offset")),
        ({"pushdown": "true"}, False, "pushdown", True),
        ({"commitGroupId": "g"}, True, "commit_group_id", "g"),
        ({"arrowBatchRows": "5"}, False, "arrow_batch_rows", 5),
        ({"arrowBatchBytes": "1k"}, False, "arrow_batch_bytes", 1024),
        ({"gcFreeze": "false"}, False, "gc_freeze", False),
        ({"fetch__timeoutMs": "5"}, False, "fetch_timeout_ms", 5),
        ({"fetchOffset__numRetries": "0"}, False, "retries", 0),
        ({"fetchOffset__retryIntervalMs": "5"}, False, "retry_ms", 5),
        ({"ledgerMinBytes": "5"}, False, "ledger_bytes_min", 5),
        ({"ledger__maxInflightBytes": "5"}, False, "ledger_in_flight_bytes_max", 5),
        ({"ledger__speculativeMs": "5"}, False, "ledger_speculative_ms", 5),
        (
            {"readMode": "auto", "metadataServiceUri": "zk:2181"},
            False, "metadata_service_uri", "zk:2181",
        ),
    ],
)  # fmt: skip
def test_an_option_is_understood(
    given: dict[str, str], streaming: bool, attribute: str, value: Any
) -> None:
    assert getattr(parse(streaming, **given), attribute) == value


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"kafka__bootstrap__servers": ""}, False, "kafka.bootstrap.servers is required"),
        ({"kafka__bootstrap__servers": "a:b"}, False, "option kafka.bootstrap.servers: 'a:b'"),
        ({"subscribePattern": "t"}, False, "not subscribe and subscribePattern"),
        ({"subscribe": ""}, False, "option subscribe is empty"),
        ({"subscribes": "t"}, False, "no option 'subscribes' for reading; did you mean subscribe?"),
        ({"path": "/x"}, False, "load() takes no path"),
        ({"startingOffsets": "latest"}, False, "startingOffsets: a batch query cannot use latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, False, "a batch query cannot use latest (-1)"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets: a batch query cannot use earliest"),
        ({"endingOffsets": "latest"}, True, "endingOffsets has no meaning for a stream query"),
        ({"maxOffsetsPerTrigger": "1"}, False, "maxOffsetsPerTrigger has no meaning for a batch"),
        ({"startingOffsets": "first"}, True, "option startingOffsets: 'first' is not JSON"),
        ({"startingOffsets": '{"t":{"0":"x"}}'}, True, '"x" of t-0 is not an offset'),
        ({"startingOffsets": '{"t":{"0":-3}}'}, True, "-3 of t-0 is not an offset"),
        ({"startingOffsets": '{"t":5}'}, True, "'t' has no partitions"),
        ({"startingOffsetsByTimestamp": "latest"}, True, "write milliseconds"),
        (
            {"maxOffsetsPerTrigger": "0"},
            True,
            "maxOffsetsPerTrigger: '0' is not a whole number of 1",
        ),
        ({"maxTriggerDelay": "soon"}, True, "maxTriggerDelay: 'soon' is not a duration"),
        ({"maxBytesPerPartition": "lots"}, False, "maxBytesPerPartition: 'lots' is not a size"),
        ({"failOnDataLoss": "maybe"}, False, "failOnDataLoss: 'maybe' is not one of true, false"),
        ({"columns": "values"}, False, "option columns: there is no column 'values'"),
        ({"columns": "key,key"}, False, "each only once"),
        ({"columns": "key", "includeHeaders": "true"}, False, "columns leaves headers out"),
        ({"readMode": "disk"}, False, "readMode: 'disk' is not one of broker, ledger, auto"),
        ({"kafka__security__protocol": "SASL_SSL"}, False, "needs sasl.mechanism"),
        ({"kafka__ssl__truststore__location": "x"}, True, "has no effect with"),
        ({"kafka__sasl__mechanism": "PLAIN"}, False, "has no effect with"),
        ({"kafka__ssl__protocol": "TLSv1"}, False, "ssl.protocol is not supported"),
        ({"planLeaseMs": "5"}, False, "leases are not implemented"),
        ({"transform": "m:f"}, False, "option transform is not supported"),
        ({"kafka__auto__offset__reset": "latest"}, True, "may not be set: use startingOffsets"),
        ({"kafka__enable__auto__commit": "true"}, True, "may not be set"),
        ({"kafka__key__deserializer": "x"}, True, "may not be set"),
        ({"kafka__value__deserializer": "x"}, True, "may not be set"),
        ({"kafka__interceptor__classes": "x"}, True, "may not be set"),
        ({"kafka__no__such__thing": "x"}, True, "there is no option 'kafka.no.such.thing'"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], streaming: bool, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(streaming, **given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("subscribePattern", "t[", "'t[' is not a valid pattern"),
        ("assign", '{"t":[]}', "'t' has no partitions"),
        ("assign", "t", "option assign: 't' is not JSON"),
    ],
)
def test_a_wrong_choice_of_topics_is_named(option: str, value: str, words: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", option: value}
    with pytest.raises(ConfigError) as caught:
        parse_options(given, streaming=True)
    assert words in str(caught.value)


def test_assign_and_pattern() -> None:
    where = {"kafka.bootstrap.servers": "h:1"}
    assert parse_options({**where, "assign": '{"t":[2,0,2]}'}, streaming=True).assign == {
        "t": (0, 2)
    }
    assert parse_options({**where, "subscribePattern": "a.*"}, streaming=True).subscribe_pattern


def test_settings_of_a_kafka_consumer_are_taken_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parse(kafka__max__poll__records="100", groupIdPrefix="x")
    assert "option kafka.max.poll.records has no effect" in caplog.text
    assert "groupIdPrefix" in caplog.text


def test_the_plain_offsets_of_a_checkpoint_can_be_pasted() -> None:
    text = '{"$quire":{"ids":{"t":"x"},"v":1},"t":{"0":5}}'
    assert parse(startingOffsets=text).starting == {"t": {0: 5}}


def test_columns_alone_do_not_need_the_other_options() -> None:
    assert parse_columns({"columns": "offset"}) == ("offset",)
    assert parse_columns({"includeheaders": "true", "whatever": "x"}) == COLUMNS


def test_a_schema_of_ones_own_must_be_made_of_our_columns() -> None:
    assert columns_of(spark_schema(["offset", "value"])) == ("offset", "value")
    wrong = spark_schema(["offset"])
    wrong.fields[0].name = "position"
    with pytest.raises(ConfigError, match="there is no column 'position'"):
        columns_of(wrong)
    wrong.fields[0].name = "value"
    with pytest.raises(ConfigError, match="column value is of type binary, not bigint"):
        columns_of(wrong)


def test_the_arrow_schema_is_the_one_spark_checks_for() -> None:
    assert str(arrow_schema(COLUMNS)).splitlines()[:8] == [
        "key: binary",
        "value: binary",
        "topic: string",
        "partition: int32",
        "offset: int64",
        "timestamp: timestamp[us, tz=UTC]",
        "timestampType: int32",
        "headers: list<element: struct<key: string, value: binary>>",
    ]


def test_the_readme_has_every_option() -> None:
    assert [name for name in READER_OPTIONS if f"`{name}`" not in README] == []


def test_the_map_has_every_file() -> None:
    files = sorted(
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*.py")
        if path.name != "__init__.py"
    )
    readme_map = README.partition("## Map")[2]
    assert [name for name in files if f"`{name}`" not in readme_map] == []
