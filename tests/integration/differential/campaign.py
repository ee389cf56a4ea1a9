"""Two brokers made alike, asked what the generator makes of a seed, and their answers compared.

Differences are put together into classes: the same field of the same API with the same two values
is one, whatever the version, and however often.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey, schema_versions
from tests.integration.differential.bases import (
    KEYED,
    SETTINGS_TOPICS,
    STABLE_TOPICS,
    WRITTEN,
    WRITTEN_PARTITIONS,
)
from tests.integration.differential.contender import Contender
from tests.integration.differential.conversation import (
    ROW_NAMES,
    Difference,
    Explained,
    differences,
)
from tests.integration.differential.generator import Request, requests
from tests.integration.differential.plain_wire import strings_of
from tests.integration.differential.steps import NOW_MS, batch

K = ApiKey
_OWN_TOPIC = re.compile(r"s-\d+")
_TOPICS_AT_ONCE = 50
_LISTED = 4
"""So many different changes are kept as examples of a class."""


@dataclass(slots=True)
class DifferenceClass:
    """Differences that are one."""

    api: str
    path: str
    kafka: str
    quire: str
    versions: set[int] = field(default_factory=set)
    changes: list[str] = field(default_factory=list)
    count: int = 0

    def __str__(self) -> str:
        low, high = min(self.versions), max(self.versions)
        return (
            f"{self.api} v{low}-{high} {self.path or 'answer'}: kafka {self.kafka},"
            f" quire {self.quire} ({self.count} times)"
            + "".join(f"\n      {one}" for one in self.changes)
        )


def versions_of_both(
    kafka: Mapping[int, tuple[int, int]], quire: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Return what both serve and kio has a schema of."""
    found = {}
    for key in sorted({*kafka} & {*quire}):
        lowest, highest = schema_versions(key)
        low = max(kafka[key][0], quire[key][0], lowest)
        high = min(kafka[key][1], quire[key][1], highest)
        if low <= high:
            found[key] = (low, high)
    return found


async def compare(
    ports: tuple[int, int], seed: int, count: int
) -> tuple[list[Difference], list[Request]]:
    """Ask both; return what differs, and what was asked."""
    kafka, quire = Contender(ports[0]), Contender(ports[1])
    served = versions_of_both(await kafka.versions(), await quire.versions())
    plan = list(requests(seed, count, served))
    await asyncio.gather(_make_alike(kafka, plan), _make_alike(quire, plan))
    found: list[Difference] = []
    for one in plan:
        theirs, ours = await asyncio.gather(kafka.ask(one), quire.ask(one))
        name = f"{one.number} {one.changes}"
        for path, their, our in _compared(theirs, ours):
            found.append(Difference(one.key.name.lower(), one.version, name, path, their, our))
    await kafka.close()
    await quire.close()
    return found, plan


def _compared(theirs: object, ours: object) -> Iterator[tuple[str, object, object]]:
    if not isinstance(theirs, str) and not isinstance(ours, str):
        yield from differences(_merged(theirs), _merged(ours))
    elif theirs != ours:
        yield "", _summary(theirs), _summary(ours)


