"""One led partition over scripted ledgers: appends, reads, searches, changes of the log."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest
from crc32c import crc32c

from broker.errors import (
    CorruptBatch,
    InvalidTransactionState,
    LeadershipLost,
    LogReadFailed,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Overloaded,
)
from broker.partition.partition import HIGH_WATERMARK, Partition
from client.errors import (
    ConnectionLoss,
    LedgerFenced,
    LogCorrupt,
    Outcome,
    QuireError,
    ReadFailed,
)
from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.segments import SegmentFacts
from client.wire.kafka.batches.records import (
    Codec,
    Record,
    build_batch,
    crc_of,
    headers,
    parse_header,
)
from tests.fakes.brokers import (
    Broker,
    World,
    batch,
    done,
    forget_cache,
    read_all,
    settle,
    until,
)
from tests.fakes.one_partition import fetch, one_partition


def test_appends_get_consecutive_offsets_and_are_confirmed_in_order() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        first = partition.append(batch("a", "b"))
        second = partition.append(batch("c"))
        assert (first.base_offset, second.base_offset) == (0, 2)
        assert (partition.log_end_offset, partition.high_watermark) == (3, 0)
        assert not first.completed
        assert [await done(first), await done(second)] == [0, 2]
        assert partition.high_watermark == partition.last_stable_offset == 3
        assert partition.usage.in_flight_bytes == 0
        assert await read_all(partition) == [(0, "a"), (1, "b"), (2, "c")]

    one_partition(scenario)


def test_stored_batches_carry_offset_and_epoch_and_keep_their_checksum() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        partition.append(batch("a"))
        sent = batch("b", codec=Codec.ZSTD, pad=9000)
        await done(partition.append(sent))
        forget_cache(partition)
        data = await fetch(partition, 1)
        header = parse_header(data)
        assert (header.base_offset, header.leader_epoch) == (1, 0)
        assert header.crc == crc_of(memoryview(data))
        assert data[16:] == sent[16:]

    one_partition(scenario)


def test_large_batches_are_not_copied() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        frame = bytearray(b"header" + batch("x", pad=50_000))
        append = partition.append(memoryview(frame)[6:])
        prefix, rest = append.buffers
        assert len(prefix) == 16
        assert isinstance(rest, memoryview)
        assert rest.obj is frame

    one_partition(scenario)


def test_refused_batches_leave_no_trace() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        damaged = bytearray(batch("a"))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch):
            partition.append(damaged)
        with pytest.raises(InvalidTransactionState):
            partition.append(
                build_batch(
                    [Record(None, b"x")],
                    producer_id=3,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            )
        assert partition.log_end_offset == 0
        assert await done(partition.append(batch("b"))) == 0

    one_partition(scenario)


def test_log_append_time() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        append = partition.append(batch("a", "b", timestamp_ms=5, pid=1, pad=5000))
        now_ms = world.clock.now_ms()
        assert append.log_append_time_ms == now_ms
        await done(append)
        assert (
            partition.append(batch("a", "b", timestamp_ms=5, pid=1, pad=5000)).log_append_time_ms
            == now_ms
        )
        forget_cache(partition)
        header = parse_header(await fetch(partition, 0))
        assert header.has_log_append_time
        assert header.max_timestamp == now_ms
        assert await partition.reader.offset_for_timestamp(now_ms) == (0, now_ms)

    one_partition(scenario, config={"message_timestamp_type": "LogAppendTime"})


def test_duplicates_of_confirmed_batches_are_answered_at_once() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a", "b", pid=7)))
        await done(partition.append(batch("c", pid=7, sequence=2)))
        again = partition.append(batch("a", "b", pid=7))
        assert again.completed
        assert again.error is None
        assert (again.base_offset, again.end_offset) == (0, 2)
        assert partition.log_end_offset == 3

    one_partition(scenario)


def test_duplicates_of_a_batch_on_its_way_wait_for_it() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        first = partition.append(batch("a", pid=7))
        again = partition.append(batch("a", pid=7))
        await settle()
        assert not again.completed, "acknowledged before it was durable"
        broker.ledgers.release()
        assert [await done(first), await done(again)] == [0, 0]
        assert partition.log_end_offset == 1

    one_partition(scenario)


def test_a_duplicate_on_its_way_shares_the_unknown_end_of_its_original() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        partition.append(batch("a", pid=7))
        again = partition.append(batch("a", pid=7))
        partition.resign("test")
        with pytest.raises(LeadershipLost):
            await done(again)

    one_partition(scenario)


def test_sequences_follow_the_accepted_order_not_the_confirmed_one() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        broker.ledgers.hold_answers = True
        appends = [partition.append(batch("x", pid=7, sequence=number)) for number in range(5)]
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch("x", pid=7, sequence=6))
        broker.ledgers.release()
        assert [await done(append) for append in appends] == [0, 1, 2, 3, 4]

    one_partition(scenario, settling_ms=0)


def test_gaps_are_refused_as_what_is_missing_was_while_the_leadership_is_new() -> None:
    async def scenario(world: World, broker: Broker, first: Partition) -> None:
        await first.close(1.0)
        partition = await broker.open(first.topic)
        with pytest.raises(NotLeader):
            partition.append(batch("2", pid=7, sequence=1))
        await done(partition.append(batch("1", pid=7, sequence=0)))
        await done(partition.append(batch("2", pid=7, sequence=1)))
        with pytest.raises(NotLeader):
            partition.append(batch("4", pid=7, sequence=3))
        with pytest.raises(NotLeader):
            partition.append(batch("2", pid=7, epoch=1, sequence=1))
        with pytest.raises(OutOfOrderSequence):  # behind what was written: no gap
            partition.append(batch("1", "2", pid=7, sequence=0))
        await asyncio.sleep(5)
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch("4", pid=7, sequence=3))
        await done(partition.append(batch("any", pid=8, sequence=9)))

    one_partition(scenario)


def test_a_log_that_was_never_led_is_not_waited_for() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("any", pid=8, sequence=9)))
        now_s = asyncio.get_running_loop().time()
        refused, key = broker.services.refused, (partition.topic.topic_id, partition.index)
        refused.note(*key, parse_header(batch("1", pid=7, sequence=0)), now_s)
        with pytest.raises(NotLeader):  # 1 was refused before
            partition.append(batch("2", pid=7, sequence=1))
        await done(partition.append(batch("1", pid=7, sequence=0)))
        await done(partition.append(batch("2", pid=7, sequence=1)))

    one_partition(scenario)


def test_what_follows_a_batch_without_room_is_refused_for_want_of_room() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        broker.ledgers.hold_answers = True
        partition.append(batch("x" * 300, pid=7, sequence=0))
        with pytest.raises(Overloaded):
            partition.append(batch("x" * 300, pid=7, sequence=1))
        with pytest.raises(Overloaded):
            partition.append(batch("x", pid=7, sequence=2))
        broker.ledgers.release()
        await settle()
        partition.append(batch("x" * 300, pid=7, sequence=1))
        with pytest.raises(OutOfOrderSequence):
            partition.append(batch("x", pid=7, sequence=3))
        await done(partition.append(batch("x", pid=7, sequence=2)))

    one_partition(scenario, settling_ms=0, in_flight_bytes_max=500)


def test_the_high_watermark_waits_for_the_ledger() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        heard: list[str] = []
        partition.on_high_watermark(Offset(0), lambda: heard.append("above 0"))
        cancel = partition.on_high_watermark(Offset(0), lambda: heard.append("cancelled"))
        cancel()
        partition.on_high_watermark(Offset(1), lambda: heard.append("above 1"))
        await done(partition.append(batch("a")))
        assert heard == ["above 0"]
        partition.on_high_watermark(Offset(0), lambda: heard.append("late"))
        assert heard == ["above 0"]
        await settle(2)
        assert heard == ["above 0", "late"]
        partition.resign("test")
        assert heard == ["above 0", "late", "above 1"]

    one_partition(scenario)


def test_unconfirmed_records_are_not_read() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        broker.ledgers.hold_answers = True
        partition.append(batch("b"))
        await settle()
        for _ in range(2):
            assert len(list(headers(await fetch(partition, 0)))) == 1
            assert await fetch(partition, 1) == b""
            assert await fetch(partition, 2) == b""
            forget_cache(partition)

    one_partition(scenario)


def test_a_failed_add_ends_the_leadership_with_an_unknown_outcome() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        ended: list[bool] = []
        partition.on_ended = lambda: ended.append(True)
        await done(partition.append(batch("a")))
        broker.ledgers.writers[0].fail_add = LedgerFenced("somebody recovers")
        appends = [partition.append(batch("b")), partition.append(batch("c"))]
        for append in appends:
            with pytest.raises(LeadershipLost) as caught:
                await done(append)
            assert caught.value.outcome is Outcome.UNKNOWN
        assert ended == [True]
        assert not partition.is_open
        with pytest.raises(NotLeader) as refused:
            partition.append(batch("d"))
        assert refused.value.outcome is Outcome.NOT_APPLIED

    one_partition(scenario)


def test_an_add_that_is_refused_at_once_was_not_applied() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.writers[0].error = LedgerFenced("found out earlier")
        with pytest.raises(NotLeader):
            partition.append(batch("a"))
        assert not partition.is_open
        assert partition.log_end_offset == 0

    one_partition(scenario)


def test_bytes_in_flight_are_bounded() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        append = partition.append(batch("a", pad=700))
        with pytest.raises(Overloaded):
            partition.append(batch("b", pad=700))
        broker.ledgers.release()
        await done(append)
        await done(partition.append(batch("b", pad=700)))

    one_partition(scenario, in_flight_bytes_max=1000)


# --- reads ------------------------------------------------------------------------------


def test_a_read_begins_with_the_batch_that_holds_the_offset() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        partition.append(batch("a", "b", "c"))
        await done(partition.append(batch("d")))
        for _ in range(2):
            bases = [header.base_offset for _, header in headers(await fetch(partition, 2))]
            assert bases == [0, 3]
            forget_cache(partition)

    one_partition(scenario)


def test_sizes_bound_a_read_but_the_first_batch_may_come_whatever_its_size() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        size = len(batch("a", pad=1000))
        for name in "abcd":
            await done(partition.append(batch(name, pad=1000)))
        for _ in range(2):
            assert len(await fetch(partition, 0, 10)) == size
            assert len(await fetch(partition, 0, 10, at_least_one=False)) == 0
            assert len(await fetch(partition, 1, 2 * size)) == 2 * size
            assert len(await fetch(partition, 1, 3 * size - 1, at_least_one=False)) == 2 * size
            forget_cache(partition)

    one_partition(scenario)


def test_cached_reads_do_no_io() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a", "b")))
        found = partition.reader.read_cached(Offset(1), 100, at_least_one=True, read_committed=True)
        assert found is not None
        assert found.next_offset == 2
        at_end = partition.reader.read_cached(
            Offset(2), 100, at_least_one=True, read_committed=False
        )
        assert at_end == ([], 2, 0, ())
        forget_cache(partition)
        assert (
            partition.reader.read_cached(Offset(1), 9, at_least_one=True, read_committed=False)
            is None
        )
        assert (
            partition.reader.read_cached(Offset(9), 9, at_least_one=True, read_committed=False)
            is None
        )
        assert world.backend.service.read_count == 0

    one_partition(scenario)


def test_every_offset_is_found_in_a_long_ledger_with_few_reads() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(300):
            partition.append(batch(f"v{number}", f"w{number}"))
        await until(lambda: partition.high_watermark == 600)
        forget_cache(partition)
        world.backend.service.read_count = 0
        for offset in (0, 1, 2, 299, 300, 301, 598, 599):
            data = await fetch(partition, offset, 10)
            header = parse_header(data)
            assert header.base_offset <= offset < header.next_offset
        assert world.backend.service.read_count < 150

    one_partition(scenario, index_interval_bytes=4000, snapshot_interval_bytes=3000)


def test_internal_entries_are_never_fetched() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(50):
            await done(partition.append(batch(f"v{number}", pid=3, sequence=number)))
        forget_cache(partition)
        entries = broker.ledgers.writers[0].ledger.entries
        assert len(entries) > 52, "snapshots were written"
        assert await read_all(partition, size_max=300) == [(n, f"v{n}") for n in range(50)]

    one_partition(scenario, snapshot_interval_bytes=500)


def test_out_of_range_is_said_only_after_asking_the_store() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        with pytest.raises(OffsetOutOfRange) as caught:
            await fetch(partition, 2)
        assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 1)
        world.cluster.suspend(broker.store)
        with pytest.raises(NotLeader):
            await fetch(partition, 2)

    one_partition(scenario)


def test_ledger_errors_while_reading() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        forget_cache(partition)
        world.backend.service.fail_next("read", ReadFailed("bookies are away"))
        with pytest.raises(LogReadFailed):
            await fetch(partition, 0)
        assert await read_all(partition) == [(0, "a")]

    one_partition(scenario)


def test_one_read_of_ledgers_returns_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.partition.log_reader.READ_BATCHES_MAX", 3)

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(8):
            await done(partition.append(batch(str(number))))
        forget_cache(partition)
        reached = []
        offset = Offset(0)
        while offset < 8:
            found = await partition.reader.read(
                offset, 1 << 20, at_least_one=True, read_committed=False
            )
            reached.append(found.next_offset)
            offset = found.next_offset
        assert reached == [3, 6, 8]

    one_partition(scenario)


# --- timestamps and epochs -----------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 4000, 1 << 20])
def test_timestamps_are_searched_per_record(interval: int) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        stamps = [100, 300, 200, 250, 500, 400, 450, 90]
        for number, stamp in enumerate(stamps):
            made = [Record(None, b"%d" % number, stamp), Record(None, b"x", stamp + 5)]
            await done(partition.append(build_batch(made, codec=Codec.GZIP)))
        everything = [stamp + extra for stamp in stamps for extra in (0, 5)]
        for target in range(80, 520, 5):
            expected = next(
                ((at, found) for at, found in enumerate(everything) if found >= target), None
            )
            assert await partition.reader.offset_for_timestamp(target) == expected, target
        assert await partition.reader.offset_of_max_timestamp() == (9, 505)

    one_partition(scenario, index_interval_bytes=interval)


@pytest.mark.parametrize("seed", range(4))
def test_the_newest_record_is_the_newest_confirmed_one_that_is_left(seed: int) -> None:
    """Whatever was trimmed, also inside a batch, and whatever is on its way."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        rng, everything = random.Random(seed), list[int]()

        async def check() -> None:
            left = everything[partition.log_start_offset : partition.high_watermark]
            expected = None
            if left:
                expected = partition.log_start_offset + left.index(max(left)), max(left)
            assert await partition.reader.offset_of_max_timestamp() == expected

        for _ in range(30):
            stamps = [rng.randrange(1000) for _ in range(rng.randrange(1, 5))]
            made = [Record(None, b"x", stamp) for stamp in stamps]
            codec = rng.choice([Codec.GZIP, Codec.NONE])
            broker.ledgers.hold_answers = True
            append = partition.append(build_batch(made, codec=codec))
            everything += stamps
            await asyncio.sleep(0.01)
            await check()  # it is not confirmed yet
            broker.ledgers.release()
            await done(append)
            await check()
            if rng.random() < 0.3:
                await partition.changes.roll()
                await check()
            if rng.random() < 0.3:
                span = partition.high_watermark - partition.log_start_offset
                start = partition.log_start_offset + rng.randrange(1 + min(4, span))
                await partition.changes.delete_records(Offset(start))
                forget_cache(partition)
                await check()
        await partition.changes.delete_records(HIGH_WATERMARK)
        assert await partition.reader.offset_of_max_timestamp() is None

    one_partition(scenario)


