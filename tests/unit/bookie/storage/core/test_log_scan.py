"""Reading a file back: every record found, damage told from a torn end, leftovers ignored."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.append_log import Kind, Record, pack_record_header, seed_of
from bookie.storage.core.log_scan import Gap, LogScan

SEED = seed_of(4)
START = 64


class Builder:
    """Writes groups into a byte array, as the append log would."""

    def __init__(self) -> None:
        self.data = bytearray(START)
        self.bodies: list[bytes] = []
        self.starts: list[int] = []

    def group(self, number: int, *bodies: bytes) -> None:
        start = len(self.data)
        for body in bodies:
            position = len(self.data)
            self.starts.append(position)
            self.data += pack_record_header(SEED, Kind.ENTRY, number, start, position, body) + body
            self.bodies.append(body)


def three_groups() -> Builder:
    log = Builder()
    log.group(1, b"a" * 10, b"b" * 20)
    log.group(2, b"c" * 30)
    log.group(3, b"d" * 40, b"e" * 50)
    return log


def scan(data: bytes, window_bytes: int = 1 << 20, **options: int) -> tuple[LogScan, list]:
    pass_ = LogScan(
        lambda position, size: bytes(data[position : position + size]),
        len(data),
        seed=SEED,
        window_bytes=window_bytes,
        **options,
    )
    return pass_, list(pass_)


def bodies(items: list) -> list[bytes]:
    return [bytes(item.body) for item in items if isinstance(item, Record)]


def gaps(items: list) -> list[Gap]:
    return [item for item in items if isinstance(item, Gap)]


@pytest.mark.parametrize("zeros", [0, 5, 10_000])
@pytest.mark.parametrize("window_bytes", [1, 33, 77, 1 << 20])
def test_whole_file(zeros: int, window_bytes: int) -> None:
    log = three_groups()
    done, items = scan(log.data + bytes(zeros), window_bytes)
    assert bodies(items) == log.bodies
    assert gaps(items) == []
    assert (done.end, done.group, done.is_torn) == (len(log.data), 3, False)


def test_scan_from_the_middle() -> None:
    log = three_groups()
    _, items = scan(log.data, start=log.starts[2], group=2)
    assert bodies(items) == log.bodies[2:]


@pytest.mark.parametrize("size", range(1, 154))
def test_a_cut_last_group_is_a_torn_end(size: int) -> None:
    log = three_groups()
    start = log.starts[3]
    done, items = scan(log.data[: start + size])
    assert gaps(items) == []
    whole = 4 if size >= 32 + 40 else 3
    assert bodies(items) == log.bodies[:whole]
    assert done.is_torn == (done.end < start + size)


def test_a_hole_in_the_last_group_is_a_torn_end_even_before_whole_records() -> None:
    log = three_groups()
    log.data[log.starts[3] : log.starts[3] + 30] = bytes(30)
    done, items = scan(log.data)
    assert gaps(items) == []
    assert bodies(items) == log.bodies[:3]
    assert done.is_torn


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_bad_record_before_a_later_group_is_damage(index: int) -> None:
    log = three_groups()
    for offset in (0, 6, 9, 12, 20, 26, 30, 40):
        data = bytearray(log.data)
        data[log.starts[index] + offset] ^= 0x20
        done, items = scan(data)
        assert gaps(items) == [Gap(log.starts[index], log.starts[index + 1])]
        assert bodies(items) == log.bodies[:index] + log.bodies[index + 1 :]
        assert not done.is_torn


def test_a_zeroed_stretch_before_a_later_group_is_damage() -> None:
    log = three_groups()
    log.data[log.starts[1] : log.starts[2] + 40] = bytes(log.starts[2] + 40 - log.starts[1])
    _, items = scan(log.data, window_bytes=50)
    assert gaps(items) == [Gap(log.starts[1], log.starts[3])]
    assert bodies(items) == [log.bodies[0], *log.bodies[3:]]


def test_what_the_caller_knows_to_be_durable_is_damage_too() -> None:
    log = three_groups()
    data = bytearray(log.data)
    data[log.starts[3] + 35] ^= 1
    _, items = scan(data, durable=len(data))
    assert gaps(items) == [Gap(log.starts[3], log.starts[4])]
    data = bytearray(log.data)
    data[log.starts[4] + 35] ^= 1
    done, items = scan(data, durable=len(data))
    assert gaps(items) == [Gap(log.starts[4], len(data))]
    assert not done.is_torn
    _, items = scan(log.data[: log.starts[2]], durable=len(log.data))
    assert gaps(items) == [Gap(log.starts[2], len(log.data))]


def test_leftovers_of_a_failed_write_are_not_records() -> None:
    failed, log = Builder(), Builder()
    for builder in (failed, log):
        builder.group(1, b"x" * 10)
    failed.group(2, b"y" * 20, b"lost" * 10)
    log.group(4, b"z" * 20)
    data = log.data + failed.data[len(log.data) :]
    done, items = scan(data)
    assert bodies(items) == log.bodies
    assert done.is_torn
    assert done.end == len(log.data)


def test_an_entry_cannot_pretend_to_be_a_record() -> None:
    """Bytes inside a payload that would be a record elsewhere are not found at a gap."""
    inner = three_groups().data
    log = Builder()
    log.group(1, bytes(inner))
    log.group(2, b"after")
    log.data[log.starts[0] + 3] ^= 1
    _, items = scan(log.data)
    assert bodies(items) == [b"after"]
    assert gaps(items) == [Gap(log.starts[0], log.starts[1])]


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(16, 200))
def test_torn_writes_never_hide_a_synced_record(seed: int, groups: int, window: int) -> None:
    """Sectors of the last group reach the disk in any combination; nothing before is touched."""
    rng = random.Random(seed)
    log = Builder()
    for number in range(1, groups + 1):
        synced = len(log.data)
        whole = len(log.bodies)
        log.group(number, *(rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 4))))
    data = bytearray(log.data)
    for start in range(synced, len(data), 16):
        if rng.random() < 0.5:
            data[start : start + 16] = bytes(len(data[start : start + 16]))
    done, items = scan(data, window)
    assert gaps(items) == []
    found = bodies(items)
    assert found == log.bodies[: len(found)]
    assert len(found) >= whole
    assert done.end >= synced
