"""Parse and check the options of a reader.

Names are those of Spark's Kafka source wherever it has the option; Spark passes them on without
regard to case. `READER_OPTIONS` is the table that the README shows and that unknown names are
checked against: a misspelt option is an error, not a default.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from client.errors import ConfigError
from client.kafka_security import security_of
from client.pubsub.addresses import parse as parse_addresses
from client.pubsub.brokers import Brokers
from client.spark.option_values import (
    Bounds,
    bounds_json,
    choice,
    duration_ms,
    partition_lists,
    positive,
    size_bytes,
    truth,
)
from client.spark.schema import COLUMNS, HEADERS, PLAIN_COLUMNS

log = logging.getLogger(__name__)

ReadMode = Literal["auto", "broker", "ledger"]
_KAFKA: Final = "kafka."

READER_OPTIONS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "required: `host:port[,host:port...]`",
    "kafka.isolation.level": "`read_uncommitted` (default) or `read_committed`",
    "kafka.security.protocol": "`PLAINTEXT` (default), `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression (Python's) that a topic's whole name must match",
    "assign": 'partitions: `{"topic":[0,1]}`; one of these three is required',
    "startingOffsets": (
        '`earliest`, `latest`, or `{"topic":{"0":23,"1":-2}}` (-2 earliest, -1 latest);'
        " default: `latest` for streams, `earliest` for batches"
    ),
    "endingOffsets": "batches: the same, exclusive; default `latest`",
    "startingTimestamp": "milliseconds since 1970: from the first record that is not older",
    "endingTimestamp": "batches: up to the first record that is not older",
    "startingOffsetsByTimestamp": '`{"topic":{"0":1700000000000}}`',
    "endingOffsetsByTimestamp": "batches: the same",
    "startingOffsetsByTimestampStrategy": (
        "if no record is new enough: `error` (default) or `latest`"
    ),
    "maxOffsetsPerTrigger": "streams: records per batch, shared among partitions by backlog",
    "minOffsetsPerTrigger": "streams: wait until there are this many records...",
    "maxTriggerDelay": "...but no longer than this; default `15m`",
    "maxBytesPerTrigger": "streams: bytes per batch, like `64m`",
    "minPartitions": "this many tasks, as long as there are as many records (from ledgers:"
    " entries); where other limits make more, a multiple of it",
    "maxRecordsPerPartition": "records per task",
    "maxBytesPerPartition": "bytes per task; default `64m`",
    "failOnDataLoss": "`true` (default): missing records end the query; `false`: a warning",
    "includeHeaders": "`true` adds the column `headers`; default `false`",
    "columns": "read only these columns, like `value,offset`: less data to move",
    "pushdown": (
        "batches: `true` prunes by filters; needs spark.sql.python.filterPushdown.enabled, and a"
        " `load()` of its own for each query"
    ),
    "commitGroupId": "streams: commit the progress as offsets of this consumer group",
    "readMode": "`broker` (default), `ledger` or `auto`",
    "metadataServiceUri": (
        "ZooKeeper's `host:port[,host:port...]`, for reading ledgers; default: the brokers say"
    ),
    "ledger.securityFile": (
        "TOML file with the table `[cluster_security]`, at the same place on driver and executors:"
        " how bookies and ZooKeeper are reached; default: in plain text"
    ),
    "ledgerMinBytes": "`auto` reads ledgers for ranges of at least this size; default `64m`",
    "ledger.maxInflightBytes": (
        "bytes that a task may have requested from bookies at once; default `4m`"
    ),
    "ledger.speculativeMs": "ask the next replica after this long; default 200",
    "planLeaseMs": "0 (default); leases are not implemented",
    "arrowBatchRows": "rows per Arrow batch; default 10000",
    "arrowBatchBytes": "bytes per Arrow batch and per fetch; default `4m`",
    "gcFreeze": "`true` (default) spares the worker garbage collections and keeps freed memory",
    "fetch.timeoutMs": "how long any request may go unanswered; default 30000",
    "fetchOffset.numRetries": "how often to ask again when a log seems to have shrunk; default 3",
    "fetchOffset.retryIntervalMs": "pause between these attempts; default 1000",
}

_PROTECTED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are binary: cast in the DataFrame",
    "value.deserializer": "values are binary: cast in the DataFrame",
    "key.serializer": "keys are binary: cast in the DataFrame",
    "value.serializer": "values are binary: cast in the DataFrame",
    "enable.auto.commit": "Spark keeps offsets in its checkpoint; see commitGroupId",
    "interceptor.classes": "records are never objects here",
}

_SECURITY: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")

_NO_EFFECT: Final = frozenset(
    {
        "kafka.group.id", "kafka.client.id", "kafka.max.poll.records",
        "kafka.max.poll.interval.ms", "kafka.fetch.max.bytes", "kafka.fetch.min.bytes",
        "kafka.fetch.max.wait.ms", "kafka.max.partition.fetch.bytes", "kafka.receive.buffer.bytes",
        "kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "kafka.session.timeout.ms",
        "kafka.heartbeat.interval.ms", "kafka.metadata.max.age.ms", "kafka.check.crcs",
        "kafka.connections.max.idle.ms", "kafka.reconnect.backoff.ms", "kafka.retry.backoff.ms",
        "kafkaconsumer.polltimeoutms", "groupidprefix",
    }
)  # fmt: skip
"""What jobs written for Spark's Kafka source may carry: settings of a consumer that is not here.
They are taken with a warning, so that changing the format's name is enough."""

