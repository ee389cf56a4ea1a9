"""How long a rebalance waits, for whom."""

from __future__ import annotations

from broker.groups.core.rebalance import AwaitedSyncs, JoinWindow


class TestJoinWindow:
    """Until when members may join."""

    def test_a_first_rebalance_waits_in_pieces_as_long_as_members_come(self) -> None:
        window = JoinWindow()
        assert window.open_first(100.0, timeout_ms=7_000, delay_ms=3_000) == 103.0
        assert window.is_first
        window.on_joined()
        assert window.extend(103.0, 3_000) == 106.0
        assert window.extend(106.0, 3_000) is None, "nobody came in this piece"

    def test_all_pieces_together_end_with_the_rebalance_timeout(self) -> None:
        window = JoinWindow()
        window.open_first(100.0, timeout_ms=7_000, delay_ms=3_000)
        ends: list[float | None] = []
        for now_s in (103.0, 106.0, 107.0):
            window.on_joined()
            ends.append(window.extend(now_s, 3_000))
        assert ends == [106.0, 107.0, None]

    def test_a_later_rebalance_has_one_piece(self) -> None:
        window = JoinWindow()
        window.open_first(100.0, timeout_ms=7_000, delay_ms=3_000)
        window.close()
        assert (window.deadline_s, window.is_first) == (None, False)
        assert window.open(200.0, 5_000) == window.deadline_s == 205.0
        window.on_joined()
        assert window.extend(205.0, 3_000) is None


def test_syncs_are_awaited_in_order_and_none_once_all_came() -> None:
    syncs = AwaitedSyncs()
    assert syncs.deadline_s is None
    syncs.expect(["a", "b", "c"], 100.0)
    syncs.drop("b")
    syncs.drop("never expected")
    syncs.rename("a", "d")
    syncs.rename("b", "e")
    assert list(syncs) == ["c", "d"]
    assert syncs.deadline_s == 100.0
    for member_id in syncs:
        syncs.drop(member_id)
    assert (len(syncs), syncs.deadline_s) == (0, None)
