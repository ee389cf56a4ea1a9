"""Metrics: the table keeps Prometheus' conventions, the tree of latencies adds up."""

from __future__ import annotations

import re

import pytest

from broker.metric_table import REQUEST_SECONDS, STAGE_SECONDS, TABLE
from broker.metrics import OTHER_TOPICS, Metrics
from client.errors import ConnectionLoss
from client.held_memory import HeldMemory
from client.node.exposition import Kind
from client.node.process_metrics import ADMIN_REFUSED
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import Slot
from tests.fakes.admin import AdminCloud
from tests.fakes.scrape import parse
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, fetch_fields, produce

LABELS_BOUNDED = {
    "api", "stage", "error", "source", "program", "version", "state", "task",
    "kind", "rack",  # small sets
    "bookie", "op",  # as many as there are
    "topic", "group", "partition",  # limited by the configuration
    "metric", "client_id", "software", "instance_id", "attributes",  # client_metrics_* settings
}  # fmt: skip


def samples(metrics: Metrics) -> dict[str, float]:
    return parse(metrics.exposition())


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: row.name)
def test_names_and_labels_keep_the_conventions(row: object) -> None:
    name, kind, text, labels, parent = row  # type: ignore[misc]
    assert re.fullmatch(
        r"quire_((broker|topic|group|transaction|ledger|metadata|loop|task|callback|client)_[a-z_]+"
        r"|info|groups|transactions)",
        name,
    )
    assert not name.endswith("_total"), "is added when it is shown"
    assert (text.endswith((".", "tree.")) and text[0].isupper()) or text[0].isdigit()
    assert set(labels) <= LABELS_BOUNDED
    assert (kind is Kind.HISTOGRAM) <= name.endswith("_seconds")
    assert not re.search(r"_(ms|kb|mib|millis|minutes)(_|$)", name), "base units"
    if parent:
        assert TABLE[parent].kind is kind is Kind.HISTOGRAM


def slot(api: int, *times: float) -> Slot:
    made = Slot(0, api, *times[:2], HeldMemory())
    made.split_s, made.answered_s = times[2:]
    return made


@pytest.mark.parametrize(
    ("api", "split_s", "stages"),
    [
        (ApiKey.PRODUCE, 1.75, {"queue": 0.5, "append": 0.25, "quorum": 1.25, "respond": 2}),
        (ApiKey.PRODUCE, 0, {"queue": 0.5, "append": 1.5, "quorum": 0, "respond": 2}),
        (ApiKey.FETCH, 2.5, {"queue": 0.5, "wait": 1, "read": 0.5, "respond": 2}),
        (ApiKey.METADATA, 0, {"queue": 0.5, "handle": 1.5, "respond": 2}),
    ],
)
def test_the_stages_of_a_request_add_up_to_it(
    api: ApiKey, split_s: float, stages: dict[str, float]
) -> None:
    metrics = Metrics()
    metrics.on_answered(slot(api, 1.0, 1.5, split_s, 3.0), 5.0)
    found = samples(metrics)
    name = api.name.lower()
    prefix = f'{STAGE_SECONDS}_sum{{api="{name}",stage='
    shown = {key[len(prefix) + 1 : -2]: value for key, value in found.items()
             if key.startswith(prefix)}  # fmt: skip
    assert shown == stages
    assert sum(stages.values()) == found[f'{REQUEST_SECONDS}_sum{{api="{name}"}}'] == 4.0
    assert metrics.answered_count == 1


async def test_a_real_broker_shows_every_row_and_real_requests_add_up() -> None:
    async with AdminCloud(lag_interval_ms=10) as cloud:
        await cloud.send("PUT", "/topics/t", {}, status=201)
        await cloud.led("t")
        broker = cloud.brokers[1]
        client = await WireClient.connect(broker.port)
        await produce(client, batch(b"v"))
        await client.call(ApiKey.FETCH, 12, **fetch_fields(0))
        await client.close()
        found = samples(broker.metrics)
        for api, stages in (
            ("produce", ("queue", "append", "quorum", "respond")),
            ("fetch", ("queue", "wait", "read", "respond")),
        ):
            total = found[f'{REQUEST_SECONDS}_sum{{api="{api}"}}']
            parts = [
                found[f'{STAGE_SECONDS}_sum{{api="{api}",stage="{stage}"}}'] for stage in stages
            ]
            assert total > 0
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(total)
        assert found["quire_ledger_append_seconds_count"] >= 1
        assert found['quire_topic_fetched_bytes_total{topic="t"}'] > 0
        assert found["quire_broker_takeover_seconds_count"] == 1
        text = broker.metrics.exposition().decode()
        shown = set(re.findall(r"^# TYPE (quire_\w+?)(?:_total)? ", text, re.M))
        assert shown == {*TABLE, ADMIN_REFUSED}, "the last is its HTTP port's, without TLS"


def test_topics_beyond_the_limit_are_counted_together_and_deleted_ones_make_room() -> None:
    metrics = Metrics(topics_max=2)
    for topic in ("a", "b", "c", "d", "a"):
        metrics.on_produced(topic, 2, 10)
    metrics.on_fetched("d", 7)
    found = samples(metrics)
    name = "quire_topic_produced_records_total"
    assert found[f'{name}{{topic="a"}}'] == 4
    assert found[f'{name}{{topic="{OTHER_TOPICS}"}}'] == 4
    assert found[f'quire_topic_fetched_bytes_total{{topic="{OTHER_TOPICS}"}}'] == 7
    assert found["quire_broker_produced_records_total"] == 10
    assert f'{name}{{topic="c"}}' not in found
    metrics.keep_topics(["a", "c"])
    metrics.on_produced("c", 1, 1)
    found = samples(metrics)
    assert found[f'{name}{{topic="c"}}'] == 1
    assert f'{name}{{topic="b"}}' not in found


def test_errors_have_kafkas_names_and_unknown_apis_their_number() -> None:
    metrics = Metrics()
    metrics.produce_errors[6] = 2
    metrics.request_failures[9999] = 1
    found = samples(metrics)
    assert found['quire_broker_produce_errors_total{error="not_leader_or_follower"}'] == 2
    assert found['quire_broker_request_failures_total{api="9999"}'] == 1


def test_two_brokers_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.received_bytes = 5
    assert samples(second)["quire_broker_received_bytes_total"] == 0


async def test_the_life_of_partitions_is_counted() -> None:
    async with AdminCloud() as cloud:
        cloud.cloud.ledgers.fail_next("create", ConnectionLoss("two are away"))
        await cloud.send("PUT", "/topics/t", {}, status=201)
        await cloud.led("t")
        metrics = cloud.brokers[1].metrics
        assert metrics.takeovers_lost == 1
        client = await WireClient.connect(cloud.brokers[1].port)
        for _ in range(2):
            await produce(client, batch(b"v"))
            await cloud.send("POST", "/topics/t/partitions/0/roll")
        await client.close()
        await cloud.send("POST", "/topics/t/partitions/0/trim", {"before_offset": 1})
        assert (metrics.segments_rolled, metrics.segments_trimmed) == (2, 1)
        assert metrics.leaderships_lost == 0
        partition = cloud.brokers[1].partitions.find("t", 0)
        assert partition is not None
        partition.resign("a test")
        assert metrics.leaderships_lost == 1
        assert samples(metrics)["quire_broker_partitions_missing"] == 1
