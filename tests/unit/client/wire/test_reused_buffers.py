"""Receive buffers are used again, but never while somebody views them."""

from client.wire.frames import STEP_BYTES, ReusedBuffers


def test_a_buffer_is_taken_again_when_its_last_view_is_gone() -> None:
    buffers = ReusedBuffers(2)
    first = buffers.take(1000)
    part = first[10:20]
    memory = first.obj
    del first
    assert buffers.take(1000).obj is not memory, "a slice is a view too"
    del part
    assert buffers.take(STEP_BYTES).obj is memory, "its capacity is a whole step"


def test_what_is_taken_beyond_the_limit_is_not_kept() -> None:
    buffers = ReusedBuffers(1)
    kept = buffers.take(1)
    beyond = buffers.take(1)
    assert beyond.obj is not kept.obj
    assert buffers.kept_bytes == STEP_BYTES, "and so not counted"
    memory = beyond.obj
    del beyond
    assert buffers.take(1).obj is not memory


def test_a_larger_one_takes_the_place_of_one_that_is_too_small() -> None:
    buffers = ReusedBuffers(1)
    buffers.take(1)
    large = buffers.take(3 * STEP_BYTES)
    assert len(large) == 3 * STEP_BYTES
    memory = large.obj
    del large
    assert buffers.take(5).obj is memory
