"""Batch reads over scripted bookies: who is asked, what is kept, when single reads take over."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from client.errors import BookieUnavailable, LedgerError, NoSuchEntry, ReadFailed, TooManyRequests
from client.ids import BookieId, EntryId
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.ledger_metadata import Fragment
from client.ledger.read.batch_read import BatchReads
from client.ledger.read.reader import SOME_ENTRIES_MAX, LedgerReader
from client.ledger.recoveries import unlock
from client.wire.bookkeeper.entry import Entry
from client.wire.bookkeeper.messages import (
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    Request,
)
from tests.fakes.bookies import FakeBookie, Fate, StoredLedger
from tests.fakes.ledger_cluster import LedgerCluster, settle

NAMES = ("b0", "b1", "b2")
ROOM = 1 << 20


class Setting:
    """A closed ledger of some entries, and somebody who reads it in batches."""

    def __init__(self, cluster: LedgerCluster, client: LedgerClient, ledger_id: int) -> None:
        self.cluster = cluster
        self.client = client
        self.reads = BatchReads(client.context)
        self.metadata = cluster.stored_metadata(ledger_id)  # type: ignore[arg-type]
        self.codec = unlock(ledger_id, self.metadata, None)[0]  # type: ignore[arg-type]

    @classmethod
    async def start(
        cls, count: int = 20, *, names: tuple[str, ...] = NAMES, ensemble: int = 3, wait_ms: int = 0
    ) -> Setting:
        cluster = await LedgerCluster.start(*names)
        config = LedgerClientConfig(metadata_retry_delay_ms=0, speculative_read_ms=wait_ms)
        client = await cluster.client(config)
        writer = await client.create(
            ensemble_size=ensemble, write_quorum=min(3, len(names)), ack_quorum=2
        )
        for number in range(count):
            await writer.append(b"entry %d" % number)
        await settle()
        await writer.close()
        return cls(cluster, client, writer.ledger_id)

    async def read(self, first: int, last: int, size_max: int = ROOM) -> list[Entry]:
        return await self.reads.read(
            EntryId(first), EntryId(last), self.metadata, self.codec, size_max
        )

    async def check(self, first: int, last: int, size_max: int = ROOM) -> None:
        found = await self.read(first, last, size_max)
        assert [(entry.entry_id, bytes(entry.payload)) for entry in found] == [
            (number, b"entry %d" % number) for number in range(first, last + 1)
        ]

    def asked(self, kind: type[Request]) -> dict[str, int]:
        """Return how many requests of a kind each bookie got."""
        bookies = self.cluster.bookies
        counts = {
            name: sum(isinstance(request, kind) for request in bookies[name].seen)
            for name in bookies.writable
        }
        return {name: count for name, count in counts.items() if count}


async def test_one_request_brings_many_entries() -> None:
    setting = await Setting.start()
    await setting.check(2, 18)
    assert sum(setting.asked(BatchReadRequest).values()) == 1
    assert setting.asked(ReadRequest) == {}
    assert set(setting.client.context.batches.lacking) == set()


async def test_answers_that_are_full_are_continued() -> None:
    setting = await Setting.start()
    await setting.check(0, 19, size_max=150)
    assert sum(setting.asked(BatchReadRequest).values()) >= 5
    assert len(setting.asked(BatchReadRequest)) == 1  # the same replica: it has them in memory
    assert setting.asked(ReadRequest) == {}


@pytest.mark.parametrize("size_max", [100, 200, ROOM])
async def test_an_answer_that_is_short_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch, size_max: int
) -> None:
    """Since Apache BookKeeper 4.18 a bookie takes the first entry's size for that of all: behind a
    large one it brings fewer entries than fit, though there are more."""
    setting = await Setting.start()

    def few(bookie: FakeBookie, request: BatchReadRequest) -> BatchReadResponse:
        whole = answered(bookie, request._replace(size_max=ROOM))
        count = max(1, request.size_max // (len(whole.entries[0]) + 80))
        short.append(count < len(whole.entries))
        return whole._replace(entries=whole.entries[:count])

    short: list[bool] = []
    answered = FakeBookie._read_batch
    monkeypatch.setattr(FakeBookie, "_read_batch", few)
    await setting.check(0, 19, size_max)
    await setting.check(3, 18, size_max)
    assert any(short) == (size_max < ROOM)
    readers = Readers(setting, read_batch_bytes=size_max)
    reader = await readers.open()
    assert [entry.entry_id for entry in await reader.read(0, 19)] == list(range(20))


async def test_replicas_take_turns() -> None:
    """Also with runs whose length is a multiple of the ensemble's size."""
    setting = await Setting.start(18)
    for first in range(0, 18, 3):
        await setting.check(first, first + 2)
    assert setting.asked(BatchReadRequest) == dict.fromkeys(NAMES, 2)


