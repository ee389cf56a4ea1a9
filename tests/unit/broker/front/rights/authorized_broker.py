"""A broker that checks rights, entries for it, and the error codes of an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from broker.app import Broker
from broker.errors import BrokerError
from broker.groups.core.group_types import Commit, OffsetToCommit
from broker.security.config import SecurityConfig
from broker.security.core.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.security.rights import Need
from broker.transactions.config import TransactionSettings
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import create_topic
from tests.unit.broker.front.rights.requests import REFUSALS, Row

ANY = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


async def start(cloud: FakeCloud, super_user: str) -> Broker:
    """With topic t, group g, which has an offset, and a coordinator of transactions."""
    security = SecurityConfig(authorization=True, super_users=(super_user,))
    transactions = TransactionSettings(enabled=True, topic_partitions=2)
    broker = await cloud.start_broker(1, security=security, transactions=transactions)
    await create_topic(broker)
    await broker.services.groups.find("g")
    await broker.services.transactions.find("x")
    await until(lambda: not broker.missing() and is_coordinating(broker))
    await with_offset(broker)
    return broker


async def with_offset(broker: Broker) -> None:
    """Commit an offset of group g."""
    coordinator = broker.services.groups.coordinator("g")
    commit = Commit(group_id="g", member_id="", instance_id=None, generation=-1)
    assert await coordinator.commit(commit, [OffsetToCommit("t", 0, 1, -1, "")]) == (None,)


def is_coordinating(broker: Broker) -> bool:
    try:
        broker.services.groups.coordinator("g").view()
        broker.services.transactions.coordinator("x").view()
    except BrokerError:
        return False
    return True


def entry(
    need: Need, name: str, permission: Permission = Permission.ALLOW, user: str = "ANONYMOUS"
) -> Acl:
    return Acl(
        need.kind, name, PatternType.LITERAL, f"User:{user}", "127.0.0.1", need.operation,
        permission,
    )  # fmt: skip


async def grant(broker: Broker, *acls: Acl) -> None:
    for acl in acls:
        await broker.services.rights.acls.add([acl])


def codes(answer: Any) -> Iterator[int]:
    """Yield every error code of an answer, wherever it is."""
    if isinstance(answer, tuple):
        for one in answer:
            yield from codes(one)
    elif dataclasses.is_dataclass(answer):
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield int(value)
            else:
                yield from codes(value)


async def refusals(client: WireClient, one: Row) -> set[int]:
    answer = await client.call(one.key, one.version, **one.fields)
    return set(codes(answer)) & REFUSALS


async def with_topics(broker: Broker, *names: str) -> None:
    for name in names:
        await create_topic(broker, name)
