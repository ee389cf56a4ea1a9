"""Kafka's own group tools against whole brokers: groups, offsets, and the bytes of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fakes.live_brokers import LiveBrokers, in_thread
from tests.integration.clients.kafka_tools import run
from tests.integration.clients.test_java_tools import CONSOLE_CONSUMER, CONSUMER_GROUPS
from tests.interop.test_group_consumers import aio_consumer, produce

FORMATTERS = "org.apache.kafka.tools.consumer"


def rows(text: str) -> list[list[str]]:
    """Take a tool's table apart, without its head."""
    return [line.split() for line in text.splitlines() if line.startswith("g ")]


def objects(text: str) -> Iterator[Any]:
    """Read JSON objects that follow each other without a break."""
    decoder = json.JSONDecoder()
    at = 0
    while (at := text.find("{", at)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found


async def test_groups_and_their_log_are_what_the_tools_expect() -> None:
    async with LiveBrokers() as brokers:
        server = ("--bootstrap-server", brokers.bootstrap)

        async def groups(*arguments: str) -> str:
            return await in_thread(run, CONSUMER_GROUPS, *server, *arguments)

        await produce(brokers)
        async with aio_consumer(brokers) as consumer:
            for _ in range(400):
                await consumer.getone()
            await consumer.commit()
            offsets = rows(await groups("--describe", "--group", "g"))
            assert sorted(row[2:6] for row in offsets) == [
                [str(index), "100", "100", "0"] for index in range(4)
            ]
            state = rows(await groups("--describe", "--group", "g", "--state"))
            assert state[0][-3:] == ["roundrobin", "Stable", "1"]
            assert "not empty" in await groups("--delete", "--group", "g")
        moved = ("--reset-offsets", "--to-offset", "7", "--topic", "t:1", "--execute")
        assert rows(await groups("--group", "g", *moved)) == [["g", "t", "1", "7"]]
        assert "Successful" in await groups("--group", "g", "--delete-offsets", "--topic", "t:0")
        left = rows(await groups("--describe", "--group", "g", "--offsets"))
        assert sorted(row[2:4] for row in left) == [["1", "7"], ["2", "100"], ["3", "100"]]

        async def log(formatter: str) -> list[Any]:
            """Values that the log has about group g; the consoles have groups of their own."""
            arguments = (
                "--topic",
                "__consumer_offsets",
                "--from-beginning",
                "--timeout-ms",
                "3000",
            )
            shown = await in_thread(
                run, CONSOLE_CONSUMER, *server, *arguments, "--formatter",
                f"{FORMATTERS}.{formatter}",
            )  # fmt: skip
            mine = [one for one in objects(shown) if one["key"]["data"]["group"] == "g"]
            return [one["value"]["data"] for one in mine if one["value"] is not None]

        values = await log("OffsetsMessageFormatter")
        assert {value["offset"] for value in values} == {100, 7}
        first, last = await log("GroupMetadataMessageFormatter")
        assert (first["generation"], len(first["members"])) == (1, 1)
        assert (last["generation"], last["members"]) == (2, [])
        assert "successful" in await groups("--delete", "--group", "g")
