"""Percentiles, medians and spreads: the only arithmetic between what was measured and a result."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least `share` of them do not exceed.

    No interpolation: the result was measured. `ordered` ascends. Raises ValueError if it is empty.
    """
    if not ordered:
        raise ValueError("there is no percentile of no values")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Spread(NamedTuple):
    """What the rounds of one measure gave."""

    median: float
    least: float
    most: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and most. Raises ValueError if there are none."""
    if not values:
        raise ValueError("there is no median of no rounds")
    return Spread(statistics.median(values), min(values), max(values), len(values))
