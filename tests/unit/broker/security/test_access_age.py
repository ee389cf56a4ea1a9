"""A broker that is cut off from the metadata store goes by what it knows of users for a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from broker.app import Broker
from broker.errors import AccessUnknown
from broker.link.core.link_frames import HELLO_KIND
from broker.security.config import SecurityConfig
from broker.security.core.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from broker.security.core.scram import PASSWORD_MECHANISMS
from client.errors import ConfigError
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import CONFIG, FakeCloud, until
from tests.fakes.link_stranger import Stranger
from tests.fakes.sasl_client import ScramClient, add_user, log_in
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import batch, create_topic, produce

SESSION_MS = 1_000
ANY_ACL = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
SOME_KIND = 98
"""Of a request that no broker serves; only who may ask at all hears so."""
TIMED_OUT, COORDINATOR_NOT_AVAILABLE, TOPIC_DENIED = 7, 15, 29


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


async def start(cloud: FakeCloud, **settings: Any) -> Broker:
    security = SecurityConfig(
        listeners=("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
        sasl_mechanisms=PASSWORD_MECHANISMS,
        sasl_failure_delay_ms=0,
        access_age_max_ms=SESSION_MS,
        **settings,
    )
    return await cloud.start_broker(1, port=9092, session_timeout_ms=SESSION_MS, security=security)


async def connect(broker: Broker) -> WireClient:
    return await WireClient.connect(broker.ports["SASL_PLAINTEXT"])


async def try_login(broker: Broker, mechanism: str, user: str, password: str) -> Any:
    client = await connect(broker)
    try:
        return await log_in(client, mechanism, user, password)
    finally:
        await client.close()


async def until_true(ask: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until the answer is yes."""
    async with asyncio.timeout(30):
        is_so = False
        while not is_so:
            is_so = await ask()
            await asyncio.sleep(0 if is_so else 0.02)


async def cut_off(cloud: FakeCloud, broker: Broker) -> None:
    """Cut the broker off from the store, and wait until what it knows does not count any more."""
    cloud.tree.suspend(cloud.stores[1])

    async def is_too_old() -> bool:
        try:
            broker.services.users.credentials("anna")
        except AccessUnknown:
            return True
        return False

    await until_true(is_too_old)


@pytest.mark.parametrize("mechanism", [str(one) for one in PASSWORD_MECHANISMS])
async def test_nobody_logs_in_by_a_password_that_may_be_gone(
    cloud: FakeCloud, mechanism: str
) -> None:
    broker = await start(cloud)
    inside = await WireClient.connect(broker.port)
    await add_user(inside, "anna", "secret")
    await inside.close()
    assert (await try_login(broker, mechanism, "anna", "secret")).error_code == 0
    await cut_off(cloud, broker)
    client = await connect(broker)
    answer = await log_in(client, mechanism, "anna", "secret")
    assert answer.error_code == TIMED_OUT, "clients retry it, unlike a failed login"
    assert "security.access_age_max_ms (1000)" in answer.error_message
    assert await client.is_closed()
    cloud.tree.resume(cloud.stores[1])

    async def gets_in() -> bool:
        return (await try_login(broker, mechanism, "anna", "secret")).error_code == 0

    await until_true(gets_in)


async def test_who_is_logged_in_cannot_do_so_again(cloud: FakeCloud) -> None:
    broker = await start(cloud, sasl_reauth_max_ms=60_000)
    inside = await WireClient.connect(broker.port)
    await add_user(inside, "anna", "secret")
    await inside.close()
    client = await connect(broker)
    assert (await log_in(client, "SCRAM-SHA-256", "anna", "secret")).error_code == 0
    half = await connect(broker)
    await half.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", "anna", "secret")
    challenge = await half.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=scram.first())
    await cut_off(cloud, broker)
    assert (await log_in(client, "SCRAM-SHA-256", "anna", "secret")).error_code == TIMED_OUT
    assert await client.is_closed()
    proof = scram.final(challenge.auth_bytes)
    answer = await half.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=proof)
    assert answer.error_code == TIMED_OUT, "nor who began while it was known"
    assert await half.is_closed()


async def test_brokers_log_in_to_each_other_all_the_same(cloud: FakeCloud) -> None:
    broker = await start(cloud, inter_broker_user="us", inter_broker_password="ours")
    await cut_off(cloud, broker)
    assert (await try_login(broker, "SCRAM-SHA-512", "us", "ours")).error_code == 0


