"""The cache of the newest batches."""

from __future__ import annotations

from broker.partition.tail_cache import (
    BATCH_OVERHEAD_BYTES,
    READ_BATCHES_MAX,
    PartitionTail,
    TailCache,
)
from client.ids import Offset


def fill(tail: PartitionTail, first: int, count: int, size: int = 10) -> None:
    """Add batches of two records each."""
    for number in range(first, first + count):
        data = (b"%04d" % number).ljust(size, b".")
        tail.add(Offset(2 * number), Offset(2 * number + 2), (data[:4], data[4:]), size)


def read(
    tail: PartitionTail,
    offset: int,
    limit: int = 10**6,
    size: int = 10**6,
    at_least_one: bool = True,
) -> tuple[list[int], int] | None:
    found = tail.read(Offset(offset), Offset(limit), size, at_least_one=at_least_one)
    if found is None:
        return None
    data = b"".join(bytes(part) for part in found.buffers)
    assert len(data) == found.size
    return [int(part) for part in data.replace(b".", b" ").split()], found.next_offset


def test_batches_from_the_one_that_holds_the_offset() -> None:
    tail = TailCache(1000, overhead_bytes=0).tail()
    fill(tail, 5, 3)
    assert read(tail, 10) == ([5, 6, 7], 16)
    assert read(tail, 11) == ([5, 6, 7], 16)
    assert read(tail, 15) == ([7], 16)
    assert read(tail, 9) is None
    assert read(TailCache(1000, overhead_bytes=0).tail(), 0) is None


def test_nothing_at_or_above_the_limit() -> None:
    tail = TailCache(1000, overhead_bytes=0).tail()
    fill(tail, 0, 5)
    assert read(tail, 0, limit=4) == ([0, 1], 4)
    assert read(tail, 0, limit=5) == ([0, 1], 4)
    assert read(tail, 8, limit=8) == ([], 8)


def test_sizes() -> None:
    tail = TailCache(1000, overhead_bytes=0).tail()
    fill(tail, 0, 5)
    assert read(tail, 0, size=25) == ([0, 1], 4)
    assert read(tail, 0, size=5) == ([0], 2)
    assert read(tail, 0, size=5, at_least_one=False) == ([], 0)


def test_the_oldest_batch_of_the_broker_leaves_first() -> None:
    cache = TailCache(100, overhead_bytes=0)
    first, second = cache.tail(), cache.tail()
    fill(first, 0, 6)
    fill(second, 0, 4)
    fill(first, 6, 3)
    assert cache.size == 100
    assert read(first, 5) is None
    assert read(first, 6) == ([3, 4, 5, 6, 7, 8], 18)
    assert read(second, 0) == ([0, 1, 2, 3], 8)


def test_a_batch_larger_than_the_cache_is_not_kept() -> None:
    cache = TailCache(15, overhead_bytes=0)
    tail = cache.tail()
    fill(tail, 0, 1)
    fill(tail, 1, 1, size=100)
    assert cache.size == 0
    assert read(tail, 2) is None


def test_a_cleared_tail_is_empty_and_owes_nothing() -> None:
    cache = TailCache(100, overhead_bytes=0)
    first, second = cache.tail(), cache.tail()
    fill(first, 0, 5)
    fill(second, 0, 5)
    first.clear()
    assert cache.size == 50
    assert read(first, 0) is None
    fill(second, 5, 10)
    assert cache.size == 100
    assert read(second, 9) is None
    assert read(second, 10) is not None


def test_it_stays_small_over_a_long_time() -> None:
    cache = TailCache(1000, overhead_bytes=0)
    tail = cache.tail()
    fill(tail, 0, 20_000)
    assert len(tail._batches) < 3000
    assert read(tail, 39_800) == (list(range(19_900, 20_000)), 40_000)
    assert read(tail, 39_799) is None


def test_small_batches_count_with_what_python_needs_for_each() -> None:
    cache = TailCache(100 * (BATCH_OVERHEAD_BYTES + 10))
    tail = cache.tail()
    for offset in range(1000):
        tail.add(Offset(offset), Offset(offset + 1), [bytes(10)], 10)
    assert cache.size == cache.size_max
    for offset, is_there in ((899, False), (900, True)):
        found = tail.read(Offset(offset), Offset(1000), 10, at_least_one=True)
        assert (found is not None) == is_there
    tail.clear()
    assert cache.size == 0


def test_one_read_returns_so_many_batches_however_small() -> None:
    """Each is a buffer that somebody copies and counts."""
    tail = TailCache(1 << 30).tail()
    fill(tail, 0, 2 * READ_BATCHES_MAX)
    found = tail.read(Offset(0), Offset(10**6), 10**6, at_least_one=True)
    assert found is not None
    assert READ_BATCHES_MAX <= len(found.buffers) <= READ_BATCHES_MAX + 2
    assert found.next_offset == READ_BATCHES_MAX  # two records and two buffers each


def test_what_was_compacted_is_forgotten_and_the_rest_stays() -> None:
    cache = TailCache(1000, overhead_bytes=1)
    tail, other = cache.tail(), cache.tail()
    fill(tail, 0, 5)
    fill(other, 0, 1)
    tail.drop_below(Offset(5))
    assert read(tail, 3) is None
    assert read(tail, 4) == ([2, 3, 4], 10)
    assert cache.size == 4 * 11
    tail.drop_below(Offset(100))
    assert read(tail, 8) is None
    assert cache.size == 11
    fill(tail, 5, 200)  # older ones are dropped again as others come
    assert cache.size <= 1000


def test_a_batch_counts_with_all_that_it_keeps_in_memory() -> None:
    cache = TailCache(1000, overhead_bytes=0)
    tail = cache.tail()
    chunk = memoryview(bytes(300))
    tail.add(Offset(0), Offset(1), (b"head", chunk[100:260]), 164)
    assert cache.size == 300
    for number in range(1, 5):
        tail.add(Offset(number), Offset(number + 1), (b"head", chunk[100:260]), 164)
    assert cache.size == 900, "two had to go"
    tail.clear()
    assert cache.size == 0
