"""When requests on a connection are overdue, and when it is to be cut."""

from __future__ import annotations

import pytest

from client.ledger.bookies.bookie_link import TICKS_PER_TIMEOUT, AnswerClock


class Sender:
    """Sends numbered requests of 10 bytes by a clock."""

    def __init__(self) -> None:
        self.clock = AnswerClock(timeout_s=8.0)
        self.stamps: dict[int, int] = {}

    def send(self, *, is_written: bool = True) -> int:
        clock = self.clock
        clock.sent_count += 1
        clock.sent_bytes += 10
        if is_written:
            clock.written_bytes = clock.sent_bytes
        self.stamps[clock.sent_count] = clock.tick
        return clock.sent_count

    def answered(self, number: int) -> None:
        self.clock.answered = min(self.clock.answered, number)
        self.clock.heard_tick = self.clock.tick

    def ticks(self, count: int, held_bytes: int = 0) -> None:
        for _ in range(count):
            self.clock.on_tick(held_bytes)

    def is_overdue(self, number: int) -> bool:
        return self.clock.is_overdue(number, self.stamps[number])


def test_a_request_is_overdue_after_a_whole_timeout_without_an_answer() -> None:
    sender = Sender()
    first = sender.send()
    sender.ticks(TICKS_PER_TIMEOUT)
    assert not sender.is_overdue(first), "the tick of its sending was not a whole one"
    sender.ticks(1)
    assert sender.is_overdue(first)


def test_an_answer_to_what_was_sent_before_prolongs_the_time() -> None:
    """LINK-CLOCK: what was queued in front of a request does not count."""
    sender = Sender()
    first, second = sender.send(), sender.send()
    sender.ticks(5)
    sender.answered(first)
    sender.ticks(TICKS_PER_TIMEOUT)
    assert not sender.is_overdue(second)
    sender.ticks(1)
    assert sender.is_overdue(second)


def test_an_answer_to_what_was_sent_later_prolongs_nothing() -> None:
    """LINK-CLOCK: a bookie that passes a request over has no excuse."""
    sender = Sender()
    first, second = sender.send(), sender.send()
    sender.ticks(5)
    sender.answered(second)
    sender.ticks(4)
    assert sender.is_overdue(first)
    assert not sender.clock.is_silent, "but the connection lives"


@pytest.mark.parametrize("takes", [True, False])
def test_bytes_that_were_held_back_and_are_taken_count_like_answers(takes: bool) -> None:
    """LINK-CLOCK: who still takes what it was sent cannot have answered it."""
    sender = Sender()
    first = sender.send()
    held_bytes = 1000
    for _ in range(3 * TICKS_PER_TIMEOUT):
        held_bytes -= takes
        sender.ticks(1, held_bytes)
    assert sender.is_overdue(first) is not takes
    assert sender.clock.is_silent


def test_what_is_written_meanwhile_is_not_taken_for_held_back() -> None:
    sender = Sender()
    first = sender.send()
    for held_bytes in range(1000, 1000 + 30 * 10, 10):
        sender.send()
        sender.ticks(1, held_bytes)
    assert sender.is_overdue(first)


def test_a_connection_is_silent_when_nothing_arrived_for_the_timeout() -> None:
    """LINK-SILENT."""
    sender = Sender()
    sender.send()
    sender.ticks(TICKS_PER_TIMEOUT)
    assert not sender.clock.is_silent
    sender.ticks(1)
    assert sender.clock.is_silent


def test_what_was_answered_before_a_pause_prolongs_nothing_after_it() -> None:
    sender = Sender()
    sender.answered(sender.send())
    sender.ticks(1)
    sender.clock.stop()
    second = sender.send()
    sender.ticks(TICKS_PER_TIMEOUT + 1)
    assert sender.is_overdue(second)
