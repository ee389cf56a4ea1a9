"""What clients are asked to push, what becomes of it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from broker.app import Broker
from broker.config import TelemetrySettings
from broker.front.telemetry import points
from broker.topics.core.config_resource import Change
from client.errors import RemoteProtocolError
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Codec, compress
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient

ME = UUID(int=7)
CLIENT_METRICS = 16


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    limits = TelemetrySettings(clients_max=2, push_bytes_max=4_096)
    return await cloud.start_broker(1, telemetry=limits)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    await made.call(
        ApiKey.API_VERSIONS, 3, client_software_name="rdk", client_software_version="2.1"
    )
    yield made
    await made.close()


async def subscribe(broker: Broker, **values: str) -> None:
    changes = [Change(name.replace("_", "."), 0, value) for name, value in values.items()]
    await broker.services.subscriptions.edit("s", changes, replaces=True, validate_only=False)


def metrics(**values: float) -> bytes:
    data = MetricsData()
    resource = data.resource_metrics.add()
    attribute = resource.resource.attributes.add(key="group_id")
    attribute.value.string_value = "g"
    scope = resource.scope_metrics.add()
    for name, value in values.items():
        point = scope.metrics.add(name=name).sum.data_points.add(as_double=value)
        point.attributes.add(key="node.id").value.int_value = 3
    return bytes(data.SerializeToString())


async def ask(client: WireClient, instance_id: UUID | None = ME) -> Any:
    return await client.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance_id)


async def push(
    client: WireClient, subscription: int, data: bytes, codec: int = 0, **more: Any
) -> ErrorCode:
    fields = {"client_instance_id": ME, "terminating": False, **more}
    answer = await client.call(
        ApiKey.PUSH_TELEMETRY, 0, subscription_id=subscription, compression_type=codec,
        metrics=data, **fields,
    )  # fmt: skip
    return ErrorCode(answer.error_code)


async def test_nobody_is_asked_for_anything_by_default(client: WireClient) -> None:
    answer = await ask(client, None)
    assert answer.error_code is ErrorCode.none
    assert answer.client_instance_id not in (None, UUID(int=0)), "it has an id from now on"
    assert answer.requested_metrics == ()
    assert await push(client, answer.subscription_id, metrics(a=1)) == 117


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_is_pushed_is_in_prometheus(
    broker: Broker, client: WireClient, codec: Codec
) -> None:
    await subscribe(broker, metrics="org.", interval_ms="60000", match="client_software_name=rdk")
    answer = await ask(client)
    assert (answer.client_instance_id, answer.requested_metrics) == (ME, ("org.",))
    assert (answer.push_interval.total_seconds(), answer.delta_temporality) == (60, False)
    assert answer.telemetry_max_bytes == 4_096
    assert set(answer.accepted_compression_types) == {1, 2, 3, 4}
    data = compress(codec, metrics(**{"org.sent": 5.5}))
    assert await push(client, answer.subscription_id, data, codec) is ErrorCode.none
    text = broker.metrics.exposition().decode()
    (line,) = re.findall(r"^quire_client_metric\{.*", text, re.M)
    assert 'metric="org.sent"' in line and 'software="rdk 2.1"' in line and line.endswith(" 5.5")
    assert 'attributes="group_id=g,node.id=3"' in line and f'instance_id="{ME}"' in line
    assert "quire_broker_client_metrics_clients 1" in text
    early = await push(client, answer.subscription_id, data, codec)
    assert early is ErrorCode.throttling_quota_exceeded
    last = await push(client, answer.subscription_id, data, codec, terminating=True)
    assert last is ErrorCode.none


async def test_bad_pushes_are_refused(broker: Broker, client: WireClient) -> None:
    await subscribe(broker, metrics="*", interval_ms="100")
    wanted = (await ask(client)).subscription_id
    good = metrics(a=1)
    assert await push(client, wanted, good, client_instance_id=None) is ErrorCode.invalid_request
    assert await push(client, wanted + 1, good) == 117
    assert await push(client, wanted, b"x" * 4_097) == 118
    assert await push(client, wanted, good, 9) is ErrorCode.unsupported_compression_type
    assert await push(client, wanted, b"\x0a\xff", 0) is ErrorCode.invalid_record
    assert await push(client, wanted, b"garbage", 4) is ErrorCode.invalid_record
    bomb = compress(Codec.ZSTD, b"\x00" * (1 << 20))
    assert len(bomb) < 4_096
    assert await push(client, wanted, bomb, 4) is ErrorCode.invalid_record
    assert broker.services.telemetry.series_count == 0
    await subscribe(broker, metrics="*", interval_ms="200")
    assert await push(client, wanted, good) == 117, "what is wanted has changed"


async def test_whom_there_is_no_room_for_is_asked_for_nothing(
    broker: Broker, client: WireClient
) -> None:
    await subscribe(broker, metrics="*")
    for number in range(3):
        answer = await ask(client, UUID(int=100 + number))
        assert answer.requested_metrics == (("",) if number < 2 else ())


async def test_subscriptions_are_listed_and_described(broker: Broker, client: WireClient) -> None:
    await subscribe(broker, metrics="a.,b.")
    listed = await client.call(ApiKey.LIST_CONFIG_RESOURCES, 0)
    assert [row.resource_name for row in listed.config_resources] == ["s"]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "s", "configuration_keys": None}
    answer = await client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
    rows = {row.name: (row.value, row.config_source) for row in answer.results[0].configs}
    assert rows == {"interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("a.,b.", 7)}


def test_of_histograms_count_and_sum_are_taken_and_of_nothing_nothing() -> None:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="h").histogram.data_points.add(count=3, sum=4.5)
    scope.metrics.add(name="g").gauge.data_points.add(as_double=float("nan"))
    scope.metrics.add(name="n")
    found = [(one.metric, one.value) for one in points(data.SerializeToString())]
    assert found == [("h.count", 3.0), ("h.sum", 4.5)]
    with pytest.raises(RemoteProtocolError):
        list(points(b"\xff\xff"))
