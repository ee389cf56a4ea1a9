"""Records are taken as soon as there are any: the reader adds no wait of its own."""

import pytest

from ops.bench.load.arrivals import arrived
from ops.bench.load.channel import LoadFailed


class Record:
    def __init__(self, error: str | None = None) -> None:
        self._error = error

    def error(self) -> str | None:
        return self._error


class Consumer:
    def __init__(self, *waiting: Record) -> None:
        self.waiting = list(waiting)
        self.waits_s: list[float] = []

    def poll(self, timeout: float) -> Record | None:
        return self.waiting.pop(0) if self.waiting else None

    def consume(self, num_messages: int, timeout: float) -> list[Record]:
        self.waits_s.append(timeout)
        taken, self.waiting = self.waiting[:num_messages], self.waiting[num_messages:]
        return taken


def test_only_the_first_record_is_waited_for() -> None:
    consumer = Consumer(Record(), Record(), Record())
    assert len(arrived(consumer, 1.0)) == 3
    assert consumer.waits_s == [0]


def test_nothing_is_not_asked_for_twice() -> None:
    consumer = Consumer()
    assert arrived(consumer, 1.0) == []
    assert consumer.waits_s == []


def test_an_error_among_the_records_voids_the_round() -> None:
    with pytest.raises(LoadFailed, match="broken"):
        arrived(Consumer(Record(), Record("broken")), 1.0)
