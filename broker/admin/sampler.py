"""Samples a broker once a second: how late its event loop is, and the rates of its traffic.

Stalls of the loop are looked for more often (`client/node/process_metrics.py`).

The last minutes are kept, so that a page shows them as soon as it is opened; Prometheus computes
rates of its own from the counters.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, NamedTuple

from broker.metrics import Metrics
from client.ids import Clock
from client.node.process_metrics import LoopStall

log = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
SAMPLES_MAX: Final = 300
_LATE_S: Final = 1.0
"""An event loop that is this late is worth a line in the log."""


class Sample(NamedTuple):
    """The traffic of one interval, per second."""

    at_ms: int
    """The end of the interval."""
    produced_records: float
    produced_bytes: float
    fetched_bytes: float
    requests: float


class Sampler:
    """Measures a broker."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._seen_s = 0.0
        self._seen = self._counts()
        self._stall = LoopStall(metrics, metrics.now_s)

    def start(self) -> None:
        """Begin to measure."""
        self._stall.start()
        self._seen_s = self._metrics.now_s()
        self._arm()

    def close(self) -> None:
        """Stop measuring."""
        self._stall.close()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def latest(self) -> Sample | None:
        """The last interval, if one is over."""
        return self._samples[-1] if self._samples else None

    def since(self, after_ms: int) -> list[Sample]:
        """Return what ended later than that, oldest first."""
        return [sample for sample in self._samples if sample.at_ms > after_ms]

    def _arm(self) -> None:
        self._due_s = self._metrics.now_s() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._sample)

    def _sample(self) -> None:
        now_s = self._metrics.now_s()
        late_s = max(0.0, now_s - self._due_s)
        self._metrics.loop_lag_seconds.observe(late_s)
        if late_s > _LATE_S:
            log.warning("loop.late seconds=%.1f", late_s)
        counts, passed_s = self._counts(), now_s - self._seen_s
        moved = ((now - before) / passed_s for now, before in zip(counts, self._seen, strict=True))
        self._samples.append(Sample(self._clock.now_ms(), *moved))
        self._seen, self._seen_s = counts, now_s
        self._arm()

    def _counts(self) -> tuple[int, int, int, int]:
        metrics = self._metrics
        return (
            metrics.produced_records,
            metrics.produced_bytes,
            metrics.fetched_bytes,
            metrics.answered_count,
        )
