"""What members of share groups send: heartbeats, ShareFetch and ShareAcknowledge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from broker.app import Broker
from broker.cluster.core.features import Finalized
from broker.settings.core.share_settings import NAMES, parse
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import headers
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic
from tests.unit.broker.front.handlers.share_members import (
    ACCEPT,
    MEMBER,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    lent,
    member,
    publish,
    row,
    set_group,
    start_broker,
)


@pytest.fixture
async def broker(cloud: FakeCloud) -> AsyncIterator[Broker]:
    found = await start_broker(cloud)
    await create_topic(found, "t")
    await set_group(found, "share.auto.offset.reset", "earliest")
    yield found


# --- members --------------------------------------------------------------------------------------


async def test_join_be_described_and_leave(broker: Broker) -> None:
    one = await member(broker, joins=False)
    reply = await one.join()
    assert (reply.member_id, reply.member_epoch) == (MEMBER, 1)
    assert reply.heartbeat_interval.total_seconds() == 5
    (assigned,) = reply.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (one.topic_id, (0,))
    assert (await one.beat(1)).assignment is None

    answer = await one.client.call(
        ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g", "none"], include_authorized_operations=True
    )
    group, other = answer.groups
    assert (group.error_code.name, group.group_state, group.assignor_name) == (
        "none", "Stable", "simple",
    )  # fmt: skip
    assert group.authorized_operations > 0
    (described,) = group.members
    assert (described.member_id, described.subscribed_topic_names) == (MEMBER, ("t",))
    assert described.assignment.topic_partitions[0].topic_name == "t"
    assert (other.error_code.name, other.error_message) == (
        "group_id_not_found", "Group none not found.",
    )  # fmt: skip
    listed = await one.client.call(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=["Share"])
    assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "share")]

    assert (await one.beat(-1)).member_epoch == -1
    answer = await one.client.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"])
    assert answer.groups[0].group_state == "Empty"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, "invalid_request"),
        ({"member_id": ""}, "invalid_request"),
        ({"epoch": 7}, "unknown_member_id"),
        ({"epoch": -2}, "invalid_request"),
        ({"epoch": 0}, "invalid_request"),
    ],
)
async def test_heartbeats_that_are_refused(
    broker: Broker, fields: dict[str, Any], code: str
) -> None:
    one = await member(broker)
    stranger = Member(broker, one.client, one.topic_id, "stranger")
    reply = await stranger.beat(**{"epoch": 1, **fields})
    assert (reply.error_code.name, reply.assignment) == (code, None)
    assert reply.error_message


async def test_the_cluster_has_to_allow_share_groups(broker: Broker) -> None:
    one = await member(broker)
    broker.services.features.finalized = Finalized(3, {}, frozenset(("share.version",)))
    assert (await one.beat(1)).error_code.name == "unsupported_version"
    assert (await one.fetch()).error_code.name == "unsupported_version"
    assert (await one.settled([])) == ("unsupported_version", "")


# --- records --------------------------------------------------------------------------------------


async def test_take_and_settle(broker: Broker) -> None:
    await publish(broker, 3, 2)
    one = await member(broker)
    answer = await one.fetch()
    assert lent(answer) == [(0, 2, 1), (3, 4, 1)]
    assert answer.acquisition_lock_timeout.total_seconds() == 1
    found = list(headers(row(answer).records))
    assert [header.base_offset for _, header in found] == [0, 3]
    answer = await one.fetch([(0, 1, [ACCEPT]), (2, 4, [ACCEPT, RELEASE, REJECT])])
    assert row(answer).acknowledge_error_code == 0
    assert lent(answer) == [(3, 3, 2)], "released, so it comes again"
    assert await one.settled([(3, 3, [ACCEPT])]) == ("none", "none")
    assert lent(await one.fetch()) == []
    partition = broker.partitions.find("t", 0)
    assert partition is not None
    (share,) = partition.shares.states
    assert share.start == 5


async def test_two_members_share_a_partition(broker: Broker) -> None:
    await publish(broker, 2, 2)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch(max_records=1)) == [(0, 1, 1)]
    assert lent(await two.fetch(max_records=1)) == [(2, 3, 1)]
    assert await two.settled([(0, 1, [ACCEPT])]) == ("none", "invalid_record_state")
    assert await one.settled([(0, 1, [ACCEPT])]) == ("none", "none")


async def test_an_exact_number_of_records(broker: Broker) -> None:
    await publish(broker, 5)
    one = await member(broker)
    assert lent(await one.fetch(max_records=2, share_acquire_mode=1)) == [(0, 1, 1)]
    answer = await one.fetch(max_records=2, share_acquire_mode=1)
    assert lent(answer) == [(2, 3, 1)]
    assert len(list(headers(row(answer).records))) == 1, "the whole batch all the same"


async def test_a_fetch_waits_for_records_that_come(broker: Broker) -> None:
    one = await member(broker)
    assert lent(await one.fetch()) == []
    one.client.send(ApiKey.SHARE_FETCH, 2, **one.fetch_fields(max_wait=5_000))
    await asyncio.sleep(0.02)
    await publish(broker, 2)
    assert lent(await one.client.receive()) == [(0, 1, 1)]


async def test_a_fetch_waits_for_records_that_another_member_releases(broker: Broker) -> None:
    await publish(broker, 2)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch()) == [(0, 1, 1)]
    two.client.send(ApiKey.SHARE_FETCH, 2, **two.fetch_fields(max_wait=5_000))
    await asyncio.sleep(0.02)
    assert await one.settled([(0, 1, [RELEASE])]) == ("none", "none")
    assert lent(await two.client.receive()) == [(0, 1, 2)]


async def test_a_lock_passes_unless_it_is_renewed(broker: Broker) -> None:
    await publish(broker, 1, 1)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch()) == [(0, 0, 1), (1, 1, 1)]
    two.client.send(ApiKey.SHARE_FETCH, 2, **two.fetch_fields(max_wait=5_000))
    await asyncio.sleep(0.6)
    assert await one.settled([(0, 0, [RENEW])], is_renew_ack=True) == ("none", "none")
    assert lent(await two.client.receive()) == [(1, 1, 2)]
    assert await one.settled([(0, 0, [ACCEPT])]) == ("none", "none")
    assert await one.settled([(1, 1, [ACCEPT])]) == ("none", "invalid_record_state")


async def test_a_connection_that_breaks_gives_all_back(broker: Broker) -> None:
    await publish(broker, 2)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch()) == [(0, 1, 1)]
    await one.client.close()
    assert lent(await two.fetch(max_wait=900)) == [(0, 1, 2)]


async def test_the_end_of_a_session_settles_and_gives_the_rest_back(broker: Broker) -> None:
    await publish(broker, 1, 1, 1)
    one, two = await member(broker), await member(broker, "member-2")
    assert lent(await one.fetch()) == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    one.epoch = -1
    assert await one.settled([(1, 1, [ACCEPT])]) == ("none", "none")
    assert lent(await two.fetch(max_wait=900)) == [(0, 0, 2), (2, 2, 2)]
    one.epoch = 1
    assert await one.settled([(0, 0, [ACCEPT])]) == ("share_session_not_found", "")
    two.epoch = -1
    answer = await two.fetch([(0, 0, [ACCEPT]), (2, 2, [ACCEPT])], max_wait=900)
    assert row(answer).acknowledge_error_code == 0
    assert len(broker.services.shares.sessions) == 0


async def test_latest_is_where_the_group_began(broker: Broker) -> None:
    await set_group(broker, "share.auto.offset.reset", "latest")
    await publish(broker, 2)
    one = await member(broker)
    assert lent(await one.fetch()) == []
    await publish(broker, 3)
    assert lent(await one.fetch()) == [(2, 4, 1)]


async def test_by_duration_passes_over_what_is_older(broker: Broker) -> None:
    await publish(broker, 2)
    await set_group(broker, "share.auto.offset.reset", "by_duration:PT1H")
    one = await member(broker)
    assert lent(await one.fetch()) == [(0, 1, 1)], "the fake clock stands still"


async def test_a_group_that_was_deleted_begins_anew(broker: Broker) -> None:
    await publish(broker, 2)
    one = await member(broker)
    assert lent(await one.fetch()) == [(0, 1, 1)]
    assert await one.settled([(0, 1, [ACCEPT])]) == ("none", "none")
    assert lent(await one.fetch()) == []
    await one.beat(-1)
    answer = await one.client.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
    assert answer.results[0].error_code is ErrorCode.none
    again = await member(broker, "member-2")
    assert lent(await again.fetch()) == [(0, 1, 1)]
    assert (await one.fetch()).error_code.name == "share_session_not_found"
    one.epoch = 0
    assert (await one.fetch()).error_code.name == "unknown_member_id"
    assert await again.settled([(0, 1, [ACCEPT])]) == ("none", "none")


# --- what is refused ------------------------------------------------------------------------------


async def test_sessions(broker: Broker) -> None:
    await publish(broker, 1)
    one = await member(broker)
    assert await one.settled([(0, 0, [ACCEPT])]) == ("invalid_share_session_epoch", "")
    one.epoch = 5
    assert (await one.fetch()).error_code.name == "share_session_not_found"
    one.epoch = 0
    assert (await one.fetch([(0, 0, [ACCEPT])])).error_code.name == "invalid_request"
    one.epoch = 0
    await one.fetch()
    one.epoch = 7
    assert (await one.fetch()).error_code.name == "invalid_share_session_epoch"
    stranger = Member(broker, one.client, one.topic_id, "stranger")
    assert (await stranger.fetch()).error_code.name == "unknown_member_id"
    one.epoch = 0
    assert (await one.fetch(group_id="")).error_code.name == "invalid_request"


@pytest.mark.parametrize("version", [1, 2])
async def test_only_a_request_that_says_so_renews(broker: Broker, version: int) -> None:
    await publish(broker, 1)
    one = await member(broker)
    assert lent(await one.fetch(version=version)) == [(0, 0, 1)]
    refused = ("none", "invalid_request")
    assert await one.settled([(0, 0, [RENEW])], version=version) == refused
    if version == 2:
        answer = await one.fetch([(0, 0, [RENEW])], is_renew_ack=True)
        assert answer.error_code.name == "invalid_request", "it fetches nothing"
        one.epoch -= 1
        nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = await one.fetch([(0, 0, [RENEW])], is_renew_ack=True, **nothing)
        assert row(answer).acknowledge_error_code == 0
        await set_group(broker, "share.renew.acknowledge.enable", "false")
        assert await one.settled([(0, 0, [RENEW])], is_renew_ack=True) == refused


async def test_a_topic_that_is_not_there_and_one_that_is_led_elsewhere(
    cloud: FakeCloud, broker: Broker
) -> None:
    one = await member(broker)
    known, one.topic_id = one.topic_id, UUID(int=99)
    answer = await one.fetch()
    assert row(answer).error_code.name == "unknown_topic_id"
    one.topic_id = known
    assert await one.settled([(0, 0, [ACCEPT])]) == ("none", "invalid_record_state")


async def test_settings_of_groups_are_told_as_they_are_in_force(broker: Broker) -> None:
    client = await WireClient.connect(broker.port)
    answer = await client.call(
        ApiKey.DESCRIBE_CONFIGS, 4,
        resources=[{"resource_type": 32, "resource_name": "g", "configuration_keys": None}],
        include_synonyms=True, include_documentation=True,
    )  # fmt: skip
    rows = {one.name: one for one in answer.results[0].configs}
    found = {name: (rows[name].value, rows[name].config_source) for name in NAMES}
    assert found["share.auto.offset.reset"] == ("earliest", 8)
    assert found["share.record.lock.duration.ms"] == ("1000", 4), "the broker's"
    assert all("no effect" not in rows[name].documentation for name in NAMES)
    values = {name: value for name, (value, _) in found.items()}
    assert parse(values) == broker.services.shares.configs.settings("g")
    answer = await client.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, validate_only=False,
        resources=[{
            "resource_type": 32, "resource_name": "g",
            "configs": [
                {"name": "share.delivery.count.limit", "config_operation": 0, "value": "11"}
            ],
        }],
    )  # fmt: skip
    assert answer.responses[0].error_code is ErrorCode.invalid_config
    listed = await client.call(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[32])
    assert [one.resource_name for one in listed.config_resources] == ["g"]


# --- where a group is -----------------------------------------------------------------------------


async def offsets(client: WireClient, *, all_topics: bool = False, group: str = "g") -> Any:
    """Return (start, lag) of the topic's partition, or why not."""
    topics = None if all_topics else [{"topic_name": "t", "partitions": [0]}]
    answer = await client.call(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": group, "topics": topics}]
    )
    (found,) = answer.groups
    if found.error_code is not ErrorCode.none:
        return found.error_code.name
    rows = [(one.start_offset, one.lag) for topic in found.topics for one in topic.partitions]
    return rows[0] if rows else None


