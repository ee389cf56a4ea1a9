"""Lines go to the partition of their file's name, and the pauses are measured per partition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.pubsub import Address, PubSubError
from client.pubsub.errors import PublishFailed
from ops.demo.check import Checker
from ops.demo.publishing import Publication

FILES = {"a.py": b"1\n2\n", "b.py": b"3\n", "c.py": b"4\n5"}


class FakePublisher:
    """Keeps what it was given; the test answers."""

    def __init__(self) -> None:
        self.queued: list[dict[str, Any]] = []

    async def enqueue(self, topic: str, value: bytes, **settings: Any) -> None:
        self.queued.append({"topic": topic, "value": value, **settings})

    async def flush(self) -> None:
        pass

    def answer(self, index: int, outcome: Address | PubSubError | None = None) -> None:
        record = self.queued[index]
        record["on_done"](outcome or Address("t", record["partition"], index, 0))


async def _publish() -> tuple[Publication, FakePublisher, Checker]:
    checker = Checker(FILES)
    publication = Publication("t", 2, checker)
    publisher = FakePublisher()
    await publication.run(publisher, FILES)  # type: ignore[arg-type]
    return publication, publisher, checker


async def test_every_line_has_its_file_as_key_and_its_number_as_header() -> None:
    publication, publisher, _ = await _publish()
    assert publication.published == 5
    lines = [(r["key"], r["headers"], r["value"]) for r in publisher.queued]
    assert sorted(lines) == [
        (b"a.py", [("line", b"0")], b"1\n"),
        (b"a.py", [("line", b"1")], b"2\n"),
        (b"b.py", [("line", b"0")], b"3\n"),
        (b"c.py", [("line", b"0")], b"4\n"),
        (b"c.py", [("line", b"1")], b"5"),
    ]
    assert len({(r["key"], r["partition"]) for r in publisher.queued}) == 3


async def test_counts_acknowledgements_and_keeps_failures() -> None:
    publication, publisher, checker = await _publish()
    for index in range(4):
        publisher.answer(index)
    publisher.answer(4, PublishFailed("no"))
    assert publication.acknowledged == checker.verdict().acknowledged == 4
    assert [str(failure) for failure in publication.failures] == ["no"]


async def test_the_longest_pause_counts_from_before_the_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publication, publisher, _ = await _publish()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    now_s = began_s

    monkeypatch.setattr(loop, "time", lambda: now_s)
    by_partition = [
        [i for i, r in enumerate(publisher.queued) if r["partition"] == p] for p in (0, 1)
    ]
    busy = max(by_partition, key=len)
    partition = by_partition.index(busy)
    now_s = began_s + 5
    publisher.answer(busy[0])
    now_s = began_s + 6
    publication.forget_gaps()
    now_s = began_s + 8
    publisher.answer(busy[1])
    now_s = began_s + 9
    publisher.answer(busy[2])
    monkeypatch.undo()
    assert publication.gaps_s[partition] == pytest.approx(3.0)
    assert publication.gaps_s[1 - partition] == 0.0
    assert publication.ended_s == pytest.approx(began_s + 9)


async def test_lanes_wait_at_their_share_until_they_may_go_on() -> None:
    """A source that is published within a moment would be through before the kill."""
    publication = Publication("t", 2, Checker(FILES), hold_at=0.4)
    publisher = FakePublisher()
    run = asyncio.create_task(publication.run(publisher, FILES))  # type: ignore[arg-type]
    for _ in range(5):
        await asyncio.sleep(0)
    held = len(publisher.queued)
    assert 0.4 * 5 <= held < 5
    for index in range(held):
        publisher.answer(index, PublishFailed("no") if index == 0 else None)
    assert publication.answered == held
    assert not run.done()
    publication.go_on()
    await run
    assert len(publisher.queued) == 5
