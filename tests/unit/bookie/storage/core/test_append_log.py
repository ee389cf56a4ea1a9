"""Where records go: positions, groups, files, and going back after a full disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie.storage.core.append_log import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    AppendLog,
    Kind,
    Location,
    LogPosition,
    LogWrite,
    seed_of,
    unpack_file_header,
    unpack_record,
)

SALT = 99


def make(file_bytes_max: int = 1000, creates_after: int | None = 0) -> AppendLog:
    return AppendLog(
        LogPosition(1, FILE_HEADER_BYTES),
        group=1,
        salt=SALT,
        file_bytes_max=file_bytes_max,
        creates_after=creates_after,
    )


def perform(files: dict[int, bytearray], write: LogWrite) -> None:
    """Do what a disk does with a group."""
    if write.creates:
        if write.sealed_size is not None:
            del files[write.number - 1][write.sealed_size :]
        files[write.number] = bytearray()
    file = files[write.number]
    data = b"".join(write.buffers)
    assert len(data) == write.size
    file[write.position : write.position + write.size] = data


def test_first_group_makes_the_file() -> None:
    log = make()
    location = log.append(Kind.ENTRY, b"0123456789")
    assert location == Location(1, 64, 10)
    assert log.open_bytes == RECORD_HEADER_BYTES + 10
    write = log.take()
    assert (write.number, write.position, write.group, write.creates) == (1, 0, 1, True)
    assert write.end == (1, location.end)
    header = unpack_file_header(b"".join(write.buffers)[:64])
    assert header == (1, SALT, 1, 0)


def test_later_groups_follow_it() -> None:
    log = make()
    log.append(Kind.ENTRY, b"a")
    first = log.take()
    log.append(Kind.ENTRY, b"b")
    log.append(Kind.FENCE, b"c")
    second = log.take()
    assert (second.position, second.group, second.creates) == (first.end.position, 2, False)
    data = memoryview(b"".join(second.buffers))
    one = unpack_record(data, seed_of(SALT))
    assert one == (Kind.ENTRY, 2, second.position, second.position, b"b")
    two = unpack_record(data, seed_of(SALT), one.end - second.position)
    assert two == (Kind.FENCE, 2, second.position, one.end, b"c")


def test_an_existing_file_is_continued() -> None:
    log = make(creates_after=None)
    log.append(Kind.ENTRY, b"a")
    write = log.take()
    assert (write.position, write.creates, write.sealed_size) == (64, False, None)


def test_payload_buffers_are_not_copied() -> None:
    body = memoryview(b"payload")
    log = make()
    log.append(Kind.ENTRY, body)
    assert log.take().buffers[-1] is body


def test_a_full_file_is_followed_by_another() -> None:
    log = make(file_bytes_max=200)
    log.append(Kind.ENTRY, bytes(200))
    assert log.append(Kind.ENTRY, b"same group, same file").number == 1
    first = log.take()
    assert log.append(Kind.ENTRY, b"next").number == 2
    second = log.take()
    assert (second.position, second.creates) == (0, True)
    assert second.sealed_size == first.end.position
    header = unpack_file_header(b"".join(second.buffers)[:64])
    assert header == (2, SALT, 2, first.end.position)


def test_only_groups_without_entries_may_use_the_reserve() -> None:
    log = make()
    log.append(Kind.FENCE, b"f")
    assert log.take().may_use_reserve
    log.append(Kind.FENCE, b"f")
    log.append(Kind.ENTRY, b"e")
    assert not log.take().may_use_reserve


def test_rewind_ends_the_log_where_it_ended_before() -> None:
    log = make()
    log.append(Kind.ENTRY, b"a")
    log.take()
    end = LogPosition(log.number, log.position)
    log.append(Kind.ENTRY, b"lost")
    failed = log.take()
    log.append(Kind.ENTRY, b"lost too")
    log.rewind(failed)
    assert log.is_empty
    assert (log.number, log.position) == end
    location = log.append(Kind.ENTRY, b"c")
    assert location.position == end.position
    assert log.take().group > failed.group + 1


@pytest.mark.parametrize("creates_after", [0, 500])
def test_rewind_of_a_new_file_makes_it_again(creates_after: int) -> None:
    log = make(creates_after=creates_after)
    log.append(Kind.ENTRY, b"lost")
    failed = log.take()
    log.rewind(failed)
    log.append(Kind.ENTRY, b"x")
    again = log.take()
    assert (again.creates, again.position, again.number) == (True, 0, 1)
    assert again.sealed_size == failed.sealed_size == (creates_after or None)


def test_rewind_comes_back_from_a_file_that_was_only_planned() -> None:
    log = make(file_bytes_max=100)
    log.append(Kind.ENTRY, bytes(100))
    failed = log.take()
    assert log.number == 2
    log.rewind(failed)
    assert (log.number, log.position) == (1, 64)


@given(
    st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.booleans()), max_size=40),
    st.integers(64, 400),
)
def test_every_location_leads_to_its_record(steps, file_bytes_max: int) -> None:
    log = make(file_bytes_max)
    files: dict[int, bytearray] = {}
    written: list[tuple[Location, bytes]] = []
    pending: list[tuple[Location, bytes]] = []
    for size, takes, fails in steps:
        body = bytes([len(written) % 256]) * size
        pending.append((log.append(Kind.ENTRY, body), body))
        if takes:
            write = log.take()
            if fails:
                log.rewind(write)
            else:
                perform(files, write)
                written += pending
            pending = []
    for location, body in written:
        data = memoryview(files[location.number])
        record = unpack_record(data, seed_of(SALT), location.position)
        assert record is not None
        assert (record.position, record.body) == (location.position, body)
