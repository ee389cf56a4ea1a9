"""A broker's pulse: rates of the last minutes, and how late the loop is."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.admin import pulse
from broker.admin.pulse import Pulse
from broker.metrics import Metrics
from tests.fakes.virtual_time import VirtualClock, VirtualTimeLoop, run


def test_rates_of_each_second_are_kept_for_a_while() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        heart = Pulse(metrics, VirtualClock())
        assert heart.latest is None
        heart.start()
        metrics.on_produced("t", 10, 500)
        metrics.on_fetched("t", 70)
        await asyncio.sleep(1.5)
        assert heart.latest is not None
        assert heart.latest[1:] == (10.0, 500.0, 70.0, 0.0)
        await asyncio.sleep(1)
        assert heart.latest[1:] == (0.0, 0.0, 0.0, 0.0)
        first, second = heart.since(0)
        assert second.at_ms - first.at_ms == 1_000
        assert heart.since(first.at_ms) == [second]
        await asyncio.sleep(pulse.SAMPLES_MAX + 5)
        assert len(heart.since(0)) == pulse.SAMPLES_MAX
        assert metrics.loop_lag_seconds.count > pulse.SAMPLES_MAX
        heart.close()

    run(scenario())


def test_a_late_loop_is_measured_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        heart = Pulse(metrics, VirtualClock())
        heart.start()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop._now_s += 4.0
        metrics.on_produced("t", 8, 8)
        await asyncio.sleep(0.1)
        assert metrics.loop_lag_seconds.total == pytest.approx(3.0)
        assert heart.latest is not None
        assert heart.latest.produced_records == pytest.approx(2.0)
        heart.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "loop.late seconds=3.0" in caplog.text
