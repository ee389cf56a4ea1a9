"""Where a server's bytes go: any split gives the same frames; large ones are not copied; memory for
what did not come is earned and counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.errors import RemoteProtocolError
from client.wire.frames import (
    PLACE_BYTES_MAX,
    PLACE_BYTES_MIN,
    WINDOW_BYTES,
    FrameIntake,
    make_window,
)
from tests.fakes.intake import pour

FRAME_BYTES_MAX = 8 << 20
LARGE = bytes(range(256)) * (WINDOW_BYTES // 256 + 1)
"""Beyond what is read at once."""


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def intake() -> FrameIntake:
    return FrameIntake(FRAME_BYTES_MAX, make_window())


SIZES = st.sampled_from([0, 1, 40, 5_000, PLACE_BYTES_MIN - 1, PLACE_BYTES_MIN, 300_000])


@given(st.lists(SIZES, max_size=6), st.sampled_from([7_001, 65_536, 1 << 30]))
def test_any_split_of_the_stream_gives_the_same_frames(sizes: list[int], most: int) -> None:
    bodies = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    stream = b"".join(map(frame, bodies))
    into = intake()
    frames = pour(into, stream, most)
    assert [bytes(view) for view in frames] == bodies
    assert into.buffered_bytes == into.reserved_bytes == 0


@given(SIZES, st.sampled_from([1, 3, 7_001, 65_536]), st.booleans())
def test_what_is_missing_is_never_more_than_is_still_to_come(
    size: int, most: int, is_after_large: bool
) -> None:
    into = intake()
    if is_after_large:
        pour(into, frame(LARGE))
    assert into.missing_bytes == 4
    stream = frame(bytes(size))
    for at in range(0, min(len(stream), 50 * most), most):
        pour(into, stream[at : at + most])
        left = len(stream) - at - most
        if left > 0:
            known = at + most >= 4
            assert into.missing_bytes == (left if known else 4 - at - most)
        else:
            assert into.missing_bytes == 4


def test_what_is_missing_of_the_largest_frames() -> None:
    into = intake()
    body = bytes(PLACE_BYTES_MAX + 1)
    pour(into, frame(body)[:-5])
    assert into.missing_bytes == 5


def test_what_begins_with_a_frame_may_be_looked_at_before() -> None:
    into = intake()
    data = frame(b"first") + frame(b"second")
    into.room()[: len(data)] = data
    assert bytes(into.fresh(len(data)) or b"") == data
    assert [bytes(view) for view in into.received(len(data))] == [b"first", b"second"]
    pour(into, data[:7])
    into.room()[:12] = data[7:]
    assert into.fresh(12) is None, "the end of a frame comes first"
    into = intake()
    pour(into, frame(LARGE))
    assert into.fresh(10) is None, "only the beginning of a frame was asked for"


def test_frames_stay_what_they_are_when_more_comes() -> None:
    into = intake()
    first = pour(into, frame(b"small") + frame(LARGE))
    pour(into, frame(b"other") + frame(bytes(len(LARGE))))
    assert [bytes(view) for view in first] == [b"small", LARGE]


def test_large_frames_behind_each_other_are_read_where_they_stay() -> None:
    into = intake()
    pour(into, frame(LARGE))
    glance = into.room()
    assert len(glance) < 100, "behind a large frame only its successor's length is read"
    head = frame(LARGE)[: len(glance)]
    glance[:] = head
    assert into.received(len(head)) == []
    assert len(into.room()) == into.reserved_bytes == len(frame(LARGE)) - len(head)
    assert into.buffered_bytes == len(head)
    into.room()[:] = frame(LARGE)[len(head) :]
    [whole] = into.received(into.reserved_bytes)
    assert whole == LARGE


def test_a_window_is_full_again_behind_small_frames() -> None:
    into = intake()
    pour(into, frame(LARGE) + frame(b"small"))
    assert len(into.room()) == WINDOW_BYTES


def test_memory_for_what_did_not_come_has_to_be_earned() -> None:
    size = 1 << 20
    into = intake()
    assert pour(into, frame(bytes(size))[:1000]) == []
    assert into.reserved_bytes == 0, "a length is easily said"
    pour(into, bytes(size // 8))
    assert into.reserved_bytes + into.buffered_bytes == size + 4


def test_one_large_frame_earns_the_next_one_no_more_than_twice_its_size() -> None:
    for size, is_earned in ((2 * len(LARGE), True), (2 * len(LARGE) + 1, False)):
        into = intake()
        pour(into, frame(LARGE) + frame(bytes(size))[:8])
        assert bool(into.reserved_bytes) == is_earned


def test_the_largest_frames_are_joined() -> None:
    into = intake()
    pour(into, frame(bytes(PLACE_BYTES_MAX)))
    body = bytes(PLACE_BYTES_MAX + 1)
    assert pour(into, frame(body)[:-1]) == []
    assert into.reserved_bytes == 0
    [whole] = pour(into, b"\0")
    assert whole == body


@pytest.mark.parametrize("length", [-1, FRAME_BYTES_MAX + 1])
def test_a_bad_length_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        pour(intake(), length.to_bytes(4, "big", signed=True))
