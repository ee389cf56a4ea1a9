"""Nodes that a newer release has written: what this one does not know, it writes back unchanged."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker.cluster.core.features import TRANSACTION_VERSION, FeatureUpdate, UpdateType
from broker.cluster.directory_view import Freshness
from broker.cluster.features import Features
from broker.security.acl_store import AclStore
from broker.security.core.acls import Acl, Operation, PatternType, Permission, ResourceType
from broker.security.core.scram import Mechanism, ScramCredential
from broker.security.quota_store import QuotaStore
from broker.security.users import Users
from broker.settings.core import dynamic_settings
from broker.settings.live_settings import ClientSubscriptions, ConfigNodes
from broker.topics.core.config_resource import Change
from broker.topics.core.config_resource import Operation as SetOrReset
from broker.topics.producer_ids import BLOCK_SIZE, ProducerIds
from client.ids import BrokerId
from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.metadata.store import MetadataStore
from tests.fakes.virtual_time import run

_FIELD: Final = {"future": [0.5, {"deep": None}, 10**25]}
_SHA_256, _SHA_512 = Mechanism("SCRAM-SHA-256"), Mechanism("SCRAM-SHA-512")
_ENTITY: Final = (("user", "anna"),)


def _credential(size: int) -> ScramCredential:
    return ScramCredential(b"salt", b"k" * size, b"s" * size, 4096)


def _acl(operation: Operation) -> Acl:
    kind, pattern = ResourceType.TOPIC, PatternType.LITERAL
    return Acl(kind, "t", pattern, "User:anna", "*", operation, Permission.ALLOW)


async def _user(store: MetadataStore, step: int) -> None:
    users = Users(store, 10)
    await users.start()
    both = {_SHA_256: _credential(32), _SHA_512: _credential(64)}
    steps = (both, {_SHA_512: _credential(64)}, {})
    await users.edit("anna", lambda _: steps[step])
    if step == 1:
        assert dict(users.credentials("anna")) == {_SHA_512: _credential(64)}
    await users.close()


async def _acls(store: MetadataStore, step: int) -> None:
    acls = AclStore(store, lambda _: None, 10, Freshness())
    await acls.start()
    if step < 2:
        await acls.add([_acl((Operation.READ, Operation.WRITE)[step])])
        assert acls.count == 1 + step
    else:
        await acls.remove(SimpleNamespace(matches=lambda _: True))  # type: ignore[arg-type]
        assert acls.count == 0
    await acls.close()


async def _quotas(store: MetadataStore, step: int) -> None:
    quotas = QuotaStore(store, lambda _: None, 10)
    await quotas.start()
    both = {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}
    changes: tuple[Any, ...] = (both, {"consumer_byte_rate": None}, dict.fromkeys(both))
    await quotas.change(_ENTITY, changes[step])
    if step == 1:
        assert quotas.all() == [(_ENTITY, {"producer_byte_rate": 5.0})]
    await quotas.close()


async def _configs(store: MetadataStore, step: int) -> None:
    """All of them replaced, as AlterConfigs does."""
    nodes = ConfigNodes(store, paths.BROKER_CONFIGS, lambda: None, 10)
    await nodes.start()
    steps = ([("num.partitions", "2"), ("max.connections", "9")], [("num.partitions", "3")], [])
    changes = [Change(name, SetOrReset.SET, value) for name, value in steps[step]]
    await nodes.edit(
        "1", lambda before: dynamic_settings.changed(dynamic_settings.foreign(before), changes)
    )
    known = {name: one for name, one in nodes.of("1").items() if not name.endswith("tomorrow")}
    assert known == dict(steps[step])
    await nodes.close()


async def _subscription(store: MetadataStore, step: int) -> None:
    subscriptions = ClientSubscriptions(store)
    await subscriptions.start()
    steps = ([("metrics", "a."), ("interval.ms", "1000")], [("metrics", "b.")], [])
    changes = [Change(name, SetOrReset.SET, value) for name, value in steps[step]]
    await subscriptions.edit("s", changes, replaces=True, validate_only=False)
    assert subscriptions.wanted({}).metrics == (["a."], ["b."], [])[step]
    await subscriptions.close()


async def _features(store: MetadataStore, step: int) -> None:
    supported = {BrokerId(1): SimpleNamespace(id=1, features={TRANSACTION_VERSION: 2})}
    cluster: Any = SimpleNamespace(brokers=supported, unreadable_brokers=[])
    level, kind = (
        (2, UpdateType.UPGRADE),
        (1, UpdateType.SAFE_DOWNGRADE),
        (2, UpdateType.UPGRADE),
    )[step]
    features = Features(store, cluster, BrokerId(1))
    update = FeatureUpdate(TRANSACTION_VERSION, level, kind)
    await features.update([update], validate_only=False)
    assert features.finalized.levels == {TRANSACTION_VERSION: level}


async def _producer_ids(store: MetadataStore, step: int) -> None:
    assert await ProducerIds(store).take() == step * BLOCK_SIZE


KINDS: Final[dict[str, tuple[str, str, Callable[[MetadataStore, int], Awaitable[None]]]]] = {
    "user": (paths.USERS, "scram", _user),
    "access control list": (paths.ACLS, "", _acls),
    "quotas": (paths.QUOTAS, "quotas", _quotas),
    "settings": (paths.BROKER_CONFIGS, "configs", _configs),
    "subscription": (paths.CLIENT_METRICS_CONFIGS, "configs", _subscription),
    "features": (paths.FEATURES, "", _features),
    "producer ids": (paths.PRODUCER_IDS, "", _producer_ids),
}
"""Kind of node -> its directory or path, the field whose members a release may add to, and three
changes: the first makes the node, the last leaves nothing of what this release knows."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_a_newer_release_knows_is_written_back(kind: str) -> None:
    """Topics are in `unit/broker/topics`, segment lists in `unit/client/log`, ledgers in
    `unit/client/ledger`."""
    where, members, change = KINDS[kind]

    async def scenario() -> None:
        tree = MemoryCluster()
        store = tree.session()
        await change(store, 0)
        names = await store.children(where)
        path = f"{where}/{names[0]}" if names else where
        fields = json.loads((await store.get(path)).data)
        added: dict[str, Any] = {"x.of.tomorrow": "7", "y.of.tomorrow": {"z": 0.5}}
        newer = {**fields, **_FIELD}
        if members:
            newer[members] = {**fields[members], **added}
        await store.set(path, json.dumps(newer).encode())
        for step in (1, 2):
            await change(store, step)
            found = json.loads((await store.get(path)).data)
            assert found.items() >= _FIELD.items()
            assert not members or {name: found[members].get(name) for name in added} == added
            assert found != newer, "the rest was changed"
        assert not store.unreadable.all()

    run(scenario())


def test_a_limit_that_is_not_taken_can_be_set_anew_and_taken_away() -> None:
    async def scenario() -> None:
        store = MemoryCluster().session()
        await _quotas(store, 0)
        (name,) = await store.children(paths.QUOTAS)
        path = f"{paths.QUOTAS}/{name}"
        fields = json.loads((await store.get(path)).data)
        fields["quotas"]["producer_byte_rate"] = "very much"
        await store.set(path, json.dumps(fields).encode())
        quotas = QuotaStore(store, lambda _: None, 10)
        await quotas.start()
        assert quotas.all() == [(_ENTITY, {"consumer_byte_rate": 6.0})]
        await quotas.change(_ENTITY, {"consumer_byte_rate": 7.0})
        assert json.loads((await store.get(path)).data)["quotas"] == {
            "consumer_byte_rate": "7.0", "producer_byte_rate": "very much",
        }  # fmt: skip
        await quotas.change(_ENTITY, {"producer_byte_rate": None})
        assert json.loads((await store.get(path)).data)["quotas"] == {"consumer_byte_rate": "7.0"}
        await quotas.close()

    run(scenario())
