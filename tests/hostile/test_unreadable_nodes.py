"""Every kind of node that brokers keep, with every kind of bad content: UNREADABLE-STAYS.

All else goes on, nothing is deleted or written over, and an operator is told which node it is and
what to do. Nodes of ledgers and bookies are in `scenarios/test_self_healing.py`, tombstones and
pages in `test_topic_cleaner.py` and `test_orphan_ledgers.py` of `unit/broker`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from broker.app import Broker
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.error_codes import ErrorCode as Code
from ops.doctor.nodes import check_nodes
from tests.fakes.bad_nodes import HUGE, HUGE_JSON, NEWER_FORMAT, NO_JSON
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.hostile.test_newer_release import KINDS as EDITABLE
from tests.unit.broker.front.handlers.requests import batch, create_topic, fetch, produce

SPOILED: Final = "spoiled"


async def _topic_id(broker: Broker) -> str:
    return broker.cluster.topics[SPOILED].id_text


async def _topic(broker: Broker, store: MetadataStore) -> str:
    return paths.topic(SPOILED)


async def _segments(broker: Broker, store: MetadataStore) -> str:
    return paths.partition(await _topic_id(broker), 0)


async def _owner(broker: Broker, store: MetadataStore) -> str:
    return paths.partition_owner(await _topic_id(broker), 0)


async def _registration(broker: Broker, store: MetadataStore) -> str:
    return paths.broker(broker.config.node_id)


def _editable(kind: str) -> Callable[[Broker, MetadataStore], Awaitable[str]]:
    where, _, change = EDITABLE[kind]

    async def make(broker: Broker, store: MetadataStore) -> str:
        if await store.exists(where) is None or not (await store.get(where)).data:
            await change(store, 0)
        names = await store.children(where)
        return f"{where}/{names[0]}" if names else where

    return make


KINDS: Final[dict[str, Callable[[Broker, MetadataStore], Awaitable[str]]]] = {
    "topic": _topic,
    "segment list": _segments,
    "owner": _owner,
    "registration": _registration,
    **{kind: _editable(kind) for kind in EDITABLE},
}
"""Kind -> makes one, if there is none, and returns its path. The broker is not the one asked."""

CONTENTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "no JSON": lambda good: NO_JSON,
    "a newer format": lambda good: NEWER_FORMAT,
    "1 MB": lambda good: HUGE,
    "1 MB of a newer format": lambda good: HUGE_JSON,
    "an unknown setting": lambda good: json.dumps(
        {**json.loads(good), "of.tomorrow": {"x": 1}}
    ).encode(),
}


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


async def all_nodes(store: MetadataStore, path: str = "/quire") -> dict[str, bytes]:
    node = await store.get(path)
    found = {path: node.data}
    for name in await store.children(path):
        found |= await all_nodes(store, f"{path}/{name}")
    return found


async def go_on(broker: Broker) -> None:
    """Use what is not spoiled: another topic, a group, a topic that is made and deleted."""
    client = await WireClient.connect(broker.port)
    assert (await produce(client, batch(b"more"), topic="other")).error_code == Code.none
    assert (await fetch(client, 0, topic="other")).error_code == Code.none
    await create_topic(broker, "new", partition_count=1, assignments={0: (1,)})
    deleted = await client.call(ApiKey.DELETE_TOPICS, 5, topic_names=["new"], timeout=5_000)
    assert [row.error_code for row in deleted.responses] == [Code.none]
    await until(lambda: "new" not in broker.cluster.topics)
    await client.close()


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_spoiled_node_is_named_and_all_else_goes_on(
    cloud: FakeCloud, caplog: pytest.LogCaptureFixture, kind: str, content: str
) -> None:
    spoiled, other = await cloud.start_broker(2), await cloud.start_broker(1)
    for name in (SPOILED, "other"):
        await spoiled.topics.create(name, assignments={0: (2 if name == SPOILED else 1,)})
    await until(lambda: spoiled.partitions.find(SPOILED, 0) is not None)
    await until(lambda: other.partitions.find("other", 0) is not None)
    store = cloud.tree.session()
    path = await KINDS[kind](spoiled, store)
    bad = CONTENTS[content]((await store.get(path)).data)
    before = await all_nodes(store)
    await store.set(path, bad)
    await go_on(other)
    after = await all_nodes(store)
    assert after.keys() >= before.keys(), "nothing is deleted"
    if kind == "registration":  # its own broker, which lives, writes it anew
        assert after[path] == before[path]
        assert content == "an unknown setting" or f"metadata.unreadable path={path} " in caplog.text
        return
    if content == "an unknown setting":
        assert json.loads(after[path])["of.tomorrow"] == {"x": 1}
        return
    assert after[path] == bad
    named = {one for broker in cloud.brokers.values() for one in broker.store.unreadable.all()}
    findings = await check_nodes(store, paths.LEDGERS_ROOT)
    told = [one for one in findings if one.what.startswith(f"{path} cannot be read: ")]
    assert told or path in named
    assert all("put back its bytes of a backup" in one.advice for one in told)
