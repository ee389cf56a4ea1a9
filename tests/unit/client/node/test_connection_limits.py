"""Connections are counted, and what peers make a server hold is bounded in size and time."""

from __future__ import annotations

from client.node.connection_limits import PROGRESS_BYTES, ConnectionQuotas, HeldBytes


def test_connections_are_limited_in_total_and_by_host() -> None:
    quotas = ConnectionQuotas(3, 2)
    assert [quotas.add("a"), quotas.add("a")] == [None, None]
    assert quotas.add("a") == "connections_per_host_max is reached"
    assert quotas.add("b") is None
    assert quotas.add("c") == "connections_max is reached"
    assert quotas.total == 3
    quotas.remove("a")
    assert quotas.add("a") is None


def test_limits_can_change_while_connections_are_open() -> None:
    quotas = ConnectionQuotas(3, 3)
    assert [quotas.add("a"), quotas.add("a"), quotas.add("a")] == [None, None, None]
    quotas.limit(10, 2)
    assert quotas.add("a") == "connections_per_host_max is reached"
    assert quotas.add("b") is None
    quotas.limit(2, 10)
    assert quotas.add("c") == "connections_max is reached"
    assert quotas.total == 4, "those that are open stay"


def test_places_are_kept_for_the_clusters_own_nodes() -> None:
    """However many clients there are, and even from the same address."""
    quotas = ConnectionQuotas(10, 7, reserved_max=3)
    assert [quotas.add("a") for _ in range(7)] == [None] * 7
    assert quotas.add("b") == "connections_max is reached"
    assert [quotas.add("a", is_own=True) for _ in range(3)] == [None] * 3
    assert quotas.add("a", is_own=True) == "connections_max is reached"
    quotas.remove("a", is_own=True)
    assert quotas.add("b") == "connections_max is reached"
    assert quotas.add("b", is_own=True) is None


def test_strangers_have_half_of_the_places() -> None:
    quotas = ConnectionQuotas(6, 6)
    assert [quotas.add("a", is_stranger=True) for _ in range(3)] == [None] * 3
    assert quotas.add("b", is_stranger=True) == "half of connections_max have not logged in"
    assert quotas.add("b") is None
    quotas.welcome()
    assert quotas.add("b", is_stranger=True) is None
    quotas.remove("a", is_stranger=True)
    quotas.remove("a")
    assert (quotas.total, quotas.strangers) == (3, 2)


def test_a_network_of_ipv6_is_one_host() -> None:
    quotas = ConnectionQuotas(10, 2)
    assert [quotas.add("2001:db8::1"), quotas.add("2001:db8::2")] == [None, None]
    assert quotas.add("2001:db8::3") == "connections_per_host_max is reached"
    assert quotas.add("2001:db8:0:1::3") is None
    quotas.remove("2001:db8::2")
    assert quotas.add("2001:db8::3") is None


def held(bytes_max: int = 1 << 30) -> HeldBytes[str]:
    return HeldBytes(bytes_max, 30.0)


def test_who_holds_without_progress_is_overdue() -> None:
    pieces = held()
    pieces.note("slow", 100, 0.0)
    pieces.note("slow", 200, 20.0)
    assert pieces.overdue(29.9) == []
    assert pieces.overdue(30.0) == ["slow"]


def test_progress_begins_the_time_anew() -> None:
    pieces = held()
    pieces.note("large", 1, 0.0)
    pieces.note("large", 1 + PROGRESS_BYTES, 20.0)
    assert pieces.overdue(49.9) == []
    assert pieces.overdue(50.0) == ["large"]


def test_reserved_memory_counts_but_is_no_progress() -> None:
    pieces = held()
    pieces.note("one", 10, 0.0, reserved=PROGRESS_BYTES)
    assert pieces.total_bytes == 10 + PROGRESS_BYTES
    pieces.note("one", 20, 20.0, reserved=3 * PROGRESS_BYTES)
    assert pieces.overdue(30.0) == ["one"]


def test_another_piece_has_a_time_of_its_own() -> None:
    pieces = held()
    pieces.note("one", 10, 0.0)
    pieces.note("one", 10, 20.0, is_new=True)
    assert pieces.overdue(30.0) == []
    assert pieces.total_bytes == 10


def test_who_could_not_move_is_given_the_time_back() -> None:
    pieces = held()
    pieces.note("one", 10, 0.0)
    pieces.resume("one", 29.0)
    pieces.resume("unknown", 29.0)
    assert pieces.overdue(58.9) == []


def test_the_oldest_of_the_large_ones_goes_when_all_is_too_much() -> None:
    pieces = held(1000)
    pieces.note("small and old", 10, 0.0)
    pieces.note("large and old", 500, 1.0)
    pieces.note("large and new", 490, 2.0)
    assert pieces.excess() is None
    pieces.note("small and new", 10, 3.0)
    assert pieces.excess() == "large and old"
    pieces.forget("large and old")
    pieces.forget("large and old")
    assert pieces.excess() is None
    assert pieces.total_bytes == 510


def test_nothing_held_is_forgotten() -> None:
    pieces = held()
    pieces.note("one", 10, 0.0)
    pieces.note("one", 0, 1.0)
    assert pieces.total_bytes == 0
    assert pieces.overdue(100.0) == []
