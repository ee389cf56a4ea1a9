"""What is asked of a cluster, and what two looks say about the time between."""

from __future__ import annotations

import json
from dataclasses import replace

from ops.admin_api import Access, AdminApi
from ops.top.snapshot import take
from tests.fakes.admin import AdminCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, produce


async def test_a_real_cluster_is_looked_at_through_any_broker() -> None:
    async with AdminCloud(2, lag_interval_ms=10) as cloud:
        await cloud.send("PUT", "/topics/t", {}, status=201)
        await cloud.led("t")
        leader = next(n for n, one in cloud.brokers.items() if one.partitions.find("t", 0))
        client = await WireClient.connect(cloud.brokers[leader].port)
        other = 3 - leader
        async with AdminApi(Access((cloud.admins[other].url,))) as api:
            before = await take(api, 100.0)
            for _ in range(3):
                await produce(client, batch(b"v", b"w"))
            after = await take(api, 102.0, before)
        await client.close()
        assert before.topics[0].produced_records is None, "one look has no rate"
        assert (after.topics[0].topic, after.topics[0].produced_records) == ("t", 3.0)
        assert after.topics[0].records == 6
        assert [row.state for row in after.brokers] == ["ready", "ready"]
        assert [row.broker_id for row in after.brokers] == [1, 2]
        assert (after.partitions, after.partitions_led) == (1, 1)
        assert (after.answered_by, after.under_replicated) == (other, 0)
        found = json.loads(json.dumps(after.as_json()))
        assert found["brokers"][leader - 1]["partitions_led"] == 1

        await cloud.send("PUT", "/brokers/1/unloaded", status=200)
        await cloud.admins[2].close()
        async with AdminApi(Access((cloud.admins[1].url,))) as api:
            shown = await take(api, 104.0, after)
        states = {row.broker_id: row for row in shown.brokers}
        assert states[1].state == "unloaded"
        assert states[2].state == "silent"
        assert states[2].why
        assert states[2].requests is None


async def test_a_topic_whose_leader_was_silent_has_no_rate() -> None:
    async with AdminCloud() as cloud:
        await cloud.send("PUT", "/topics/t", {}, status=201)
        await cloud.led("t")
        async with AdminApi(Access((cloud.admins[1].url,))) as api:
            before = await take(api, 100.0)
            half = replace(before, topics=[replace(before.topics[0], partitions_led=0)])
            assert (await take(api, 101.0, half)).topics[0].produced_records is None
            assert (await take(api, 101.0, before)).topics[0].produced_records == 0.0
            ahead = replace(before, topics=[replace(before.topics[0], produced=99)])
            assert (await take(api, 101.0, ahead)).topics[0].produced_records is None
            assert (await take(api, 100.0, before)).topics[0].produced_records is None
