"""Names that would be paths, lines of a log or of an exposition, or one another."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.transactions.config import TransactionSettings
from client.metadata import paths
from client.node import logs
from client.wire.kafka.apis import ApiKey
from tests.fakes.broker import FakeCloud, until
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.handlers.requests import breathe, create_topic

INVALID_TOPIC, UNKNOWN_TOPIC, INVALID_REQUEST = 17, 3, 42

_NO_MORE: dict[str, Any] = {"assignments": [], "configs": []}

BAD_TOPICS = [
    "..", ".", "../brokers", "a/b", "/a", "a\x00b", "\x00", "x" * 250, "x" * 30_000, "größe",
    "\u202e", "a b", "a\nb", "a\\b", "a%2fb", "a:b", "😀", "ａ", "",
]  # fmt: skip
STRANGE = [
    "..", "../x", "a/b", "a\x00b", "x" * 250, "größe", "a\nERROR b", 'a"} 1\nevil 2', "😀", "%s",
]  # fmt: skip


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.mark.parametrize("name", BAD_TOPICS)
async def test_such_a_topic_is_neither_made_nor_known(cloud: FakeCloud, name: str) -> None:
    broker = await cloud.start_broker(1)
    client = await WireClient.connect(broker.port)
    await until(lambda: paths.FEATURES in cloud.tree.tree.paths())
    before = list(cloud.tree.tree.paths())
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, **_NO_MORE}
    answer = await client.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout=1000)
    assert answer.topics[0].error_code == INVALID_TOPIC
    row = {"name": name, "topic_id": None}
    answer = await client.call(
        ApiKey.METADATA, 12, topics=[row], allow_auto_topic_creation=True
    )  # fmt: skip
    assert answer.topics[0].error_code == INVALID_TOPIC
    await breathe()
    assert list(cloud.tree.tree.paths()) == before
    await client.close()


@pytest.mark.parametrize(("there", "other"), [("a.b", "a_b"), ("a_b", "a.b"), ("..a", "__a")])
async def test_names_that_metrics_cannot_tell_apart_are_refused(
    cloud: FakeCloud, there: str, other: str
) -> None:
    broker = await cloud.start_broker(1)
    await create_topic(broker, there)
    client = await WireClient.connect(broker.port)
    wanted = {"name": other, "num_partitions": 1, "replication_factor": 1, **_NO_MORE}
    answer = await client.call(ApiKey.CREATE_TOPICS, 7, topics=[wanted], timeout=1000)
    assert answer.topics[0].error_code == INVALID_TOPIC
    await client.close()


@pytest.mark.parametrize("name", STRANGE)
async def test_group_names_are_no_paths(cloud: FakeCloud, name: str) -> None:
    """Kafka takes any; ours are keys of a log, and labels that are escaped."""
    broker = await cloud.start_broker(1)
    await create_topic(broker)
    client = await WireClient.connect(broker.port)
    for _ in range(500):
        answer = await client.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[name], key_type=0)
        if not answer.coordinators[0].error_code:
            break
        await breathe()
    commit = {"partition_index": 0, "committed_offset": 0, "committed_metadata": name[:100]}
    for _ in range(500):
        answer = await client.call(
            ApiKey.OFFSET_COMMIT, 8, group_id=name, generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "t", "partitions": [commit]}],
        )  # fmt: skip
        code = int(answer.topics[0].partitions[0].error_code)
        if code not in (14, 15, 16):  # the coordinator is still loading
            break
        await breathe()
    assert code == 0
    assert not any(name in path for path in cloud.tree.tree.paths() if name != "..")
    assert not any("/../" in f"{path}/" for path in cloud.tree.tree.paths())
    found = list(text_string_to_metric_families(broker.metrics.exposition().decode()))
    assert not any(family.name == "evil" for family in found)
    await client.close()


@pytest.mark.parametrize("name", STRANGE)
async def test_transactional_ids_are_no_paths(cloud: FakeCloud, name: str) -> None:
    """Kafka takes any of them, too; ours are keys of a log."""
    broker = await cloud.start_broker(1, transactions=TransactionSettings(topic_partitions=1))
    client = await WireClient.connect(broker.port)
    for _ in range(500):
        await client.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=[name], key_type=1)
        await until(lambda: bool(broker.transactions.coordinators()))
        await client.close()
        client = await WireClient.connect(
            broker.port
        )  # an older one than the coordinator is closed
        answer = await client.call(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout=1000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        if answer.error_code not in (14, 15, 16):  # its coordinator is still loading
            break
        await breathe()
    assert answer.error_code == 0
    assert not any(name in path for path in cloud.tree.tree.paths() if name != "..")
    await client.close()


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("name", STRANGE)
def test_what_a_client_calls_itself_stays_within_its_line(style: str, name: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.TextLines() if style == "text" else logs.JsonLines("broker"))
    logger = logging.getLogger("tests.hostile")
    logger.addHandler(handler)
    try:
        logger.warning("request.failed api=%d client=%s", 3, name)
    finally:
        logger.removeHandler(handler)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert all(letter.isprintable() for letter in text[:-1])
    if style == "json":
        assert json.loads(text)["client"] == name
