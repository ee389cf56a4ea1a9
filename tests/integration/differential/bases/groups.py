"""Requests in order about groups and their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.bases.request import Base, member, named, same
from tests.integration.differential.plain_wire import Tree

K = ApiKey


def _in_group(name: str, prepare: tuple[str, ...], **more: Any) -> Base:
    return Base(name, lambda n, _v: {
        "group_id": f"g-{n}", "generation_id": 1, "member_id": member(n),
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": member(n), "assignment": b"mine"}],
        "members": [{"member_id": member(n), "group_instance_id": None, "reason": None}], **more,
    }, prepare)  # fmt: skip


def join_fields(number: int, member_id: Any = "") -> Tree:
    """Return a JoinGroup request of a group of the number's own."""
    return {
        "group_id": f"g-{number}", "session_timeout": 60_000, "rebalance_timeout": 60_000,
        "member_id": member_id, "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(6)},
                      {"name": "sticky", "metadata": bytes(6)}],
        "reason": None,
    }  # fmt: skip


def commit_fields(number: int, version: int, **more: Any) -> Tree:
    """Return an OffsetCommit request of a group of the number's own."""
    row = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1,
           "committed_metadata": "m", "retention_time": -1}  # fmt: skip
    return {
        "group_id": f"g-{number}", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "retention_time": -1,
        "topics": [{**named(version, 10, name), "partitions": [row]} for name in ("t", "one")],
        **more,
    }  # fmt: skip


def _fetched(group: str, *topics: str) -> Base:
    def fields(_n: int, version: int) -> Tree:
        rows = [{**named(version, 10, one), "partition_indexes": [0, 1]} for one in topics]
        asked = rows or (None if version >= 2 else [])
        return {"group_id": group, "topics": asked, "require_stable": False,
                "groups": [{"group_id": group, "topics": asked}]}  # fmt: skip

    return Base(f"committed by {group}", fields)


def _beat(number: int, version: int, **more: Any) -> Tree:
    """Return a ConsumerGroupHeartbeat request of a group of the number's own."""
    return {
        "group_id": f"cg-{number}", "member_id": f"member-{number}", "member_epoch": 0,
        "instance_id": None, "rack_id": None, "rebalance_timeout": 60_000,
        "subscribed_topic_names": ["t", "one"],
        "subscribed_topic_regex": None, "server_assignor": "range", "topic_partitions": [],
        **more,
    }  # fmt: skip


GROUPS: Mapping[ApiKey, Sequence[Base]] = {
    K.FIND_COORDINATOR: (
        Base("a group", lambda n, _v: {"key": f"g-{n}", "key_type": 0,
                                       "coordinator_keys": [f"g-{n}", "g"]}),
        Base("a transaction", lambda n, _v: {"key": f"x-{n}", "key_type": 1,
                                             "coordinator_keys": [f"x-{n}"]}, (), range(1, 99)),
    ),
    K.JOIN_GROUP: (
        Base("a new member", lambda n, _v: join_fields(n)),
        Base("again", lambda n, _v: join_fields(n, member(n)), ("member",)),
    ),
    K.SYNC_GROUP: (_in_group("the leader", ("joined",)), _in_group("again", ("member",))),
    K.HEARTBEAT: (_in_group("a beat", ("member",)),),
    K.LEAVE_GROUP: (_in_group("goes", ("member",)),),
    K.OFFSET_COMMIT: (
        Base("of nobody", commit_fields),
        Base("of a member", lambda n, v: commit_fields(
            n, v, member_id=member(n), generation_id_or_member_epoch=1), ("member",)),
    ),
    K.OFFSET_FETCH: (_fetched("g", "t", "one"), _fetched("g"), _fetched("nothing", "t")),
    K.OFFSET_DELETE: (
        Base("of a group", lambda n, _v: {"group_id": f"g-{n}", "topics": [
            {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
            {"name": "one", "partitions": [{"partition_index": 0}]}]}, ("offsets",)),
    ),
    K.SHARE_GROUP_HEARTBEAT: (
        Base("of no member", lambda n, _v: {
            "group_id": f"sg-{n}", "member_id": f"member-{n}", "member_epoch": 7, "rack_id": None,
            "subscribed_topic_names": ["t", "one"]}),
    ),
    K.SHARE_GROUP_DESCRIBE: (
        same("none of them", group_ids=["sg", "g"], include_authorized_operations=False),
    ),
    K.SHARE_FETCH: (
        same("of no session", group_id="sg", member_id="m", share_session_epoch=3, max_wait=0,
             min_bytes=0, max_bytes=1_000, max_records=1, batch_size=1, share_acquire_mode=0,
             is_renew_ack=False, topics=[], forgotten_topics_data=[]),
    ),
    K.SHARE_ACKNOWLEDGE: (
        same("of no session", group_id="sg", member_id="m", share_session_epoch=3,
             is_renew_ack=False, topics=[]),
    ),
    K.DESCRIBE_SHARE_GROUP_OFFSETS: (
        same("none of them", groups=[
            {"group_id": "sg", "topics": [{"topic_name": "t", "partitions": [0]}]}]),
    ),
    K.ALTER_SHARE_GROUP_OFFSETS: (
        same("of no group", group_id="sg", topics=[
            {"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}]),
    ),
    K.DELETE_SHARE_GROUP_OFFSETS: (
        same("of no group", group_id="sg", topics=[{"topic_name": "t"}]),
    ),
    K.DESCRIBE_GROUPS: (
        same("two", groups=["g", "nothing"], include_authorized_operations=False),
        Base("with a member", lambda n, _v: {"groups": [f"g-{n}"]}, ("member",)),
    ),
    K.CONSUMER_GROUP_HEARTBEAT: (
        Base("joins", _beat),
        Base("of no member", lambda n, v: _beat(n, v, member_epoch=7)),
    ),
    K.CONSUMER_GROUP_DESCRIBE: (
        same("none of them", group_ids=["cg", "g"], include_authorized_operations=False),
    ),
    K.LIST_GROUPS: (
        same("all", states_filter=[], types_filter=[]),
        same("some", states_filter=["Empty", "stable"], types_filter=["classic"]),
    ),
    K.DELETE_GROUPS: (
        Base("one", lambda n, _v: {"groups_names": [f"g-{n}", "nothing"]}, ("offsets",)),
        Base("with a member", lambda n, _v: {"groups_names": [f"g-{n}"]}, ("member",)),
    ),
}  # fmt: skip