async def test_a_striped_ledger_is_read_entry_by_entry() -> None:
    setting = await Setting.start(names=("b0", "b1", "b2", "b3"), ensemble=4)
    await setting.check(0, 19)
    assert setting.asked(BatchReadRequest) == {}


async def test_a_batch_ends_where_the_bookies_change() -> None:
    setting = await Setting.start(10, names=("b0", "b1", "b2", "b3"))
    bookies, ledger_id = setting.cluster.bookies, setting.codec.ledger_id
    (fragment,) = setting.metadata.fragments
    left, *others = fragment.ensemble
    (spare,) = set(bookies.writable).difference(fragment.ensemble)
    stored = bookies[left].ledgers[ledger_id].entries
    moved = bookies[spare].ledgers.setdefault(ledger_id, StoredLedger()).entries
    moved.update({EntryId(at): stored.pop(EntryId(at)) for at in range(6, 10)})
    rest = Fragment(EntryId(6), (spare, *others))
    setting.metadata = replace(setting.metadata, fragments=(fragment, rest))
    await setting.check(0, 9)
    asked = [
        (request.first_entry_id, request.count_max)
        for name in bookies.writable
        for request in bookies[name].seen
        if isinstance(request, BatchReadRequest)
    ]
    assert sorted(asked) == [(0, 6), (6, 4)]


async def test_what_stands_before_a_damaged_entry_is_kept() -> None:
    setting = await Setting.start(12)
    order = setting.metadata.schedule.write_set(EntryId(0))
    first = setting.metadata.fragments[0].ensemble[order[0]]
    setting.cluster.bookies[first].damage(setting.codec.ledger_id, EntryId(7))
    await setting.check(0, 11)
    asked = Counter(
        request.first_entry_id
        for name in NAMES
        for request in setting.cluster.bookies[name].seen
        if isinstance(request, BatchReadRequest)
    )
    assert asked == {0: 1, 7: 1}
    assert setting.asked(ReadRequest) == {}
    assert set(setting.client.context.batches.lacking) == set()


@pytest.mark.parametrize(
    ("error", "is_lacking"),
    [
        (BookieUnavailable("connection lost"), True),
        (ReadFailed("BAD_REQUEST"), True),
        (TooManyRequests("later"), False),
        (NoSuchEntry("of none"), False),
    ],
)
async def test_the_next_replica_is_asked_after_a_failure(
    error: LedgerError, is_lacking: bool
) -> None:
    setting = await Setting.start()
    bookies = setting.cluster.bookies
    for name in ("b0", "b1"):
        bookies[name].fate_of = lambda request: (
            Fate.HOLD_REQUEST if isinstance(request, BatchReadRequest) else Fate.DELIVER
        )
    reading = asyncio.create_task(setting.check(0, 19))
    while not reading.done():
        await settle(2)
        for name in ("b0", "b1"):
            bookies[name].fail_held(error)
    await reading
    assert set(setting.client.context.batches.lacking) <= {BookieId("b0"), BookieId("b1")}
    before = setting.asked(BatchReadRequest)
    assert bool(set(setting.client.context.batches.lacking)) == (is_lacking and len(before) > 1)
    for turn in range(3):  # every replica would have its turn
        bookies["b0"].fate_of = bookies["b1"].fate_of = lambda request: Fate.DELIVER
        await setting.check(4 * turn, 4 * turn + 3)
    after = setting.asked(BatchReadRequest)
    for name in set(setting.client.context.batches.lacking):
        assert after[name] == before[name]


