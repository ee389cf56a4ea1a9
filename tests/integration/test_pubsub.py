"""client.pubsub against a real cluster: the documented example, and what it promises."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import client.pubsub
from client.pubsub import Publisher, Subscriber, TopicAdmin
from client.pubsub.errors import BrokerUnreachable, TopicExists, TopicNotFound
from ops.ports import pick_free
from tests.integration.cluster import ROOT, LocalCluster

pytestmark = pytest.mark.smoke

README = Path(str(client.pubsub.__file__)).with_name("README.md")


def test_the_documented_example_works(cluster: LocalCluster) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "asyncio.run" in block]
    example = example.replace("localhost:9092", cluster.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-c", example.replace('"greetings"', '"pubsub-greetings"')],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored, *received = done.stdout.splitlines()
    assert re.fullmatch(r"stored at partition \d, offset 0", stored)
    french = [line for line in received if line.startswith("b'fr'")]
    assert french == ["b'fr' b'bonjour'", "b'fr' b'salut'"]
    assert "b'en' b'hello'" in received


async def test_topics(cluster: LocalCluster) -> None:
    async with TopicAdmin(cluster.bootstrap_servers) as topics:
        await topics.create("pubsub-topics", partition_count=3, configs={"retention.ms": "3600000"})
        with pytest.raises(TopicExists):
            await topics.create("pubsub-topics")
        assert ("pubsub-topics", 3, False) in await topics.listings()
        described = await topics.describe("pubsub-topics")
        assert [p.record_count for p in described.partitions] == [0, 0, 0]
        await topics.delete("pubsub-topics")
        with pytest.raises(TopicNotFound):
            await topics.describe("pubsub-topics")
        with pytest.raises(TopicNotFound):
            await topics.delete("pubsub-topics")


async def test_uncommitted_records_come_again(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    async with TopicAdmin(servers) as topics:
        await topics.create("pubsub-again", partition_count=1)
    async with Publisher(servers) as publisher:
        for number in range(10):
            await publisher.enqueue("pubsub-again", b"%d" % number)
    for expected in (list(range(10)), list(range(5, 10)), list(range(5, 10))):
        async with Subscriber("pubsub-again", bootstrap_servers=servers, group="g") as subscriber:
            values = []
            while len(values) < len(expected):
                record = await anext(subscriber)
                values.append(int(record.value or b""))
                if values[-1] == 4:
                    await subscriber.commit()
            assert values == expected


async def test_two_members_share_the_partitions(cluster: LocalCluster) -> None:
    servers = cluster.bootstrap_servers
    async with TopicAdmin(servers) as topics:
        await topics.create("pubsub-share", partition_count=4)
    members = [
        Subscriber("pubsub-share", bootstrap_servers=servers, group="share") for _ in range(2)
    ]
    async with members[0], members[1], asyncio.timeout(30):
        while [len(member.assignment) for member in members] != [2, 2]:
            await asyncio.gather(*(member.next_batch(timeout_ms=100) for member in members))
        assert not set(members[0].assignment) & set(members[1].assignment)


async def test_nobody_there_is_one_sentence() -> None:
    port = pick_free(1)[0]
    with pytest.raises(BrokerUnreachable, match=rf"^nothing listens at 127\.0\.0\.1:{port}$"):
        await Publisher(f"127.0.0.1:{port}").start()
