"""Records: produced, fetched, found by time or by leader epoch, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from client.wire.kafka.apis import ApiKey
from tests.integration.differential.conversation import Fields, Seen, Step
from tests.integration.differential.steps.fields import NOW_MS, UNKNOWN_ID, always, batch


def _produce(
    records: bytes | None, topic: str = "one", partition: int = 0, acks: int = -1
) -> Callable[[Seen, int], Fields]:
    def fields(seen: Seen, version: int) -> Fields:
        known = seen.topics.get(topic, UNKNOWN_ID)
        named = {"topic_id": known} if version >= 13 else {"name": topic}
        rows = [{"index": partition, "records": records}]
        return {
            "transactional_id": None, "acks": acks, "timeout": 10_000,
            "topic_data": [{**named, "partition_data": rows}],
        }  # fmt: skip

    return fields


def _broken(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


R = ApiKey.PRODUCE
_GOOD = batch(b"one", b"two")
_ONES = batch(b"v" * 50, b"v" * 50, b"v" * 50, b"v" * 50)
PRODUCING: Sequence[Step] = (
    Step("two records", R, _produce(_GOOD), range(3, 14)),
    Step("acks 1", R, _produce(_GOOD, acks=1)),
    Step("acks 2", R, _produce(_GOOD, acks=2), range(3, 14)),
    Step("an unknown topic", R, _produce(_GOOD, "unknown"), range(3, 14)),
    Step("an unknown partition", R, _produce(_GOOD, "one", 9), range(3, 14)),
    Step("a negative partition", R, _produce(_GOOD, "one", -1), range(3, 14)),
    Step("a broken record", R, _produce(_broken(_GOOD, len(_GOOD) - 3, 0x55)), range(3, 14)),
    Step("no records", R, _produce(b""), range(3, 14)),
    Step("too large", R, _produce(_ONES, "small"), range(3, 14)),
    Step("no key where keys are needed", R, _produce(batch(b"v", key=None), "compacted"),
         range(3, 14)),
    Step("a time far ahead", R, _produce(batch(b"v", at_ms=NOW_MS + 90_000_000)), range(3, 14)),
    Step("the broker's time", R, _produce(_GOOD, "stamped"), range(3, 14)),
    Step("an idempotent batch", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=0)), (9,)),
    Step("the same again", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=0)), (9,)),
    Step("a gap in the sequence", R, _produce(batch(b"v", producer_id=4_000_000, producer_epoch=0,
         base_sequence=5)), (9,)),
    Step("an older epoch", R, lambda _s, _v: _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=2, base_sequence=0))(_s, _v), (9,)),
    Step("an older epoch, after it", R, _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=1, base_sequence=0)), (9,)),
    Step("a new epoch in the middle", R, _produce(batch(b"v", producer_id=4_000_001,
         producer_epoch=3, base_sequence=4)), (9,)),
)  # fmt: skip


def _fetch(
    offset: int, topic: str = "one", partition: int = 0, **more: Any
) -> Callable[[Seen, int], Fields]:
    row = {
        "partition": partition, "current_leader_epoch": more.get("epoch", -1),
        "fetch_offset": offset, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip

    def fields(seen: Seen, version: int) -> Fields:
        known = seen.topics.get(topic, UNKNOWN_ID)
        name = {"topic_id": known} if version >= 13 else {"topic": topic}
        return {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20,
            "isolation_level": more.get("isolation", 0), "session_id": more.get("session", 0),
            "session_epoch": more.get("session_epoch", -1),
            "topics": [{**name, "partitions": [row]}], "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip

    return fields


F = ApiKey.FETCH
FETCHING: Sequence[Step] = (
    Step("from the start", F, _fetch(0)),
    Step("read committed", F, _fetch(0, isolation=1)),
    Step("at the end", F, _fetch(10_000_000)),
    Step("before the start", F, _fetch(-5)),
    Step("an unknown topic", F, _fetch(0, "unknown")),
    Step("an unknown partition", F, _fetch(0, "one", 9)),
    Step("a newer epoch", F, _fetch(0, epoch=7)),
    Step("no such session", F, _fetch(0, session=99, session_epoch=4)),
    Step("leaving a session", F, _fetch(0, session=99)),
)

L = ApiKey.LIST_OFFSETS


def _offsets(*times: int, topic: str = "one", partition: int = 0, epoch: int = -1) -> Any:
    return always(
        replica_id=-1, isolation_level=0, timeout_ms=10_000,
        topics=[{"name": topic, "partitions": [
            {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": at}]}
            for at in times],
    )  # fmt: skip


LISTING: Sequence[Step] = (
    Step("latest", L, _offsets(-1)),
    Step("earliest", L, _offsets(-2)),
    Step("largest timestamp", L, _offsets(-3)),
    Step("earliest local", L, _offsets(-4)),
    Step("latest tiered", L, _offsets(-5)),
    Step("earliest pending upload", L, _offsets(-6)),
    Step("a negative time", L, _offsets(-9)),
    Step("a time", L, _offsets(NOW_MS)),
    Step("the beginning of time", L, _offsets(0)),
    Step("a time ahead", L, _offsets(NOW_MS + 10**9)),
    Step("an unknown topic", L, _offsets(-1, topic="unknown")),
    Step("an unknown partition", L, _offsets(-1, partition=9)),
    Step("a newer epoch", L, _offsets(-1, epoch=9)),
    Step("an empty partition", L, _offsets(-3, topic="t")),
)

E = ApiKey.OFFSET_FOR_LEADER_EPOCH


def _epochs(epoch: int, topic: str = "one", current: int = -1) -> Callable[[Seen, int], Fields]:
    return always(
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [
            {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]}],
    )  # fmt: skip


EPOCHS: Sequence[Step] = (
    Step("the first", E, _epochs(0)),
    Step("a later one", E, _epochs(5)),
    Step("none", E, _epochs(-1)),
    Step("unknown topic", E, _epochs(0, "unknown")),
    Step("a newer leader", E, _epochs(0, current=4)),
)

X = ApiKey.DELETE_RECORDS


def _delete_records(offset: int, topic: str = "one", index: int = 0) -> Any:
    return always(
        topics=[{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}],
        timeout=10_000,
    )


RECORDS: Sequence[Step] = (
    Step("some", X, _delete_records(2)),
    Step("fewer than before", X, _delete_records(1)),
    Step("beyond the end", X, _delete_records(10_000_000)),
    Step("a negative offset", X, _delete_records(-2)),
    Step("unknown", X, _delete_records(0, "unknown")),
    Step("an unknown partition", X, _delete_records(0, "one", 9)),
    Step("of a compacted topic", X, _delete_records(0, "compacted")),
    Step("all", X, _delete_records(-1)),
)
