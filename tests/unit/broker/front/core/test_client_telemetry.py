"""What is kept of clients' metrics, for how long, and how much at most."""

from __future__ import annotations

from uuid import UUID

from broker.front.core.client_telemetry import ClientTelemetry, Limits, Who

ONE, TWO, THREE = UUID(int=1), UUID(int=2), UUID(int=3)
WHO = Who("app", "librdkafka 2")
INTERVAL_MS = 1_000


def values(*names: str) -> dict[tuple[str, str], float]:
    return {(name, ""): float(at) for at, name in enumerate(names)}


def kept(telemetry: ClientTelemetry, now_s: float = 0.0) -> list[tuple[str, str]]:
    return [(row["instance_id"], row["metric"]) for row, _ in telemetry.samples(now_s)]


def made(clients: int = 2, series: int = 4, of_each: int = 3) -> ClientTelemetry:
    telemetry = ClientTelemetry(Limits(clients, series, of_each))
    assert telemetry.admit(ONE, WHO, INTERVAL_MS, 0.0, network="10.0.0.1")
    return telemetry


def test_a_push_replaces_the_one_before() -> None:
    telemetry = made()
    telemetry.push(ONE, values("a", "b"), 0.0)
    telemetry.push(ONE, values("b", "c"), 1.0)
    assert kept(telemetry, 1.0) == [(str(ONE), "b"), (str(ONE), "c")]
    assert telemetry.series_count == 2
    (labels, value), _ = telemetry.samples(1.0)
    assert labels == {
        "client_id": "app", "software": "librdkafka 2", "instance_id": str(ONE), "metric": "b",
        "attributes": "",
    }  # fmt: skip
    assert value == 0.0


def test_who_is_silent_is_forgotten() -> None:
    telemetry = made()
    telemetry.push(ONE, values("a"), 0.0)
    assert telemetry.admit(ONE, WHO, INTERVAL_MS, 1.0, network="10.0.0.1")
    assert kept(telemetry, 3.4) != []
    assert kept(telemetry, 3.5) == []
    assert (telemetry.client_count, telemetry.series_count) == (0, 0)


def test_there_is_room_for_so_many_clients() -> None:
    telemetry = made()
    assert telemetry.admit(TWO, WHO, INTERVAL_MS, 0.0, network="10.0.0.1")
    assert not telemetry.admit(THREE, WHO, INTERVAL_MS, 0.0, network="10.0.0.1")
    assert telemetry.admit(ONE, WHO, INTERVAL_MS, 2.0, network="10.0.0.1"), (
        "whoever is there already stays"
    )
    assert telemetry.admit(THREE, WHO, INTERVAL_MS, 2.5, network="10.0.0.1"), (
        "the silent one made room"
    )


def test_one_address_does_not_take_all_places_by_inventing_clients() -> None:
    telemetry = ClientTelemetry(Limits(100, 1000, 10))
    for n in range(1, 300):
        telemetry.admit(UUID(int=n), WHO, INTERVAL_MS, 0.0, network="10.0.0.1")
    assert telemetry.client_count == 100
    telemetry.push(UUID(int=1), values("a"), 0.0)
    there = [
        telemetry.admit(UUID(int=1000 + n), WHO, INTERVAL_MS, 0.1, network="10.0.0.2")
        for n in range(60)
    ]
    assert there == [True] * 50 + [False] * 10, "half each"
    assert (telemetry.client_count, telemetry.series_count) == (100, 0)
    assert telemetry.admit(UUID(int=2000), WHO, INTERVAL_MS, 0.1, network="10.0.0.3")


def test_values_beyond_the_limits_are_dropped_and_counted() -> None:
    telemetry = made()
    telemetry.push(ONE, values("a", "b", "c", "d"), 0.0)
    assert (telemetry.series_count, telemetry.dropped) == (3, 1), "of one client"
    assert telemetry.admit(TWO, WHO, INTERVAL_MS, 0.0, network="10.0.0.1")
    telemetry.push(TWO, values("a", "b"), 0.0)
    assert (telemetry.series_count, telemetry.dropped) == (4, 2), "of all together"
    telemetry.push(ONE, values("a"), 0.0)
    telemetry.push(TWO, values("a", "b", "c"), 0.0)
    assert (telemetry.series_count, telemetry.dropped) == (4, 2)


def test_pushes_are_paced() -> None:
    telemetry = made()
    assert not telemetry.is_early(ONE, INTERVAL_MS, 0.0)
    telemetry.push(ONE, values("a"), 0.0)
    assert telemetry.is_early(ONE, INTERVAL_MS, 0.4)
    assert not telemetry.is_early(ONE, INTERVAL_MS, 0.5)
    assert not telemetry.is_early(TWO, INTERVAL_MS, 0.0), "nobody knows of it"


def test_software_is_remembered_of_the_latest_connections() -> None:
    telemetry = made()
    for number in range(2_001):
        telemetry.note_software(number, "x" * 300, "1")
    assert telemetry.software(0) == ("", "")
    assert telemetry.software(2_000) == ("x" * 100, "1")
