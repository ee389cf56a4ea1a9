"""Whose read of the disk is next, and how reads give way to adds."""

from __future__ import annotations

from bookie.storage.core.read_turns import Begun, ReadLimits, ReadTurns
from client.ids import LedgerId

L7, L8, L9 = LedgerId(7), LedgerId(8), LedgerId(9)
MB = 1_000_000
LEAST = 100 * MB
"""Bytes per second: 1 MB in 10 ms."""


def turns_of(
    *jobs: tuple[LedgerId, str], at_once: int = 4, wait_s_max: float = 1e6
) -> ReadTurns[str]:
    turns: ReadTurns[str] = ReadTurns(ReadLimits(3.0, LEAST, wait_s_max), at_once=at_once)
    for ledger_id, job in jobs:
        turns.push(ledger_id, job, 0.0)
    return turns


def begin(turns: ReadTurns[str], now_s: float, *, beside_adds: bool = True) -> Begun[str]:
    begun = turns.pop(now_s, beside_adds=beside_adds)
    assert begun is not None
    return begun


def test_so_many_are_under_way_at_once() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"), at_once=2)
    first = begin(turns, 0.0, beside_adds=False)
    assert begin(turns, 0.0, beside_adds=False).job == "b"
    assert turns.pop(0.0, beside_adds=False) is None
    assert turns.wait_s(0.0) is None, "whoever is over tells"
    turns.over(first, 0.1, MB)
    assert begin(turns, 0.1, beside_adds=False).job == "c"


def test_ledgers_take_turns() -> None:
    turns = turns_of((L7, "7a"), (L7, "7b"), (L7, "7c"), (L8, "8a"), (L8, "8b"), (L9, "9a"))
    order = []
    for n in range(6):
        begun = begin(turns, float(n), beside_adds=False)
        order.append(begun.job)
        turns.over(begun, float(n), 0)
    assert order == ["7a", "8a", "9a", "7b", "8b", "7c"]


def test_the_rest_of_a_job_comes_before_what_waits_since() -> None:
    turns = turns_of((L7, "7a"), (L7, "7b"), (L8, "8a"))
    turns.over(begin(turns, 0.0, beside_adds=False), 0.0, 0)
    turns.push(L7, "rest of 7a", 0.0, is_rest=True)
    order = [begin(turns, 0.0, beside_adds=False).job for _ in range(3)]
    assert order == ["8a", "rest of 7a", "7b"]


def test_beside_adds_one_reads_and_rests_for_a_multiple_of_the_time_it_took() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"))
    first = begin(turns, 1.0)
    turns.over(first, 1.001, MB)
    assert turns.pop(1.0039, beside_adds=True) is None
    assert abs((turns.wait_s(1.002) or 0.0) - 0.002) < 1e-9
    second = begin(turns, 1.0041)
    assert turns.pop(1.0045, beside_adds=True) is None, "the other one is under way"
    turns.over(second, 1.0051, MB)
    assert turns.pop(1.008, beside_adds=True) is None
    assert begin(turns, 1.0082).job == "c"


def test_the_first_ones_do_not_all_begin_at_once() -> None:
    turns = turns_of((L7, "a"), (L7, "b"))
    begin(turns, 1.0)
    assert turns.pop(1.0001, beside_adds=True) is None


def test_without_adds_nobody_rests() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"))
    turns.over(begin(turns, 1.0), 1.001, MB)
    assert begin(turns, 1.001, beside_adds=False).job == "b"
    assert begin(turns, 1.001, beside_adds=False).job == "c"


def test_reads_get_their_least_rate_however_slow_the_disk_is() -> None:
    turns = turns_of(*((L7, f"{n}") for n in range(400)))
    now_s, done = 0.0, 0
    under_way: list[Begun[str]] = []
    while now_s < 1.0:
        while (begun := turns.pop(now_s, beside_adds=True)) is not None:
            under_way.append(begun)
        now_s += 0.001
        for begun in [each for each in under_way if each.began_s <= now_s - 0.03]:
            under_way.remove(begun)
            turns.over(begun, now_s, MB)
            done += MB
    # One at a time with rests would have had 1 MB in 120 ms.
    assert 0.85 * LEAST <= done <= 1.1 * LEAST


def test_reads_get_as_much_as_is_added() -> None:
    turns = turns_of(*((L7, f"{n}") for n in range(20)))
    turns.on_added(1_000 * MB, 0.0)  # before anybody looked, in whatever time
    turns.over(begin(turns, 0.0), 0.5, MB)
    assert turns.wait_s(0.5) == 0.0, "the least rate has been due for long"
    turns.on_added(1_400 * MB, 1.0)
    turns.over(begin(turns, 1.0), 1.001, MB)
    begin(turns, 2.6)  # it takes until the end of this test
    for n in range(5):
        now_s = 2.6 + (n + 1) * 0.0026  # 400 MB per second: 1 MB in 2.5 ms
        assert turns.pop(now_s - 0.0002, beside_adds=True) is None
        turns.over(begin(turns, now_s), now_s + 0.001, MB)


def test_a_wait_ends_when_the_least_rate_is_due() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"))
    turns.over(begin(turns, 0.0), 0.001, MB)
    begin(turns, 0.0041)
    wait_s = turns.wait_s(0.0041)
    assert wait_s is not None and 0 < wait_s <= 0.0101
    assert turns.pop(0.0041 + wait_s / 2, beside_adds=True) is None
    assert begin(turns, 0.0041 + wait_s).job == "c"


def test_what_has_waited_for_long_rests_no_more() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"), wait_s_max=0.5)
    turns.over(begin(turns, 0.0), 0.4, 100 * MB)  # rests until 1.6, and has had enough until 1.0
    assert turns.pop(0.49, beside_adds=True) is None
    assert abs((turns.wait_s(0.49) or 0.0) - 0.01) < 1e-9
    assert begin(turns, 0.51).job == "b"
    assert begin(turns, 0.51).job == "c", "though another one is under way"


def test_fast_reads_without_adds_are_no_debt_beside_adds() -> None:
    turns = turns_of(*((L7, f"{n}") for n in range(1_000)))
    for n in range(900):
        turns.over(begin(turns, n / 1e6, beside_adds=False), n / 1e6, MB)
    slow = begin(turns, 1.0)
    assert begin(turns, 1.0101).job != slow.job


def test_what_a_recovery_reads_is_first_and_does_not_rest() -> None:
    turns = turns_of((L7, "a"), (L7, "b"), (L7, "c"))
    turns.over(begin(turns, 1.0), 1.001, MB)
    turns.push(L8, "urgent", 0.0, is_urgent=True)
    urgent = begin(turns, 1.0011)
    assert urgent.job == "urgent"
    turns.over(urgent, 1.0031, MB)
    assert begin(turns, 1.0041).job == "b", "nor does it make others rest longer"
    turns.push(L8, "urgent", 0.0, is_urgent=True)
    assert begin(turns, 1.0042).job == "urgent", "nor does it wait for them"


def test_nothing_waits() -> None:
    turns = turns_of()
    assert turns.pop(0.0, beside_adds=True) is None
    assert turns.wait_s(0.0) is None