async def test_bookies_that_lack_the_request_are_read_entry_by_entry() -> None:
    setting = await Setting.start()
    for name in NAMES:
        bookie = setting.cluster.bookies[name]
        bookie.fate_of = lambda request: (
            Fate.HOLD_REQUEST if isinstance(request, BatchReadRequest) else Fate.DELIVER
        )
    reading = asyncio.create_task(setting.check(0, 19))
    while not reading.done():
        await settle(2)
        for name in NAMES:
            setting.cluster.bookies[name].fail_held(BookieUnavailable("connection lost"))
    await reading
    assert set(setting.client.context.batches.lacking) == set(map(BookieId, NAMES))
    assert sum(setting.asked(ReadRequest).values()) == 20
    await setting.check(0, 19)
    assert setting.asked(BatchReadRequest) == dict.fromkeys(NAMES, 1)
    for name in NAMES:  # they get a newer release, and ten minutes pass
        setting.cluster.bookies[name].fate_of = lambda request: Fate.DELIVER
    lacking = setting.client.context.batches.lacking
    for bookie, until_s in lacking.items():
        assert until_s == pytest.approx(asyncio.get_running_loop().time() + 600, abs=10)
        lacking[bookie] = asyncio.get_running_loop().time()
    await setting.check(0, 19)
    assert sum(setting.asked(BatchReadRequest).values()) > len(NAMES)


async def test_an_unreachable_bookie_is_not_taken_for_an_old_one() -> None:
    setting = await Setting.start()
    down = setting.cluster.bookies["b0"]
    down.is_down = down.is_unreachable = True
    for first in range(0, 18, 3):
        await setting.check(first, first + 2)
    assert set(setting.client.context.batches.lacking) == set()


async def test_silence_is_not_waited_out() -> None:
    setting = await Setting.start(wait_ms=10)
    order = setting.metadata.schedule.write_set(EntryId(0))
    silent = setting.cluster.bookies[setting.metadata.fragments[0].ensemble[order[0]]]
    silent.fate_of = lambda _request: Fate.HOLD_REQUEST
    async with asyncio.timeout(5):
        await setting.check(0, 19)
    assert sum(setting.asked(BatchReadRequest).values()) == 2
    silent.release()  # its answer comes when nobody waits for it any more
    await settle()
    assert set(setting.client.context.batches.lacking) == set()


async def test_what_nobody_has_is_told_as_for_single_reads() -> None:
    setting = await Setting.start(10)
    for name in NAMES:
        del setting.cluster.bookies[name].ledgers[setting.codec.ledger_id].entries[EntryId(5)]
    with pytest.raises(NoSuchEntry, match="no replica has entry 5"):
        await setting.read(0, 9)
    assert set(setting.client.context.batches.lacking) == set()


class Readers:
    """A reader of the ledger's own, with answers of about four entries."""

    def __init__(self, setting: Setting, **settings: int) -> None:
        self.setting = setting
        self.settings = {"read_batch_bytes": 30, "metadata_retry_delay_ms": 0, **settings}

    async def open(self) -> LedgerReader:
        config = LedgerClientConfig(**self.settings)  # type: ignore[arg-type]
        client = await self.setting.cluster.client(config)
        return await client.open(self.setting.codec.ledger_id)

    def batches(self) -> list[tuple[int, int]]:
        """Return (first entry, entries) of every batch read that was asked for."""
        bookies = self.setting.cluster.bookies
        return sorted(
            (request.first_entry_id, request.count_max)
            for name in NAMES
            for request in bookies[name].seen
            if isinstance(request, BatchReadRequest)
        )


async def test_a_reader_asks_for_a_long_range_in_slices_of_all_replicas() -> None:
    setting = await Setting.start(18)
    readers = Readers(setting, read_batch_bytes=32)
    reader = await readers.open()
    assert reader.length // 18 == 7
    found = await reader.read(1, 17)
    assert [bytes(entry.payload) for entry in found] == [b"entry %d" % at for at in range(1, 18)]
    assert {(first, count) for first, count in readers.batches()} >= {(1, 4), (5, 4), (9, 4)}
    assert set(setting.asked(BatchReadRequest)) == set(NAMES)
    assert setting.asked(ReadRequest) == {}


