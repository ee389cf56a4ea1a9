"""The ten attacks that harmed others once, D1 to D10, each as it was made then.

Each asserts what must come of it, beside what the honest producer sees, and says a figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from broker.cluster.core.topology import TopicInfo
from broker.leadership.orphan_ledgers import OrphanLedgers
from client.ids import BrokerId, EntryId, LedgerId
from client.log.segments import decode_segments, segment_count
from client.metadata import paths
from client.wire.bookkeeper import v3
from client.wire.bookkeeper.messages import LAST_ENTRY, ReadRequest
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.batches.records import Record, build_batch
from ops.cli.store import open_ledgers, open_store
from tests.fakes.wire_client import WireClient
from tests.hostile.attacks.target import HONEST, Attack, Target, until
from tests.hostile.costly import ATTACKS as COSTLY
from tests.hostile.stalls import prepare, send
from tests.integration.memory_crowd import crowd
from tests.integration.shell import shell_for
from tests.unit.broker.front.handlers.requests import produce_fields

_STOPPED_S: Final = 3.0
_MB: Final = 1_000_000
_RECORDS: Final = 450
_SEGMENTS: Final = 400


def frame(client: WireClient, topic: str, value: bytes, *, version: int = 9, **more: Any) -> bytes:
    """Return a Produce request of one record."""
    data = build_batch([Record(b"k", value, time.time_ns() // 1_000_000)])
    fields = produce_fields(data, topic=topic, timeout_ms=30_000, **more)
    return client.frame(ApiKey.PRODUCE, version, fields)


async def end(target: Target, topic: str, leader: int | None = None) -> int:
    """Return the offset behind the last record of the first partition."""
    if leader is None:
        asking = await target.connect()
        (leader,) = await target.leaders(topic, asking)
        await asking.close()
    client = await target.connect(leader)
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    async with asyncio.timeout(60):
        while True:
            answer = await client.call(
                ApiKey.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0,
                topics=[{"name": topic, "partitions": [row]}],
            )  # fmt: skip
            (found,) = answer.topics[0].partitions
            if found.error_code is ErrorCode.none:
                await client.close()
                return int(found.offset)
            await asyncio.sleep(0.05)


async def stopped_bookies(target: Target) -> str:
    """D1: three bookies stand still for 3 s under 200 produces of 1 MB from two connections."""
    await target.create("d1")
    clients = [await target.connect() for _ in range(2)]
    frames = [[frame(c, "d1", bytes(_MB)) for _ in range(100)] for c in clients]
    before = target.leaderships("d1")

    async def answers(client: WireClient) -> list[tuple[float, Any]]:
        rows = []
        for _ in range(100):
            answer = await client.receive(60)
            rows.append((time.monotonic(), answer.responses[0].partition_responses[0]))
        return rows

    began_s = time.monotonic()
    async with target.stopped():
        for client, mine in zip(clients, frames, strict=True):
            for each in mine:
                client.send_raw(each)
        reading = [asyncio.ensure_future(answers(client)) for client in clients]
        await asyncio.sleep(began_s + _STOPPED_S - time.monotonic())
    resumed_s = time.monotonic()
    told = await asyncio.gather(*reading)
    assert {row.error_code for rows in told for _, row in rows} == {ErrorCode.none}
    for rows in told:
        offsets = [row.base_offset for _, row in rows]
        assert offsets == sorted(offsets), "in the order in which they were sent"
    assert target.leaderships("d1") == before, "another leader"
    moments = sorted(at_s for rows in told for at_s, _ in rows)
    longest_s = max(b - a for a, b in itertools.pairwise(moments))
    for client in clients:
        await client.close()
    return (
        f"200 of 200 acknowledged, the first {1000 * (moments[0] - resumed_s):.0f} ms after the"
        f" bookies went on, then {1000 * longest_s:.0f} ms apart at most"
    )


async def long_name(target: Target) -> str:
    """D2: a topic beside one that does not exist, whose name fills what an answer may say."""
    await target.create("d2")
    client = await target.connect()
    data = build_batch([Record(b"k", b"v", time.time_ns() // 1_000_000)])
    rows = [{"index": 0, "records": data}]
    fields = {
        "transactional_id": None, "acks": -1, "timeout": 30_000,
        "topic_data": [
            {"name": "d2", "partition_data": rows}, {"name": "x" * 32_760, "partition_data": rows},
        ],
    }  # fmt: skip
    for _ in range(20):
        client.send(ApiKey.PRODUCE, 8, **fields)
    for _ in range(20):
        good, bad = (await client.receive(30)).responses
        assert good.partition_responses[0].error_code is ErrorCode.none
        assert bad.partition_responses[0].error_code is not ErrorCode.none
    await client.close()
    return "20 of 20 answered"


async def much_work(target: Target) -> str:
    """D3: 1.6 KB that open to 2.4 million records, for keys and for a search by time; one partition
    450,000 times in a Fetch."""
    await prepare(target.port, time.time_ns() // 1_000_000)
    said = []
    for attack in COSTLY[:6]:
        frames = attack.frames(time.time_ns() // 1_000_000)
        began_s = time.monotonic()
        size, was_closed = await send(target.port, frames)
        assert attack.may_close or not was_closed, attack.name
        said.append(f"{time.monotonic() - began_s:.1f} s, {size} bytes")
    return "answered after " + ", ".join(said)


async def hang_up(target: Target) -> str:
    """D4: connections that send and vanish while bookies stand still; the limit holds."""
    await target.create("d4")
    data = frame(WireClient(None, None), "d4", os.urandom(200_000))  # type: ignore[arg-type]
    most = 0.0
    began_s = time.monotonic()
    async with target.stopped(("bookie-1", "bookie-2")):
        while time.monotonic() < began_s + _STOPPED_S - 0.5:
            async with crowd([data * 20], target.port, 40):
                await asyncio.sleep(0.15)
            most = max(most, await target.gauge("quire_broker_in_flight_bytes"))
    limit = 36 << 20
    assert most <= limit, f"{most} bytes held, {limit} allowed"

    async def is_empty() -> bool:
        return await target.gauge("quire_broker_in_flight_bytes") < _MB

    await until(is_empty, 60)
    return f"held {most / (1 << 20):.1f} of 36 MiB at most, nothing afterwards"


async def polls(target: Target) -> str:
    """D5: long polls whose connections vanish are forgotten with them."""
    async with open_store(target.cluster.zookeeper) as store, open_ledgers(store) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        for _ in range(4):
            await writer.append(b"x" * 100)
        ledger_id: LedgerId = writer.ledger_id
        poll = ReadRequest(ledger_id, LAST_ENTRY, previous_lac=EntryId(4), timeout_ms=60_000)
        says = b"".join(b"".join(v3.encode_request(poll, number)) for number in range(20))
        before_mib, most = target.resident_mib("bookie-0"), 0.0
        for _ in range(10):
            async with crowd([says], target.bookie_port, 100):
                await asyncio.sleep(0.3)
                most = max(most, await target.gauge("quire_bookie_long_polls", "bookie-0"))

        async def are_gone() -> bool:
            return not await target.gauge("quire_bookie_long_polls", "bookie-0")

        await until(are_gone, 10)
        grown_mib = target.resident_mib("bookie-0") - before_mib
        await writer.close()
    assert most > 0, "none was parked"
    assert grown_mib < 64, f"{grown_mib:.0f} MiB more"
    return f"{most:.0f} polls at most, none afterwards; the bookie has {grown_mib:+.0f} MiB"


async def mislabelled(target: Target) -> str:
    """D6: ledgers with labels that we never write do not end the sweep of orphans."""
    labels = {
        "application": b"quire", "quire.topic_id": b"..", "quire.partition": b"3",
        "quire.leader_epoch": b"7",
    }  # fmt: skip
    orphan = {**labels, "quire.topic_id": b"0c8bb4f0-6c67-4c5a-9d43-6a1f9a0f7a11"}

    class Live:
        brokers: Final = (BrokerId(0),)

    async with open_store(target.cluster.zookeeper) as store, open_ledgers(store) as ledgers:
        made = [await ledgers.create(custom_metadata=each) for each in (labels, orphan)]
        ids = [writer.ledger_id for writer in made]
        deleted = await OrphanLedgers(store, ledgers, Live(), BrokerId(0)).sweep()
        assert ids[0] not in deleted and ids[1] in deleted, deleted
        await ledgers.delete(ids[0])
    failed = [
        f"{name}={value:g}"
        for name, value in target.metrics().items()
        if name.startswith("quire_task_failures_total") and value
    ]
    assert not failed, failed
    return "the sweep went on, no task has failed"


async def many_segments(target: Target) -> str:
    """D7: a partition of many segments: its list moves them into pages, and stays small."""
    await target.create("d7", segment_bytes="500")
    client = await target.connect()
    async with open_store(target.cluster.zookeeper) as store:
        topic = TopicInfo.decode("d7", (await store.get(paths.topic("d7"))).data)
        for count in itertools.count(1):
            client.send_raw(frame(client, "d7", bytes(300)))
            (row,) = (await client.receive(30)).responses[0].partition_responses
            assert row.error_code is ErrorCode.none, row
            if count % 100 == 0:
                head = await store.get(paths.partition(topic.id_text, 0))
                segments = decode_segments(head.data)
                if segment_count(segments) > _SEGMENTS:
                    break
    await client.close()
    assert segments.pages and len(head.data) < 64 * 1024
    return f"{segment_count(segments)} segments, a head of {len(head.data)} bytes"


async def fast_producer(target: Target) -> str:
    """D8: 1,000 records of 500 kB as fast as librdkafka takes them, without idempotence."""
    await target.create("d8")
    before = target.leaderships("d8")
    errors, acknowledged, took_s = await asyncio.to_thread(_produce_fast, target)
    assert errors == [] and acknowledged == 1_000, (errors[:3], acknowledged)
    assert await end(target, "d8") == 1_000, "stored twice"
    assert target.leaderships("d8") == before, "another leader"
    return f"500 MB in {took_s:.1f} s"


def _produce_fast(target: Target) -> tuple[list[str], int, float]:
    errors: list[str] = []
    offsets: list[int] = []

    def note(error: object, message: Any) -> None:
        errors.append(str(error)) if error else offsets.append(message.offset())

    producer = Producer(
        {**target.settings, "acks": "all", "enable.idempotence": False,
         "queue.buffering.max.kbytes": 1_000_000}
    )  # fmt: skip
    padding, began_s = os.urandom(500_000), time.monotonic()
    for _ in range(1_000):
        producer.produce("d8", padding, on_delivery=note)
        producer.poll(0)
    producer.flush(200)
    return errors, len(set(offsets)), time.monotonic() - began_s


async def first_records(target: Target) -> str:
    """D9: 450 records with acks=0 the moment a leader is named, by a client that asks nothing
    more."""
    client = await target.connect()
    for number in range(8):
        topic = f"d9-{number}-{time.time_ns()}"
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": -1}
        client.send(
            ApiKey.CREATE_TOPICS, 5, timeout=30_000, validate_only=False,
            topics=[{**wanted, "assignments": [], "configs": []}],
        )  # fmt: skip
        await client.receive(30)
        frames = _unanswered(topic, _RECORDS)
        while (leader := (await target.leaders(topic, client))[0]) < 0:
            pass
        there = await target.connect(leader)
        there.send_raw(frames)
        await there.call(ApiKey.API_VERSIONS, 0)
        await there.close()
        assert (found := await end(target, topic)) == _RECORDS, f"{_RECORDS - found} lost"
    await client.close()
    return f"8 × {_RECORDS} records, none lost"


async def taken_over(target: Target) -> str:
    """D9: the same the moment another leader is named, because the one before is gone."""
    victim, topic, asking = await _elsewhere(target, "d9-taken-over")
    old = target.cluster.kill(f"broker-{victim}")
    took_s = await _records_to_the_next(target, topic, victim, asking)
    await asyncio.to_thread(target.cluster.wait_restarted, f"broker-{victim}", old)

    async def answers() -> bool:
        with contextlib.suppress(OSError):
            await (await target.connect(victim)).close()
            return True
        return False

    await until(answers, 60)  # the next attack may begin with a request to it
    return f"{_RECORDS} records, none lost, {took_s * 1000:.0f} ms after kill -9"


async def handed_over(target: Target) -> str:
    """D9: the same the moment another leader is named, because the one before hands over."""
    victim, topic, asking = await _elsewhere(target, "d9-handed-over")
    with tempfile.TemporaryDirectory() as folder:
        shell = shell_for(target.cluster, Path(folder))
        unloading = asyncio.create_task(
            asyncio.to_thread(shell.ok, f"quire broker unload {victim} --no-wait")
        )
        took_s = await _records_to_the_next(target, topic, victim, asking)
        await unloading
        await asyncio.to_thread(shell.ok, f"quire broker load {victim}")
    return f"{_RECORDS} records, none lost, {took_s * 1000:.0f} ms after the command"


async def _elsewhere(target: Target, name: str) -> tuple[int, str, WireClient]:
    """Return who does not lead the honest producer's topic, a topic that it leads, and a connection
    to the other one."""
    first = await target.connect()
    (honest,) = await target.leaders(HONEST, first)
    for number in itertools.count():
        topic = f"{name}-{number}"
        await target.create(topic)
        if (leader := (await target.leaders(topic, first))[0]) != honest:
            await first.close()
            return leader, topic, await target.connect(honest)
    raise AssertionError


async def _records_to_the_next(
    target: Target, topic: str, before: int, asking: WireClient
) -> float:
    frames, began_s = _unanswered(topic, _RECORDS), time.monotonic()
    leader = -1

    async def is_named() -> bool:
        nonlocal leader
        (leader,) = await target.leaders(topic, asking)
        return leader not in (-1, before)

    await until(is_named, 30)
    took_s = time.monotonic() - began_s
    there = await target.connect(leader)
    there.send_raw(frames)
    await there.call(ApiKey.API_VERSIONS, 0)
    for client in (there, asking):
        await client.close()
    found = await end(target, topic, leader)
    assert found == _RECORDS, f"{_RECORDS - found} lost"
    return took_s


def _unanswered(topic: str, count: int) -> bytes:
    client = WireClient(None, None)  # type: ignore[arg-type]  # it only makes frames
    return b"".join(frame(client, topic, b"%d" % at, acks=0) for at in range(count))


async def grown(target: Target) -> str:
    """D10: partitions that are added move no leader."""
    await target.create("d10", partitions=4)
    client = await target.connect()
    before, events = await target.leaders("d10", client), target.leaderships("d10")
    client.send(
        ApiKey.CREATE_PARTITIONS, 1, timeout_ms=30_000, validate_only=False,
        topics=[{"name": "d10", "count": 12, "assignments": None}],
    )  # fmt: skip
    assert (await client.receive(60)).results[0].error_code is ErrorCode.none

    async def are_led() -> bool:
        now = await target.leaders("d10", client)
        return len(now) == 12 and min(now) >= 0

    await until(are_led, 60)
    await asyncio.sleep(1.0)  # what would move would have moved by then
    after = await target.leaders("d10", client)
    assert after[:4] == before and target.leaderships("d10") == events
    await client.close()
    return "4 partitions stayed, 8 came"


async def wrong_names(target: Target) -> str:
    """D10: a client that asks for invalid topics, thousands of times."""
    client = await target.connect()
    before, asked, began_s = target.log_lines("topic.not_created"), 0, time.monotonic()
    while time.monotonic() - began_s < 5:
        for _ in range(100):
            client.send(
                ApiKey.METADATA, 4, topics=[{"name": f"no/topic{asked}"}],
                allow_auto_topic_creation=True,
            )  # fmt: skip
            asked += 1
        for _ in range(100):
            await client.receive(30)
    lines = target.log_lines("topic.not_created") - before
    await client.close()
    assert 0 < lines <= 100, f"{lines} lines"
    return f"{lines} log lines for {asked} requests in 5 s"


ATTACKS: Final = (
    Attack("D1 bookies stopped for 3 s under 200 MB", stopped_bookies, pause_s=_STOPPED_S),
    Attack("D2 a name that fills the answer", long_name),
    Attack("D3 little that opens to much", much_work),
    Attack("D4 who sends and hangs up", hang_up, "small", pause_s=3.0),
    Attack("D5 long polls of a bookie", polls),
    Attack("D6 foreign ledgers", mislabelled),
    Attack("D7 many segments", many_segments),
    Attack("D8 a fast producer", fast_producer),
    Attack("D9 records as soon as there is a leader", first_records, "two brokers"),
    Attack("D9 after a hand-over", handed_over, "two brokers"),
    Attack("D9 after a takeover", taken_over, "two brokers", ends_a_node=True),
    Attack("D10 partitions that are added", grown, "two brokers"),
    Attack("D10 topics of wrong names", wrong_names),
)
