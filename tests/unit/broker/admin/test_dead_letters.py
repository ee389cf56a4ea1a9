"""/groups/{group}/dead-letters: what waits, and letters that are published again."""

from __future__ import annotations

from typing import Any

import pytest

from broker.front.core import dead_letters as core
from broker.front.core.dead_letters import Letter, Source
from client.ids import Offset
from client.wire.kafka.batches.records import Record, build_batch, headers, records
from ops.admin_api import Access, AdminApi
from ops.cli.group import _replay
from tests.fakes.admin import AdminCloud, until
from tests.fakes.brokers import done
from tests.unit.broker.front.handlers.share_members import REJECT, member, set_group

NOW_MS = 1_700_000_000_000
AT = "/topics/dlq.g/partitions/0/dead-letters"


def letter(offset: int, *, group: str = "g", copy: bool = True, source: str = "t") -> Record:
    original = Record(b"key", b"value %d" % offset, NOW_MS, (("name", b"\xff"),))
    about = Letter(Offset(offset), 2, is_rejected=True)
    return core.dead_letter(Source(source, 0, group), about, original if copy else None, NOW_MS)


async def topics(cloud: AdminCloud) -> None:
    for name in ("t", "dlq.g"):
        await cloud.send("PUT", f"/topics/{name}", {"partition_count": 1}, status=201)
        await cloud.led(name)


def leader_of(cloud: AdminCloud, topic: str) -> Any:
    found = [one.partitions.find(topic, 0) for one in cloud.brokers.values()]
    return next(one for one in found if one is not None)


async def fill(cloud: AdminCloud, topic: str, *rows: Record) -> None:
    await done(leader_of(cloud, topic).append(build_batch(rows)))


async def stored(cloud: AdminCloud, topic: str) -> list[Record]:
    partition = leader_of(cloud, topic)
    fetched = await partition.reader.read(
        Offset(0), 1 << 20, at_least_one=True, read_committed=False
    )
    data = b"".join(fetched.buffers)
    return [one for at, h in headers(data) for one in records(data[at : at + h.size])]


@pytest.mark.parametrize("brokers", [1, 2])
async def test_letters_go_back_where_their_records_came_from(brokers: int) -> None:
    async with AdminCloud(brokers) as cloud:
        await topics(cloud)
        await fill(cloud, "t", Record(b"k", b"original", NOW_MS))
        await fill(
            cloud, "dlq.g", letter(5), letter(0, copy=False), letter(6, group="other"),
            letter(9, copy=False), letter(7, source="gone"), Record(None, b"no letter", NOW_MS),
            letter(8),
        )  # fmt: skip
        asked = {"group": "g", "offset": 0}
        dry = await cloud.send("POST", AT, {**asked, "dry_run": True})
        assert (dry["replayed"], leader_of(cloud, "t").high_watermark) == (3, 1)
        found = await cloud.send("POST", AT, {**asked, "limit": 5})
        assert found == {
            "replayed": 2, "next_offset": 5, "high_watermark": 7, "problem": None,
            "left": [
                {
                    "offset": 3,
                    "reason": "it has headers only, and record 9 of t-0 is gone",
                },
                {"offset": 4, "reason": "there is no partition gone-0 any more"},
            ],
        }  # fmt: skip
        found = await cloud.send("POST", AT, {**asked, "offset": 5})
        assert (found["replayed"], found["left"], found["next_offset"]) == (1, [], 7)
        again = await stored(cloud, "t")
        assert [one.value for one in again] == [
            b"original", b"value 5", b"original", b"value 8",
        ]  # fmt: skip
        assert again[1].headers == (("name", b"\xff"),), "without what made it a letter"


async def test_what_is_replayed_is_replayed_once() -> None:
    async with AdminCloud() as cloud:
        await topics(cloud)
        await cloud.brokers[1].groups.find("dead-letters.g")
        await fill(cloud, "dlq.g", letter(1), letter(2))
        async with AdminApi(Access((cloud.admins[1].url,))) as api:
            for expected in (2, 0):
                (row,) = await _replay(api, "g", "dlq.g", again=False, dry_run=False)
                assert (row["replayed"], row["next_offset"]) == (expected, 2)
            (row,) = await _replay(api, "g", "dlq.g", again=True, dry_run=False)
            assert row["replayed"] == 2
        assert leader_of(cloud, "t").high_watermark == 4


async def test_records_that_wait_are_shown_with_what_is_in_the_way() -> None:
    async with AdminCloud() as cloud:
        await topics(cloud)
        broker = cloud.brokers[1]
        await until(lambda: broker.services.features.finalized.levels.get("share.version") == 2)
        await set_group(broker, "share.auto.offset.reset", "earliest")
        await set_group(broker, "errors.deadletterqueue.topic.name", "dlq.none")
        await fill(cloud, "t", Record(b"k", b"v", NOW_MS))
        one = await member(broker)
        await one.fetch()
        assert await one.settled([(0, 0, [REJECT])]) == ("none", "none")
        await until(lambda: broker.metrics.dead_letter_failures > 0)
        (row,) = (await cloud.get("/groups/g/dead-letters"))["items"]
        assert (row["topic"], row["first_offset"], row["last_offset"]) == ("t", 0, 0)
        assert (row["deliveries"], row["reason"]) == (1, "Offset rejected by client.")
        assert row["leader"] == 1
        assert "create it with errors.deadletterqueue.group.enable=true" in row["problem"]
