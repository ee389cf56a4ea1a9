"""What one callback of a writer raises ends that writer, and costs nobody else a completion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.callbacks import Kind
from client.errors import WriteFailed
from client.ids import EntryId
from client.ledger.config import LedgerClientConfig
from client.ledger.write.writer import LedgerWriter
from tests.fakes import virtual_time
from tests.fakes.bookies import Fate
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle
from tests.fakes.raised import Bug, Reports, broken


async def two_writers(
    **settings: Any,
) -> tuple[Reports, LedgerCluster, list[LedgerWriter], list[Outcomes]]:
    """Return writers of one client: what the first one's callbacks raise is not the second's."""
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client(LedgerClientConfig(metadata_retry_delay_ms=0, **settings))
    writers = [await client.create() for _ in range(2)]
    return Reports(), cluster, writers, [Outcomes(writer) for writer in writers]


def hold(cluster: LedgerCluster) -> None:
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.HOLD_REQUEST


def release(cluster: LedgerCluster) -> None:
    for name in cluster.bookies.writable:
        cluster.bookies[name].fate_of = lambda request: Fate.DELIVER
        cluster.bookies[name].release()


def failure(writer: LedgerWriter) -> BaseException | None:
    """Return why the writer takes no more, as `add` says it."""
    with pytest.raises(WriteFailed) as caught:
        writer.add([b"x"], broken)
    return caught.value


async def check_others_go_on(writers: list[LedgerWriter], outcomes: list[Outcomes]) -> None:
    assert writers[0].is_ended
    failure(writers[0])
    outcomes[1].add()
    await settle()
    assert outcomes[1].failed == []
    assert not writers[1].is_ended


async def test_a_raising_on_done_fails_its_writer_after_all_that_is_due_was_told() -> None:
    reports, cluster, writers, outcomes = await two_writers()
    hold(cluster)
    outcomes[0].add()
    writers[0].add([b"x"], broken)
    outcomes[0].add()
    outcomes[1].add()
    for name in cluster.bookies.writable:
        cluster.bookies[name].held.reverse()  # so that all are confirmed by one answer
    release(cluster)
    await settle()
    assert outcomes[0].told == [(0, None), (2, None)]
    assert reports.kinds() == {Kind.ADD_DONE: 1}
    assert outcomes[1].told == [(0, None)]
    await check_others_go_on(writers, outcomes)


async def test_what_is_unconfirmed_when_on_done_raises_fails_with_the_reason() -> None:
    _, cluster, writers, outcomes = await two_writers()
    hold(cluster)
    writers[0].add([b"x"], broken)
    outcomes[0].add()
    for name in cluster.bookies.writable:
        cluster.bookies[name].release(1)
    await settle()
    (told,) = outcomes[0].told
    assert told[0] == 1
    assert isinstance(told[1], WriteFailed)
    assert isinstance(told[1].__cause__, Bug)
    await check_others_go_on(writers, [outcomes[1], outcomes[1]])


async def test_a_raising_on_done_of_a_failed_add_skips_nobody() -> None:
    reports, cluster, writers, outcomes = await two_writers()
    hold(cluster)
    writers[0].add([b"x"], broken)
    writers[0].add([b"x"], broken)
    outcomes[0].add()
    writers[0].abandon()
    await settle()
    assert outcomes[0].failed == [2]
    assert reports.kinds() == {Kind.ADD_DONE: 2}


async def test_an_answer_that_cannot_be_dealt_with_fails_its_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports, _, writers, outcomes = await two_writers()
    monkeypatch.setattr(writers[0]._pipeline.adds, "on_stored", broken)
    outcomes[0].add()
    outcomes[1].add()
    await settle()
    assert outcomes[0].errors == [WriteFailed]
    assert outcomes[1].confirmed == [0]
    assert set(reports.kinds()) == {Kind.ADD_ANSWER}
    await check_others_go_on(writers, outcomes)


async def test_an_add_that_could_not_be_sent_is_told_once_and_not_inside_add(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports, cluster, writers, outcomes = await two_writers()
    monkeypatch.setattr(cluster.bookies["b1"], "request", broken)
    monkeypatch.setattr(cluster.bookies["b2"], "request", broken)
    assert outcomes[0].add() == 0
    assert outcomes[0].told == []
    monkeypatch.undo()
    await settle()
    assert (outcomes[0].failed, outcomes[0].errors) == ([0], [WriteFailed])
    assert reports.kinds() == {Kind.ADD_ANSWER: 1}
    await check_others_go_on(writers, outcomes)


async def test_who_waits_for_room_and_raises_fails_the_writer() -> None:
    reports, cluster, writers, outcomes = await two_writers(writer_in_flight_bytes_max=5)
    hold(cluster)
    outcomes[0].add()
    called: list[str] = []
    writers[0].room.on_free(broken)
    writers[0].room.on_free(lambda: called.append("room"))
    release(cluster)
    await settle()
    assert called == ["room"]
    assert reports.kinds() == {Kind.WRITER_ROOM: 1}
    await check_others_go_on(writers, outcomes)


async def test_an_ensemble_change_that_raises_fails_its_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports, cluster, writers, outcomes = await two_writers()
    monkeypatch.setattr(writers[0]._context.choice, "replacements", broken)
    lost = writers[0].metadata.last_fragment.ensemble[0]
    cluster.bookies[lost].crash()
    outcomes[0].add()
    await settle()
    monkeypatch.undo()
    assert outcomes[0].errors == [WriteFailed]
    assert reports.kinds() == {Kind.ADD_ANSWER: 1}
    await check_others_go_on(writers, outcomes)


@pytest.mark.parametrize("step", ["look", "send_again", "replace_suspended"])
def test_a_timer_or_a_listener_that_raises_fails_its_writer(step: str) -> None:
    async def scenario() -> None:
        _, cluster, writers, outcomes = await two_writers(add_quorum_timeout_ms=60_000)
        reports = Reports()
        adds = writers[0]._pipeline.adds
        setattr(adds, step, broken)
        if step == "look":
            outcomes[0].add()
        elif step == "send_again":
            writers[0]._pipeline._send_again()
        else:
            for name in cluster.bookies.writable[:2]:
                cluster.bookies[name].crash()
            outcomes[0].add()
            await settle()
            cluster.bookies.set_writable(["b2", "b3", "b9"])
        await asyncio.sleep(10)
        assert writers[0].is_ended
        assert reports.kinds() == {Kind.ADD_ANSWER: 1}

    virtual_time.run(scenario())


async def test_append_raises_what_another_owners_bug_did_to_the_writer() -> None:
    _, cluster, writers, _ = await two_writers()
    hold(cluster)
    writers[0].add([b"x"], broken)
    appending = asyncio.ensure_future(writers[0].append(b"y"))
    await settle()
    for name in cluster.bookies.writable:
        cluster.bookies[name].release(1)
    with pytest.raises(WriteFailed):
        await appending
    assert writers[0].progress.last_add_confirmed == EntryId(0)
