"""Each setting of compaction and of retention where it alone decides, at Kafka and at Quire.

What a setting holds back stays until the cleaner has looked at it, which other topics tell; then
the setting is changed, and nothing else, and what it has held back goes. Nobody waits for a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.integration.cluster import LocalCluster, wait_until
from tests.integration.differential.compacted_topics import (
    TAIL,
    Kafka,
    Left,
    Pair,
    Quire,
    System,
    both,
)
from tests.integration.differential.kafka_node import KafkaNode

pytestmark = pytest.mark.timeout(300)

KEYS, RECORDS = 8, 40
HOUR_MS = 3_600_000
LONGEST = (1 << 63) - 1
LONG_AGO_H, AHEAD_H = 2, 1000
RATE = 1_000_000
"""Bytes a second that compaction may read and write: far more than these tests need, but for the
one that wants a round to last."""


@pytest.fixture(scope="module")
def quire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quire]:
    environ = {
        "QUIRE_BROKER_COMPACTION_CHECK_INTERVAL_MS": "100",
        "QUIRE_BROKER_COMPACTION_GRACE_MS": "1000",
        "QUIRE_BROKER_COMPACTION_BYTES_PER_S": str(RATE),
        "QUIRE_BROKER_RETENTION_CHECK_INTERVAL_MS": "100",
    }
    folder = tmp_path_factory.mktemp("quire")
    with LocalCluster(folder, brokers=1, environ=environ) as cluster:
        system = Quire(cluster)
        yield system
        system.close()


@pytest.fixture(scope="module")
def systems(quire: Quire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[System]]:
    """Quire, and Apache Kafka whose cleaner and retention look as often."""
    often = {
        "log.cleaner.backoff.ms": "100",
        "log.initial.task.delay.ms": "100",
        "log.retention.check.interval.ms": "100",
    }
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), often)
    try:
        kafka = Kafka(node.start())
        yield [quire, kafka]
        kafka.close()
    finally:
        node.kill()


def overwritten(name: str = "key") -> list[Pair]:
    """Records of which all but the last of each key may go."""
    return [
        (b"%s-%d" % (name.encode(), number % KEYS), b"value-%d %s" % (number, b"x" * 50))
        for number in range(RECORDS)
    ]


def lasting(count: int = 30, name: str = "") -> list[Pair]:
    """Records that compaction leaves: several segments of them."""
    return [(b"lasting-%s%d" % (name.encode(), number), b"y" * 200) for number in range(count)]


def mixed() -> list[Pair]:
    """Both by turns: no segment of them loses all. As old as Kafka takes such a one for is when it
    was written, whatever the times of its records were."""
    return [one for pair in zip(lasting(RECORDS), overwritten(), strict=True) for one in pair]


def ago_ms(hours: int) -> int:
    return int(time.time() * 1000) - hours * HOUR_MS


# --- when a log is cleaned ----------------------------------------------------------------


def test_min_cleanable_dirty_ratio(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create("ratio", min_cleanable_dirty_ratio="1.0")
        end = system.put("ratio", overwritten())
        system.seal("ratio")
        system.await_cleaner()
        assert system.left("ratio") == system.written["ratio"], "all of it is dirty, and no more"
        system.alter("ratio", min_cleanable_dirty_ratio="0.9")
        return system.await_clean("ratio", end)

    assert len(both(systems, scenario)) == KEYS


def test_min_compaction_lag_ms_goes_by_the_time_of_records(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        long_ago_ms = ago_ms(LONG_AGO_H)
        system.create("min-lag", min_compaction_lag_ms=HOUR_MS)
        old = system.put("min-lag", overwritten("old"), long_ago_ms)
        system.seal("min-lag", long_ago_ms)
        young = system.put("min-lag", [])
        end = system.put("min-lag", overwritten("young"))
        system.seal("min-lag")
        system.await_clean("min-lag", old)
        system.await_cleaner()
        assert (
            system.left("min-lag")[-(end - young) - 2 * TAIL :]
            == (system.written["min-lag"][young:])
        ), "what is younger stays"
        system.alter("min-lag", min_compaction_lag_ms=0)
        return system.await_clean("min-lag", end)

    both(systems, scenario)


def test_max_compaction_lag_ms_is_above_the_ratio(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create("max-lag", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=HOUR_MS)
        end = system.put("max-lag", overwritten())
        system.seal("max-lag")
        system.await_cleaner()
        assert system.left("max-lag") == system.written["max-lag"]
        system.alter("max-lag", max_compaction_lag_ms=1)
        return system.await_clean("max-lag", end)

    assert len(both(systems, scenario)) == KEYS


def test_delete_retention_ms_keeps_tombstones_and_lets_them_go(systems: Sequence[System]) -> None:
    deleted = {b"key-1", b"key-3"}

    def scenario(system: System) -> list[list[Left]]:
        ends = {}
        for topic, retention_ms in (("kept", HOUR_MS), ("gone", 1)):
            system.create(topic, delete_retention_ms=retention_ms)
            ends[topic] = system.put(topic, [*overwritten(), *((key, None) for key in deleted)])
            system.seal(topic)
        for topic, end in ends.items():
            last = system.newest(topic, end)
            system.await_left(topic, end, lambda found, last=last: {*found} <= {*last})
        # Kafka looks at tombstones again only where something else is dirty.
        for topic in ends:
            end = system.put(topic, overwritten("more"))
            system.seal(topic)
            last = system.newest(topic, end)
            if topic == "kept":
                system.await_clean(topic, end)
            else:
                alive = [one for one in last if one.value is not None]
                assert len(alive) == len(last) - len(deleted)
                system.await_left(topic, end, lambda found, alive=alive: found == alive)
        return [system.left(topic, ends[topic]) for topic in ends]

    kept, gone = both(systems, scenario)
    assert {one.key for one in kept if one.value is None} == deleted
    assert {one.key for one in kept} - {one.key for one in gone} == deleted


def test_tombstones_alone_make_a_partition_due(quire: Quire) -> None:
    """Beyond Kafka: without new data they would stay for ever there."""
    quire.create("alone", delete_retention_ms=1)
    end = quire.put("alone", [*overwritten(), (b"key-0", None)])
    quire.seal("alone")
    alive = [one for one in quire.newest("alone", end) if one.value is not None]
    quire.await_left("alone", end, lambda found: found == alive)


def test_segment_ms_seals_what_is_to_be_cleaned(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create("segment-ms", segment_bytes=None)
        end = system.put("segment-ms", overwritten())
        system.await_cleaner()
        assert system.left("segment-ms") == system.written["segment-ms"], "it is being written"
        system.alter("segment-ms", segment_ms=1)
        wanted = system.newest("segment-ms", end)

        def is_clean() -> bool:
            number = len(system.written["segment-ms"])
            system.put("segment-ms", [(b"next-%d" % number, b"")])
            return system.left("segment-ms", end) == wanted

        wait_until(is_clean, f"segments of {system} to end by time")
        return wanted

    both(systems, scenario)


def test_segment_bytes_is_what_cleaned_segments_are_made_up_to(quire: Quire) -> None:
    pieces, end = 8, 0
    quire.create("segment-bytes")
    for number in range(pieces):
        end = quire.put("segment-bytes", lasting(3, f"{number}-"))
        quire.roll("segment-bytes")
    quire.seal("segment-bytes")

    def sizes() -> list[int]:
        found = quire.ask("segment-bytes", "/segments")["items"]
        return [one["bytes"] for one in found if one["is_sealed"] and one["base_offset"] < end]

    wait_until(lambda: quire.ask("segment-bytes", "/compaction")["cleaned_until"] >= end, "a round")
    assert 1 < len(sizes()) < pieces
    assert max(sizes()) <= 2000
    quire.alter("segment-bytes", segment_bytes=1_000_000)
    quire.ask("segment-bytes", "/compact", method="POST")
    wait_until(lambda: len(sizes()) == 1, "one segment")
    assert quire.left("segment-bytes", end) == quire.newest("segment-bytes", end)


# --- what is deleted beside that ----------------------------------------------------------


def test_retention_ms_counts_only_if_the_policy_says_delete(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        long_ago_ms, ends = ago_ms(LONG_AGO_H), {}
        for topic, policy, retention_ms in (
            ("by-time", "compact,delete", -1),
            ("never", "compact", HOUR_MS),
        ):
            system.create(topic, cleanup_policy=policy, retention_ms=retention_ms)
            ends[topic] = system.put(topic, mixed(), long_ago_ms)
            system.seal(topic, long_ago_ms)
            system.put(topic, [(b"fresh-%d" % number, b"1") for number in range(3)])
            system.seal(topic)
        kept = [system.await_clean(topic, end) for topic, end in ends.items()]
        assert kept[0] == kept[1]
        system.alter("by-time", retention_ms=HOUR_MS)
        system.await_start("by-time", ends["by-time"])
        assert system.left("never", ends["never"]) == kept[1]
        system.alter("never", cleanup_policy="compact,delete")
        system.await_start("never", ends["never"])
        assert system.left("never")[-2 * TAIL - 3 :] == system.written["never"][-2 * TAIL - 3 :]
        return [one for one in system.left("by-time") if (one.key or b"").startswith(b"fresh")]

    assert len(both(systems, scenario)) == 3


def test_retention_bytes(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create(
            "by-size", cleanup_policy="compact,delete", retention_ms=-1, retention_bytes=-1
        )
        end = system.put("by-size", mixed())
        system.seal("by-size")
        kept = system.await_clean("by-size", end)
        assert system.log_start("by-size") == 0
        system.alter("by-size", retention_bytes=8000)
        start = system.await_start("by-size", 1)
        assert start < end + TAIL, "no more than has to go"
        assert system.left("by-size")[-TAIL:] == system.written["by-size"][-TAIL:]
        return kept

    both(systems, scenario)


def test_delete_records_below_and_above_what_was_cleaned(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create("trimmed", cleanup_policy="compact,delete", retention_ms=-1)
        end = system.put("trimmed", overwritten())
        system.seal("trimmed")
        kept = system.await_clean("trimmed", end)
        whole = system.left("trimmed")
        middle = kept[len(kept) // 2].offset
        system.delete_records("trimmed", middle)
        assert system.log_start("trimmed") == middle
        assert system.left("trimmed") == [one for one in whole if one.offset >= middle]
        above = end + TAIL + 3
        system.delete_records("trimmed", above)
        assert system.log_start("trimmed") == above
        assert system.left("trimmed") == [one for one in whole if one.offset >= above]
        # It goes on from there.
        end = system.put("trimmed", overwritten())
        system.seal("trimmed")
        found = system.await_clean("trimmed", end, start=above)
        assert system.log_start("trimmed") == above
        return found

    both(systems, scenario)


def test_delete_records_wants_a_policy_that_deletes(systems: Sequence[System]) -> None:
    def scenario(system: System) -> int:
        system.create("untrimmed")
        system.put("untrimmed", overwritten())
        with pytest.raises(KafkaException) as caught:
            system.delete_records("untrimmed", 3)
        return int(caught.value.args[0].code())

    assert both(systems, scenario) == KafkaError.POLICY_VIOLATION


def test_a_record_from_the_future_is_younger_than_any_lag(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        system.create(
            "ahead", min_compaction_lag_ms=HOUR_MS, message_timestamp_after_max_ms=LONGEST
        )
        system.put("ahead", [(b"key-0", b"from the future")], ago_ms(-AHEAD_H))
        end = system.put("ahead", overwritten(), ago_ms(LONG_AGO_H))
        system.seal("ahead", ago_ms(LONG_AGO_H))
        system.await_cleaner()
        assert system.left("ahead") == system.written["ahead"], "it and all behind it wait"
        system.alter("ahead", min_compaction_lag_ms=0)
        return system.await_clean("ahead", end)

    assert len(both(systems, scenario)) == KEYS


def test_a_record_from_the_future_holds_up_retention_by_time(systems: Sequence[System]) -> None:
    def scenario(system: System) -> list[Left]:
        for topic in ("pinned", "loose", "loose-too"):
            system.create(
                topic, cleanup_policy="compact,delete", retention_ms=-1,
                message_timestamp_after_max_ms=LONGEST,
            )  # fmt: skip
            hours = -AHEAD_H if topic == "pinned" else LONG_AGO_H
            system.put(topic, [(b"first", b"1")], ago_ms(hours))
            end = system.put(topic, mixed(), ago_ms(LONG_AGO_H))
            system.seal(topic, ago_ms(LONG_AGO_H))
            system.seal(topic)
            system.await_clean(topic, end)
            system.alter(topic, retention_ms=HOUR_MS)
        # Once each of two others was trimmed, all have been looked at.
        for topic in ("loose", "loose-too"):
            system.await_start(topic, end)
        assert system.log_start("pinned") == 0
        return system.left("pinned", end)

    both(systems, scenario)


# --- changed meanwhile --------------------------------------------------------------------


def test_a_setting_that_is_changed_while_a_round_runs_counts_for_the_next_one(
    quire: Quire,
) -> None:
    topic = "meanwhile"
    quire.create(topic, segment_bytes=200_000, min_cleanable_dirty_ratio="1.0")
    producer = Producer({"bootstrap.servers": quire.servers, "batch.size": 20_000})
    for number in range(2 * RATE // 1000):  # so that a round takes a second and more
        key, value = b"key-%d" % (number % KEYS), b"%d %s" % (number, b"z" * 1000)
        producer.produce(topic, key=key, value=value, partition=0)
        quire.written[topic].append(Left(number, key, value))
    assert producer.flush(60) == 0
    end = len(quire.written[topic])
    quire.seal(topic)
    quire.alter(topic, min_cleanable_dirty_ratio="0.01")
    wait_until(lambda: quire.ask(topic, "/compaction")["state"] == "running", "a round")
    quire.alter(topic, cleanup_policy="delete")
    log = f"compaction.done topic={topic} "
    wait_until(lambda: log in quire.cluster.node_log("broker-0"), "the round to be complete")
    assert quire.left(topic, end) == quire.newest(topic, end)
    # It is not compacted any more.
    more = quire.put(topic, overwritten())
    quire.seal(topic)
    quire.await_cleaner()
    assert quire.left(topic)[-(more - end) :] == quire.written[topic][-(more - end) :]
    assert quire.cluster.node_log("broker-0").count(log) == 1
    quire.alter(topic, cleanup_policy="compact")
    quire.await_clean(topic, more)
    assert quire.ask(topic, "/compaction")["failures"] == 0


# --- what clients' own tests of compaction ask --------------------------------------------


@pytest.mark.parametrize(
    ("codec", "per_key"), [("none", 10), ("none", 1000), ("snappy", 10), ("gzip", 2000)]
)
def test_what_librdkafkas_test_of_compaction_asks(
    systems: Sequence[System], codec: str, per_key: int
) -> None:
    """Its test 0077: large batches of three keys and of others that come once, tombstones among
    them; each record that is left has its own headers, at its own offset."""
    topic = f"librdkafka-{codec}-{per_key}"

    def scenario(system: System) -> list[Left]:
        system.create(topic, segment_bytes=10_000, delete_retention_ms=86_400_000)
        system.put(topic, [*((b"filler", b"f" * 1000) for _ in range(19)), (b"filler", None)])
        producer = Producer(
            {"bootstrap.servers": system.servers, "compression.type": codec, "linger.ms": 10,
             "message.max.bytes": 6000, "enable.idempotence": True}
        )  # fmt: skip
        written = system.written[topic]
        for number in range(4 * per_key):
            which, is_last = number % 4, number >= 4 * (per_key - 1)
            key = b"k%d" % which if which else b"once-%d" % number
            value = None if which == 1 and (is_last or number % 7 == 1) else b"value-%d" % number
            offset = len(written)
            headers: list[tuple[str, str | bytes | None]] = [("offset", b"%d" % offset)]
            producer.produce(topic, key=key, value=value, partition=0, headers=headers)
            written.append(Left(offset, key, value))
        assert producer.flush(60) == 0
        end = len(written)
        system.put(topic, [(b"filler too", b"f" * 1024)] * 20)
        system.seal(topic)
        found = system.await_clean(topic, end)
        for message in system.messages(topic):
            offset = message.offset() or 0
            if 20 <= offset < end:
                assert message.headers() == [("offset", b"%d" % offset)]
        return found

    found = both(systems, scenario)
    assert len(found) == per_key + 3 + 1, "those that come once, three keys, and a tombstone"
    assert [one.value for one in found if one.key == b"k1"] == [None]
