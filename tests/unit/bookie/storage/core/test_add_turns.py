"""The line in front of the open group: who goes in, who waits, and whose turn it is."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.group_commit import AddTurns, Group
from client.ids import LedgerId

LIMIT = 1600
LEDGER_SHARE = 100
CONNECTION_SHARE = 400

Add = tuple[str, int, int]
"""(connection, ledger, size)"""


class Line:
    """The line with an open group, as a storage has it, where somebody added little of late."""

    def __init__(self, limit: int = LIMIT, *, is_alone: bool = False) -> None:
        self.turns: AddTurns[Add] = AddTurns(limit)
        self.group = Group(1)
        self.taken: list[Add] = []
        if not is_alone:
            self.little(0, 0)

    def add(self, connection: str, ledger: int, size: int) -> bool:
        """Whether it goes into the open group."""
        if self.turns.admits(connection, LedgerId(ledger), size, self.group):
            self._put((connection, ledger, size))
            self.turns.on_added(connection, LedgerId(ledger), size, self.group)
            return True
        self.turns.push(connection, LedgerId(ledger), size, (connection, ledger, size))
        return False

    def little(self, ledger: int, size: int) -> None:
        """Somebody adds little who has earned its credit before."""
        self.turns.on_little("light", LedgerId(ledger), 0, 0, Group(self.group.number - 8))
        self.turns.on_little("light", LedgerId(ledger), size, 0, self.group)

    def begin(self) -> list[Add]:
        """Open another group; return what went in first."""
        self.group, self.taken = Group(self.group.number + 1), []
        while (add := self.turns.pop(self.group)) is not None:
            self._put(add)
        return self.taken

    def _put(self, add: Add) -> None:
        self.taken.append(add)
        self.group.entry_bytes += add[2]


def full() -> Line:
    line = Line()
    assert line.add("hot", 1, LIMIT)
    return line


def test_group_room_adds_go_in_while_there_is_room() -> None:
    line = Line()
    assert line.add("a", 1, 1000)
    assert line.turns.room(line.group) == 600
    assert line.add("a", 1, 600)
    assert line.turns.room(line.group) == 0
    assert not line.add("a", 1, 101)


def test_group_room_an_empty_group_takes_an_entry_of_any_size() -> None:
    line = Line()
    assert line.add("a", 1, 10 * LIMIT)
    assert not line.add("a", 1, 10 * LIMIT)
    assert line.begin() == [("a", 1, 10 * LIMIT)]


def test_group_alone_a_group_has_eight_times_as_much() -> None:
    line = Line(is_alone=True)
    assert line.turns.room(line.group) == 8 * LIMIT
    for _ in range(16):
        assert line.add("hot", 1, LIMIT // 2)
    assert not line.add("hot", 1, 500)


def test_group_alone_ends_for_many_groups_when_somebody_adds_little() -> None:
    line = Line(is_alone=True)
    assert line.turns.looks_for_little(line.group, CONNECTION_SHARE + 1)
    assert not line.turns.looks_for_little(line.group, CONNECTION_SHARE), "nobody waits for others"
    assert line.turns.little_bytes_max == LEDGER_SHARE
    line.little(3, LEDGER_SHARE)
    assert not line.turns.looks_for_little(line.group, 8 * LIMIT), "it is known"
    assert line.add("hot", 1, LIMIT)
    assert not line.add("hot", 1, 500)
    rooms = []
    for _ in range(300):
        line.begin()
        rooms.append(line.turns.room(line.group))
    assert rooms[:256] == [LIMIT - 500, *255 * [LIMIT]]
    assert set(rooms[256:]) == {8 * LIMIT}
    assert line.turns.looks_for_little(line.group, 8 * LIMIT)


def grown(line: Line, *, ledgers: int, size: int, added: int, groups: int) -> list[bool]:
    """In each group ledgers add so much, `size` of it while nothing of theirs is on its way; return
    for each group whether the next is a small one."""
    are_small = []
    for group in range(groups):
        for ledger in range(ledgers):
            line.turns.on_little("many", LedgerId(ledger), size, added * group, line.group)
        line.begin()
        are_small.append(line.turns.room(line.group) == LIMIT)
    return are_small


def test_group_credit_ledgers_that_are_equally_busy_add_much() -> None:
    line = Line(is_alone=True)
    assert not any(grown(line, ledgers=16, size=10, added=LEDGER_SHARE // 4, groups=600))
    line.little(99, LEDGER_SHARE)
    line.begin()
    assert line.turns.room(line.group) == LIMIT, "another one has its credit"


def test_group_credit_who_adds_one_after_the_other_goes_on_to_add_little() -> None:
    line = Line(is_alone=True)
    are_small = grown(line, ledgers=1, size=8, added=8, groups=600)
    assert not are_small[0], "who it is has to be seen"
    assert all(are_small[3:])


def test_group_credit_comes_back() -> None:
    line = Line(is_alone=True)
    grown(line, ledgers=1, size=LEDGER_SHARE, added=LEDGER_SHARE, groups=300)
    added = LEDGER_SHARE * 299
    for groups, is_small in ((8 * 16, False), (8, True)):
        for _ in range(groups):
            line.begin()
        line.turns.on_little("many", LedgerId(0), LEDGER_SHARE, added, line.group)
        line.begin()
        assert (line.turns.room(line.group) == LIMIT) is is_small


def test_group_credit_of_very_many_ledgers_is_bounded() -> None:
    line = Line(is_alone=True)
    for ledger in range(40_000):
        line.turns.on_little("many", LedgerId(ledger), LEDGER_SHARE, 0, line.group)
    assert len(line.turns._credits) <= 16_384


def test_group_alone_a_ledger_that_waits_in_line_adds_much() -> None:
    line = Line(is_alone=True)
    assert line.add("hot", 1, 8 * LIMIT)
    assert not line.add("hot", 1, 500)
    line.turns.on_little("hot", LedgerId(1), 1, 0, line.group)
    line.begin()
    assert line.turns.room(line.group) == 8 * LIMIT - 500


def test_group_share_who_adds_little_does_not_wait() -> None:
    line = full()
    assert not line.add("hot", 1, 500)
    assert line.add("hot", 2, LEDGER_SHARE), "another ledger of the same connection"
    assert line.add("light", 3, LEDGER_SHARE)
    assert not line.add("light", 3, 1), "its share is used"


def test_group_share_is_small_for_a_connection_too() -> None:
    line = full()
    for ledger in range(2, 6):
        assert line.add("many", ledger, LEDGER_SHARE)
    assert not line.add("many", 6, 1)
    assert line.add("other", 7, 1)


def test_group_share_is_new_in_each_group() -> None:
    line = full()
    assert line.add("light", 3, LEDGER_SHARE)
    for _ in range(4):
        line.add("hot", 1, 1000)
    line.begin()
    assert line.turns.count
    assert line.add("light", 3, LEDGER_SHARE)
    assert not line.add("light", 3, LEDGER_SHARE)


def test_group_turns_a_ledger_that_waits_is_not_overtaken_by_itself() -> None:
    line = full()
    assert not line.add("a", 2, 500)
    assert not line.add("a", 2, 1)
    assert line.turns.room(line.group) == 0
    assert line.begin() == [("a", 2, 500), ("a", 2, 1)]
    assert line.turns.count == 0
    assert line.turns.room(line.group) == LIMIT - 501


def test_group_turns_connections_share_a_group_by_bytes() -> None:
    line = full()
    for _ in range(20):
        line.add("a", 2, 400)
    for _ in range(80):
        line.add("b", 3, 100)
    got = {"a": 0, "b": 0}
    for connection, _, size in line.begin():
        got[connection] += size
    assert got == {"a": 800, "b": 800}


def test_group_turns_many_ledgers_get_a_connection_no_more() -> None:
    line = full()
    for ledger in range(10, 30):
        line.add("many", ledger, 200)
    for _ in range(20):
        line.add("one", 2, 200)
    assert [connection for connection, _, _ in line.begin()].count("many") == 4


def test_group_turns_ledgers_of_a_connection_share_by_bytes() -> None:
    line = full()
    for _ in range(20):
        line.add("a", 2, 400)
    for _ in range(20):
        line.add("a", 3, 200)
    assert [ledger for _, ledger, _ in line.begin()] == [2, 3, 3, 2, 3, 3]


def test_who_begins_to_wait_saved_no_turns_up() -> None:
    line = full()
    for _ in range(40):
        line.add("a", 2, 400)
    for _ in range(5):
        line.begin()
    for _ in range(40):
        line.add("late", 3, 400)
    assert [connection for connection, _, _ in line.begin()].count("a") == 2


def test_clear_forgets_who_waits() -> None:
    line = full()
    line.add("a", 2, 400)
    line.turns.clear()
    assert line.turns.count == 0
    assert line.begin() == []


@pytest.mark.parametrize("limit", [1, 50, LIMIT])
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 900)),
        ),
        max_size=60,
    )
)
def test_everything_goes_once_in_order_and_no_group_is_too_large(
    limit: int, steps: list[tuple[str, int, int] | None]
) -> None:
    line = Line(limit)
    sent: dict[tuple[str, int], list[int]] = {}
    came: dict[tuple[str, int], list[int]] = {}

    def finish() -> None:
        largest = max((size for _, _, size in line.taken), default=0)
        connections: set[Hashable] = {connection for connection, _, _ in line.taken}
        assert line.group.entry_bytes <= limit + len(connections) * limit / 4 + largest
        for connection, ledger, size in line.taken:
            came.setdefault((connection, ledger), []).append(size)

    for step in steps:
        if step is None:
            finish()
            line.begin()
        else:
            sent.setdefault(step[:2], []).append(step[2])
            line.add(*step)
    while line.group.entry_bytes:
        finish()
        line.begin()
    assert line.turns.count == 0
    assert came == sent
