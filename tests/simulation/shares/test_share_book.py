"""The judge of share groups: what it calls wrong, and what it does not."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from tests.simulation.kafka.consumer_book import Place
from tests.simulation.kafka.share_book import (
    ACCEPT,
    NONE,
    RELEASE,
    RENEW,
    Acks,
    Order,
    Session,
    ShareBook,
    Terms,
)
from tests.simulation.kafka.share_log import Fate, ShareLog
from tests.simulation.machine.loop import SimLoop

PLACE = Place(UUID(int=1), 0)
INVALID_STATE = 121


class Judged:
    """A book, its clock, and members of two hosts."""

    def __init__(self, *, read_committed: bool = True) -> None:
        self.loop = SimLoop(random.Random(0))
        self.now_s = 1000.0
        self.loop.time = lambda: self.now_s  # type: ignore[method-assign]
        self.counts: dict[str, int] = {}
        terms = Terms(1.0, 3, read_committed)
        self.book = ShareBook(self.loop, "g", terms, self._count, lambda text: None, session_s=2.0)
        self.one, self.two = Session("one", "b1"), Session("two", "b1")

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    @property
    def broken(self) -> str:
        return "" if self.loop.failure is None else str(self.loop.failure).partition(":")[0]

    def lends(self, session: Session, *offsets: int, count: int = 1, epoch: int = 0) -> None:
        """A request leaves, and its answer comes a moment later."""
        sent_s = self.now_s
        self.now_s += 0.01
        self.book.hears(session, sent_s)
        values = dict.fromkeys(offsets, b"v")
        self.book.lends(session, PLACE, values, count, epoch, sent_s)

    def acks(
        self, session: Session, types: dict[int, int], code: int = NONE, epoch: int = 0
    ) -> None:
        acks = Acks(session, PLACE, types)
        sent_s = self.now_s
        self.book.asks(acks)
        self.now_s += 0.01
        self.book.hears(session, sent_s)
        self.book.answered(acks, code, epoch)

    def proves(self, *sessions: Session) -> None:
        """Sessions go on."""
        self.now_s += 0.01
        for session in sessions:
            self.book.hears(session, self.now_s)


@pytest.fixture
def judged() -> Judged:
    return Judged()


def test_two_members_have_a_record(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.lends(judged.two, 5, count=2)
    assert not judged.broken
    judged.proves(judged.one)
    judged.proves(judged.two)
    assert judged.broken == "S2"


@pytest.mark.parametrize("how", ["lock", "session", "leader", "released"])
def test_a_record_goes_from_one_to_another(judged: Judged, how: str) -> None:
    judged.lends(judged.one, 5)
    if how == "lock":
        judged.now_s += 1.0
    elif how == "session":
        judged.book.ends(judged.one)
    elif how == "leader":
        judged.book.led(PLACE, 1)
    else:
        judged.acks(judged.one, {5: RELEASE})
    judged.lends(judged.two, 5, count=2, epoch=how == "leader")
    judged.proves(judged.one, judged.two)
    assert not judged.broken


def test_what_is_settled_comes_again(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.acks(judged.one, {5: ACCEPT})
    judged.book.led(PLACE, 1)
    judged.lends(judged.two, 5, count=2, epoch=1)
    assert judged.broken == "S5"


def test_a_replaced_leader_may_lend_for_a_while(judged: Judged) -> None:
    judged.book.led(PLACE, 1)
    judged.lends(judged.one, 5, epoch=1)
    judged.acks(judged.one, {5: ACCEPT}, epoch=1)
    judged.now_s += 1.0
    judged.lends(judged.two, 5, epoch=0)
    assert not judged.broken
    judged.now_s += 1.0
    judged.lends(judged.two, 5, epoch=0)
    assert judged.broken == "Z5"


def test_who_has_a_record_is_refused(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.acks(judged.one, {5: ACCEPT}, INVALID_STATE)
    assert judged.broken == "S2"


def test_who_names_too_much_is_refused_as_a_whole(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.acks(judged.one, {5: ACCEPT, 6: ACCEPT}, INVALID_STATE)
    assert not judged.broken
    judged.acks(judged.one, {5: ACCEPT}, INVALID_STATE)
    assert judged.broken == "S2"


def test_who_names_too_much_is_not_refused(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.acks(judged.one, {5: ACCEPT, 6: ACCEPT})
    assert judged.broken == "S7"


def test_a_lock_is_renewed_and_then_passes(judged: Judged) -> None:
    judged.lends(judged.one, 5)
    judged.now_s += 0.9
    judged.acks(judged.one, {5: RENEW})
    judged.now_s += 0.9
    judged.acks(judged.one, {5: RENEW})
    assert not judged.broken
    judged.now_s += 1.1
    judged.acks(judged.one, {5: RENEW})
    assert judged.broken == "S6"


@pytest.mark.parametrize(("count", "epoch", "broken"), [(1, 0, "S4"), (1, 1, "S4"), (2, 1, "")])
def test_what_was_released_counts(judged: Judged, count: int, epoch: int, broken: str) -> None:
    judged.lends(judged.one, 5)
    judged.acks(judged.one, {5: RELEASE})
    for number in range(epoch):
        judged.book.led(PLACE, number + 1)
    judged.lends(judged.two, 5, count=count, epoch=epoch)
    assert judged.broken == broken


def test_the_limit_is_passed(judged: Judged) -> None:
    judged.lends(judged.one, 5, count=4)
    assert judged.broken == "S4"


def _log(**fates: Fate) -> ShareLog:
    log = ShareLog(0)
    for name, fate in fates.items():
        offset = int(name[1:])
        log.fates[offset] = fate
        log.values[offset] = b"v"
    return log


def test_nobody_has_settled_a_record(judged: Judged) -> None:
    judged.lends(judged.one, 0)
    judged.acks(judged.one, {0: ACCEPT})
    judged.book.judge(PLACE, _log(r0=Fate.KEPT, r1=Fate.MARKER, r2=Fate.ABORTED))
    assert not judged.broken
    assert judged.book.given_up(PLACE) == []
    judged.book.judge(PLACE, _log(r0=Fate.KEPT, r1=Fate.KEPT))
    assert judged.broken == "S1"


def test_requests_without_an_answer_may_have_used_all_deliveries(judged: Judged) -> None:
    for _ in range(3):
        judged.book.fetches([PLACE], judged.now_s)
    judged.book.judge(PLACE, _log(r0=Fate.KEPT))
    assert not judged.broken


def test_the_start_passed_a_record_before_anybody_settled_it(judged: Judged) -> None:
    judged.lends(judged.one, 0)
    judged.book.looked(PLACE, 1, 0, judged.now_s)
    judged.now_s += 0.1
    judged.acks(judged.one, {0: ACCEPT})
    judged.book.judge(PLACE, _log(r0=Fate.KEPT))
    assert judged.broken == "S3"


@pytest.mark.parametrize(("epoch", "broken"), [(0, "S3"), (1, "")])
def test_the_start_falls(judged: Judged, epoch: int, broken: str) -> None:
    judged.book.looked(PLACE, 3, 0, judged.now_s)
    judged.now_s += 0.1
    judged.book.looked(PLACE, 2, epoch, judged.now_s)
    assert judged.broken == broken


@pytest.mark.parametrize(
    ("fate", "read_committed", "broken"),
    [
        (Fate.ABORTED, True, "S9"),
        (Fate.ABORTED, False, ""),
        (Fate.MARKER, False, "S9"),
        (Fate.KEPT, True, ""),
    ],
)
def test_what_is_no_record_is_delivered(fate: Fate, read_committed: Any, broken: str) -> None:
    judged = Judged(read_committed=read_committed)
    judged.lends(judged.one, 0)
    judged.acks(judged.one, {0: ACCEPT})
    judged.book.judge(PLACE, _log(r0=fate))
    assert judged.broken == broken


def test_an_order_begins_an_era(judged: Judged) -> None:
    order = Order((PLACE,), 0)
    judged.lends(judged.one, 0)
    judged.acks(judged.one, {0: ACCEPT})
    judged.book.orders(order)
    judged.book.obeyed(order, PLACE, NONE, is_sure=True)
    judged.lends(judged.two, 0)
    assert not judged.broken


def test_an_order_without_an_answer_leaves_doubt(judged: Judged) -> None:
    order = Order((PLACE,), 0)
    judged.lends(judged.one, 0)
    judged.acks(judged.one, {0: ACCEPT})
    judged.book.orders(order)
    judged.book.obeyed(order, PLACE, NONE, is_sure=False)
    judged.lends(judged.two, 0)
    judged.acks(judged.two, {0: ACCEPT}, INVALID_STATE)
    assert not judged.broken
    judged.now_s = judged.book.doubt_s + 1.0
    judged.lends(judged.one, 1)
    judged.acks(judged.one, {1: ACCEPT}, INVALID_STATE)
    assert judged.broken == "S2"
