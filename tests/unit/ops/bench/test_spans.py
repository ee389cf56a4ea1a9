"""The longest pause of each partition between two marks."""

from ops.bench.load.pauses import Spans


def test_a_pause_is_the_time_between_two_acknowledgements() -> None:
    spans = Spans(2)
    spans.acknowledged(0, 1.0)
    assert not spans.warm
    spans.acknowledged(1, 1.0)
    assert spans.warm
    for now_s in (1.5, 3.5, 3.75):
        spans.acknowledged(0, now_s)
    spans.acknowledged(1, 3.75)
    assert spans.mark(3.75) == [2.0, 2.75]


def test_a_pause_that_is_not_over_counts_as_long_as_it_is() -> None:
    spans = Spans(1)
    spans.acknowledged(0, 1.0)
    assert spans.mark(5.0) == [4.0]
    spans.acknowledged(0, 6.0)
    assert spans.mark(6.0) == [5.0], "it reaches into the next span too"
    spans.acknowledged(0, 6.25)
    assert spans.mark(6.25) == [0.25]
