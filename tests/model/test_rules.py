"""Each transition rule lets a right trace pass, and rejects the one step it forbids."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.rules import CLOSED, IN_RECOVERY, OPEN, Batch, Chain, Ledger, Metadata, Rejected

ABC = ("a", "b", "c")


def metadata(
    state: int = OPEN, last: int = -1, *fragments: tuple[int, tuple[str, ...]]
) -> Metadata:
    return Metadata(state, last, fragments or ((0, ABC),))


def ledger(*stored: int) -> Ledger:
    """Three copies, two of them needed; these entries are on `a` and `b`."""
    made = Ledger(3, 2, metadata())
    for entry in stored:
        store(made, entry, "a", "b")
    return made


def store(made: Ledger, entry: int, *bookies: str) -> None:
    for bookie in bookies:
        made.add_arrived(bookie, entry)
        made.add_answered(bookie, entry, recovery=False, durable=True)


def recover(made: Ledger, *denied: str, entry: int, fenced: str = "ab") -> None:
    made.changed(metadata(IN_RECOVERY))
    for bookie in fenced:
        made.fence_answered(bookie)
    for bookie in denied:
        made.denied(bookie, entry, "r")


def closed(last: int) -> Ledger:
    made = ledger(*range(last + 1))
    for entry in range(last + 1):
        made.acknowledged(entry)
    made.changed(metadata(CLOSED, last))
    return made


def batch(base: int, sequence: int) -> Batch:
    return Batch(base, 1, (7, 0), sequence)


def chain(*states: int | None) -> tuple[Chain, dict[int, Ledger]]:
    """A chain of ledgers 0, 1, ... closed at these ends, or open; each got its turn by a roll."""
    ledgers = {number: ledger() for number in range(len(states) + 2)}
    made = Chain(ledgers)
    for number, last in enumerate(states):
        made.listed(0, list(range(number + 1)))
        if last is not None:
            ledgers[number] = closed(last)
    return made, ledgers


def test_a_right_trace_passes() -> None:
    made = ledger(0, 1)
    made.acknowledged(0)
    made.acknowledged(1)
    store(made, 2, "a")
    recover(made, "b", "c", entry=2)
    made.changed(metadata(CLOSED, 1))
    assert made.end == 1


def test_entries_that_only_recovery_confirms_pass() -> None:
    made = ledger(0)
    recover(made, "a", "b", entry=1)
    made.changed(metadata(CLOSED, 0))
    assert made.end == 0


def test_an_entry_may_be_stored_between_a_question_and_its_answer() -> None:
    made = ledger()
    made.asked("a", 0, "r")
    store(made, 0, "a")
    made.denied("a", 0, "r")


def k1(made: Ledger) -> None:
    made.add_arrived("a", 0)
    made.add_answered("a", 0, recovery=False, durable=False)


def k2(made: Ledger) -> None:
    made.fence_answered("a")
    made.add_arrived("a", 0)
    made.add_answered("a", 0, recovery=True, durable=True)
    made.add_answered("a", 0, recovery=False, durable=True)


def k3_quorum(made: Ledger) -> None:
    store(made, 0, "a")
    made.acknowledged(0)


def k3_order(made: Ledger) -> None:
    store(made, 1, "a", "b")
    made.acknowledged(1)


def k3_replaced(made: Ledger) -> None:
    store(made, 0, "a", "b")
    made.changed(metadata(OPEN, -1, (0, ("a", "d", "c"))))
    made.acknowledged(0)


def k4(made: Ledger) -> None:
    store(made, 0, "a", "b")
    made.acknowledged(0)
    made.changed(metadata(OPEN, -1, (0, ("a", "b", "d"))))


def k5_back(made: Ledger) -> None:
    made.changed(metadata(IN_RECOVERY))
    made.changed(metadata(OPEN))


def k5_end(made: Ledger) -> None:
    store(made, 0, "a", "b")
    made.acknowledged(0)
    made.changed(metadata(CLOSED, 0))
    made.changed(metadata(CLOSED, 1))


def k6(made: Ledger) -> None:
    store(made, 0, "a")
    made.denied("a", 0, "r")


def k6_asked(made: Ledger) -> None:
    store(made, 0, "a")
    made.asked("a", 0, "r")
    made.denied("a", 0, "r")


def k7(made: Ledger) -> None:
    store(made, 0, "a")
    recover(made, "b", entry=0)
    made.changed(metadata(CLOSED, -1))


def k7_two_recoverers(made: Ledger) -> None:
    recover(made, "b", entry=0)
    made.denied("c", 0, "another")
    made.changed(metadata(CLOSED, -1))


def k8(made: Ledger) -> None:
    recover(made, "b", "c", entry=0, fenced="a")
    made.changed(metadata(CLOSED, -1))


def k9_close(made: Ledger) -> None:
    store(made, 0, "a", "b")
    made.acknowledged(0)
    recover(made, "b", "c", entry=1)
    made.changed(metadata(CLOSED, -1))


def k9_late(made: Ledger) -> None:
    recover(made, "b", "c", entry=0)
    made.changed(metadata(CLOSED, -1))
    made.add_arrived("a", 0)
    store_late(made)
    made.acknowledged(0)


def store_late(made: Ledger) -> None:
    for bookie in "ab":
        made.add_answered(bookie, 0, recovery=True, durable=True)


WRONG = (
    k1, k2, k3_quorum, k3_order, k3_replaced, k4, k5_back, k5_end, k6, k6_asked, k7,
    k7_two_recoverers, k8, k9_close, k9_late,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_ledger_rejects(wrong: Callable[[Ledger], None]) -> None:
    with pytest.raises(Rejected) as found:
        wrong(ledger())
    assert found.value.rule == wrong.__name__.partition("_")[0].upper()


def test_a_lost_disk_owes_nothing() -> None:
    made = ledger(0)
    made.disk_lost("a")
    made.denied("a", 0, "r")


def test_a_right_chain_passes() -> None:
    made, ledgers = chain()
    made.listed(0, [0])
    made.sent(0, [])
    made.sent(0, [batch(0, 0)])
    ledgers[0] = closed(1)
    made.listed(1, [0, 1])
    made.sent(1, [])
    made.sent(1, [batch(1, 1)])
    made.listed(1, [1])
    made.deleted(0)


def test_g1_the_list_loses_only_a_prefix() -> None:
    made, _ = chain(0, 0, 0)
    with pytest.raises(Rejected, match="G1"):
        made.listed(0, [0, 2])


def test_g1_no_ledger_comes_twice() -> None:
    made, _ = chain(0, 0)
    made.listed(0, [1])
    with pytest.raises(Rejected, match="G1"):
        made.listed(1, [1, 0])


def test_g2_at_most_the_last_two_are_open() -> None:
    made, _ = chain(None, None)
    with pytest.raises(Rejected, match="G2"):
        made.listed(0, [0, 1, 2])


def test_g3_a_takeover_waits_until_all_are_closed() -> None:
    made, _ = chain(0, None)
    with pytest.raises(Rejected, match="G3"):
        made.listed(1, [0, 1, 2])


def test_g3_epochs_grow_by_one() -> None:
    made, _ = chain(0)
    with pytest.raises(Rejected, match="G3"):
        made.listed(2, [0, 1])


def test_g4_nothing_is_sent_to_an_unlisted_ledger() -> None:
    made, _ = chain(0)
    with pytest.raises(Rejected, match="G4"):
        made.sent(1, [])


def test_g5_a_roll_waits_until_the_previous_ledger_is_complete() -> None:
    made, _ = chain(None, None)
    made.sent(0, [batch(0, 0)])
    with pytest.raises(Rejected, match="G5"):
        made.sent(1, [])


def test_g6_a_listed_ledger_stays() -> None:
    made, _ = chain(0)
    with pytest.raises(Rejected, match="G6"):
        made.deleted(0)


def test_g7_a_swap_puts_closed_ledgers_in_the_place_of_older_ones() -> None:
    made, ledgers = chain(0, 0, 0, None)
    ledgers[4] = closed(0)
    made.swapped(0, [4, 2, 3])
    made.deleted(0)
    with pytest.raises(Rejected, match="G6"):
        made.deleted(4)
    made.listed(0, [2, 3])
    with pytest.raises(Rejected, match="G1"):
        made.listed(0, [2, 3, 4])


@pytest.mark.parametrize(
    ("epoch", "ids", "end"),
    [
        (1, [9, 2, 3], 0),
        (0, [9, 0, 1, 2, 3], 0),
        (0, [0, 9, 1, 3], 0),
        (0, [2, 3], 0),
        (0, [0, 1, 9], 0),
        (0, [0, 1, 9, 3], 0),
        (0, [9, 2, 3], None),
    ],
    ids=["epoch", "nothing goes", "not in its place", "nothing comes", "both", "the last", "open"],
)
def test_g7_no_other_swap(epoch: int, ids: list[int], end: int | None) -> None:
    made, ledgers = chain(0, 0, 0, None)
    ledgers[9] = Ledger(2, 2, Metadata(OPEN, -1, ((0, ("a", "b")),))) if end is None else closed(0)
    with pytest.raises(Rejected, match="G7"):
        made.swapped(epoch, ids)


def test_d1_offsets_go_on_where_the_log_ended() -> None:
    made, ledgers = chain(None)
    made.sent(0, [batch(0, 0)])
    made.sent(0, [batch(1, 1)])
    ledgers[0] = closed(0)  # the second one did not survive
    made.listed(1, [0, 1])
    with pytest.raises(Rejected, match="D1"):
        made.sent(1, [batch(2, 1)])


def test_d2_what_recovery_found_counts_though_nobody_acknowledged_it() -> None:
    made, ledgers = chain(None)
    made.sent(0, [batch(0, 0)])
    ledgers[0] = closed(0)
    made.listed(1, [0, 1])
    with pytest.raises(Rejected, match="D2"):
        made.sent(1, [batch(1, 0)])


def test_d2_who_was_taken_over_knows_no_producer_that_began_since() -> None:
    made, ledgers = chain(None)
    made.sent(0, [batch(0, 0)])
    ledgers[0] = closed(0)
    made.listed(1, [0, 1])
    made.sent(0, [batch(1, 1)])
    other = batch(2, 7)._replace(producer=(99, 0))
    made.sent(0, [other])
    with pytest.raises(Rejected, match="D2"):
        made.sent(0, [batch(3, 5)])
    with pytest.raises(Rejected, match="D2"):
        made.sent(1, [other._replace(base_offset=1)])
