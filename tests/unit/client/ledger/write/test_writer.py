"""The writer shell over scripted bookies."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from client.errors import (
    BookieUnavailable,
    ConnectionLoss,
    IncorrectParameter,
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    MetadataConflict,
    NotEnoughBookies,
    WriteFailed,
)
from client.ids import EntryId
from client.ledger.config import LedgerClientConfig
from client.ledger.core.ledger_metadata import LedgerState
from client.ledger.write.writer import LedgerWriter
from client.metadata.memory import Fault, Operation
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


async def start(
    *names: str, sizes: tuple[int, int, int] = (3, 3, 2), config: LedgerClientConfig | None = None
) -> tuple[LedgerCluster, LedgerWriter, Outcomes]:
    cluster = await LedgerCluster.start(*(names or ("b0", "b1", "b2")))
    client = await cluster.client(config)
    ensemble, write, ack = sizes
    writer = await client.create(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
    return cluster, writer, Outcomes(writer)


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_REQUEST if isinstance(request, AddRequest) else Fate.DELIVER


async def test_adds_are_confirmed_in_order_and_never_inside_add() -> None:
    _, writer, outcomes = await start()
    for expected in range(20):
        assert outcomes.add() == expected
        assert outcomes.told == []
    assert writer.progress.last_add_pushed == 19
    await settle()
    assert outcomes.told == [(entry, None) for entry in range(20)]
    assert writer.progress.last_add_confirmed == 19
    assert writer.progress.in_flight_bytes == 0


async def test_entries_carry_ids_lac_and_length() -> None:
    cluster, writer, outcomes = await start()
    outcomes.add(b"one")
    await settle()
    writer.add([b"tw", memoryview(b"o!")], lambda *_: None)
    await settle()
    assert cluster.bookies.holders(writer.ledger_id, EntryId(1)) == ["b0", "b1", "b2"]
    read = await writer.reader().read(EntryId(0), EntryId(1))
    assert [(e.entry_id, e.lac, e.length, bytes(e.payload)) for e in read] == [
        (0, -1, 3, b"one"),
        (1, 0, 7, b"two!"),
    ]
    assert (writer.progress.length, writer.progress.confirmed_length) == (7, 7)


async def test_the_payload_is_not_copied() -> None:
    cluster, writer, _ = await start()
    payload = bytearray(4000)
    writer.add([payload], lambda *_: None)
    sent = cluster.bookies["b0"].seen[-1]
    assert isinstance(sent, AddRequest)
    assert any(buffer is payload for buffer in sent.entry_rest)
    await settle()


async def test_on_done_may_add() -> None:
    _, writer, _ = await start()
    seen: list[int] = []

    def chain(entry_id: EntryId, error: LedgerError | None) -> None:
        seen.append(entry_id)
        if entry_id < 5:
            writer.add([b"x"], chain)

    writer.add([b"x"], chain)
    await settle(100)
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_a_raising_on_done_skips_nobody(caplog: pytest.LogCaptureFixture) -> None:
    cluster, writer, outcomes = await start()
    for name in ("b0", "b1", "b2"):
        cluster.bookies[name].fate_of = hold_adds

    def broken(entry_id: EntryId, error: LedgerError | None) -> None:
        raise RuntimeError("a bug of the caller")

    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    outcomes.add()
    writer.add([b"x"], broken)
    outcomes.add()
    outcomes.add()
    for name in ("b2", "b1", "b0"):
        cluster.bookies[name].held.reverse()
        cluster.bookies[name].release()
    await settle()
    assert outcomes.confirmed == [0, 2, 3]
    assert len(problems) == 1


async def test_append_waits_for_confirmation() -> None:
    _, writer, _ = await start()
    assert await writer.append(b"a") == 0
    assert await writer.append(b"b") == 1
    assert writer.progress.last_add_confirmed == 1


async def test_append_waits_for_room() -> None:
    config = LedgerClientConfig(writer_in_flight_bytes_max=10)
    cluster, writer, _ = await start(config=config)
    for name in ("b1", "b2"):
        cluster.bookies[name].fate_of = hold_adds
    first = asyncio.ensure_future(writer.append(b"0123456789"))
    second = asyncio.ensure_future(writer.append(b"x"))
    await settle()
    assert not first.done()
    assert not writer.room.is_free
    assert writer.progress.last_add_pushed == 0
    cluster.bookies["b1"].release()
    await settle()
    assert first.done(), "two of three confirm it"
    assert writer.progress.last_add_pushed == 1, "and the third need not have answered"
    cluster.bookies["b1"].release()
    assert await second == 1


async def test_append_waits_while_a_bookie_has_too_much_to_answer() -> None:
    config = LedgerClientConfig(writer_in_flight_bytes_max=10, writer_unanswered_bytes_max=10)
    cluster, writer, _ = await start(config=config)
    cluster.bookies["b2"].fate_of = hold_adds
    first = asyncio.ensure_future(writer.append(b"0123456789"))
    second = asyncio.ensure_future(writer.append(b"x"))
    await settle()
    assert first.done(), "two of three confirm it"
    assert writer.progress.last_add_pushed == 0, "but the third still holds its bytes"
    cluster.bookies["b2"].fate_of = lambda request: Fate.DELIVER
    cluster.bookies["b2"].release()
    assert await second == 1


async def test_a_cancelled_append_disturbs_nobody() -> None:
    cluster, writer, outcomes = await start()
    for name in ("b0", "b1"):
        cluster.bookies[name].fate_of = hold_adds
    task = asyncio.ensure_future(writer.append(b"x"))
    await settle()
    task.cancel()
    outcomes.add()
    for name in ("b0", "b1"):
        cluster.bookies[name].release()
    await settle()
    assert outcomes.confirmed == [1]


async def test_append_raises_what_ended_the_writer() -> None:
    cluster, writer, _ = await start()
    for name in ("b0", "b1", "b2"):
        cluster.bookies[name].is_down = True
    with pytest.raises(WriteFailed) as caught:
        await writer.append(b"x")
    assert isinstance(caught.value.__cause__, NotEnoughBookies)
    with pytest.raises(NotEnoughBookies):
        await writer.append(b"x")


async def test_an_oversized_entry_is_refused_before_it_gets_an_id() -> None:
    _, writer, _ = await start(config=LedgerClientConfig(frame_bytes_max=2000))
    with pytest.raises(IncorrectParameter):
        writer.add([bytes(1995)], lambda *_: None)
    writer.add([bytes(2000 - 8 - 20 - 36)], lambda *_: None)
    assert writer.progress.last_add_pushed == 0
    await settle()


async def test_a_failed_bookie_is_replaced() -> None:
    cluster, writer, outcomes = await start("b0", "b1", "b2", "b3", sizes=(3, 3, 2))
    outcomes.add()
    await settle()
    lost = writer.metadata.last_fragment.ensemble[1]
    cluster.bookies[lost].crash()
    outcomes.add()
    await settle()
    assert outcomes.confirmed == [0, 1]
    fragments = cluster.stored_metadata(writer.ledger_id).fragments
    assert [fragment.first_entry for fragment in fragments] == [0, 1]
    assert lost not in fragments[1].ensemble
    assert writer.metadata.fragments == fragments
    outcomes.add()
    await settle()
    holders = cluster.bookies.holders(writer.ledger_id, EntryId(2))
    assert sorted(holders) == sorted(fragments[1].ensemble)


async def test_without_replacement_it_goes_on_and_heals_when_a_bookie_appears() -> None:
    cluster, writer, outcomes = await start()
    cluster.bookies["b1"].crash()
    outcomes.add()
    await settle()
    outcomes.add()
    await settle()
    assert outcomes.confirmed == [0, 1]
    assert writer.suspended == ["b1"]
    cluster.bookies.set_writable(["b0", "b2", "b9"])
    await settle()
    assert writer.suspended == []
    assert "b9" in cluster.stored_metadata(writer.ledger_id).last_fragment.ensemble
    outcomes.add()
    await settle()
    assert "b9" in cluster.bookies.holders(writer.ledger_id, EntryId(2))


async def test_an_unreachable_bookie_is_no_replacement() -> None:
    cluster, writer, outcomes = await start("b0", "b1", "b2", "b3")
    spare = next(n for n in cluster.bookies.writable if n not in writer.metadata.fragments[0][1])
    cluster.bookies[spare].is_unreachable = True
    cluster.bookies[writer.metadata.last_fragment.ensemble[0]].crash()
    for _ in range(2):
        outcomes.add()
        await settle()
    assert outcomes.confirmed == [0, 1]
    assert len(writer.suspended) == 1


async def test_a_fenced_writer_fails_what_is_pending_and_raises_from_then_on() -> None:
    cluster, writer, outcomes = await start()
    outcomes.add()
    await settle()
    await (await cluster.client()).recover(writer.ledger_id)
    outcomes.add()
    outcomes.add()
    await settle()
    assert outcomes.told[0] == (0, None)
    assert outcomes.failed == [1, 2]
    assert outcomes.errors == [LedgerFenced]
    with pytest.raises(LedgerFenced):
        outcomes.add()
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert cluster.stored_metadata(writer.ledger_id).last_entry == 0
    assert cluster.bookies.listener_count == 0


async def test_close_waits_for_pending_adds() -> None:
    cluster, writer, outcomes = await start()
    for name in ("b0", "b1"):
        cluster.bookies[name].fate_of = hold_adds
    outcomes.add(b"12345")
    closing = asyncio.ensure_future(writer.close())
    await settle()
    assert not closing.done()
    with pytest.raises(LedgerClosed):
        outcomes.add()
    for name in ("b0", "b1"):
        cluster.bookies[name].release()
    await closing
    closed = cluster.stored_metadata(writer.ledger_id)
    assert (closed.state, closed.last_entry, closed.length) == (LedgerState.CLOSED, 0, 5)
    assert outcomes.confirmed == [0]
    await writer.close()
    assert cluster.bookies.listener_count == 0


async def test_close_of_an_empty_ledger() -> None:
    cluster, writer, _ = await start()
    await writer.close()
    closed = cluster.stored_metadata(writer.ledger_id)
    assert (closed.last_entry, closed.length) == (-1, 0)


async def test_close_finds_itself_fenced() -> None:
    """CLOSE-WRITER: the protocol text says error, whatever Java does."""
    cluster, writer, _ = await start()
    cluster.store_metadata(
        writer.ledger_id, cluster.stored_metadata(writer.ledger_id).in_recovery()
    )
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert cluster.stored_metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY


async def test_close_finds_the_same_end_or_another() -> None:
    for last_entry, fine in ((0, True), (1, False)):
        cluster, writer, outcomes = await start()
        outcomes.add(b"123")
        await settle()
        closed = cluster.stored_metadata(writer.ledger_id).closed(EntryId(last_entry), 3)
        cluster.store_metadata(writer.ledger_id, closed)
        if fine:
            await writer.close()
        else:
            with pytest.raises(MetadataConflict):
                await writer.close()


async def test_close_after_a_failure_closes_at_what_was_confirmed() -> None:
    cluster, writer, outcomes = await start()
    outcomes.add(b"1234")
    await settle()
    for name in ("b0", "b1"):
        cluster.bookies[name].crash()
    outcomes.add(b"5678")
    await settle()
    assert outcomes.errors == [WriteFailed]
    await writer.close()
    closed = cluster.stored_metadata(writer.ledger_id)
    assert (closed.last_entry, closed.length) == (0, 4)


async def test_close_can_be_tried_again() -> None:
    cluster, writer, _ = await start()
    await writer.append(b"x")
    cluster.metadata.on_request = partial(break_sets, Fault.LOSE_REQUEST)
    with pytest.raises(ConnectionLoss):
        await writer.close()
    cluster.metadata.on_request = lambda operation: None
    await writer.close()
    assert cluster.stored_metadata(writer.ledger_id).is_closed


async def test_close_whose_answer_was_lost_is_recognised() -> None:
    cluster, writer, _ = await start()
    await writer.append(b"x")
    faults = [Fault.LOSE_REPLY]
    cluster.metadata.on_request = lambda operation: (
        faults.pop() if operation.name == "set" and faults else None
    )
    await writer.close()
    assert faults == []


async def test_an_ensemble_change_that_cannot_be_written_fails_the_writer() -> None:
    cluster, writer, outcomes = await start("b0", "b1", "b2", "b3")
    cluster.metadata.on_request = partial(break_sets, Fault.LOSE_REQUEST)
    cluster.bookies[writer.metadata.last_fragment.ensemble[0]].crash()
    outcomes.add()
    await settle(200)
    assert outcomes.errors == [WriteFailed]


async def test_abandon_fails_what_is_pending_later() -> None:
    cluster, writer, outcomes = await start()
    cluster.bookies["b0"].fate_of = cluster.bookies["b1"].fate_of = hold_adds
    outcomes.add()
    writer.abandon()
    assert outcomes.told == []
    await settle()
    assert outcomes.errors == [LedgerClosed]
    assert not cluster.stored_metadata(writer.ledger_id).is_closed
    with pytest.raises(LedgerClosed):
        outcomes.add()
    assert cluster.bookies.listener_count == 0
    cluster.bookies["b0"].release()
    cluster.bookies["b1"].fail_held(BookieUnavailable("gone"))
    await settle()
    assert len(outcomes.told) == 1


async def test_abandon_during_close_leaves_the_ledger_open() -> None:
    cluster, writer, outcomes = await start()
    cluster.bookies["b0"].fate_of = cluster.bookies["b1"].fate_of = hold_adds
    outcomes.add()
    closing = asyncio.ensure_future(writer.close())
    await settle()
    writer.abandon()
    await settle()
    assert closing.cancelled()
    assert not cluster.stored_metadata(writer.ledger_id).is_closed


async def test_the_writers_reader_sees_what_is_confirmed() -> None:
    cluster, writer, outcomes = await start()
    reader = writer.reader()
    assert (reader.last_entry, reader.closed, reader.length) == (-1, False, 0)
    await writer.append(b"abc")
    cluster.bookies["b0"].fate_of = cluster.bookies["b1"].fate_of = hold_adds
    outcomes.add()
    assert (reader.last_entry, reader.length) == (0, 3)
    assert await reader.refresh() == 0
    with pytest.raises(LedgerError):
        await reader.read(EntryId(0), EntryId(1))
    writer.abandon()
    await settle()


def break_sets(fault: Fault, operation: Operation) -> Fault | None:
    return fault if operation.name == "set" else None
