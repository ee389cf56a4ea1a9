"""Failed logins are answered later and later."""

from __future__ import annotations

from client.security.failure_delays import WAITING_MAX, FailureDelays


def test_the_delay_doubles_up_to_a_limit_and_starts_anew() -> None:
    delays = FailureDelays(0.1, 1.0, forgotten_after_s=60, hosts_max=10)
    assert [delays.fail("a", 0.0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert delays.fail("b", 0.0) == 0.1
    assert delays.fail("a", 60.0) == 1.0
    assert delays.fail("a", 121.0) == 0.1
    for _ in range(2_000):
        assert delays.fail("a", 121.0) <= 1.0


def test_addresses_are_bounded_and_the_oldest_goes() -> None:
    delays = FailureDelays(0.1, 1.0, forgotten_after_s=60, hosts_max=3)
    for host in ("a", "b", "c", "a", "d"):
        delays.fail(host, 0.0)
    assert len(delays) == 3
    assert delays.fail("a", 0.0) == 0.4
    assert delays.fail("b", 0.0) == 0.1


def test_so_many_answers_of_an_address_wait_and_then_nothing_is_compared() -> None:
    delays = FailureDelays(1.0, 1.0, forgotten_after_s=60, hosts_max=10)
    for _ in range(WAITING_MAX):
        assert not delays.is_full("10.0.0.1", 0.0)
        delays.fail("10.0.0.1", 0.0)
    assert delays.is_full("10.0.0.1", 0.9)
    assert not delays.is_full("10.0.0.2", 0.9)
    assert not delays.is_full("10.0.0.1", 1.0), "they are answered"


def test_without_a_delay_nothing_waits() -> None:
    delays = FailureDelays(0.0, 0.0, forgotten_after_s=60, hosts_max=10)
    for _ in range(3 * WAITING_MAX):
        delays.fail("10.0.0.1", 0.0)
    assert not delays.is_full("10.0.0.1", 0.0)


def test_a_network_of_ipv6_is_one_address() -> None:
    delays = FailureDelays(0.1, 1.0, forgotten_after_s=60, hosts_max=10)
    assert [delays.fail(f"2001:db8::{number}", 0.0) for number in range(3)] == [0.1, 0.2, 0.4]
    assert len(delays) == 1
