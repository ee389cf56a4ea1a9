"""An entry counts as held until its last copy is settled, whatever became of its writer."""

from __future__ import annotations

from client.errors import BookieTimeout, TooManyRequests
from client.ledger.client import LedgerClient
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.messages import AddRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle, until

NAMES = ("b0", "b1", "b2")


async def start(*names: str) -> tuple[LedgerCluster, LedgerClient, LedgerWriter, Outcomes]:
    cluster = await LedgerCluster.start(*(names or NAMES))
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    return cluster, client, writer, Outcomes(writer)


def hold_adds(request: Request) -> Fate:
    return Fate.HOLD_ANSWER if isinstance(request, AddRequest) else Fate.DELIVER


async def test_an_entry_is_held_until_the_last_bookie_has_answered() -> None:
    cluster, client, writer, outcomes = await start()
    for name in NAMES:
        cluster.bookies[name].fate_of = hold_adds
    outcomes.add(b"x" * 100)
    writer.add([b"y" * 50], lambda *_: None)
    assert client.memory.size == 150, "once, not once for each bookie"
    cluster.bookies["b0"].release()
    cluster.bookies["b1"].release()
    await settle()
    assert writer.progress.last_add_confirmed == 1
    assert client.memory.size == 150
    cluster.bookies["b2"].release(1)
    await settle()
    assert client.memory.size == 50
    cluster.bookies["b2"].release()
    await settle()
    assert client.memory.size == 0


async def test_an_entry_that_waits_for_the_one_before_is_held() -> None:
    _, client, writer, _ = await start()
    writer.add([b"x" * 100], lambda *_: None, entry_id=1)
    await settle()
    assert client.memory.size == 100, "answered by everybody, but not confirmed"
    writer.add([b"y" * 50], lambda *_: None, entry_id=0)
    await settle()
    assert writer.progress.last_add_confirmed == 1
    assert client.memory.size == 0


async def test_the_copies_of_a_writer_that_is_given_up_are_held_until_they_are_settled() -> None:
    cluster, client, writer, outcomes = await start()
    cluster.bookies["b2"].fate_of = hold_adds
    outcomes.add(b"x" * 100)
    await settle()
    for name in NAMES:
        cluster.bookies[name].fate_of = hold_adds
    outcomes.add(b"y" * 50)
    writer.abandon()
    await settle()
    assert [error is None for _, error in outcomes.told] == [True, False]
    assert client.memory.size == 150
    for name in NAMES:
        cluster.bookies[name].release()
    await settle()
    assert client.memory.size == 0


async def test_the_copy_for_a_bookie_that_was_replaced_is_held_until_it_is_settled() -> None:
    cluster, client, writer, outcomes = await start(*NAMES, "b3")
    used = writer.metadata.last_fragment.ensemble
    first = cluster.bookies[used[0]]
    first.fate_of = hold_adds
    outcomes.add(b"x" * 100)
    await settle()
    outcomes.add(b"y" * 50)
    await settle()
    assert writer.progress.last_add_confirmed == 1
    late, failing = first.held
    first.held = [failing]
    first.fail_held(BookieTimeout("test"))
    await settle()
    outcomes.add(b"z")
    await settle()
    assert used[0] not in writer.metadata.last_fragment.ensemble
    assert client.memory.size == 100
    first.held = [late]
    first.release()
    await settle()
    assert client.memory.size == 0


async def test_an_entry_that_a_bookie_sheds_is_held_until_it_takes_it() -> None:
    cluster, client, _, outcomes = await start()
    busy = cluster.bookies["b0"]
    busy.fate_of = hold_adds
    entry_id = outcomes.add(b"x" * 100)
    await settle()
    busy.fail_held(TooManyRequests("test"))
    await until(lambda: bool(busy.held))  # it is asked again
    assert outcomes.confirmed == [entry_id]
    assert client.memory.size == 100
    busy.release()
    await until(lambda: not client.memory.size)
