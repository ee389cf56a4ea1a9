"""Settings that are changed while brokers run: what they do, who sees them, what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, produce

BROKER, TOPIC = 4, 2
EVERY = ""


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    return await cloud.start_broker(1)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    yield made
    await made.close()


async def alter(
    client: WireClient, name: str, kind: int = BROKER, only_try: bool = False, **values: str | None
) -> Any:
    """Set settings of a resource, spelled with `_` for `.`; None resets."""
    configs = [
        {"name": key.replace("_", "."), "value": value, "config_operation": int(value is None)}
        for key, value in values.items()
    ]
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, validate_only=only_try,
        resources=[{"resource_type": kind, "resource_name": name, "configs": configs}],
    )  # fmt: skip
    return answer.responses[0]


async def describe(client: WireClient, kind: int, name: str) -> dict[str, Any]:
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4, include_synonyms=True,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
    )  # fmt: skip
    return {row.name: row for row in answer.results[0].configs}


def sources(row: Any) -> list[tuple[str, str, int]]:
    return [(one.name, one.value, int(one.source)) for one in row.synonyms]


async def create_by_default(client: WireClient, name: str) -> Any:
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [],
             "configs": []}  # fmt: skip
    answer = await client.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=5_000)
    return answer.topics[0]


async def join_code(client: WireClient, session_ms: int) -> ErrorCode:
    answer = await client.call(
        ApiKey.JOIN_GROUP, 3, group_id="g", member_id="", protocol_type="consumer",
        session_timeout=session_ms, rebalance_timeout=1_000,
        protocols=[{"name": "range", "metadata": b""}],
    )  # fmt: skip
    return ErrorCode(answer.error_code)


async def test_all_brokers_follow_what_is_set_for_all(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    other = await cloud.start_broker(2)
    assert (await alter(client, EVERY, num_partitions="5")).error_code is ErrorCode.none
    assert broker.config.num_partitions == 5, "at once where it was set"
    await until(lambda: other.config.num_partitions == 5)
    assert (await create_by_default(client, "five")).num_partitions == 5
    assert (await alter(client, "1", num_partitions="6")).error_code is ErrorCode.none
    assert (await create_by_default(client, "six")).num_partitions == 6
    assert other.config.num_partitions == 5, "that of one broker is no one else's"
    late = await cloud.start_broker(3)
    assert late.config.num_partitions == 5, "a broker that starts knows it from the start"


async def test_where_a_value_comes_from_is_told(broker: Broker, client: WireClient) -> None:
    await alter(client, EVERY, num_partitions="5", log_retention_ms="60000")
    await alter(client, "1", num_partitions="6")
    rows = await describe(client, BROKER, "1")
    name = "num.partitions"
    assert (rows[name].value, rows[name].config_source, rows[name].read_only) == ("6", 2, False)
    assert sources(rows[name]) == [(name, "6", 2), (name, "5", 3), (name, "1", 4)]
    assert {one: row.value for one, row in (await describe(client, BROKER, EVERY)).items()} == {
        name: "5", "log.retention.ms": "60000",
    }  # fmt: skip
    await broker.topics.create("t")
    row = (await describe(client, TOPIC, "t"))["retention.ms"]
    assert sources(row) == [("log.retention.ms", "60000", 3), ("retention.ms", "604800000", 5)]
    await alter(client, "t", TOPIC, retention_ms="7")
    row = (await describe(client, TOPIC, "t"))["retention.ms"]
    assert [one[1:] for one in sources(row)] == [("7", 1), ("60000", 3), ("604800000", 5)]
    await alter(client, "1", num_partitions=None)
    await alter(client, EVERY, num_partitions=None, log_retention_ms=None)
    assert broker.config.num_partitions == 1
    assert await describe(client, BROKER, EVERY) == {}
    assert await broker.store.children(paths.BROKER_CONFIGS) == [], "nothing is left of it"


async def test_what_means_nothing_here_is_stored_and_said_to_be_so(
    broker: Broker, client: WireClient
) -> None:
    row = (await describe(client, BROKER, "1"))["log.cleaner.backoff.ms"]
    assert (row.value, row.read_only, int(row.config_source)) == ("15000", False, 5)
    assert (await alter(client, "1", log_cleaner_backoff_ms="77")).error_code is ErrorCode.none
    await until(lambda: "log.cleaner.backoff.ms" in broker.services.settings.of("1"))
    row = (await describe(client, BROKER, "1"))["log.cleaner.backoff.ms"]
    assert (row.value, int(row.config_source)) == ("77", 2)
    assert sources(row)[-1] == ("log.cleaner.backoff.ms", "15000", 5)
    reauth = (await describe(client, BROKER, "1"))["connections.max.reauth.ms"]
    assert (reauth.value, reauth.read_only) == ("0", True)


async def test_defaults_of_topics_reach_partitions_that_are_led(
    broker: Broker, client: WireClient
) -> None:
    partition = await create_topic(broker)
    own = await create_topic(broker, "own", config={"max.message.bytes": "100000"})
    assert (await produce(client, batch(b"x" * 300))).error_code is ErrorCode.none
    await alter(client, EVERY, message_max_bytes="200", log_retention_ms="1000")
    await until(lambda: partition.topic.config.max_message_bytes == 200)
    assert (await produce(client, batch(b"x" * 300))).error_code is ErrorCode.message_too_large
    assert (await produce(client, batch(b"x" * 300), topic="own")).error_code is ErrorCode.none
    assert partition.topic.config.retention_ms == own.topic.config.retention_ms == 1000
    assert partition.topic.config.overrides == {}, "it is stored with no topic"
    await alter(client, EVERY, message_max_bytes=None)
    await until(lambda: partition.topic.config.max_message_bytes == 1_048_588)
    assert (await produce(client, batch(b"x" * 300))).error_code is ErrorCode.none


async def test_limits_of_groups_hold_from_the_next_request_on(
    broker: Broker, client: WireClient
) -> None:
    await broker.services.groups.find("g")
    await until(lambda: not broker.missing())
    assert await join_code(client, 5_000) is ErrorCode.invalid_session_timeout
    await alter(client, EVERY, group_min_session_timeout_ms="1000")
    assert await join_code(client, 5_000) is ErrorCode.none
    await alter(client, EVERY, group_max_session_timeout_ms="4000")
    assert await join_code(client, 5_000) is ErrorCode.invalid_session_timeout


async def is_let_in(broker: Broker) -> bool:
    """Tell whether a new connection is answered."""
    try:
        more = await WireClient.connect(broker.port)
    except OSError:
        return False
    try:
        await more.call(ApiKey.METADATA, 9, topics=[])
    except (OSError, EOFError):
        return False
    finally:
        await more.close()
    return True


@pytest.mark.parametrize("name", ["max_connections", "max_connections_per_ip"])
async def test_limits_of_connections_hold_from_the_next_one_on(
    broker: Broker, client: WireClient, name: str
) -> None:
    second = await WireClient.connect(broker.port)
    assert (await alter(client, "1", **{name: "1"})).error_code is ErrorCode.none
    assert not await is_let_in(broker)
    assert (await second.call(ApiKey.METADATA, 9, topics=[])).brokers, "what is open stays"
    await alter(client, "1", **{name: "3"})
    assert await is_let_in(broker)
    await alter(client, "1", **{name: "1"})
    await alter(client, "1", **{name: None})
    assert await is_let_in(broker)
    assert (await alter(client, "1", **{name: "0"})).error_code is ErrorCode.invalid_request
    await second.close()


async def test_no_more_connections_are_let_in_than_the_process_has_files_for(
    broker: Broker, client: WireClient
) -> None:
    broker.server.connections_that_fit = lambda wanted: min(wanted, 1)
    await alter(client, EVERY, max_connections="20000")
    assert not await is_let_in(broker)


async def test_topics_are_no_longer_created_when_that_is_switched_off(
    broker: Broker, client: WireClient
) -> None:
    await alter(client, EVERY, auto_create_topics_enable="false")
    answer = await client.call(
        ApiKey.METADATA, 9, topics=[{"name": "new"}], allow_auto_topic_creation=True
    )
    assert answer.topics[0].error_code is ErrorCode.unknown_topic_or_partition
    await alter(client, EVERY, auto_create_topics_enable=None)
    answer = await client.call(
        ApiKey.METADATA, 9, topics=[{"name": "new"}], allow_auto_topic_creation=True
    )
    assert answer.topics[0].error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("name", "values", "code", "words"),
    [
        ("1", {"num_partitions": "0"}, ErrorCode.invalid_request, "num_partitions"),
        ("1", {"log_retention_ms": "soon"}, ErrorCode.invalid_request, "log.retention.ms"),
        ("1", {"producer_id_expiration_ms": "1"}, ErrorCode.invalid_request, "restart"),
        ("1", {"listeners": "PLAINTEXT://:1"}, ErrorCode.invalid_request, "restart"),
        ("1", {"log_dirs": "/data"}, ErrorCode.invalid_request, "holds no data"),
        ("1", {"no_such": "1"}, ErrorCode.invalid_config, "unknown"),
        ("2", {"num_partitions": "2"}, ErrorCode.invalid_request, "itself"),
        ("", {"group_min_session_timeout_ms": "9999999"}, ErrorCode.invalid_request, "exceeds"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_reason(
    broker: Broker,
    client: WireClient,
    name: str,
    values: dict[str, str],
    code: ErrorCode,
    words: str,
) -> None:
    answer = await alter(client, name, **values)
    assert answer.error_code is code
    assert words in answer.error_message
    assert broker.config == broker.services.settings.of_file


async def test_a_request_that_only_tries_changes_nothing(
    broker: Broker, client: WireClient
) -> None:
    bad = await alter(client, EVERY, only_try=True, num_partitions="0")
    assert bad.error_code is ErrorCode.invalid_request
    good = await alter(client, EVERY, only_try=True, num_partitions="2")
    assert good.error_code is ErrorCode.none
    assert broker.config.num_partitions == 1


async def test_replacing_resets_what_is_not_named(broker: Broker, client: WireClient) -> None:
    await alter(client, "1", num_partitions="2", group_max_size="7")
    configs = [{"name": "group.max.size", "value": "8"}]
    answer = await client.call(
        ApiKey.ALTER_CONFIGS, 2, validate_only=False,
        resources=[{"resource_type": BROKER, "resource_name": "1", "configs": configs}],
    )  # fmt: skip
    assert answer.responses[0].error_code is ErrorCode.none
    assert (broker.config.num_partitions, broker.config.group_size_max) == (1, 8)


async def test_what_does_not_fit_a_brokers_file_leaves_it_as_it_was(
    cloud: FakeCloud, broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    other = await cloud.start_broker(2, group_session_timeout_max_ms=10_000)
    await alter(client, EVERY, group_min_session_timeout_ms="20000")
    await until(lambda: "settings.refused" in caplog.text)
    assert broker.config.group_session_timeout_min_ms == 20_000
    assert other.config.group_session_timeout_min_ms == 6_000


async def test_a_damaged_node_is_reported_and_can_be_repaired(
    broker: Broker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    await alter(client, EVERY, num_partitions="2")
    node = f"{paths.BROKER_CONFIGS}/@"
    await broker.store.set(node, b"{")
    await until(lambda: "metadata.unreadable" in caplog.text)
    assert (await alter(client, EVERY, num_partitions="3")).error_code is not ErrorCode.none
    await broker.store.delete(node)
    assert (await alter(client, EVERY, num_partitions="3")).error_code is ErrorCode.none
    assert broker.config.num_partitions == 3
