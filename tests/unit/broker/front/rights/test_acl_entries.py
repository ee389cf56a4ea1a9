"""Access control entries: what makes sense, what is shown, when it takes effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.app import Broker
from broker.cluster.directory_view import Freshness
from broker.errors import InvalidRequest
from broker.front.services import Peer
from broker.security import rights
from broker.security.acl_store import AclStore
from broker.security.config import SecurityConfig
from broker.security.core.acls import Acl
from client.metadata import paths
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.rights.authorized_broker import ANY, entry, grant, refusals
from tests.unit.broker.front.rights.requests import CLUSTER, ENTRY, FILTER, ROWS


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 0}, {"resource_type": 1}, {"resource_type": 6}, {"resource_type": 99},
        {"resource_name": ""}, {"resource_name": "x" * 1_001}, {"resource_pattern_type": 1},
        {"resource_pattern_type": 2}, {"resource_pattern_type": 9}, {"principal": "anna"},
        {"principal": "User:"}, {"principal": "Group:x"}, {"host": ""}, {"operation": 1},
        {"operation": 0}, {"operation": 99}, {"permission_type": 1}, {"permission_type": 0},
        {"resource_type": 4, "resource_name": "other"},
    ],
)  # fmt: skip
async def test_entries_that_make_no_sense(
    broker: Broker, client: WireClient, change: dict[str, Any]
) -> None:
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    before = broker.services.rights.acls.find(ANY)
    answer = await client.call(
        ApiKey.CREATE_ACLS, 2, creations=[{**ENTRY, **change}, {**ENTRY, "resource_name": "ok"}]
    )
    assert [one.error_code for one in answer.results] == [42, 0]
    assert answer.results[0].error_message
    assert len(broker.services.rights.acls.find(ANY)) == len(before) + 1


async def test_an_entry_that_the_view_does_not_show_yet_is_removed(
    cloud: FakeCloud, broker: Broker, client: WireClient
) -> None:
    """Another broker added it just now: it would stay, though the answer names all that went."""
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    other = AclStore(cloud.tree.session(), lambda acls: None, 1_000, Freshness())
    await other.start()
    cloud.tree.freeze(cloud.stores[1])
    added = entry(rights.READ_TOPIC, "late", user="x")
    await other.add([added])
    assert added not in broker.services.rights.acls.find(ANY)
    gone = await client.call(
        ApiKey.DELETE_ACLS, 2, filters=[{**FILTER, "principal_filter": "User:x"}]
    )
    assert [one.resource_name for one in gone.filter_results[0].matching_acls] == ["late"]
    await other.close()


async def test_entries_come_are_shown_and_go(broker: Broker, client: WireClient) -> None:
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    rows = [{**ENTRY, "resource_name": name, "operation": number}
            for name in ("a", "b") for number in (3, 4)]  # fmt: skip
    for _ in range(2):  # those that are there stay
        answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=rows)
        assert [one.error_code for one in answer.results] == [0] * 4
    mine = {**FILTER, "principal_filter": "User:x"}
    shown = await client.call(ApiKey.DESCRIBE_ACLS, 2, **mine)
    found = [(one.resource_name, [acl.operation for acl in one.acls]) for one in shown.resources]
    assert found == [("a", [3, 4]), ("b", [3, 4])]
    gone = await client.call(ApiKey.DELETE_ACLS, 2, filters=[{**mine, "operation": 3}])
    assert [one.resource_name for one in gone.filter_results[0].matching_acls] == ["a", "b"]
    shown = await client.call(ApiKey.DESCRIBE_ACLS, 2, **mine)
    assert [len(one.acls) for one in shown.resources] == [1, 1]


async def test_entries_about_one_resource_take_effect_together(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, the first would take their rights from those whom the next ones name, as
    `allow.everyone.if.no.acl.found` ends with it."""
    await grant(broker, entry(rights.ALTER_CLUSTER, CLUSTER))
    acls = broker.services.rights.acls
    steps: list[tuple[str, int]] = []
    add = acls.add

    async def noted(together: Sequence[Acl]) -> None:
        steps.append((together[0].name, len(together)))
        await add(together)

    monkeypatch.setattr(acls, "add", noted)
    rows = [{**ENTRY, "resource_name": name, "operation": number}
            for number in (3, 4) for name in ("a", "b")]  # fmt: skip
    answer = await client.call(ApiKey.CREATE_ACLS, 2, creations=rows)
    assert [one.error_code for one in answer.results] == [0] * 4
    assert steps == [("a", 2), ("b", 2)]


async def test_so_many_entries_and_no_more(cloud: FakeCloud) -> None:
    security = SecurityConfig(authorization=True, acls_max=3)
    broker = await cloud.start_broker(1, security=security)
    await grant(broker, *(entry(rights.WRITE_TOPIC, name) for name in "abc"))
    await grant(broker, entry(rights.WRITE_TOPIC, "a"))  # is there already
    with pytest.raises(InvalidRequest, match="acls_max"):
        await grant(broker, entry(rights.WRITE_TOPIC, "d"))
    await broker.services.rights.acls.remove(ANY._replace(name="a"))
    await grant(broker, entry(rights.WRITE_TOPIC, "d"))
    assert [one.name for one in broker.services.rights.acls.find(ANY)] == ["b", "c", "d"]


async def test_another_broker_decides_by_them_within_moments(cloud: FakeCloud) -> None:
    security = SecurityConfig(authorization=True)
    first, second = [await cloud.start_broker(n, security=security) for n in (1, 2)]
    await grant(first, entry(rights.DESCRIBE_CLUSTER, CLUSTER))
    await until(lambda: second.services.rights.may(
        Peer("127.0.0.1", 1, "", 0), rights.DESCRIBE_CLUSTER))  # fmt: skip
    await first.services.rights.acls.remove(ANY)
    await until(lambda: not second.services.rights.may(
        Peer("127.0.0.1", 1, "", 0), rights.DESCRIBE_CLUSTER))  # fmt: skip


async def test_damaged_entries_allow_nothing(
    broker: Broker, client: WireClient, cloud: FakeCloud, caplog: pytest.LogCaptureFixture
) -> None:
    await grant(broker, entry(rights.READ_TOPIC, "t"), entry(rights.DESCRIBE_GROUP, "g"))
    store = cloud.tree.session()
    names = await store.children(paths.ACLS)
    fetch = next(one for one in ROWS if one.label == "fetch")
    assert await refusals(client, fetch) == set()
    for name in names:
        node = await store.get(f"{paths.ACLS}/{name}")
        if b"GROUP" in node.data:
            await store.set(f"{paths.ACLS}/{name}", b"{}")
    await until(lambda: "metadata.unreadable" in caplog.text)
    assert await refusals(client, fetch) == {29}
