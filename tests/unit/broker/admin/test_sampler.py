"""A broker's pulse: rates of the last minutes, and how late the loop is."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.admin.sampler import SAMPLES_MAX, Sampler
from broker.metrics import Metrics
from tests.fakes.virtual_time import VirtualClock, VirtualTimeLoop, run


def test_rates_of_each_second_are_kept_for_a_while() -> None:
    async def scenario() -> None:
        metrics = Metrics()
        sampler = Sampler(metrics, VirtualClock())
        assert sampler.latest is None
        sampler.start()
        metrics.on_produced("t", 10, 500)
        metrics.on_fetched("t", 70)
        await asyncio.sleep(1.5)
        assert sampler.latest is not None
        assert sampler.latest[1:] == (10.0, 500.0, 70.0, 0.0)
        await asyncio.sleep(1)
        assert sampler.latest[1:] == (0.0, 0.0, 0.0, 0.0)
        first, second = sampler.since(0)
        assert second.at_ms - first.at_ms == 1_000
        assert sampler.since(first.at_ms) == [second]
        await asyncio.sleep(SAMPLES_MAX + 5)
        assert len(sampler.since(0)) == SAMPLES_MAX
        assert metrics.loop_lag_seconds.count > SAMPLES_MAX
        sampler.close()

    run(scenario())


def test_a_late_loop_is_measured_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        metrics = Metrics()
        sampler = Sampler(metrics, VirtualClock())
        sampler.start()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop._now_s += 4.0
        metrics.on_produced("t", 8, 8)
        await asyncio.sleep(0.1)
        assert metrics.loop_lag_seconds.total == pytest.approx(3.0)
        assert sampler.latest is not None
        assert sampler.latest.produced_records == pytest.approx(2.0)
        sampler.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "loop.late seconds=3.0" in caplog.text
