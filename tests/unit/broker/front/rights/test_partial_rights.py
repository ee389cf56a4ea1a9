"""Rights that are no condition of a request, and what its answer hides without them."""

from __future__ import annotations

import asyncio
import struct
from typing import Any
from uuid import UUID

import pytest

from broker.app import Broker
from broker.security import rights
from broker.security.core.acls import Operation, Permission, ResourceType
from broker.security.rights import Need
from client.wire.kafka.apis import LINK_API_KEY, ApiKey
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import fetch_fields
from tests.unit.broker.front.rights.authorized_broker import (
    ANY,
    codes,
    entry,
    grant,
    refusals,
    start,
    with_topics,
)
from tests.unit.broker.front.rights.requests import CLUSTER, ENTRY, FILTER, ROWS, SERVED, Row


async def test_topics_that_may_not_be_seen_are_not_there(
    broker: Broker, client: WireClient
) -> None:
    await with_topics(broker, "seen")
    await grant(broker, entry(rights.DESCRIBE_TOPIC, "seen"))
    answer = await client.call(ApiKey.METADATA, 9, topics=None)
    assert [one.name for one in answer.topics] == ["seen"]
    answer = await client.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], response_partition_limit=9, cursor=None
    )
    assert [one.name for one in answer.topics] == ["seen"]


async def test_hidden_and_absent_topics_look_the_same(broker: Broker, client: WireClient) -> None:
    for key, version, more in (
        (ApiKey.METADATA, 9, {"allow_auto_topic_creation": True}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"response_partition_limit": 9, "cursor": None}),
        (ApiKey.DELETE_TOPICS, 6, {}),
    ):
        absent, hidden = [
            (await client.call(key, version, topics=[{"name": name, "topic_id": None}], **more))
            for name in ("absent", "t")
        ]
        assert set(codes(absent)) == set(codes(hidden)) == {29}
    assert [one for one in broker.cluster.topics if one[0] != "_"] == ["t"]


async def test_a_hidden_topic_has_no_id(broker: Broker, client: WireClient) -> None:
    topic_id = broker.cluster.topics["t"].topic_id
    answer = await client.call(ApiKey.METADATA, 12, topics=[{"name": None, "topic_id": topic_id}])
    assert (answer.topics[0].error_code, answer.topics[0].name) == (100, None)
    answer = await client.call(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}]
    )
    assert (answer.responses[0].error_code, answer.responses[0].name) == (29, None)
    await grant(broker, entry(rights.DESCRIBE_TOPIC, "t"))
    answer = await client.call(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": topic_id}]
    )
    assert (answer.responses[0].error_code, answer.responses[0].name) == (29, "t")
    assert "t" in broker.cluster.topics


@pytest.mark.parametrize("need", [rights.CREATE_CLUSTER, rights.CREATE_TOPIC])
async def test_either_right_to_create_is_enough(
    broker: Broker, client: WireClient, need: Need
) -> None:
    name = CLUSTER if need is rights.CREATE_CLUSTER else "*"
    await grant(broker, entry(need, name), entry(rights.DESCRIBE_TOPIC, "*"))
    await client.call(
        ApiKey.METADATA, 9, topics=[{"name": "first"}], allow_auto_topic_creation=True
    )
    rows = [
        {
            "name": "second",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
    ]
    await client.call(ApiKey.CREATE_TOPICS, 5, topics=rows)
    assert {"first", "second"} <= broker.cluster.topics.keys()


async def test_settings_of_a_new_topic_are_shown_to_who_may_see_them(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.CREATE_CLUSTER, CLUSTER))
    rows = [
        {
            "name": "new",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
    ]
    (created,) = (await client.call(ApiKey.CREATE_TOPICS, 5, topics=rows)).topics
    assert (created.error_code, created.topic_config_error_code) == (0, 29)
    assert (created.num_partitions, created.configs) == (-1, None)
    assert "new" in broker.cluster.topics


async def test_who_may_write_somewhere_may_have_a_producer_id(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.WRITE_TOPIC, "elsewhere"))
    answer = await client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    assert answer.error_code == 0
    await grant(broker, entry(rights.WRITE_TOPIC, "*", Permission.DENY))
    answer = await client.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)
    assert answer.error_code == 31