def test_while_a_segment_is_drained_the_newest_record_is_known() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        made = [Record(None, b"x", stamp) for stamp in (9, 5, 7)]
        await done(partition.append(build_batch(made)))
        await partition.changes.delete_records(Offset(1))
        broker.ledgers.hold_answers = True
        partition.append(build_batch([Record(None, b"x", 20)]))
        rolling = asyncio.ensure_future(partition.changes.roll())
        await asyncio.sleep(0.1)
        partition.append(build_batch([Record(None, b"x", 30)]))
        assert partition.changes.is_rolling
        assert await partition.reader.offset_of_max_timestamp() == (2, 7)
        broker.ledgers.release()
        await rolling
        await settle()
        assert await partition.reader.offset_of_max_timestamp() == (4, 30)

    one_partition(scenario)


def test_what_the_sealed_ledger_confirmed_is_not_counted_as_the_next_ones() -> None:
    """Nothing is written since the roll, and the newest record is trimmed."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for stamp in (900, 100):
            await done(partition.append(build_batch([Record(None, b"x", stamp)])))
        await partition.changes.roll()
        await settle()
        await partition.changes.delete_records(Offset(1))
        assert await partition.reader.offset_of_max_timestamp() == (1, 100)

    one_partition(scenario)


def test_no_record_no_timestamp() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        assert await partition.reader.offset_for_timestamp(0) is None
        assert await partition.reader.offset_of_max_timestamp() is None
        await done(partition.append(batch("a")))
        assert await partition.reader.offset_of_max_timestamp() is None

    one_partition(scenario)


def test_the_current_epoch_ends_at_the_high_watermark() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        broker.ledgers.hold_answers = True
        partition.append(batch("b"))
        assert await partition.reader.epoch_end(LeaderEpoch(0)) == (0, 1)
        assert await partition.reader.epoch_end(LeaderEpoch(1)) == (-1, -1)

    one_partition(scenario)


# --- the end -----------------------------------------------------------------------------


def test_close_confirms_what_was_accepted_and_refuses_the_rest() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        world.backend.service.arrival_s = lambda: 0.1
        append = partition.append(batch("a", pid=1))
        closing = asyncio.create_task(partition.close(5.0))
        await settle()
        with pytest.raises(NotLeader):
            partition.append(batch("b"))
        with pytest.raises(NotLeader):
            partition.check_leading()
        assert await done(append) == 0
        await closing
        ledger = broker.ledgers.writers[0].ledger
        assert ledger.closed_at == 2, "snapshot, batch, snapshot"

    one_partition(scenario)


def test_close_does_not_wait_for_ever() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        broker.ledgers.hold_answers = True
        append = partition.append(batch("a"))
        started = asyncio.get_running_loop().time()
        await partition.close(5.0)
        assert asyncio.get_running_loop().time() - started == 5.0
        with pytest.raises(LeadershipLost):
            await done(append)

    one_partition(scenario)


def test_a_session_in_doubt_answers_no_reads() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        await asyncio.sleep(6.7)
        with pytest.raises(NotLeader, match="may have expired"):
            partition.reader.read_cached(Offset(0), 9, at_least_one=True, read_committed=False)
        with pytest.raises(NotLeader, match="may have expired"):
            await partition.reader.epoch_end(LeaderEpoch(0))
        with pytest.raises(NotLeader):
            await fetch(partition, 0)
        with pytest.raises(NotLeader):
            await partition.reader.offset_for_timestamp(0)
        await broker.services.lease.ask(broker.store)
        assert await read_all(partition) == [(0, "a")]

    one_partition(scenario)


# --- what else can go wrong ---------------------------------------------------------------


def test_a_snapshot_that_fails_does_not_make_its_append_look_refused() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await settle()
        writer = broker.ledgers.writers[0]
        add = writer.add

        def add_one(*arguments: object) -> object:
            result = add(*arguments)
            writer.error = LedgerFenced("found out between the two")
            return result

        writer.add = add_one
        append = partition.append(batch("a", pad=3000))
        with pytest.raises(LeadershipLost):
            await done(append)
        assert not partition.is_open

    one_partition(scenario, snapshot_interval_bytes=1000)


def test_a_first_add_that_is_refused_ends_the_leadership_at_once() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        plan = broker.ledgers.plan

        async def plan_broken(**options: object) -> object:
            planned = await plan(**options)

            def created() -> object:
                writer = planned.created()
                writer.error = LedgerFenced("too late")
                return writer

            return planned._replace(created=created)

        broker.ledgers.plan = plan_broken
        assert not (await broker.open(partition.topic)).is_open

    one_partition(scenario)


@pytest.mark.parametrize("error", [ConnectionLoss("x"), LedgerFenced("x")])
def test_the_previous_ledger_of_a_roll_is_closed_or_was_lost(error: QuireError) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        world.backend.service.fail_next("close", error)
        if isinstance(error, ConnectionLoss):
            await partition.changes.roll()
            assert partition.is_open
        else:
            with pytest.raises(LeadershipLost):
                await partition.changes.roll()
            assert not partition.is_open

    one_partition(scenario)


def test_an_add_that_fails_during_a_roll() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        gate = world.backend.service.stop_at("create")
        rolling = asyncio.create_task(partition.changes.roll())
        await settle()
        broker.ledgers.writers[0].error = LedgerFenced("x")
        gate.set()
        with pytest.raises(LeadershipLost):
            await rolling
        assert not partition.is_open
        with pytest.raises(NotLeader):
            await partition.changes.roll()

    one_partition(scenario)


@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_closed_ledger_that_cannot_be_opened_now(operation: str) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        await partition.close(1.0)
        again = await broker.open(partition.topic)
        world.backend.service.fail_next(operation, ReadFailed("x"))
        with pytest.raises(LogReadFailed):
            await fetch(again, 0)
        assert await read_all(again) == [(0, "a")]

    one_partition(scenario)


def test_a_ledger_that_lacks_what_the_list_promises() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        forget_cache(partition)
        entries = broker.ledgers.writers[0].ledger.entries
        entries[1] = entries[0]
        with pytest.raises(LogCorrupt, match="no batch at offset 0"):
            await fetch(partition, 0)
        entries[1] = b"nonsense" * 20
        with pytest.raises(LogCorrupt):
            await fetch(partition, 0)

    one_partition(scenario)


def test_a_timestamp_search_goes_through_many_entries_and_refuses_damaged_records() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        for number in range(20):
            await done(partition.append(batch("v", timestamp_ms=100 + number)))
        assert await partition.reader.offset_for_timestamp(115) == (15, 115)
        assert await partition.reader.offset_for_timestamp(120) is None
        broken = bytearray(batch("v", timestamp_ms=500))
        struct.pack_into(">q", broken, 35, 900)  # the header promises more than the records have
        struct.pack_into(">I", broken, 17, crc32c(memoryview(broken)[21:]))
        # As a version that believed headers has stored it.
        await done(partition.append(broken, from_client=False))
        assert await partition.reader.offset_for_timestamp(600) is None
        broken[61] = 0x7F
        struct.pack_into(">I", broken, 17, crc32c(memoryview(broken)[21:]))
        await done(partition.append(broken, from_client=False))
        # Who wrote it must not make the partition unsearchable: it is the batch that promises.
        assert await partition.reader.offset_for_timestamp(600) == (21, 900)

    one_partition(scenario, read_entries_max=3)


def test_a_list_that_fills_its_node_is_not_rolled_any_further() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a")))
        await partition.changes.roll()
        listed = partition._leader.segments
        first = listed.segments[0]
        empty = SegmentFacts(Offset(-1), 10, -1)
        many = [
            first._replace(ledger_id=LedgerId(10_000 + number), facts=empty)
            for number in range(8000)
        ]
        partition._leader.segments = listed._replace(segments=(*many, *listed.segments)).check()
        with pytest.raises(Overloaded):
            await partition.changes.roll()
        assert partition.is_open
        assert await done(partition.append(batch("b"))) == 1

    one_partition(scenario)


def test_sizes() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        await done(partition.append(batch("a", pad=1000)))
        before = partition.usage.size_bytes
        await partition.changes.roll()
        await done(partition.append(batch("b", pad=1000)))
        assert partition.usage.size_bytes > before + 1000
        assert partition.usage.in_flight_bytes == 0

    one_partition(scenario)


def test_closing_twice_and_resigning_afterwards_is_fine() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        heard: list[str] = []
        partition.on_ended = lambda: heard.append("ended")
        await partition.close(1.0)
        await partition.close(1.0)
        partition.resign("again")
        assert heard == []
        partition.on_high_watermark(Offset(99), lambda: heard.append("woken"))
        await settle()
        assert heard == ["woken"]

    one_partition(scenario)
