"""Resources of type GROUP: described, changed, listed, and in force at once, on every broker."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.errors import BrokerError
from broker.groups.core.group_settings import GROUP_KEYS
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic

BROKER, GROUP = 4, 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE = 0, 1
OF_GROUP, OF_FILE, DYNAMIC_DEFAULT, DEFAULT = 8, 4, 3, 5


async def alter(
    client: WireClient, changes: dict[str, str | None], *, of: str = "g", kind: int = GROUP,
    validate_only: bool = False,
) -> Any:  # fmt: skip
    rows = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in changes.items()
    ]
    resource = {"resource_type": kind, "resource_name": of, "configs": rows}
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only
    )
    return answer.responses[0]


async def described(client: WireClient, *names: str, of: str = "g") -> dict[str, Any]:
    resource = {
        "resource_type": GROUP, "resource_name": of, "configuration_keys": list(names) or None,
    }  # fmt: skip
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True,
        include_documentation=True,
    )  # fmt: skip
    assert answer.results[0].error_code is ErrorCode.none
    return {row.name: row for row in answer.results[0].configs}


async def beat(client: WireClient, epoch: int, *, member: str = "m", group: str = "g") -> Any:
    joins = epoch == 0
    return await client.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, member_id=member, member_epoch=epoch,
        instance_id=None, rack_id=None, rebalance_timeout=60_000 if joins else -1,
        subscribed_topic_names=["t"] if joins else None, subscribed_topic_regex=None,
        server_assignor=None, topic_partitions=[] if joins else None,
    )  # fmt: skip


async def joined(broker: Broker, client: WireClient) -> Any:
    """Join once the coordinator serves."""
    await broker.groups.find("g")
    await until(lambda: _serves(broker))
    answer = await beat(client, 0)
    assert answer.error_code is ErrorCode.none
    return answer


def _serves(broker: Broker) -> bool:
    try:
        broker.groups.coordinator("g").view()
    except BrokerError:
        return False
    return True


async def test_every_group_has_all_settings(broker: Broker, client: WireClient) -> None:
    rows = await described(client)
    assert sorted(rows) == sorted(GROUP_KEYS)
    session = rows[SESSION]
    assert (session.value, int(session.config_source), session.config_type) == ("45000", OF_FILE, 3)
    assert [(one.name, one.value) for one in session.synonyms] == [
        ("group.consumer.session.timeout.ms", "45000")
    ]
    kept = rows["share.session.timeout.ms"]
    assert (kept.value, int(kept.config_source)) == ("45000", DEFAULT)
    assert kept.documentation == "Stored for tools; no effect here."
    assert list(await described(client, HEARTBEAT, "no.such")) == [HEARTBEAT]
    assert not rows[SESSION].read_only


async def test_what_is_set_is_told_listed_and_reset(broker: Broker, client: WireClient) -> None:
    changes = {SESSION: "60000", "share.isolation.level": "read_committed"}
    assert (await alter(client, changes)).error_code is ErrorCode.none
    rows = await described(client)
    for name, value in changes.items():
        assert (rows[name].value, int(rows[name].config_source)) == (value, OF_GROUP)
    assert [one.value for one in rows[SESSION].synonyms] == ["60000", "45000"]
    assert (await described(client, SESSION, of="h"))[SESSION].value == "45000"
    listed = await client.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])
    assert [(row.resource_name, row.resource_type) for row in listed.config_resources] == [
        ("g", GROUP)
    ]
    assert (await alter(client, dict.fromkeys(changes))).error_code is ErrorCode.none
    assert (await described(client, SESSION))[SESSION].value == "45000"
    listed = await client.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP])
    assert listed.config_resources == ()


async def test_alter_configs_replaces_them_all(broker: Broker, client: WireClient) -> None:
    await alter(client, {SESSION: "60000", HEARTBEAT: "9000"})
    row = {"name": HEARTBEAT, "value": "8000"}
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": [row]}
    answer = await client.call(ApiKey.ALTER_CONFIGS, 2, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code is ErrorCode.none
    rows = await described(client, SESSION, HEARTBEAT)
    assert (rows[SESSION].value, rows[HEARTBEAT].value) == ("45000", "8000")


@pytest.mark.parametrize(
    ("of", "changes", "code"),
    [
        ("g", {SESSION: "44999"}, ErrorCode.invalid_config),
        ("g", {SESSION: "60001"}, ErrorCode.invalid_config),
        ("g", {HEARTBEAT: "1"}, ErrorCode.invalid_config),
        ("g", {"no.such": "1"}, ErrorCode.invalid_config),
        ("g", {SESSION: "50000", "no.such": "1"}, ErrorCode.invalid_config),
        ("", {SESSION: "50000"}, ErrorCode.invalid_request),
    ],
)
async def test_bad_changes_change_nothing(
    broker: Broker, client: WireClient, of: str, changes: dict[str, str], code: ErrorCode
) -> None:
    refused = await alter(client, changes, of=of)
    assert refused.error_code is code
    assert refused.error_message
    assert broker.services.group_settings.names() == []


async def test_validating_changes_nothing(broker: Broker, client: WireClient) -> None:
    good = await alter(client, {SESSION: "50000"}, validate_only=True)
    assert good.error_code is ErrorCode.none
    bad = await alter(client, {SESSION: "5"}, validate_only=True)
    assert bad.error_code is ErrorCode.invalid_config
    assert broker.services.group_settings.names() == []


async def test_a_nameless_group_has_no_settings(broker: Broker, client: WireClient) -> None:
    resource = {"resource_type": GROUP, "resource_name": "", "configuration_keys": None}
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False,
        include_documentation=False,
    )  # fmt: skip
    assert answer.results[0].error_code is ErrorCode.invalid_request


async def test_they_hold_for_the_group_at_once_and_for_no_other(
    broker: Broker, client: WireClient
) -> None:
    await create_topic(broker)
    await until(lambda: "group.version" in broker.services.features.finalized.levels)
    first = await joined(broker, client)
    assert first.heartbeat_interval.total_seconds() == 5
    await alter(client, {HEARTBEAT: "7000", SESSION: "50000"})
    again = await beat(client, first.member_epoch)
    assert again.heartbeat_interval.total_seconds() == 7
    assert broker.groups.limits.times("g") == (50_000, 7_000, 1_000)
    assert broker.groups.limits.times("h") == (45_000, 5_000, 1_000)
    # What holds for all groups changes: for those without a value of their own.
    name = "group.consumer.assignment.interval.ms"
    assert (await alter(client, {name: "20"}, of="", kind=BROKER)).error_code is ErrorCode.none
    await until(lambda: broker.groups.limits.times("g") == (50_000, 7_000, 20))
    row = (await described(client, "consumer.assignment.interval.ms")).popitem()[1]
    assert (row.value, int(row.config_source)) == ("20", DYNAMIC_DEFAULT)
    # Bounds become narrower: the nearest value holds, and is told.
    bound = "group.consumer.max.session.timeout.ms"
    assert (await alter(client, {bound: "48000"}, of="", kind=BROKER)).error_code is ErrorCode.none
    await until(lambda: broker.groups.limits.times("g").session_timeout_ms == 48_000)
    assert (await described(client, SESSION))[SESSION].value == "48000"
    odd = await alter(client, {bound: "44000"}, of="", kind=BROKER)
    assert odd.error_code is ErrorCode.invalid_request
    await alter(client, {bound: None}, of="", kind=BROKER)
    await until(lambda: broker.groups.limits.times("g").session_timeout_ms == 50_000)


async def test_other_brokers_and_later_ones_know_them(cloud: FakeCloud) -> None:
    one, two = [await cloud.start_broker(node_id) for node_id in (1, 2)]
    client = await WireClient.connect(one.port)
    await alter(client, {SESSION: "60000"}, of="ä/b")
    for broker in (one, two, await cloud.start_broker(3)):
        await until(lambda b=broker: b.groups.limits.times("ä/b").session_timeout_ms == 60_000)
        assert broker.services.group_settings.names() == ["ä/b"]
    await client.close()