async def all_codes(client: WireClient, one: Row, **changes: Any) -> set[int]:
    return set(codes(await client.call(one.key, one.version, **{**one.fields, **changes})))


async def groups_seen(client: WireClient) -> list[str]:
    answer = await client.call(ApiKey.LIST_GROUPS, 4)
    assert answer.error_code == 0
    return sorted(one.group_id for one in answer.groups)


async def test_groups_that_may_not_be_seen_are_not_listed(
    broker: Broker, client: WireClient
) -> None:
    everything = [
        entry(Need(Operation.ALL, kind), "*") for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    await grant(broker, *everything)
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a"])
    commit = next(one for one in ROWS if one.label == "commit")
    for group in ("a", "b"):
        async with asyncio.timeout(5):
            while set(codes(await client.call(8, 8, **{**commit.fields, "group_id": group}))) != {
                0
            }:
                pass
    assert await groups_seen(client) == ["a", "b", "g"]
    await broker.services.rights.acls.remove(ANY)
    assert await groups_seen(client) == []
    await grant(broker, entry(rights.DESCRIBE_GROUP, "b"))
    assert await groups_seen(client) == ["b"]
    await grant(broker, entry(rights.DESCRIBE_CLUSTER, CLUSTER))
    assert await groups_seen(client) == ["a", "b", "g"]


async def test_all_offsets_are_those_of_topics_that_may_be_seen(
    broker: Broker, client: WireClient
) -> None:
    await with_topics(broker, "seen")
    await grant(broker, *(entry(Need(Operation.ALL, kind), "*") for kind in (
        ResourceType.TOPIC, ResourceType.GROUP)))  # fmt: skip
    await client.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    rows = [
        {
            "name": name,
            "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
        }
        for name in ("seen", "t")
    ]
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": rows}
    async with asyncio.timeout(5):
        while set(codes(await client.call(ApiKey.OFFSET_COMMIT, 8, **commit))) != {0}:
            pass
    await broker.services.rights.acls.remove(ANY)
    await grant(broker, entry(rights.DESCRIBE_GROUP, "g"), entry(rights.DESCRIBE_TOPIC, "seen"))
    asked = [{"group_id": "g", "topics": None}]
    (found,) = (await client.call(ApiKey.OFFSET_FETCH, 8, groups=asked)).groups
    assert [topic.name for topic in found.topics] == ["seen"]


async def test_a_right_that_is_taken_ends_a_fetch_session_too(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.READ_TOPIC, "t"))
    opened = await client.call(ApiKey.FETCH, 12, **fetch_fields(0, session_epoch=0))
    assert opened.session_id
    await broker.services.rights.acls.remove(ANY)
    again = fetch_fields(0, session_id=opened.session_id, session_epoch=1)
    answer = await client.call(ApiKey.FETCH, 12, **{**again, "topics": []})
    assert set(codes(answer)) == {0, 29}


async def test_super_users_may_do_everything(cloud: FakeCloud) -> None:
    broker = await start(cloud, "User:ANONYMOUS")
    client = await WireClient.connect(broker.port)
    # Whoever has begun has no start time yet, which the test's decoder cannot read: that is last.
    for one in sorted(SERVED, key=lambda one: one.label == "begin"):
        assert await refusals(client, one) == set(), one.label
    await client.close()


async def test_without_authorization_there_are_no_lists(cloud: FakeCloud) -> None:
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    assert (await client.call(ApiKey.DESCRIBE_ACLS, 2, **FILTER)).error_code == 54
    answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=[ENTRY])
    assert answer.results[0].error_code == 54
    answer = await client.call(ApiKey.DELETE_ACLS, 2, filters=[FILTER])
    assert answer.filter_results[0].error_code == 54
    await client.close()


async def test_a_link_needs_the_right_to_act_for_the_cluster(
    broker: Broker, client: WireClient
) -> None:
    client.send_raw(struct.pack(">ihhih", 10, LINK_API_KEY, 1, 7, -1))
    assert await client.is_closed()
    assert broker.services.rights.denied == 1


