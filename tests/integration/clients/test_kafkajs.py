"""kafkajs, unmodified: admin, idempotent producer, gzip, groups; driven by kafkajs/client.js."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.integration.clients import installed, traffic
from tests.integration.clients.traffic import Received


def _step(name: str, **settings: Any) -> Any:
    node = installed.command("node")
    script = installed.folder("kafkajs/node_modules").parent / "client.js"
    done = subprocess.run(
        [node, str(script), name, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=traffic.PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _messages(numbers: range) -> list[dict[str, str]]:
    return [{"key": traffic.key(n), "value": traffic.value(n)} for n in numbers]


def _received(records: list[dict[str, Any]]) -> list[Received]:
    assert {r["origin"] for r in records} <= {traffic.HEADER[1].decode()}
    return [Received(r["partition"], r["offset"], r["key"], r["value"]) for r in records]


def test_group_of_two_shares_and_a_restarted_group_goes_on(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    where = {"brokers": bootstrap_servers, "topic": topic}
    assert _step("create", partitions=traffic.PARTITION_COUNT, **where) is True
    first = _step(
        "group",
        group=group,
        share=[2, 2],
        messages=_messages(traffic.FIRST),
        count=len(traffic.FIRST),
        **where,
    )
    assert all(first)
    traffic.check([r for records in first for r in _received(records)], traffic.FIRST)
    rest = _step(
        "group",
        group=group,
        share=[4],
        messages=_messages(traffic.SECOND),
        count=len(traffic.SECOND),
        **where,
    )
    traffic.check(_received(rest[0]), traffic.SECOND)


def test_gzip_comes_back_and_publishing_creates_the_topic(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    where = {"brokers": bootstrap_servers, "topic": topic}
    sent = _step("publish", messages=_messages(traffic.FIRST), gzip=True, **where)
    assert {answer["errorCode"] for answer in sent} == {0}
    count = len(traffic.FIRST)
    received = _step("group", group=group, share=[len(sent)], messages=[], count=count, **where)
    traffic.check(_received(received[0]), traffic.FIRST)
