"""The check of operators in a chaos run: what the store may hold, and what is an anomaly."""

from __future__ import annotations

import asyncio
import hashlib
import json
from types import SimpleNamespace

import pytest

from client.metadata import paths
from client.metadata.memory import MemoryCluster
from client.metadata.store import MetadataStore
from tests.chaos.administration import RIGHTS, Administration, Kept, Rights, Wrong


def node(topic_id: str, count: int, setting: str | None = None) -> bytes:
    configs = {} if setting is None else {"segment.ms": setting}
    return json.dumps({"topic_id": topic_id, "partition_count": count, "configs": configs}).encode()


def check(topic: Kept, held: bytes | None, *who: str, kept: str = "") -> None:
    """Check a topic and entries against a store that holds these. Raises Wrong."""

    async def run() -> None:
        store: MetadataStore = MemoryCluster().session()
        rows = [[one, "*", "READ", "ALLOW"] for one in who]
        name = hashlib.sha256(f"TOPIC/LITERAL/{RIGHTS}".encode()).hexdigest()
        await store.create(
            f"{paths.ACLS}/{name}", json.dumps({"acls": rows}).encode(), make_parents=True
        )
        await store.create(paths.TOPICS, make_parents=True)
        if held is not None:
            await store.create(paths.topic(topic.name), held)
        made = Administration(SimpleNamespace(), 1, print)  # type: ignore[arg-type]
        made._rights.kept |= {kept} if kept else set()
        await made._check(store, topic)  # type: ignore[arg-type]

    asyncio.run(run())


def test_what_was_acknowledged_or_may_have_happened_is_right() -> None:
    topic = Kept("t", "a", counts={1, 2}, settings={None, "7"})
    check(topic, node("a", 2, "7"))
    check(topic, node("a", 1), "User:p1", kept="User:p1")
    check(Kept("t"), None)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (None, "is lost"),
        (node("b", 1), "is lost"),
        (node("a", 3), "has not"),
        (node("a", 1, "8"), "segment.ms"),
    ],
)
def test_anything_else_is_an_anomaly(held: bytes | None, text: str) -> None:
    with pytest.raises(Wrong, match=text):
        check(Kept("t", "a", counts={1, 2}, settings={None, "7"}), held)


def test_entries_that_are_lost_or_come_back_are_anomalies() -> None:
    with pytest.raises(Wrong, match="missing"):
        check(Kept("t"), None, kept="User:p1")
    with pytest.raises(Wrong, match="too many"):
        check(Kept("t"), None, "User:p2")


def test_entries_that_change_while_they_are_read_may_be_there_or_not() -> None:
    rights = Rights()
    rights.kept = {"new"}
    assert rights.compare({"gone"}, {"gone"}) == ""
    assert rights.compare({"gone"}, {"new"}) == ""
    rights.unknown = {"maybe"}
    assert rights.compare({"new"}, {"new", "maybe"}) == ""
    assert rights.compare({"new"}, {"maybe"}) == "missing ['new'], too many []"
