"""The simulated volume: what a sync promises, and what a power loss, a failure and a wipe take."""

from __future__ import annotations

import random

import pytest

from tests.simulation.machine.volume import SimFile, Volume


def make(seed: int = 1) -> tuple[Volume, SimFile]:
    volume = Volume(random.Random(seed))
    file = volume.create("log")
    volume.sync_names()
    return volume, file


@pytest.mark.parametrize("seed", range(50))
def test_power_loss_keeps_what_was_synced_and_some_of_the_rest(seed: int) -> None:
    volume, file = make(seed)
    file.write(0, b"a" * 1000)
    count = len(file.dirty)
    file.write(1000, b"b" * 1000)
    file.synced(count)
    file.write(2000, b"c" * 1000)
    volume.power_lost()
    kept = bytes(volume.files["log"].cached)
    assert kept[:1000] == b"a" * 1000
    assert set(kept[1000:2000]) <= set(b"b\0")
    assert set(kept[2000:]) <= set(b"c")
    assert volume.used_bytes == len(kept)


def test_power_loss_has_every_fate() -> None:
    sizes = set()
    for seed in range(200):
        volume, file = make(seed)
        file.write(0, b"a" * 100)
        file.write(100, b"b" * 100)
        volume.power_lost()
        sizes.add(len(volume.files["log"].cached))
    assert {0, 100, 200} <= sizes
    assert len(sizes) > 10, "torn writes"


def test_a_failed_sync_loses_the_pages_and_the_next_sync_says_nothing() -> None:
    seen = set()
    for seed in range(20):
        volume, file = make(seed)
        file.write(0, b"lost")
        file.sync_failed()
        seen.add(bytes(file.cached))
        file.write(4, b"kept")
        file.synced(len(file.dirty))
        volume.power_lost()
        assert bytes(file.cached) == b"\0\0\0\0kept"
    assert seen == {b"", b"lost"}


def test_names_vanish_unless_the_directory_was_synced() -> None:
    fates = set()
    for seed in range(50):
        volume, _ = make(seed)
        volume.create("second").write(0, b"x")
        volume.rename("log", "old")
        volume.power_lost()
        fates.add(tuple(sorted(volume.files)))
    assert fates == {("log",), ("log", "second"), ("old", "second")}


def test_the_volume_fills_up_and_deleting_makes_room() -> None:
    volume, file = make()
    volume.capacity_bytes = 1000
    file.write(0, bytes(900))
    with pytest.raises(OSError, match="no space"):
        file.write(900, bytes(200))
    assert volume.free_bytes == 100
    other = volume.create("other")
    other.write(0, bytes(100))
    volume.delete("other")
    file.write(900, bytes(100))
    assert volume.free_bytes == 0


def test_reads_flip_a_bit_while_told_to() -> None:
    volume, file = make()
    file.write(0, bytes(64))
    volume.flip_read_p = 1.0
    assert sum(volume.damaged(file.read(0, 64))).bit_count() == 1
    volume.flip_read_p = 0.0
    assert volume.damaged(file.read(0, 64)) == bytes(64)


def test_durable_writes_are_announced() -> None:
    volume, file = make()
    seen: list[bytes | None] = []
    volume.on_durable = lambda _, writes: seen.extend(write.data for write in writes)
    file.write(0, b"one")
    file.synced(1)
    file.write(3, b"two")
    assert seen == [b"one"]
