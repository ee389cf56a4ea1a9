"""Ledgers take turns; each one's adds keep their order."""

from __future__ import annotations

from client.ledger.bookies.bookie_link import WaitingAdds


def test_ledgers_take_turns_and_keep_their_order() -> None:
    waiting: WaitingAdds[str] = WaitingAdds()
    for number in range(4):
        waiting.push(1, f"busy {number}")
    waiting.push(2, "quiet 0")
    waiting.push(3, "other 0")
    waiting.push(3, "other 1")
    assert waiting.count == 7
    assert waiting.first == "busy 0"
    assert [waiting.pop() for _ in range(3)] == ["busy 0", "quiet 0", "other 0"]
    waiting.push(2, "quiet 1")
    assert list(waiting) == ["busy 1", "busy 2", "busy 3", "other 1", "quiet 1"]
    assert [waiting.pop() for _ in range(5)] == [
        "busy 1", "other 1", "quiet 1", "busy 2", "busy 3",
    ]  # fmt: skip
    assert waiting.count == 0
    waiting.push(1, "again")
    waiting.clear()
    assert (waiting.count, list(waiting)) == (0, [])
