"""Metrics: every table row is exposed, each bookie has numbers of its own."""

from __future__ import annotations

import asyncio
import re

import pytest

from bookie.metrics import COUNTERS, GAUGES, TABLE, BookieMetrics
from client.histogram import Histogram
from client.node.exposition import Kind, Row
from tests.fakes.bookie_box import BookieBox
from tests.fakes.scrape import parse
from tests.unit.bookie.storage.test_storage import add, settle


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
    assert b"\nquire_bookie_ledgers " not in BookieMetrics().exposition()


def test_bookies_do_not_share_numbers() -> None:
    one, other = BookieMetrics(), BookieMetrics()
    one.adds += 1
    assert other.adds == 0


async def test_the_parts_of_a_group_commit_add_up_and_its_size_is_counted() -> None:
    box = BookieBox()
    box.disk.hold = True
    answers = [box.send(add(7, entry)) for entry in range(3)]
    await settle()
    answers += [box.send(add(7, entry)) for entry in range(3, 8)]
    await asyncio.sleep(0.002)
    box.disk.hold = False
    box.disk.release()
    for answer in answers:
        await answer
    await settle()
    found = parse(box.metrics.exposition())
    assert found["quire_bookie_group_seconds_sum"] > 0.002
    assert found["quire_bookie_group_seconds_sum"] == pytest.approx(
        found["quire_bookie_group_wait_seconds_sum"] + found["quire_bookie_sync_seconds_sum"]
    )
    assert found["quire_bookie_group_wait_seconds_sum"] > 0, "the second group waited"
    assert found["quire_bookie_group_entries_sum"] == 8
    assert found['quire_bookie_group_entries_bucket{le="4.0"}'] == 1
    assert found["quire_bookie_group_bytes_sum"] == found["quire_bookie_logged_bytes_total"]


def test_syncs_are_shown_by_directory() -> None:
    metrics = BookieMetrics()
    metrics.fsync_seconds = {"/data/one": Histogram()}
    metrics.fsync_seconds["/data/one"].observe(0.5)
    found = parse(metrics.exposition())
    assert found['quire_bookie_fsync_seconds_sum{directory="/data/one"}'] == 0.5


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: row.name)
def test_names_and_parents(row: Row) -> None:
    assert re.fullmatch(r"quire_bookie_[a-z_]+", row.name)
    assert not row.name.endswith("_total"), "is added when it is shown"
    if row.parent:
        assert TABLE[row.parent].kind is row.kind is Kind.HISTOGRAM
