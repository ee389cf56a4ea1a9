"""The last word on an administered schedule: what every broker shows when all is healed.

Deletions come to an end, brokers show what the store holds, records of topics that are there are
read, and offsets of groups fetched.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from client.wire.kafka.apis import ApiKey
from tests.simulation.clusters import admin_requests as ask
from tests.simulation.clusters.admin_clients import call, coordinator_of, leader_of
from tests.simulation.clusters.admin_load import NAMES
from tests.simulation.kafka.connection import MECHANISM, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.clusters.admin_clients import AdminClients
    from tests.simulation.clusters.world import ClusterWorld

_TROUBLE = (OSError, asyncio.IncompleteReadError, TimeoutError, Refused)
_PAUSE_S = 0.1
_ANY, _TOPIC, _LITERAL = 1, 2, 3


class AdminJudge:
    """Judges one schedule."""

    def __init__(self, world: ClusterWorld, operators: AdminClients) -> None:
        self._world = world
        self._operators = operators
        self._book = operators.book
        self._rng = world.fork_rng("judge of operators")

    async def judge(self) -> None:
        """Wait until all is as it should be."""
        while self._book.tombstones:
            self._world.doing = f"waiting for the end of deletions: {list(self._book.tombstones)}"
            await asyncio.sleep(_PAUSE_S)
        for broker in self._world.brokers:
            await self._until(f"{broker.name} shows topics", lambda b=broker: self._topics(b.name))
            await self._until(f"{broker.name} shows rights", lambda b=broker: self._rights(b.name))
        for (topic_id, index), end in list(self._operators.acked.items()):
            if self._book.is_there(topic_id):
                await self._read(topic_id, index, end)
        for key in list(self._book.commits):
            if self._book.is_there(key[1]):
                await self._until(f"offset of {key}", lambda key=key: self._fetch_offset(key))

    def _any_host(self) -> str:
        return self._rng.choice(self._world.brokers).name

    async def _until(self, what: str, look: Callable[[], Coroutine[Any, Any, str]]) -> None:
        """Look until nothing is wrong."""
        while True:
            try:
                wrong = await look()
            except _TROUBLE as error:
                wrong = repr(error)
            if not wrong:
                return
            self._world.doing = f"AD8 {what}: {wrong}"
            await asyncio.sleep(_PAUSE_S)

    async def _topics(self, host: str) -> str:
        """Compare the topics that a broker shows, and their settings."""
        answer = await call(host, ApiKey.METADATA, 12, {"topics": None})
        shown = {str(one.topic_id): (one.name, len(one.partitions)) for one in answer.topics}
        for topic_id, topic in list(self._book.living.items()):
            if topic.name not in NAMES:
                continue
            if not self._book.is_there(topic_id):
                return f"the deletion of topic {topic} {topic_id} has not ended"
            facts = self._book.nodes[ask.topic_path(topic.name)]
            if shown.pop(topic_id, None) != (topic.name, facts["partition_count"]):
                return f"topic {topic} {topic_id} is not there as it should be"
            wrong = await self._settings(host, 2, topic.name, facts)
            if wrong:
                return wrong
        left = [name for name, _ in shown.values() if name in NAMES]
        if left:
            return f"{left} should be gone"
        facts = self._book.nodes.get("/quire/configs/brokers/@", {})
        return await self._settings(host, 4, "", facts)

    async def _settings(self, host: str, kind: int, name: str, facts: dict[str, Any]) -> str:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        answer = await call(host, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
        (found,) = answer.results
        if found.error_code:
            return f"settings of {name!r}: error {found.error_code}"
        shown = {row.name: row.value for row in found.configs}
        for key, value in facts.items():
            setting = key.removeprefix("configs/")
            if setting != key and "future" not in key and shown.get(setting) != value:
                return f"{setting} of {name!r} is {shown.get(setting)}, should be {value}"
        return ""

    async def _rights(self, host: str) -> str:
        """Compare the entries, users and quotas that a broker shows."""
        found = {
            "resource_type_filter": _TOPIC, "resource_name_filter": None,
            "pattern_type_filter": _LITERAL, "principal_filter": None, "host_filter": None,
            "operation": _ANY, "permission_type": _ANY,
        }  # fmt: skip
        answer = await call(host, ApiKey.DESCRIBE_ACLS, 3, found)
        shown = {
            (ask.acl_path(one.resource_name), ask.acl_key(row.principal, _permission(row)))
            for one in answer.resources
            for row in one.acls
        }
        answer = await call(host, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        shown |= {
            (ask.user_path(one.user), f"scram/{MECHANISM}")
            for one in answer.results
            if one.credential_infos  # else what is left of a user is a newer release's
        }
        part = {"entity_type": "user", "match_type": 2, "match": None}
        asked = {"components": [part]}
        answer = await call(host, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, asked)
        if answer.error_code:
            raise Refused(answer.error_code, f"quotas {answer.error_message}")
        shown |= {
            (ask.quota_path(one.entity[0].entity_name), f"quotas/{value.key}")
            for one in answer.entries
            for value in one.values
        }
        kept = {
            (path, key)
            for path, facts in self._book.nodes.items()
            for key in facts
            if key.startswith(("acls/", "scram/", "quotas/"))
        }
        return "" if shown == kept else f"shown {shown - kept}, not shown {kept - shown}"

    async def _read(self, topic_id: str, index: int, end: int) -> None:
        """Read a partition up to the end of what was acknowledged."""
        oracle = self._world.oracle
        book = oracle.partition_of(topic_id, index)
        position = 0

        async def look() -> str:
            nonlocal position
            if not self._book.is_there(topic_id):
                return ""  # an operator's last request, still on its way, was to delete it
            host = await leader_of(self._world, self._any_host(), topic_id, index)
            row = {
                "partition": index, "current_leader_epoch": -1, "fetch_offset": position,
                "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 100_000,
            }  # fmt: skip
            topics = [{"topic_id": UUID(topic_id), "partitions": [row]}]
            fields = {
                "replica_id": -1, "max_wait": 100, "min_bytes": 1, "max_bytes": 1_000_000,
                "session_epoch": -1, "topics": topics,
            }  # fmt: skip
            answer = await call(host, ApiKey.FETCH, 13, fields)
            found = answer.responses[0].partitions[0]
            if found.error_code:
                return f"error {found.error_code}"
            if found.records:
                position = oracle.consumed(book, "operator", bytes(found.records), position)
            return "" if position >= end else f"at {position}"

        await self._until(f"reading {topic_id}/{index} to {end}", look)

    async def _fetch_offset(self, key: tuple[str, str, int]) -> str:
        """Ask for an offset, and have the book judge it."""
        group, topic_id, index = key
        if not self._book.is_there(topic_id):
            return ""
        host = await coordinator_of(self._any_host(), group)
        topics = [{"topic_id": UUID(topic_id), "partition_indexes": [index]}]
        fields = {
            "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
        }
        answer = await call(host, ApiKey.OFFSET_FETCH, 10, fields)
        (found,) = answer.groups
        row = None if found.error_code else found.topics[0].partitions[0]
        if row is None or row.error_code:
            return f"error {found.error_code if row is None else row.error_code}"
        self._book.fetched(key, row.committed_offset)
        return ""


def _permission(row: Any) -> str:
    return "DENY" if row.permission_type == 2 else "ALLOW"
