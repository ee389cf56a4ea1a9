"""Every API and every operation: without the right, the field's own error and no effect."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from broker.app import Broker
from broker.front import handlers as catalogue
from broker.security import rights
from broker.security.core.acls import IMPLIED_BY, Operation, Permission, ResourceType
from broker.security.rights import Need
from client.wire.kafka.apis import LINK_API_KEY, ApiKey
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.rights.authorized_broker import ANY, entry, grant, refusals
from tests.unit.broker.front.rights.requests import CLUSTER, CODES, ROWS, SERVED, Row

ELSEWHERE = {
    (ApiKey.CONSUMER_GROUP_DESCRIBE, rights.DESCRIBE_TOPIC),
    (ApiKey.SHARE_GROUP_DESCRIBE, rights.DESCRIBE_TOPIC),
    (ApiKey.SHARE_FETCH, rights.READ_TOPIC),
    (ApiKey.SHARE_ACKNOWLEDGE, rights.READ_TOPIC),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, rights.DESCRIBE_TOPIC),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, rights.READ_TOPIC),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, rights.READ_TOPIC),
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_CLUSTER),
    (ApiKey.LIST_GROUPS, rights.DESCRIBE_GROUP),
    (ApiKey.LIST_TRANSACTIONS, rights.DESCRIBE_TRANSACTIONAL_ID),
    (ApiKey.METADATA, rights.CREATE_CLUSTER),
    (ApiKey.METADATA, rights.DESCRIBE_CLUSTER),
    (ApiKey.DESCRIBE_CLUSTER, rights.DESCRIBE_CLUSTER),
    (ApiKey.CREATE_TOPICS, rights.CREATE_CLUSTER),
    (ApiKey.DELETE_TOPICS, rights.DESCRIBE_TOPIC),
    (ApiKey.INIT_PRODUCER_ID, rights.WRITE_TOPIC),
    (ApiKey.DESCRIBE_TRANSACTIONS, rights.DESCRIBE_TOPIC),
    (LINK_API_KEY, rights.CLUSTER_ACTION),
    (ApiKey.WRITE_TXN_MARKERS, rights.ALTER_CLUSTER),
}
"""Needs that are no condition by themselves: see `test_partial_rights.py` and `broker/link`."""


def declared() -> set[tuple[int, Need]]:
    """Return what the modules of all APIs declare."""
    found = set()
    for info in pkgutil.iter_modules(catalogue.__path__):
        module = importlib.import_module(f"{catalogue.__name__}.{info.name}")
        if hasattr(module, "KEY"):
            found |= {(int(module.KEY), need) for need in module.NEEDS}
    return found


def test_the_table_has_every_need_that_an_api_declares() -> None:
    tested = {(int(one.key), need) for one in ROWS for need in one.needs}
    elsewhere = {(int(key), need) for key, need in ELSEWHERE}
    assert tested | elsewhere == declared()
    assert not tested & elsewhere


def state(broker: Broker) -> Any:
    """Return everything that one of the requests could have changed."""
    partition = broker.partitions.find("t", 0)
    groups = [
        [coordinator.view().describe(each) for each in coordinator.view().group_ids()]
        for coordinator in broker.services.groups.coordinators()
    ]
    return (
        dict(broker.cluster.topics),
        None if partition is None else (partition.high_watermark, partition.log_start_offset),
        groups,
        broker.services.users.names(),
        broker.services.rights.acls.find(ANY),
    )


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_each_need_is_one(broker: Broker, client: WireClient, one: Row) -> None:
    """With all but one of the rights the request is refused and changes nothing."""
    for missing in one.needs:
        others = [entry(need, name) for need, name in one.needs.items() if need != missing]
        await grant(broker, *others)
        before = state(broker)
        assert await refusals(client, one) == {CODES[missing.kind]}, missing
        if (one.key, missing) != (ApiKey.CREATE_TOPICS, rights.DESCRIBE_CONFIGS_TOPIC):
            assert state(broker) == before, missing
        await broker.services.rights.acls.remove(ANY)
    assert broker.services.rights.denied > 0


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_all_of_them_are_enough(broker: Broker, client: WireClient, one: Row) -> None:
    await grant(broker, *(entry(need, name) for need, name in one.needs.items()))
    assert await refusals(client, one) == set()


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_a_denial_takes_each_of_them(broker: Broker, client: WireClient, one: Row) -> None:
    for denied in one.needs:
        await grant(broker, *(entry(need, name) for need, name in one.needs.items()))
        await grant(broker, entry(denied, one.needs[denied], Permission.DENY))
        assert await refusals(client, one) == {CODES[denied.kind]}
        await broker.services.rights.acls.remove(ANY)


@pytest.mark.parametrize("one", SERVED, ids=[one.label for one in SERVED])
async def test_no_other_operation_is_enough(broker: Broker, client: WireClient, one: Row) -> None:
    """Every operation by itself, on everything: it serves those that it names or implies."""
    # ALL comes last: it is enough, and some requests can be served once only.
    last = [] if one.label == "join" else [Operation.ALL]
    for operation in [*(each for each in Operation if each > Operation.ALL), *last]:
        kinds = [kind for kind in ResourceType if kind is not ResourceType.ANY]
        names = {kind: CLUSTER if kind is ResourceType.CLUSTER else "*" for kind in kinds}
        await grant(broker, *(entry(Need(operation, kind), names[kind]) for kind in kinds))
        left = {
            need for need in one.needs
            if operation not in (need.operation, Operation.ALL)
            and operation not in IMPLIED_BY.get(need.operation, ())
        }  # fmt: skip
        if (one.label, operation) in EITHER:
            left = set()
        if left:
            assert await refusals(client, one) == {CODES[need.kind] for need in left} or (
                {CODES[need.kind] for need in left} > await refusals(client, one) > set()
            ), operation
        else:
            assert await refusals(client, one) == set(), operation
        await broker.services.rights.acls.remove(ANY)


EITHER = {
    ("producer id", Operation.WRITE),  # whoever may write somewhere may have one
    ("write markers", Operation.ALTER),
}
"""Operations that are enough although they are not what is needed."""
