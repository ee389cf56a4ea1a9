"""Large entries of all partitions share the turns of the loop."""

from __future__ import annotations

import random
from collections import deque

import pytest

from broker.partition.leading.send_turns import SendTurn

MAX = 1000


def send(turn: SendTurn[str], sender: str, size: int, *, is_shared: bool = True) -> bool:
    admitted = turn.admits(sender, size, is_shared=is_shared)
    if admitted:
        turn.on_sent(size)
    return admitted


def served(turn: SendTurn[str], queues: dict[str, list[int]]) -> list[str]:
    """Take a turn in which those in line send what it takes; return who sent, in order."""
    found = []
    turn.begin()
    while (sender := turn.next()) is not None:
        queue = queues[sender]
        while queue and send(turn, sender, queue[0]):
            found.append(sender)
            del queue[0]
    return found


def test_a_turn_takes_so_many_bytes_and_the_next_one_as_many() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    assert [send(turn, "a", 400) for _ in range(3)] == [True, True, False]
    assert turn.sent_bytes == 800
    assert turn.is_waited_for
    assert served(turn, {"a": [400, 400, 400]}) == ["a", "a"]
    assert turn.is_waited_for
    assert served(turn, {"a": [400]}) == ["a"]
    assert not turn.is_waited_for


def test_one_larger_than_a_turn_goes_alone() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    assert send(turn, "a", 5 * MAX)
    assert not send(turn, "b", 1)
    assert served(turn, {"b": [1]}) == ["b"]


def test_who_writes_alone_sends_all_that_it_has_at_once_and_others_find_the_turn_full() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    assert all(send(turn, "a", MAX, is_shared=False) for _ in range(5))
    assert not turn.is_waited_for
    assert not send(turn, "b", 1)


def test_all_take_turns_while_others_are_in_line() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    assert send(turn, "a", MAX)
    assert not send(turn, "b", 100)
    assert not send(turn, "a", 1, is_shared=False)
    assert served(turn, {"a": [1], "b": [100]}) == ["b", "a"]


def test_nobody_overtakes_the_line() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    assert send(turn, "a", 900)
    assert not send(turn, "b", 900)
    assert not send(turn, "c", 50), "it would fit, and come before who waits"
    assert served(turn, {"b": [900], "c": [50]}) == ["b", "c"]


def test_who_has_more_joins_the_end_of_the_line() -> None:
    """Turns are shared by bytes, whatever the sizes of entries are."""
    turn: SendTurn[str] = SendTurn(MAX)
    queues = {"a": [1000] * 4, "b": [500] * 8, "c": [250] * 16}
    send(turn, "first", MAX)
    for name, queue in queues.items():
        assert not send(turn, name, queue[0])
    turns = [served(turn, queues) for _ in range(6)]
    assert turns == 2 * [["a"], ["b"] * 2, ["c"] * 4]


def test_in_line_behind_who_is_served() -> None:
    """Whoever comes while another one has its turn waits, unless the line is empty."""
    turn: SendTurn[str] = SendTurn(MAX)
    send(turn, "first", MAX)
    assert not send(turn, "a", 100)
    assert not send(turn, "b", 100)
    turn.begin()
    assert turn.next() == "a"
    assert not send(turn, "c", 100)
    assert send(turn, "a", 100)
    assert turn.next() == "b"
    assert send(turn, "b", 100)
    assert turn.next() == "c"
    assert send(turn, "c", 100)
    assert turn.next() is None


def test_whose_entry_does_not_fit_into_the_rest_of_a_turn_stays_the_first() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    queues = {"a": [100], "b": [950, 950], "c": [100]}
    send(turn, "first", MAX)
    for name, queue in queues.items():
        assert not send(turn, name, queue[0])
    assert [served(turn, queues) for _ in range(3)] == [["a"], ["b"], ["c"]]
    assert served(turn, queues) == ["b"]


def test_who_has_nothing_to_send_any_more_takes_no_turn_away() -> None:
    turn: SendTurn[str] = SendTurn(MAX)
    send(turn, "first", MAX)
    for name in "abc":
        assert not send(turn, name, MAX)
    turn.leave("a")
    turn.leave("nobody")
    assert served(turn, {"b": [], "c": [MAX]}) == ["c"]


def troubles(turn: SendTurn[str], seed: int) -> list[str]:
    """Let partitions of all kinds send for a while; say which of them was treated unfairly."""
    rng, found = random.Random(seed), []
    queues: dict[str, deque[int]] = {f"hot-{n}": deque() for n in range(3)}
    queues |= {f"rare-{n}": deque() for n in range(5)}
    waiting_since: dict[str, int] = {}

    def go(name: str, number: int) -> int:
        """Send what may go, as a partition does; return its bytes."""
        queue, sent = queues[name], 0
        while queue and send(turn, name, queue[0]):
            sent += queue.popleft()
        if sent:
            waiting_since.pop(name, None)
        if queue:
            waiting_since.setdefault(name, number)
        return sent

    for number in range(400):
        turn.begin()
        sent: list[int] = []
        while (name := turn.next()) is not None:
            sent.append(go(name, number))
        for name, queue in queues.items():
            if name.startswith("hot") or rng.random() < 0.05:
                queue.append(rng.randrange(200, 1500))
                sent.append(go(name, number))
        if len([size for size in sent if size]) > 1 and sum(sent) > MAX:
            found.append(f"turn {number} took {sum(sent)} bytes")
        found += [
            f"{name} waits for {number - since} turns"
            for name, since in waiting_since.items()
            if number - since > len(queues)
        ]
    return found


class Unbounded(SendTurn[str]):
    """Plants: without TURN-LARGE."""

    def admits(self, sender: str, size: int, *, is_shared: bool) -> bool:
        return True


class NewestFirst(SendTurn[str]):
    """Plants: TURN-LINE the wrong way round."""

    def begin(self) -> None:
        super().begin()
        self._line = dict(reversed(self._line.items()))


class SameAgain(SendTurn[str]):
    """Plants: who has more stays the first in line."""

    def admits(self, sender: str, size: int, *, is_shared: bool) -> bool:
        self._has_sent = False
        return super().admits(sender, size, is_shared=is_shared)


class Impatient(SendTurn[str]):
    """Plants: whose entry does not fit into the rest of a turn joins the end of the line."""

    def admits(self, sender: str, size: int, *, is_shared: bool) -> bool:
        self._has_sent = True
        return super().admits(sender, size, is_shared=is_shared)


@pytest.mark.parametrize("seed", range(5))
def test_whoever_waits_has_its_turn_before_anybody_has_two(seed: int) -> None:
    assert troubles(SendTurn(MAX), seed) == []


@pytest.mark.parametrize("plant", [Unbounded, NewestFirst, SameAgain, Impatient])
def test_planted_defects_are_seen(plant: type[SendTurn[str]]) -> None:
    assert any(troubles(plant(MAX), seed) for seed in range(5))
