"""The order of the four offsets."""

from __future__ import annotations

import pytest

from broker.partition.core.offsets import LogOffsets
from client.ids import Offset


def test_after_a_takeover_everything_is_confirmed() -> None:
    offsets = LogOffsets(Offset(5), Offset(20))
    assert (offsets.high_watermark, offsets.last_stable, offsets.log_end) == (20, 20, 20)
    assert offsets.describe() == "log_start=5 high_watermark=20 log_end=20"


def test_accept_then_confirm() -> None:
    offsets = LogOffsets(Offset(0), Offset(0))
    offsets.on_accepted(Offset(3))
    offsets.on_accepted(Offset(5))
    assert (offsets.high_watermark, offsets.log_end) == (0, 5)
    offsets.on_confirmed(Offset(3))
    offsets.on_confirmed(Offset(3))
    assert offsets.high_watermark == 3
    offsets.on_trimmed(Offset(3))
    offsets.check()


@pytest.mark.parametrize("end", [2, 6])
def test_the_high_watermark_stays_within_the_log(end: int) -> None:
    offsets = LogOffsets(Offset(0), Offset(3))
    offsets.on_accepted(Offset(5))
    with pytest.raises(AssertionError):
        offsets.on_confirmed(Offset(end))


def test_nothing_goes_back() -> None:
    offsets = LogOffsets(Offset(2), Offset(3))
    with pytest.raises(AssertionError):
        offsets.on_accepted(Offset(3))
    with pytest.raises(AssertionError):
        offsets.on_trimmed(Offset(1))
    with pytest.raises(AssertionError):
        offsets.on_trimmed(Offset(4))
    with pytest.raises(AssertionError):
        LogOffsets(Offset(4), Offset(3))