async def begin_at(client: WireClient, offset: int, topic: str = "t") -> tuple[str, str]:
    answer = await client.call(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g",
        topics=[{
            "topic_name": topic,
            "partitions": [{"partition_index": 0, "start_offset": offset}],
        }],
    )  # fmt: skip
    rows = [one for topic_ in answer.responses for one in topic_.partitions]
    return answer.error_code.name, rows[0].error_code.name if rows else ""


async def forget(client: WireClient, topic: str = "t") -> tuple[str, str]:
    answer = await client.call(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": topic}]
    )
    rows = answer.responses
    return answer.error_code.name, rows[0].error_code.name if rows else ""


async def test_where_a_group_is_and_how_far_behind(broker: Broker) -> None:
    await publish(broker, 4, 4)
    one = await member(broker)
    assert await offsets(one.client) == (-1, -1), "it has nothing yet"
    assert await offsets(one.client, all_topics=True) is None
    await one.fetch()
    await one.settled([(0, 1, [ACCEPT]), (4, 5, [ACCEPT])])
    assert await offsets(one.client) == (2, 4)
    assert await offsets(one.client, all_topics=True) == (2, 4)
    assert await offsets(one.client, group="none") == "group_id_not_found"


async def test_a_group_without_members_begins_elsewhere_or_forgets(broker: Broker) -> None:
    await publish(broker, 4)
    one = await member(broker)
    await one.fetch()
    await one.settled([(0, 3, [ACCEPT])])
    assert await begin_at(one.client, 1) == ("non_empty_group", "")
    assert await forget(one.client) == ("non_empty_group", "")
    await one.beat(-1)
    assert await begin_at(one.client, 1) == ("none", "none")
    assert await offsets(one.client) == (1, 3)
    assert await begin_at(one.client, 5) == ("none", "offset_out_of_range")
    assert await begin_at(one.client, 1, "none") == ("none", "unknown_topic_or_partition")
    assert lent(await one.fetch()) == [(1, 3, 1)], "also what was settled before"
    assert await forget(one.client) == ("none", "none")
    assert await forget(one.client, "none") == ("none", "unknown_topic_or_partition")
    assert await offsets(one.client) == (-1, -1)
    answer = await one.client.call(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
    assert answer.results[0].error_code is ErrorCode.none
    assert await forget(one.client) == ("group_id_not_found", "")
