"""The page of memory is what the code says: owners, settings, defaults, gauges and the sum."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bookie import metrics as bookie_metrics
from bookie.config import BookieConfig
from broker import metric_table
from broker.compaction.config import CompactionConfig
from broker.config import BrokerConfig
from broker.offload.config import OffloadConfig
from broker.security.config import SecurityConfig
from client.config import settings_of
from client.ledger.config import LedgerClientConfig
from client.node.exposition import Kind
from ops.monitoring import memory
from ops.schemas import metrics as schemas_metrics
from ops.schemas.config import SchemasConfig
from tests.unit.ops.deploy.files import ROOT

BROKER = BrokerConfig()
BOOKIE = BookieConfig(data_dir=Path("data"))
ROWS: list[tuple[str, Any, memory.Buffer]] = [("broker", BROKER, row) for row in memory.BROKER]
ROWS += [("bookie", BOOKIE, row) for row in memory.BOOKIE]
ROWS += [("ledger", LedgerClientConfig(), row) for row in memory.LEDGER]
ROWS += [("schemas", SchemasConfig(), row) for row in memory.SCHEMAS]
GAUGES = {
    row.name
    # a broker shows its ledger client's
    for table in (metric_table.TABLE, bookie_metrics.TABLE, schemas_metrics.TABLE)
    for row in table.values()
    if row.kind is Kind.GAUGE
}


def test_the_page_is_up_to_date() -> None:
    """`python -m ops.monitoring.memory` writes it."""
    assert memory.parts()[1] == memory.tables()


def test_the_page_is_in_the_site() -> None:
    settings = tomllib.loads((ROOT / "ops/docs/zensical.toml").read_text(encoding="utf-8"))
    assert "ops/MEMORY.md" in str(settings["project"]["nav"])


@pytest.mark.parametrize(
    ("kind", "config", "row"), ROWS, ids=lambda each: getattr(each, "what", "")
)
def test_each_buffer_has_an_owner_settings_and_a_gauge(
    kind: str, config: Any, row: memory.Buffer
) -> None:
    assert (ROOT / row.owner).is_file()
    settings = {setting.key: setting.default for setting in settings_of(type(config))}
    names = {factor for term in row.most for factor in term if isinstance(factor, str)}
    assert names <= settings.keys()
    for name in names:
        assert memory.value_of(config, name) == settings[name]
    assert memory.most_bytes(row, config) > 0
    assert not row.gauge or row.gauge in GAUGES
    of_the_process = f"quire_{kind}_", "quire_ledger_"
    assert not row.gauge or row.gauge.startswith(of_the_process)


def test_the_sum_follows_the_settings() -> None:
    doubled = dataclasses.replace(BROKER, tail_cache_bytes_max=2 * BROKER.tail_cache_bytes_max)
    grown = memory.sum_bytes(doubled) - memory.sum_bytes(BROKER)
    assert grown == BROKER.tail_cache_bytes_max
    assert memory.sum_bytes(BOOKIE) == sum(memory.most_bytes(row, BOOKIE) for row in memory.BOOKIE)


def test_the_example_takes_a_gibibyte() -> None:
    page = memory.DOCUMENT.read_text(encoding="utf-8")
    values = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    ledger = LedgerClientConfig(**values.pop("ledger"))
    compaction = CompactionConfig(**values.pop("compaction"))
    security = SecurityConfig(**values.pop("security"))
    offload = OffloadConfig(**values.pop("offload"))
    example = BrokerConfig(
        **values, ledger=ledger, compaction=compaction, security=security, offload=offload
    )
    assert memory.BASE_BYTES + memory.sum_bytes(example) <= 1 << 30


def test_every_limit_in_bytes_is_in_the_sum_or_is_a_part_of_another() -> None:
    """A new setting of this kind needs a row, or a reason."""
    kinds = (BROKER, memory.BROKER), (BOOKIE, memory.BOOKIE), (SchemasConfig(), memory.SCHEMAS)
    for config, rows in kinds:
        summed = {factor for row in rows for term in row.most for factor in term}
        limits = {
            setting.key
            for setting in settings_of(type(config))
            if setting.key.endswith("_bytes_max")
        }
        assert limits - summed == memory.PARTS.keys() & limits