_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushdown")
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger",
    "commitGroupId",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What a reader was asked for. Pickled to the tasks."""

    bootstrap_servers: Brokers
    read_committed: bool = False
    columns: tuple[str, ...] = PLAIN_COLUMNS
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ""
    assign: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    starting: Bounds = "earliest"
    ending: Bounds = "latest"
    starting_time: int | Mapping[str, Mapping[int, int]] | None = None
    """Milliseconds, for all partitions or for each."""
    ending_time: int | Mapping[str, Mapping[int, int]] | None = None
    latest_if_no_time: bool = False
    trigger_offsets_max: int | None = None
    trigger_offsets_min: int | None = None
    trigger_delay_ms: int = 15 * 60 * 1000
    trigger_bytes_max: int | None = None
    partition_count_min: int | None = None
    partition_records_max: int | None = None
    partition_bytes_max: int = 64 << 20
    """`maxBytesPerPartition`: bytes that one task reads."""
    fail_on_data_loss: bool = True
    pushdown: bool = False
    commit_group_id: str = ""
    read_mode: ReadMode = "broker"
    metadata_service_uri: str = ""
    """Empty: whoever reads ledgers asks the brokers."""
    ledger_security_file: str = ""
    """`ledger.securityFile`; the secrets in it are never in a plan or a task."""
    ledger_bytes_min: int = 64 << 20
    """`ledgerMinBytes`: in mode auto, ledgers are read from this many bytes on."""
    ledger_in_flight_bytes_max: int = 4 << 20
    """`ledger.maxInflightBytes` per task."""
    ledger_speculative_ms: int = 200
    """`ledger.speculativeMs`: ask the next replica when one is silent for this long."""
    arrow_batch_rows: int = 10_000
    arrow_batch_bytes: int = 4 << 20
    gc_freeze: bool = True
    fetch_timeout_ms: int = 30_000
    retries: int = 3
    """`fetchOffset.numRetries`."""
    retry_ms: int = 1000
    """`fetchOffset.retryIntervalMs`."""


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Turn what Spark hands over into `Options`. Raises ConfigError naming the option."""
    values = _known(given)
    _refuse(values, _BATCH_ONLY if streaming else _STREAM_ONLY, streaming=streaming)
    subscribe, pattern, assign = _topics(values)
    return Options(
        bootstrap_servers=brokers_of(values),
        read_committed=choice(
            values, "kafka.isolation.level", ("read_uncommitted", "read_committed")
        )
        == "read_committed",
        columns=_columns(values),
        subscribe=subscribe,
        subscribe_pattern=pattern,
        assign=assign,
        starting=_starting(values, streaming=streaming),
        ending=_ending(values),
        starting_time=_time(values, "startingTimestamp", "startingOffsetsByTimestamp"),
        ending_time=_time(values, "endingTimestamp", "endingOffsetsByTimestamp"),
        latest_if_no_time=choice(values, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        trigger_offsets_max=positive(values, "maxOffsetsPerTrigger"),
        trigger_offsets_min=positive(values, "minOffsetsPerTrigger"),
        trigger_delay_ms=duration_ms(values, "maxTriggerDelay", 15 * 60 * 1000),
        trigger_bytes_max=size_bytes(values, "maxBytesPerTrigger"),
        partition_count_min=positive(values, "minPartitions"),
        partition_records_max=positive(values, "maxRecordsPerPartition"),
        partition_bytes_max=size_bytes(values, "maxBytesPerPartition") or 64 << 20,
        fail_on_data_loss=truth(values, "failOnDataLoss", default=True),
        pushdown=truth(values, "pushdown", default=False),
        commit_group_id=values.get("commitGroupId", ""),
        arrow_batch_rows=positive(values, "arrowBatchRows") or 10_000,
        arrow_batch_bytes=size_bytes(values, "arrowBatchBytes") or 4 << 20,
        gc_freeze=truth(values, "gcFreeze", default=True),
        fetch_timeout_ms=positive(values, "fetch.timeoutMs") or 30_000,
        retries=positive(values, "fetchOffset.numRetries", at_least=0, default=3) or 0,
        retry_ms=positive(values, "fetchOffset.retryIntervalMs") or 1000,
        read_mode=_read_mode(values),
        metadata_service_uri=values.get("metadataServiceUri", ""),
        ledger_security_file=values.get("ledger.securityFile", ""),
        ledger_bytes_min=size_bytes(values, "ledgerMinBytes") or 64 << 20,
        ledger_in_flight_bytes_max=size_bytes(values, "ledger.maxInflightBytes") or 4 << 20,
        ledger_speculative_ms=positive(values, "ledger.speculativeMs") or 200,
    )


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that options ask for, whatever else they say. Raises ConfigError."""
    proper = names_by_lower_case(READER_OPTIONS)
    return _columns({proper[k.lower()]: v for k, v in given.items() if k.lower() in proper})


def names_by_lower_case(names: Iterable[str]) -> dict[str, str]:
    """Return the proper spelling of each name by its lower-case form."""
    return {name.lower(): name for name in names}


def check_kafka_option(name: str) -> None:
    """Raise ConfigError for a `kafka.*` option that a user must not set, as Spark does."""
    protected = _PROTECTED.get(name.lower().removeprefix(_KAFKA))
    if name.lower().startswith(_KAFKA) and protected:
        raise ConfigError(f"option {name} may not be set: {protected}")


def check_supported(name: str) -> None:
    """Raise ConfigError for an option of this source's design that is not supported."""
    lower = name.lower()
    if lower == "transform":
        raise ConfigError(
            "option transform is not supported: write the expression on the DataFrame, and leave"
            " out what it does not need with option columns"
        )


def is_security(name: str) -> bool:
    """Say whether an option is a Kafka client's setting of TLS or SASL; `name` in lower case."""
    return name.startswith(_SECURITY)


def brokers_of(values: Mapping[str, str]) -> Brokers:
    """Return where the brokers are, and how they are reached. Raises ConfigError."""
    servers = values.get("kafka.bootstrap.servers", "")
    if not servers:
        raise ConfigError("option kafka.bootstrap.servers is required: host:port of a broker")
    try:
        parse_addresses(servers)
    except ConfigError as error:
        raise ConfigError(f"option kafka.bootstrap.servers: {error}") from error
    given = {
        name.removeprefix(_KAFKA): value for name, value in values.items() if is_security(name)
    }
    try:
        return Brokers(servers, security_of(given))
    except ConfigError as error:
        raise ConfigError(f"options {_KAFKA}*: {error}") from error


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their proper names. Raises ConfigError for others."""
    proper = names_by_lower_case(READER_OPTIONS)
    values: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        check_kafka_option(name)
        check_supported(name)
        if lower == "path":
            raise ConfigError("load() takes no path: name topics with option subscribe")
        if is_security(lower):
            values[lower] = value.strip()
            continue
        if lower in _NO_EFFECT:
            log.warning("option %s has no effect on format quire", name)
            continue
        if lower not in proper:
            near = difflib.get_close_matches(lower, proper, n=1)
            hint = f"; did you mean {proper[near[0]]}?" if near else ""
            raise ConfigError(f"there is no option {name!r} for reading{hint}")
        values[proper[lower]] = value.strip()
    if values.get("planLeaseMs", "0") != "0":
        raise ConfigError("option planLeaseMs: leases are not implemented; leave it out, or set 0")
    return values


def _refuse(values: Mapping[str, str], names: Iterable[str], *, streaming: bool) -> None:
    for name in names:
        if name in values:
            kind = "stream" if streaming else "batch"
            raise ConfigError(f"option {name} has no meaning for a {kind} query: leave it out")


def _topics(
    values: Mapping[str, str],
) -> tuple[tuple[str, ...], str, dict[str, tuple[int, ...]]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in values]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise ConfigError(f"give one of subscribe, subscribePattern and assign, not {found}")
    value = values[given[0]]
    if not value:
        raise ConfigError(f"option {given[0]} is empty")
    if given[0] == "assign":
        return (), "", partition_lists("assign", value)
    if given[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        return names, "", {}
    try:
        re.compile(value)
    except re.error as error:
        raise ConfigError(
            f"option subscribePattern: {value!r} is not a valid pattern: {error}"
        ) from error
    return (), value, {}


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    headers = truth(values, "includeHeaders", default=False)
    if "columns" not in values:
        return (*PLAIN_COLUMNS, HEADERS) if headers else PLAIN_COLUMNS
    proper = names_by_lower_case(COLUMNS)
    names = [name.strip() for name in values["columns"].split(",") if name.strip()]
    for name in names:
        if name.lower() not in proper:
            raise ConfigError(
                f"option columns: there is no column {name!r}; there are {', '.join(COLUMNS)}"
            )
    columns = tuple(proper[name.lower()] for name in names)
    if not columns or len(set(columns)) != len(columns):
        raise ConfigError("option columns: name at least one column, and each only once")
    if headers and HEADERS not in columns:
        raise ConfigError("option includeHeaders is true, but columns leaves headers out")
    return columns


def _starting(values: Mapping[str, str], *, streaming: bool) -> Bounds:
    bounds = bounds_json(values, "startingOffsets", "latest" if streaming else "earliest")
    if not streaming:
        _not_that_end("startingOffsets", bounds, "latest", -1)
    return bounds


def _ending(values: Mapping[str, str]) -> Bounds:
    bounds = bounds_json(values, "endingOffsets", "latest")
    _not_that_end("endingOffsets", bounds, "earliest", -2)
    return bounds


def _not_that_end(name: str, bounds: Bounds, word: str, number: int) -> None:
    if isinstance(bounds, str):
        wrong = bounds == word
    else:
        wrong = any(number in offsets.values() for offsets in bounds.values())
    if wrong:
        raise ConfigError(f"option {name}: a batch query cannot use {word} ({number}) there")


def _time(
    values: Mapping[str, str], for_all: str, for_each: str
) -> int | Mapping[str, Mapping[int, int]] | None:
    if for_all in values:
        return positive(values, for_all, at_least=0)
    if for_each not in values:
        return None
    times = bounds_json(values, for_each, "")
    if isinstance(times, str) or any(t < 0 for row in times.values() for t in row.values()):
        raise ConfigError(f'option {for_each}: write milliseconds, like {{"topic":{{"0":1700}}}}')
    return times


def _read_mode(values: Mapping[str, str]) -> ReadMode:
    return cast(ReadMode, choice(values, "readMode", ("broker", "ledger", "auto")))
