"""TAIL-POLL: one poll per member at a time, and pauses after those of no use."""

from __future__ import annotations

import math

from client.ids import BookieId
from client.ledger.core.reads import PAUSE_S, LongPolls

B = [BookieId(f"b{i}") for i in range(4)]


def test_every_member_is_asked_once_at_a_time() -> None:
    polls = LongPolls()
    assert polls.due(B[:3], 10.0) == B[:3]
    assert polls.due(B[:3], 99.0) == []
    assert polls.next_due_s(B[:3]) == math.inf, "only an answer can make one due"


def test_who_brought_news_is_asked_again_at_once() -> None:
    polls = LongPolls()
    polls.due(B[:3], 10.0)
    polls.on_answer(B[1], 11.0, is_news=True)
    assert polls.next_due_s(B[:3]) == 11.0
    assert polls.due(B[:3], 11.0) == [B[1]]


def test_who_was_of_no_use_is_asked_after_a_pause() -> None:
    polls = LongPolls()
    polls.due(B[:3], 10.0)
    polls.on_answer(B[0], 10.1, is_news=False)
    assert polls.due(B[:3], 10.1) == []
    assert polls.next_due_s(B[:3]) == 10.1 + PAUSE_S
    assert polls.due(B[:3], 10.1 + PAUSE_S) == [B[0]]


def test_a_new_member_is_asked_when_it_comes_and_an_old_one_not_any_more() -> None:
    polls = LongPolls()
    polls.due(B[:3], 10.0)
    assert polls.due([B[0], B[1], B[3]], 12.0) == [B[3]]
    polls.on_answer(B[2], 13.0, is_news=True)
    assert polls.due([B[0], B[1], B[3]], 13.0) == []
