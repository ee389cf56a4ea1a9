"""Back-pressure: the moment the limit is passed, and the one moment of relief."""

from __future__ import annotations

from bookie.storage.core.group_commit import Backlog, Group, PendingAdds
from client.wire.bookkeeper.messages import Status
from tests.fakes.bookie_box import add


def test_both_crossings_of_the_limit_are_told_once() -> None:
    told: list[int] = []
    backlog = Backlog(100)
    backlog.on_change = lambda: told.append(backlog.bytes)
    backlog.add(100)
    assert not backlog.is_over
    backlog.remove(10)
    backlog.add(50)
    assert backlog.is_over
    backlog.remove(20)
    assert backlog.is_over
    backlog.remove(60)
    assert not backlog.is_over
    backlog.remove(60)
    assert told == [140, 60]


def test_backlog_share_who_has_more_in_line_than_there_is_room_left_is_not_read() -> None:
    backlog = Backlog(100)
    backlog.add(50)
    backlog.wait("hot", 50)
    assert not backlog.is_over_for("hot"), "half of it"
    backlog.add(1)
    backlog.wait("hot", 1)
    assert backlog.is_over_for("hot")
    assert not backlog.is_over_for("light")
    backlog.add(50)
    assert backlog.is_over_for("light"), "there is nothing left for anybody"
    backlog.remove(50)
    backlog.wait_no_longer("hot", 51)
    assert not backlog.is_over_for("hot"), "nothing of it waits in line"
    assert backlog.waiting == {}


def test_pending_adds_count_from_the_line_to_the_index() -> None:
    now_s, waited, answered = [1.0], list[float](), list[Status]()
    backlog = Backlog(1000)
    pending = PendingAdds(backlog, 100, lambda: now_s[0], waited.append)
    request = add(7, 0, bytes(50))
    size = len(request.entry)
    for _ in range(2):
        pending.wait("one", request, answered.append)
    assert backlog.bytes == backlog.waiting["one"] == 2 * size
    now_s[0] = 3.0
    taken = pending.next(Group(1))
    assert taken is not None and taken.request is request
    assert waited == [2.0]
    assert (backlog.bytes, backlog.waiting["one"]) == (2 * size, size)
    pending.remove(size)
    (on_done,) = pending.give_up()
    on_done(Status.IO_ERROR)
    assert answered == [Status.IO_ERROR]
    assert (backlog.bytes, backlog.waiting, pending.turns.count) == (0, {}, 0)
