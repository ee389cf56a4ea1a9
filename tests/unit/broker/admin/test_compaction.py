"""/topics/.../compaction: how clean a partition is, and compacting it now."""

from __future__ import annotations

import asyncio

from tests.fakes.admin import AdminCloud
from tests.fakes.brokers import done
from tests.fakes.keyed import keyed

WISH = {
    "partition_count": 1,
    "settings": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"},
}


async def fill(cloud: AdminCloud, rounds: int) -> None:
    """A segment for each of some values of one key."""
    for number in range(rounds):
        for broker in cloud.brokers.values():
            partition = broker.partitions.find("t", 0)
            if partition is not None:
                await done(partition.append(keyed(("a", f"{number}"))))
                await partition.changes.roll()


async def test_a_partition_is_compacted_when_somebody_asks() -> None:
    async with AdminCloud() as cloud:
        await cloud.send("PUT", "/topics/t", WISH, status=201)
        await cloud.led("t")
        await fill(cloud, 6)
        path = "/topics/t/partitions/0"
        shown = await cloud.send("POST", f"{path}/compact")
        assert shown["asked"]
        assert shown["cleaned_until"] == 0

        while not (await cloud.get(f"{path}/compaction"))["cleaned_until"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        shown = await cloud.get(f"{path}/compaction")
        assert shown["state"] in ("clean", "running")
        assert (shown["cleaned_until"], shown["failures"], shown["reason"]) == (5, 0, "")
        assert shown["saved_bytes"] > 0
        assert shown["retired_ledgers"] == 5
        assert shown["cleaned_ms"] > 0


async def test_a_topic_that_is_not_compacted_says_so() -> None:
    async with AdminCloud() as cloud:
        await cloud.send("PUT", "/topics/t", {"partition_count": 1}, status=201)
        await cloud.led("t")
        await fill(cloud, 1)
        for method, path in (("GET", "compaction"), ("POST", "compact")):
            problem = await cloud.send(method, f"/topics/t/partitions/0/{path}", status=409)
            assert problem["type"].endswith("not-compacted")
            assert "cleanup.policy of t is delete" in problem["detail"]
