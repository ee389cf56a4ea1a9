"""The page of metrics is what the code says."""

from __future__ import annotations

import re

import pytest

from client.node.exposition import Kind, Row
from ops.monitoring import metrics_page

ALL = [row for _, rows in metrics_page.sections().values() for row in rows]


def test_the_page_is_up_to_date() -> None:
    """`python -m ops.monitoring.metrics_page` writes it."""
    assert metrics_page.parts()[1] == metrics_page.tables()


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_names_keep_the_conventions(row: Row) -> None:
    assert re.fullmatch(r"quire_[a-z_]+", row.name)
    assert not row.name.endswith(("_total", "_sum", "_count", "_bucket")) or row.kind is Kind.GAUGE
    assert not re.search(r"_(ms|kb|mib|millis|minutes|percent)(_|$)", row.name), "base units"
    if row.kind is Kind.HISTOGRAM:
        assert row.name.endswith(("_seconds", "_bytes", "_entries"))
    assert row.text
    parents = {one.name for one in ALL}
    assert not row.parent or row.parent in parents


def test_no_name_stands_twice() -> None:
    names = [row.name for row in ALL]
    assert sorted(set(names)) == sorted(names)
