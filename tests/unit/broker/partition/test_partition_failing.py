"""Bugs in the code of a led partition: it fails loudly, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.errors import BrokerError, LeadershipLost, NotLeader
from broker.partition.core.append_queue import Append
from broker.partition.partition import EffectRunner, Partition
from tests.fakes.brokers import Broker, World, batch, done, read_all, settle
from tests.fakes.one_partition import one_partition
from tests.fakes.raised import Bug, broken
from tests.fakes.virtual_time import run


class Loudness:
    """Collects what reaches the loop's exception handler."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, told: self.errors.append(told.get("exception"))
        )


def _reader(partition: Partition) -> tuple[Any, str]:
    return partition.reader.tail, "add"


def _listed(partition: Partition) -> tuple[Any, str]:
    return partition.reader, "on_listed"


def _begun(partition: Partition) -> tuple[Any, str]:
    return partition.reader, "on_segment_begun"


def _sealed(partition: Partition) -> tuple[Any, str]:
    return partition.reader, "on_sealed"


def _gather(partition: Partition) -> tuple[Any, str]:
    return partition._leader.log.active, "on_entry"


def _core(partition: Partition) -> tuple[Any, str]:
    return partition._leader.log.offsets, "on_accepted"


def _confirmed(partition: Partition) -> tuple[Any, str]:
    return partition._leader.log.queue, "pop"


def _step(partition: Partition) -> tuple[Any, str]:
    return partition._sender.steps.node, "change"


def _entry(partition: Partition) -> tuple[Any, str]:
    partition.transactions.proofs.ask(partition.log_end_offset, 0)
    return partition.transactions, "on_entry_confirmed"


@pytest.mark.parametrize(
    "place", [_reader, _listed, _begun, _sealed, _gather, _core, _confirmed, _step, _entry]
)
def test_whatever_raises_the_leadership_ends_and_everybody_hears(
    place: Callable[[Partition], tuple[Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        loud, ended = Loudness(), list[None]()
        partition.on_ended = lambda: ended.append(None)
        assert await done(partition.append(batch("before"))) == 0
        owner, name = place(partition)
        monkeypatch.setattr(type(owner), name, broken)
        appends: list[Append] = []

        def append() -> None:
            try:
                appends.append(partition.append(batch("x")))
            except (Bug, NotLeader) as error:
                loud.errors.append(error)

        append()
        rolling = asyncio.ensure_future(partition.changes.roll())
        await asyncio.sleep(0.5)
        append()
        async with asyncio.timeout(30):
            (told,) = await asyncio.gather(rolling, return_exceptions=True)
        assert isinstance(told, LeadershipLost | NotLeader | None)
        await settle()
        monkeypatch.undo()
        assert ended == [None]
        assert not partition.is_open
        with pytest.raises(NotLeader):
            partition.append(batch("refused"))
        assert all(append.completed for append in appends)
        assert any(isinstance(error, Bug) for error in loud.errors), "the loop is told"
        again = await broker.open(partition.topic)
        assert [key for _, key in await read_all(again)][:1] == ["before"]
        assert await done(again.append(batch("after"))) > 0

    one_partition(scenario)


@pytest.mark.parametrize("place", [_gather, _core])
def test_a_batch_that_cannot_be_sent_is_answered_though_nothing_else_happens(
    place: Callable[[Partition], tuple[Any, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What raises when the turn of the loop is over has no caller."""

    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        loud, appends = Loudness(), list[Append]()
        owner, name = place(partition)
        monkeypatch.setattr(type(owner), name, broken)
        try:
            appends.append(partition.append(batch("x")))
        except Bug as error:
            loud.errors.append(error)
        await settle()
        monkeypatch.undo()
        assert not partition.is_open
        assert all(append.completed for append in appends)
        assert [type(error) for error in loud.errors] == [Bug]

    one_partition(scenario)


def test_what_comes_behind_an_effect_that_raises_is_carried_out_though_that_raises_too() -> None:
    """Each effect belongs to somebody who waits for it."""

    async def scenario() -> None:
        carried_out, told = list[Any](), list[str]()

        def carry_out(effect: Any) -> None:
            carried_out.append(effect)
            if effect in ("a", "c"):
                raise Bug(effect)

        def failed(error: BaseException) -> Any:
            told.append(str(error))
            return ("the end",) if len(told) == 1 else ()

        runner = EffectRunner(carry_out, lambda: None, tuple, failed)
        effects: Any = ("a", "b", "c", "d")
        with pytest.raises(Bug, match="a"):
            runner.run(effects)
        assert carried_out == ["a", "b", "c", "d", "the end"]
        assert told == ["a", "c"]

    run(scenario())


def test_whoever_raises_on_hearing_of_its_batch_costs_no_other_its_answer() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        loud, heard = Loudness(), list[str]()
        first = partition.append(batch("a"))
        first.on_done(broken)
        first.on_done(lambda _: heard.append("a, sent again"))
        partition.append(batch("b")).on_done(lambda _: heard.append("b"))
        partition.on_high_watermark(partition.high_watermark, broken)
        partition.on_high_watermark(partition.high_watermark, lambda: heard.append("readable"))
        await settle()
        assert sorted(heard) == ["a, sent again", "b", "readable"]
        assert [type(error) for error in loud.errors] == [Bug, Bug]
        assert partition.is_open, "a bug of somebody else is none of the partition"
        assert await done(partition.append(batch("c"))) == 2

    one_partition(scenario)


def test_the_end_settles_everybody_whoever_raises() -> None:
    async def scenario(world: World, broker: Broker, partition: Partition) -> None:
        loud, heard = Loudness(), list[BrokerError | None]()
        partition.append(batch("a")).on_done(broken)
        partition.append(batch("b")).on_done(lambda append: heard.append(append.error))
        partition.on_high_watermark(partition.high_watermark, broken)
        partition.on_high_watermark(partition.high_watermark, lambda: heard.append(None))
        rolling = asyncio.ensure_future(partition.changes.roll())
        await asyncio.sleep(0)
        partition.resign("a test")
        with pytest.raises(LeadershipLost):
            await rolling
        assert [type(error) for error in heard] == [LeadershipLost, type(None)]
        assert [type(error) for error in loud.errors] == [Bug, Bug]

    one_partition(scenario)
