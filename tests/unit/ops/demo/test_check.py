"""The judge names each planted fault, and nothing when there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.demo.check import Checker, Verdict

FILES = {"a.py": b"import b\n\n\nx = 1\n", "b.py": b"y = 2\n\n"}


class Received(NamedTuple):
    member: str
    partition: int
    offset: int
    name: str
    line: int
    value: bytes


def _publish(files: dict[str, bytes]) -> tuple[Checker, list[Received]]:
    """Publish all lines without a fault: return what a lone member should receive."""
    checker = Checker(files)
    log = []
    next_offset = {0: 0, 1: 0}
    for index, name in enumerate(files):
        partition = index % 2
        for line, value in enumerate(checker.lines(name)):
            offset = next_offset[partition]
            next_offset[partition] += 1
            checker.on_published(1)
            checker.on_acknowledged(name, line, partition, offset)
            log.append(Received(f"m{partition}", partition, offset, name, line, value))
    return checker, log


def _judge(checker: Checker, log: list[Received]) -> Verdict:
    for record in log:
        checker.on_received(*record)
    return checker.verdict()


def test_finds_no_fault_where_there_is_none() -> None:
    verdict = _judge(*_publish(FILES))
    assert verdict.good
    assert (verdict.published, verdict.acknowledged, verdict.received) == (6, 6, 6)
    assert (verdict.files, verdict.files_identical) == (2, 2)


def _lose(log: list[Received]) -> list[Received]:
    return log[:1] + log[2:]


def _duplicate(log: list[Received]) -> list[Received]:
    return [*log, log[0]._replace(offset=100)]


def _swap_offsets(log: list[Received]) -> list[Received]:
    first, second = log[0]._replace(offset=1), log[1]._replace(offset=0)
    return [second, first, *log[2:]]


def _hand_out_backwards(log: list[Received]) -> list[Received]:
    return [log[1], log[0], *log[2:]]


def _move(log: list[Received]) -> list[Received]:
    return [*log[:-1], log[-1]._replace(offset=100)]


def _change_partition(log: list[Received]) -> list[Received]:
    return [*log[:-1], log[-1]._replace(partition=7)]


def _damage(log: list[Received]) -> list[Received]:
    return [log[0]._replace(value=b"import c\n"), *log[1:]]


def _invent_file(log: list[Received]) -> list[Received]:
    return [*log, log[-1]._replace(offset=100, name="c.py")]


def _invent_line(log: list[Received]) -> list[Received]:
    return [*log, log[-1]._replace(offset=100, line=2)]


@pytest.mark.parametrize(
    ("plant", "counts"),
    [
        (_lose, {"lost": 1}),
        (_duplicate, {"duplicated": 1}),
        (_swap_offsets, {"out_of_order": 1, "misplaced": 2}),
        (_hand_out_backwards, {"out_of_order": 1}),
        (_move, {"misplaced": 1}),
        (_change_partition, {"misplaced": 1}),
        (_damage, {"foreign": 1, "lost": 1}),
        (_invent_file, {"foreign": 1}),
        (_invent_line, {"foreign": 1}),
    ],
)
def test_names_each_planted_fault(
    plant: Callable[[list[Received]], list[Received]], counts: dict[str, int]
) -> None:
    checker, log = _publish(FILES)
    verdict = _judge(checker, plant(log))
    assert not verdict.good
    names = ("lost", "duplicated", "misplaced", "out_of_order", "foreign", "redelivered")
    assert {name: n for name in names if (n := getattr(verdict, name))} == counts


def test_equal_lines_are_told_apart() -> None:
    """Two blank lines in the wrong order are a fault, although the file looks the same."""
    checker, log = _publish({"a.py": b"\n\n"})
    verdict = _judge(checker, [log[0]._replace(line=1), log[1]._replace(line=0)])
    assert verdict.out_of_order == 1
    assert verdict.files_identical == 1
    assert not verdict.good


def test_redelivery_after_an_assignment_is_no_fault() -> None:
    checker, log = _publish(FILES)
    for record in log:
        checker.on_received(*record)
    checker.on_assigned("m0")
    verdict = _judge(checker, log[:2])
    assert verdict.good
    assert verdict.redelivered == 2


def test_an_assignment_of_another_member_excuses_nothing() -> None:
    checker, log = _publish(FILES)
    for record in log:
        checker.on_received(*record)
    checker.on_assigned("m1")
    assert _judge(checker, log[:2]).out_of_order == 1


def test_a_record_without_acknowledgement_is_not_lost_but_not_good_either() -> None:
    checker = Checker({"a.py": b"x\n"})
    checker.on_published(1)
    verdict = checker.verdict()
    assert verdict.lost == 0
    assert not verdict.good


def test_names_files_that_cannot_be_put_together() -> None:
    checker, log = _publish(FILES)
    verdict = _judge(checker, log[1:])
    assert verdict.files_identical == 1
    assert verdict.files_different == ("a.py",)


@given(st.data())
def test_any_lost_record_is_counted(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from([b"\n", b"x\n", b"y\n"]), min_size=1, max_size=20))
    checker, log = _publish({"a.py": b"".join(lines), "b.py": b"z"})
    kept = data.draw(st.lists(st.booleans(), min_size=len(log), max_size=len(log)))
    verdict = _judge(checker, [r for r, keep in zip(log, kept, strict=True) if keep])
    assert verdict.lost == kept.count(False)
    assert verdict.good == all(kept)
    assert verdict.out_of_order == verdict.duplicated == verdict.foreign == 0
