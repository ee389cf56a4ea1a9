"""Scenarios 4 and 5: a fence that was answered holds after any crash.

4: fence, then crash before anything is flushed, for known and unknown ledgers.
5: the same when the fencing read's answer was "no such entry".

The fence is answered only when its record is durable, whatever the read then finds; the record
holds the master key, so it means something for a ledger that this bookie had never heard of.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from client.wire.bookkeeper.entry import master_key
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import BookieBox, add, fence, payload_of, read, settle

CRASHES = pytest.mark.parametrize("crash", [BookieBox.kill, BookieBox.lose_power])
Crash = Callable[[BookieBox], None]


def restart_after(box: BookieBox, crash: Crash, *, with_index: bool = True) -> None:
    crash(box)
    if not with_index:
        box.index_store.wipe()
    box.start()


@CRASHES
@pytest.mark.parametrize("with_index", [True, False])
async def test_fence_of_a_known_ledger_survives(crash: Crash, with_index: bool) -> None:
    box = BookieBox()
    assert await box.status(add(7, 0, b"before")) is Status.OK
    await settle()
    assert await box.status(fence(7, 0)) is Status.OK
    restart_after(box, crash, with_index=with_index)
    assert await box.status(add(7, 1)) is Status.FENCED
    assert payload_of(7, (await box.call(read(7, 0))).entry) == b"before"


@CRASHES
@pytest.mark.parametrize("with_index", [True, False])
async def test_fence_of_a_ledger_never_heard_of_survives(crash: Crash, with_index: bool) -> None:
    box = BookieBox()
    assert await box.status(fence(7)) is Status.NO_ENTRY
    restart_after(box, crash, with_index=with_index)
    assert await box.status(add(7, 0)) is Status.FENCED
    assert await box.status(add(7, 0, key=master_key(b"other"))) is Status.UNAUTHORIZED
    assert await box.status(add(7, 0, recovery=True)) is Status.OK


@CRASHES
async def test_no_such_entry_is_not_told_before_the_fence_is_durable(crash: Crash) -> None:
    """If the answer is out, the fence holds; if the fence can be lost, no answer is out."""
    box = BookieBox()
    assert await box.status(add(7, 0)) is Status.OK
    await settle()
    box.disk.hold = True
    for wanted in (5, -1):
        answer = box.send(fence(8, wanted))
        in_gap = box.send(fence(7, 5))
        await settle()
        assert not answer.done()
        assert not in_gap.done()
    crash(box)
    box.start()
    assert await box.status(add(7, 1)) is Status.OK
    assert await box.status(add(8, 0)) is Status.OK


async def test_a_writers_add_and_a_fence_are_ordered() -> None:
    """An add is either before the fence, then the recovery read finds it, or it is refused."""
    box = BookieBox()
    box.disk.hold = True
    before = box.send(add(7, 0, b"before"))
    recovery_read = box.send(fence(7, 0))
    after = box.send(add(7, 1, b"after"))
    box.disk.hold = False
    await settle()
    box.disk.release()
    await settle()
    assert before.result().status is Status.OK
    assert payload_of(7, recovery_read.result().entry) == b"before"
    assert after.result().status is Status.FENCED
    assert await box.status(read(7, 1)) is Status.NO_ENTRY


@CRASHES
async def test_every_later_recovery_read_finds_the_fence_in_place(crash: Crash) -> None:
    box = BookieBox()
    for entry in range(3):
        await box.call(add(7, entry))
    for entry in range(3):
        assert await box.status(fence(7, entry)) is Status.OK
    assert await box.status(fence(7, 3)) is Status.NO_ENTRY
    restart_after(box, crash)
    groups = box.metrics.groups
    for entry in range(3):
        assert await box.status(fence(7, entry)) is Status.OK
    assert box.metrics.groups == groups, "a fence is recorded once"
    assert await box.status(add(7, 3, b"written back", recovery=True)) is Status.OK
    restart_after(box, crash)
    assert payload_of(7, (await box.call(read(7, 3))).entry) == b"written back"
    assert await box.status(add(7, 4)) is Status.FENCED
