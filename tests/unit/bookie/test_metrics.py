"""Metrics: every table row is exposed, each bookie has its own registry."""

from __future__ import annotations

from bookie.metrics import COUNTERS, GAUGES, BookieMetrics


def test_every_counter_and_gauge_is_exposed() -> None:
    metrics = BookieMetrics()
    for value, name in enumerate(COUNTERS, start=1):
        assert getattr(metrics, name) == 0
        setattr(metrics, name, value)
    for name in GAUGES:
        metrics.gauges[name] = lambda: 2.5
    metrics.sync_seconds.observe(0.003)
    text = metrics.exposition().decode()
    for value, name in enumerate(COUNTERS, start=1):
        assert f"quire_bookie_{name}_total {float(value)}" in text
    for name in GAUGES:
        assert f"quire_bookie_{name} 2.5" in text
    assert 'quire_bookie_sync_seconds_bucket{le="0.0025"} 0.0' in text
    assert 'quire_bookie_sync_seconds_bucket{le="0.005"} 1.0' in text
    assert 'quire_bookie_sync_seconds_bucket{le="+Inf"} 1.0' in text
    assert "quire_bookie_sync_seconds_sum 0.003" in text
    assert "quire_bookie_group_seconds_count 0.0" in text


def test_gauges_that_nobody_set_are_left_out() -> None:
    assert b"quire_bookie_ledgers" not in BookieMetrics().exposition()


def test_bookies_do_not_share_numbers() -> None:
    one, other = BookieMetrics(), BookieMetrics()
    one.adds += 1
    assert other.adds == 0
    assert one.registry is not other.registry