async def authorized(cloud: FakeCloud, *super_users: str) -> Broker:
    """Start a broker on which everybody who did not log in may do everything to topic t."""
    broker = await start(cloud, authorization=True, super_users=super_users)
    acl = Acl(
        ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.ALL,
        Permission.ALLOW,
    )  # fmt: skip
    await broker.services.rights.acls.add([acl])
    return broker


async def test_nobody_is_served_by_a_right_that_may_be_gone(cloud: FakeCloud) -> None:
    broker = await authorized(cloud)
    client = await WireClient.connect(broker.port)
    wanted = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    assert (await client.call(ApiKey.METADATA, 9, **wanted)).topics[0].error_code == 3
    await cut_off(cloud, broker)
    described = await client.call(ApiKey.DESCRIBE_ACLS, 1, **ANY_ACL)
    assert described.error_code == TIMED_OUT
    assert (await client.call(ApiKey.LIST_GROUPS, 1)).error_code == COORDINATOR_NOT_AVAILABLE
    assert (await client.call(ApiKey.API_VERSIONS, 2)).error_code == 0, "it needs no right"
    client.send(ApiKey.METADATA, 9, **wanted)
    assert await client.is_closed(), "there is no place for an error in this answer"


async def test_nobody_is_denied_what_may_be_allowed_meanwhile(cloud: FakeCloud) -> None:
    """A producer ends with a denial; what may be tried again is another code."""
    broker = await start(cloud, authorization=True, super_users=("User:root",))
    client = await WireClient.connect(broker.port)
    assert (await produce(client, batch(b"v"))).error_code == TOPIC_DENIED
    await cut_off(cloud, broker)
    assert (await produce(client, batch(b"v"))).error_code == TIMED_OUT
    assert broker.services.rights.denied == 1


async def test_super_users_are_served(cloud: FakeCloud) -> None:
    broker = await authorized(cloud, "User:ANONYMOUS")
    await create_topic(broker)
    await cut_off(cloud, broker)
    client = await WireClient.connect(broker.port)
    assert [one.name for one in (await client.call(ApiKey.METADATA, 9, topics=None)).topics] == [
        "t"
    ]
    await client.close()


async def linked(cloud: FakeCloud, *super_users: str) -> Stranger:
    """Start two brokers of which the first one answers the second one's hello: by the entry that
    lets everybody act for the cluster, unless the other one is a super user."""
    broker = await start(cloud, authorization=True, super_users=super_users)
    if not super_users:
        acl = Acl(
            ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:ANONYMOUS", "*",
            Operation.CLUSTER_ACTION, Permission.ALLOW,
        )  # fmt: skip
        await broker.services.rights.acls.add([acl])
    await cloud.start_broker(2)
    await until(lambda: 2 in broker.cluster.brokers)
    return Stranger(broker)


async def test_no_broker_acts_for_the_cluster_by_a_right_that_may_be_gone(
    cloud: FakeCloud,
) -> None:
    stranger = await linked(cloud)
    hello = stranger.hello()
    async with stranger:
        assert await stranger.ask(HELLO_KIND, hello) is None
        await cut_off(cloud, stranger.broker)
        refusal = await stranger.ask(SOME_KIND, b"")
        assert refusal is not None and "security.access_age_max_ms (1000)" in refusal
    async with stranger:
        assert await stranger.ask(HELLO_KIND, hello) == refusal, "nor is a new link opened"
    cloud.tree.resume(cloud.stores[1])

    async def is_open() -> bool:
        async with stranger:
            return await stranger.ask(HELLO_KIND, hello) != refusal

    await until_true(is_open)


async def test_a_broker_that_is_a_super_user_keeps_its_link(cloud: FakeCloud) -> None:
    stranger = await linked(cloud, "User:ANONYMOUS")
    hello = stranger.hello()
    await cut_off(cloud, stranger.broker)
    async with stranger:
        assert await stranger.ask(HELLO_KIND, hello) is None


async def test_without_authorization_all_are(cloud: FakeCloud) -> None:
    broker = await start(cloud)
    await cut_off(cloud, broker)
    client = await WireClient.connect(broker.port)
    assert (await client.call(ApiKey.METADATA, 9, topics=[])).brokers
    await client.close()


def test_leadership_has_to_end_first() -> None:
    security = SecurityConfig(access_age_max_ms=2_000)
    with pytest.raises(ConfigError, match=r"security\.access_age_max_ms must be at least"):
        type(CONFIG)(security=security, session_timeout_ms=3_000)
    assert type(CONFIG)(security=security, session_timeout_ms=2_000).security is security
    assert SecurityConfig().access_age_max_s(6_000) == 30.0
