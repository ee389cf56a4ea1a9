"""The span that a load measures, and what a system uses meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ops.bench.figures import Meter, Spent
from ops.bench.load.channel import LoadProcess


async def metered(
    load: LoadProcess, pids: Sequence[int], brokers: Iterable[int] = ()
) -> tuple[dict[str, Any], Spent]:
    """Return what a load says at the end of its span, and what these processes spent in it.

    `brokers`: see `Meter`. Raises LoadFailed.
    """
    await load.event("begin")
    meter = Meter(pids, brokers)
    end = await load.event("end")
    return end, meter.spent()