async def test_members_are_hidden_from_those_who_may_not_see_all_their_topics(
    broker: Broker, client: WireClient
) -> None:
    await grant(broker, entry(rights.READ_GROUP, "g"), entry(rights.DESCRIBE_TOPIC, "t"))
    joined = await client.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=0,
        rebalance_timeout=10_000, subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    assert joined.error_code.name == "none"
    described = await client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
    assert [one.member_id for one in described.groups[0].members] == ["m"]
    await broker.services.rights.acls.remove(ANY)
    await grant(broker, entry(rights.DESCRIBE_GROUP, "g"))
    described = await client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
    (group,) = described.groups
    assert (group.error_code.name, group.members) == ("topic_authorization_failed", ())


@pytest.mark.parametrize(
    ("key", "version", "more"),
    [
        (ApiKey.OFFSET_COMMIT, 10, {}),
        (ApiKey.TXN_OFFSET_COMMIT, 6,
         {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0}),
    ],
)  # fmt: skip
async def test_offsets_of_topics_by_id_need_the_right_to_the_topic(
    broker: Broker, client: WireClient, key: ApiKey, version: int, more: dict[str, Any]
) -> None:
    await grant(broker, entry(rights.READ_GROUP, "g"), entry(rights.WRITE_TRANSACTIONAL_ID, "x"))
    partition = {
        "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
        "committed_metadata": "",
    }  # fmt: skip
    topics = [
        {"topic_id": one, "partitions": [partition]}
        for one in (broker.cluster.topics["t"].topic_id, UUID(int=9))
    ]
    answer = await client.call(
        key, version, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=topics, **more,
    )  # fmt: skip
    found = [one.partitions[0].error_code.name for one in answer.topics]
    assert found == ["topic_authorization_failed", "unknown_topic_id"]


async def test_share_groups_say_nothing_of_topics_that_a_client_may_not_read(
    broker: Broker, client: WireClient
) -> None:
    refused = "topic_authorization_failed"
    all_of_group = (rights.READ_GROUP, rights.DESCRIBE_GROUP, rights.DELETE_GROUP)
    await grant(broker, *(entry(need, "queue") for need in all_of_group))
    await grant(broker, entry(rights.DESCRIBE_TOPIC, "t"))
    member = {"group_id": "queue", "member_id": "m"}
    joined = await client.call(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=0, subscribed_topic_names=["t"], **member
    )
    assert joined.error_code.name == "none"
    described = await client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["queue"])
    assert [one.member_id for one in described.groups[0].members] == ["m"]

    accept = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    places = [
        {
            "topic_id": broker.cluster.topics["t"].topic_id,
            "partitions": [{"partition_index": 0, "acknowledgement_batches": batches}],
        }
        for batches in ([], accept)
    ]
    fetched = await client.call(
        ApiKey.SHARE_FETCH, 2, **member, share_session_epoch=0, max_wait=0, min_bytes=0,
        max_bytes=1_000, max_records=1, batch_size=1, topics=places[:1], forgotten_topics_data=[],
    )  # fmt: skip
    assert fetched.responses[0].partitions[0].error_code.name == refused
    settled = await client.call(
        ApiKey.SHARE_ACKNOWLEDGE, 2, **member, share_session_epoch=1, topics=places[1:]
    )
    assert settled.responses[0].partitions[0].error_code.name == refused
    await client.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=-1, **member)
    moved = await client.call(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="queue",
        topics=[{
            "topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}],
        }],
    )  # fmt: skip
    assert moved.responses[0].partitions[0].error_code.name == refused
    forgotten = await client.call(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="queue", topics=[{"topic_name": "t"}]
    )
    assert forgotten.responses[0].error_code.name == refused

    await client.call(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, member_epoch=0, subscribed_topic_names=["t"], **member
    )
    await broker.services.rights.acls.remove(ANY)
    await grant(broker, entry(rights.DESCRIBE_GROUP, "queue"))
    described = await client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["queue"])
    assert (described.groups[0].error_code.name, described.groups[0].members) == (refused, ())
    offsets = await client.call(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
        groups=[{"group_id": "queue", "topics": [{"topic_name": "t", "partitions": [0]}]}],
    )  # fmt: skip
    assert offsets.groups[0].topics[0].partitions[0].error_code.name == refused
