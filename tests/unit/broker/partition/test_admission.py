"""Who waits for room in a partition, in which order."""

from __future__ import annotations

from broker.partition.partition import RoomWaits


def test_first_come_first_served() -> None:
    waits = RoomWaits()
    called: list[str] = []
    assert not waits
    waits.add(500, lambda: called.append("large"))
    gone = waits.add(7, lambda: called.append("gone"))
    waits.add(5, lambda: called.append("small"))
    assert waits.next_size == 500, "the small ones do not overtake it"
    waits.cancel(gone)
    waits.cancel(gone)
    assert len(waits) == 2
    waits.take()()
    assert waits.next_size == 5
    waits.take()()
    assert called == ["large", "small"]
    assert not waits


def test_a_ticket_of_one_that_was_called_cancels_nobody() -> None:
    waits = RoomWaits()
    first = waits.add(1, lambda: None)
    waits.take()
    waits.add(2, lambda: None)
    waits.cancel(first)
    assert waits.next_size == 2
