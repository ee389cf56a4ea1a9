"""Checks of a machine: each one finds its mistake, and does not find it where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.security.config import SecurityConfig
from ops.doctor import disk, machine
from ops.doctor.findings import Level
from ops.java import Java, JavaMissing

FINE, WARNING, TROUBLE = Level.FINE, Level.WARNING, Level.TROUBLE


@pytest.mark.parametrize(
    ("is_free", "owner", "level"),
    [
        (True, None, FINE),
        (False, "python3 -m broker (pid 7)", FINE),
        (False, "java (pid 7)", TROUBLE),
        (False, None, TROUBLE),
    ],
)
def test_ports(is_free: bool, owner: str | None, level: Level) -> None:
    found = machine.check_port(9092, "the broker", is_free=is_free, owner=owner)
    assert found.level is level
    assert "9092" in found.what


@pytest.mark.parametrize(
    ("listen", "advertised", "addresses", "own", "level"),
    [
        ("127.0.0.1", None, ["127.0.0.1"], True, FINE),
        ("0.0.0.0", "b1.example", ["10.0.0.1"], True, FINE),
        ("0.0.0.0", "b1.example", ["10.0.0.9"], False, WARNING),
        ("0.0.0.0", "localhost", ["127.0.0.1"], True, TROUBLE),
        ("10.0.0.1", "b1.example", ["127.0.1.1"], True, TROUBLE),
        ("0.0.0.0", "b1.example", None, False, TROUBLE),
    ],
)
def test_advertised_listeners(
    listen: str, advertised: str | None, addresses: list[str] | None, own: bool, level: Level
) -> None:
    def resolve(host: str) -> list[str]:
        assert host == (advertised or listen)
        if addresses is None:
            raise OSError("Name or service not known")
        return addresses

    config = BrokerConfig(listen_host=listen, advertised_host=advertised)
    (found,) = machine.check_advertised(config, resolve, lambda _address: own)
    assert found.level is level
    assert found.advice or level is FINE


def test_each_listener_is_looked_at() -> None:
    security = SecurityConfig(
        listeners=("INSIDE://127.0.0.1:9092", "OUTSIDE://0.0.0.0:9094"),
        listener_protocols=("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
        advertised_listeners=("OUTSIDE://localhost:9094",),
    )
    inside, outside = machine.check_advertised(
        BrokerConfig(security=security), lambda host: ["127.0.0.1"], lambda address: True
    )
    assert inside.level is FINE
    assert outside.level is TROUBLE
    assert "clients of OUTSIDE to localhost" in outside.what
    assert "OUTSIDE in security.advertised_listeners" in outside.advice


def test_java() -> None:
    def missing() -> Java:
        raise JavaMissing("there is none")

    assert machine.check_java(lambda: Java(Path("/bin/java"), 17)).level is FINE
    assert machine.check_java(missing) == (
        "java",
        WARNING,
        "there is none",
        "Not needed where ZooKeeper runs elsewhere.",
    )


def test_open_files_and_sessions() -> None:
    assert machine.check_files(1_024).level is WARNING
    assert "LimitNOFILE" in machine.check_files(1_024).advice
    assert machine.check_files(1 << 20).level is FINE
    assert machine.check_session("broker", 1_000).level is WARNING
    assert machine.check_session("broker", 6_000).level is FINE


@pytest.mark.parametrize(
    ("free", "level"), [(500, FINE), (150, FINE), (80, WARNING), (40, TROUBLE), (5, TROUBLE)]
)
def test_room_on_the_disk(free: int, level: Level) -> None:
    found = disk.check_space(
        Path("/d"), total=1_000, free=free, free_min=10, full_at=0.95, warn_at=0.9
    )
    assert found.level is level


def test_too_little_room_in_bytes_on_a_large_disk() -> None:
    found = disk.check_space(Path("/d"), total=100, free=50, free_min=60, full_at=1, warn_at=1)
    assert found.level is TROUBLE


MOUNTS = (
    "/dev/sda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
    "nas:/x /mnt/with\\040space nfs4 rw 0 0\n/dev/sdb1 /run/data xfs rw 0 0\n"
)


@pytest.mark.parametrize(
    ("path", "level"),
    [
        ("/var/lib/quire", FINE),
        ("/run/quire", TROUBLE),
        ("/run/data/quire", FINE),
        ("/mnt/with space/quire", WARNING),
        ("/mnt/without", FINE),
    ],
)
def test_file_systems_that_keep_nothing(path: str, level: Level) -> None:
    assert disk.check_file_system(Path(path), MOUNTS).level is level


def test_slow_syncs() -> None:
    path = Path("/d")
    assert disk.check_syncs(path, [0.001, 0.001, 5.0]).level is FINE
    assert disk.check_syncs(path, [0.03, 0.03, 0.001]).level is WARNING
    assert disk.check_syncs(path, [0.5]).level is TROUBLE


def test_syncs_are_measured_and_leave_nothing(tmp_path: Path) -> None:
    assert len(disk.measure_syncs(tmp_path, 3)) == 3
    assert not list(tmp_path.iterdir())
