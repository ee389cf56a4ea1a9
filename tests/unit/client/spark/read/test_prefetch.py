"""The thread that receives while the task decodes."""

import threading
from collections.abc import Iterator

import pytest

from client.spark.read.prefetch import prefetched


def test_items_come_in_order() -> None:
    assert list(prefetched(range(100), lambda: None)) == list(range(100))


def test_it_runs_ahead_only_so_far() -> None:
    made: list[int] = []
    third = threading.Event()

    def produce() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                third.set()
            yield number

    items = prefetched(produce(), lambda: None, ahead=2)
    assert next(items) == 0
    assert third.wait(10)  # one is with the consumer, two wait, one is in the producer's hands
    assert len(made) <= 4
    items.close()


def test_an_error_comes_out_in_its_place() -> None:
    def produce() -> Iterator[int]:
        yield 1
        raise ValueError("the second one")

    items = prefetched(produce(), lambda: None)
    assert next(items) == 1
    with pytest.raises(ValueError, match="the second one"):
        next(items)


def test_stopping_early_interrupts_a_producer_that_waits() -> None:
    interrupted = threading.Event()

    def produce() -> Iterator[int]:
        yield 1
        assert interrupted.wait(10)

    items = prefetched(produce(), interrupted.set)
    assert next(items) == 1
    items.close()
    assert interrupted.is_set()
    assert not [t for t in threading.enumerate() if t.name == "quire-fetch"]
