"""Groups by single requests: coordinators, members that are refused, offsets, administration.

Whole lives of members are in `group_members.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import UNKNOWN_ID, always

G = ApiKey.FIND_COORDINATOR


def _find(key: str, kind: int) -> Callable[[Seen, int], Fields]:
    return lambda _s, version: (
        {"key": key, "key_type": kind}
        if version < 4
        else {"coordinator_keys": [key], "key_type": kind}
    )


def _is_found(answer: Any) -> bool:
    rows = getattr(answer, "coordinators", None) or [answer]
    return all(row.error_code.name != "coordinator_not_available" for row in rows)


FINDING: Sequence[Step] = (
    Step("a group", G, _find("g", 0), settle=_is_found),
    Step("no name", G, _find("", 0)),
    Step("a kind that does not exist", G, _find("g", 9), range(1, 9)),
)

J = ApiKey.JOIN_GROUP


def _join(group: str = "g", member: str = "", **more: Any) -> Callable[[Seen, int], Fields]:
    return lambda seen, version: {
        "group_id": group,
        "session_timeout": more.get("session", 10_000),
        "rebalance_timeout": 10_000,
        "member_id": seen.values.get(member, member),
        "group_instance_id": None,
        "protocol_type": more.get("kind", "consumer"),
        "protocols": more.get("protocols", [{"name": "range", "metadata": b"\x00" * 6}]),
        "reason": None,
    }


def is_loaded(answer: Any) -> bool:
    return bool(answer.error_code.name not in ("coordinator_load_in_progress", "not_coordinator"))


S, H, W = ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP


def _sync(group: str, generation: int, member: str) -> Callable[[Seen, int], Fields]:
    return always(group_id=group, generation_id=generation, member_id=member,
                  group_instance_id=None, protocol_type="consumer", protocol_name="range",
                  assignments=[])  # fmt: skip


def _beat(group: str, generation: int, member: str) -> Callable[[Seen, int], Fields]:
    return always(group_id=group, generation_id=generation, member_id=member,
                  group_instance_id=None)  # fmt: skip


def _leave(group: str, member: str) -> Callable[[Seen, int], Fields]:
    return lambda _s, version: (
        {"group_id": group, "member_id": member}
        if version < 3
        else {"group_id": group, "members": [{"member_id": member, "group_instance_id": None,
                                              "reason": None}]}
    )  # fmt: skip


GROUPS: Sequence[Step] = (
    Step("a session that is too short", J, _join(session=10), settle=is_loaded),
    Step("no group", J, _join("")),
    Step("an unknown member", J, _join("g", "nobody")),
    Step("no protocols", J, _join("g2", protocols=[])),
    Step("no protocol type", J, _join("g2", kind="")),
    Step("sync without a group", S, _sync("nothing", 1, "m")),
    Step("sync with no name", S, _sync("", 1, "m")),
    Step("a beat without a group", H, _beat("nothing", 1, "m")),
    Step("a beat with no name", H, _beat("", 1, "m")),
    Step("leaving no group", W, _leave("nothing", "m")),
    Step("leaving without a name", W, _leave("", "m")),
)

OC, OF, OD = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE


def _commit(group: str = "g", **more: Any) -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        topic = more.get("topic", "one")
        known = {"topic_id": seen.topics.get(topic, UNKNOWN_ID)}
        return {
            "group_id": group, "member_id": more.get("member", ""),
            "generation_id_or_member_epoch": more.get("generation", -1),
            "group_instance_id": None, "retention_time": -1,
            "topics": [{**(known if version >= 10 else {"name": topic}), "partitions": [{
                "partition_index": more.get("partition", 0), "committed_offset": 3,
                "committed_leader_epoch": 0,
                "committed_metadata": more.get("metadata", "m")}]}],
        }  # fmt: skip

    return fields


def _committed(group: str = "g", topic: str | None = "one") -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        known = {"topic_id": seen.topics.get(topic or "", UNKNOWN_ID)}
        rows = [{**(known if version >= 10 else {"name": topic}), "partition_indexes": [0, 7]}]
        topics = None if topic is None else rows
        if version < 8:
            return {"group_id": group, "topics": topics, "require_stable": False}
        groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
        return {"groups": groups, "require_stable": False}

    return fields


OFFSETS: Sequence[Step] = (
    Step("commit", OC, _commit()),
    Step("commit of a member of nothing", OC, _commit(generation=4, member="m")),
    Step("commit of an unknown topic", OC, _commit(topic="unknown")),
    Step("commit of an unknown partition", OC, _commit(partition=9)),
    Step("commit with long metadata", OC, _commit(metadata="x" * 5_000)),
    Step("commit without a group", OC, _commit("")),
    Step("committed", OF, _committed()),
    Step("committed of an unknown topic", OF, _committed("g", "unknown")),
    Step("committed of an unknown group", OF, _committed("nothing")),
    Step("all that is committed", OF, _committed("g", None), range(2, 20)),
    Step("all of an unknown group", OF, _committed("nothing", None), range(2, 20)),
)

DG, LG, RG = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS

ADMINISTRATION: Sequence[Step] = (
    Step("a group", DG, always(groups=["g"], include_authorized_operations=False)),
    Step("an unknown one", DG, always(groups=["nothing"], include_authorized_operations=False)),
    Step("what may be done to them", DG, always(
        groups=["g", "nothing"], include_authorized_operations=True), range(3, 20)),
    Step("no name", DG, always(groups=[""], include_authorized_operations=False)),
    Step("list", LG, always(states_filter=[], types_filter=[])),
    Step("list by state", LG, always(states_filter=["Stable"], types_filter=[]), range(4, 9)),
    Step("list by type", LG, always(states_filter=[], types_filter=["classic"]), range(5, 9)),
    Step("delete an offset", OD, always(group_id="g", topics=[
        {"name": "one", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
        {"name": "unknown", "partitions": [{"partition_index": 0}]}])),
    Step("delete an offset of no group", OD, always(group_id="nothing", topics=[
        {"name": "one", "partitions": [{"partition_index": 0}]}])),
    Step("delete", RG, always(groups_names=["g", "nothing", ""])),
)  # fmt: skip