async def test_no_more_slices_than_allowed_are_under_way() -> None:
    setting = await Setting.start(20)
    readers = Readers(setting, read_batches_max=2)
    reader = await readers.open()
    for name in NAMES:
        setting.cluster.bookies[name].fate_of = lambda _request: Fate.HOLD_REQUEST
    reading = asyncio.create_task(reader.read(0, 19))
    await settle()
    assert sum(len(setting.cluster.bookies[name].held) for name in NAMES) == 2
    while not reading.done():
        for name in NAMES:
            setting.cluster.bookies[name].release()
        await settle(2)
    assert [entry.entry_id for entry in await reading] == list(range(20))


@pytest.mark.parametrize(
    ("first", "last", "settings"), [(0, 2, {}), (0, 9, {"read_batch_bytes": 0})]
)
async def test_few_entries_are_read_one_by_one(
    first: int, last: int, settings: dict[str, int]
) -> None:
    setting = await Setting.start(10)
    reader = await Readers(setting, **settings).open()
    assert len(await reader.read(first, last)) == last - first + 1
    assert setting.asked(BatchReadRequest) == {}


async def test_a_slice_that_nobody_has_fails_the_read_and_ends_the_others() -> None:
    setting = await Setting.start(20)
    reader = await Readers(setting).open()
    for name in NAMES:
        del setting.cluster.bookies[name].ledgers[setting.codec.ledger_id].entries[EntryId(5)]
    before = asyncio.all_tasks()
    with pytest.raises(NoSuchEntry, match="no replica has entry 5"):
        await reader.read(0, 19)
    assert asyncio.all_tasks() == before


async def test_a_reader_that_goes_away_leaves_nothing_behind() -> None:
    setting = await Setting.start(20)
    reader = await Readers(setting).open()
    for name in NAMES:
        setting.cluster.bookies[name].fate_of = lambda _request: Fate.HOLD_REQUEST
    before = asyncio.all_tasks()
    reading = asyncio.create_task(reader.read(0, 19))
    await settle()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_two_readers_of_one_ledger_get_their_own_answers() -> None:
    """Answers are matched by request ids, which all readers of a client draw from one place."""
    setting = await Setting.start(20)
    client = await setting.cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0))
    one, other = [await client.open(setting.codec.ledger_id) for _ in range(2)]
    await asyncio.gather(one.read(0, 9), other.read(10, 19))
    requests = [
        request.request_id
        for name in NAMES
        for request in setting.cluster.bookies[name].seen
        if isinstance(request, BatchReadRequest)
    ]
    assert len(requests) == len(set(requests)) == 2


async def test_some_entries_are_what_one_answer_brings() -> None:
    setting = await Setting.start()
    reader = await setting.client.open(setting.codec.ledger_id)
    some = await reader.read_some(3, 18)
    assert [entry.entry_id for entry in some] == list(range(3, 19))
    assert sum(setting.asked(BatchReadRequest).values()) == 1
    few = await setting.reads.read_some(
        EntryId(0), EntryId(19), setting.metadata, setting.codec, size_max=150
    )
    assert [entry.entry_id for entry in few] == list(range(len(few)))
    assert 0 < len(few) < 10
    assert sum(setting.asked(BatchReadRequest).values()) == 2
    with pytest.raises(ReadFailed):
        await reader.read_some(3, 20)


async def test_where_no_bookie_gives_batches_some_entries_are_a_few() -> None:
    setting = await Setting.start(names=("b0", "b1", "b2", "b3"), ensemble=4)
    reader = await setting.client.open(setting.codec.ledger_id)
    for first in range(20):
        some = await reader.read_some(first, 19)
        count = min(SOME_ENTRIES_MAX, 20 - first)
        assert [entry.entry_id for entry in some] == list(range(first, first + count))
    assert setting.asked(BatchReadRequest) == {}