def _merged(value: object) -> object:
    """Put rows of lists that are of the same thing together, and leave one of those that are equal.

    What a request names twice, each of both answers twice or once, in one row or two.
    """
    if isinstance(value, dict):
        return {name: _merged(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    rows: list[Any] = []
    for row in value:
        for kept in rows:
            if isinstance(row, dict) and isinstance(kept, dict) and _is_same(kept, row):
                for name, one in row.items():
                    if isinstance(one, list):
                        kept[name] = [*kept[name], *one]
                break
        else:
            rows.append(dict(row) if isinstance(row, dict) else row)
    return [_merged(row) for row in rows]


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Say whether two rows are equal but for their lists, if something names them."""
    plain = [name for name in one if not isinstance(one[name], list)]
    is_named = any(name in ROW_NAMES for name in plain)
    return all(one[name] == other[name] for name in (plain if is_named else one))


def _summary(answer: object) -> str:
    """Name the error codes of an answer."""
    if isinstance(answer, str):
        return answer
    codes = strings_of(answer) & {one.name for one in ErrorCode}
    return f"an answer: {', '.join(sorted(codes))}"


async def _make_alike(at: Contender, plan: Sequence[Request]) -> None:
    """Make what the requests are about; topics that others used under these names go before."""
    await at.call(K.DELETE_TOPICS, 5, {"topic_names": [*STABLE_TOPICS], "timeout": 30_000})
    own = sorted({
        name for one in plan for name in _names(one.fields) if _OWN_TOPIC.fullmatch(name)
    })  # fmt: skip
    compacted = [{"name": "cleanup.policy", "value": "compact"}]
    topics: list[tuple[str, int, list[dict[str, str]]]] = [
        *zip(STABLE_TOPICS, (3, 1, 1), ([], [], compacted), strict=True), (KEYED, 1, compacted),
        (WRITTEN, WRITTEN_PARTITIONS, []),
        *((f"c-{number}", 1, []) for number in range(SETTINGS_TOPICS)),
        *((name, 1, []) for name in own),
    ]  # fmt: skip
    for start in range(0, len(topics), _TOPICS_AT_ONCE):
        rows = [
            {"name": name, "num_partitions": count, "replication_factor": 1,
             "assignments": [], "configs": configs}
            for name, count, configs in topics[start : start + _TOPICS_AT_ONCE]
        ]  # fmt: skip
        answer = await at.call(K.CREATE_TOPICS, 7, {"topics": rows, "timeout": 30_000})
        for row in answer["topics"]:
            assert row["error_code"] == "none", row
            at.learn(f"id of {row['name']}", row["topic_id"])
    for name, partition in (("t", 0), ("t", 0), ("t", 0), ("t", 1), ("one", 0), ("compacted", 0)):
        await _write(at, name, partition)
    for partition in range(WRITTEN_PARTITIONS):
        await _write(at, WRITTEN, partition)
    await at.settled(K.METADATA, 12, {"topics": [{"name": name} for name, _, _ in topics]})
    await _make_coordinators(at)


def _names(value: Any) -> set[str]:
    return strings_of(value) | {
        one.name.removeprefix("id of ") for one in _known_in(value) if hasattr(one, "name")
    }


def _known_in(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for item in value.values() for one in _known_in(item)]
    if isinstance(value, list):
        return [one for item in value for one in _known_in(item)]
    return [value]


async def _write(at: Contender, topic: str, partition: int) -> None:
    records = batch(b"one", b"two", at_ms=NOW_MS)
    await at.settled(K.PRODUCE, 9, {
        "transactional_id": None, "acks": -1, "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [
            {"index": partition, "records": records}]}]})  # fmt: skip


async def _make_coordinators(at: Contender) -> None:
    """A group with offsets, a transactional id, a user with a limit and a password."""
    for kind in (0, 1):
        await at.settled(K.FIND_COORDINATOR, 3, {"key": "g", "key_type": kind})
    rows = [{"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1,
             "committed_metadata": "m"}]  # fmt: skip
    await at.settled(K.OFFSET_COMMIT, 7, {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [{"name": "t", "partitions": rows}]})  # fmt: skip
    await at.settled(K.INIT_PRODUCER_ID, 4, {
        "transactional_id": "tx", "transaction_timeout": 900_000, "producer_id": -1,
        "producer_epoch": -1})  # fmt: skip
    await at.call(K.ALTER_CLIENT_QUOTAS, 1, {"entries": [{
        "entity": [{"entity_type": "user", "entity_name": "limited"}],
        "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}]})  # fmt: skip
    await at.call(K.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": [
        {"name": "limited", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16,
         "salted_password": b"p" * 32}]})  # fmt: skip
    for _ in range(300):
        limits = await at.call(K.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
        users = await at.call(K.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
        if limits["entries"] and users["results"]:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the user's limit and password did not come to be known")


def classes(found: Sequence[Difference]) -> list[DifferenceClass]:
    """Put differences together."""
    by_what: dict[tuple[str, str, str, str], DifferenceClass] = {}
    for one in found:
        path = re.sub(r"\[[^\]]*\]", "[]", one.path)
        what = (one.api, path, _kind(one.kafka), _kind(one.quire))
        row = by_what.setdefault(what, DifferenceClass(*what))
        row.versions.add(one.version)
        row.count += 1
        example = f"v{one.version} {one.step}"
        if len(row.changes) < _LISTED:
            row.changes.append(example)
    return list(by_what.values())


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "a row"
    if isinstance(value, list):
        return f"{'rows' if value else 'no rows'}"
    text = repr(value)
    return text if len(text) < 60 else f"{text[:56]}..."


def sort_out(
    found: Sequence[Difference], table: Sequence[Explained]
) -> tuple[list[Difference], list[Difference], list[Explained]]:
    """Return what no row explains, what one does, and the rows that explain nothing."""
    used: set[str] = set()
    left, explained = [], []
    for one in found:
        rows = [row.where for row in table if re.search(row.where, str(one))]
        used.update(rows)
        (explained if rows else left).append(one)
    return left, explained, [row for row in table if row.where not in used]
