"""Dashboards and rules are made of metrics that exist, and every alert has what it needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from client.node.exposition import Kind
from ops.cli import main
from ops.monitoring import dashboard_rows, metrics_page

HERE = metrics_page.DOCUMENT.parent
RULES = yaml.safe_load((HERE / "prometheus/recording.yml").read_text())["groups"][0]["rules"]
ALERTS = [
    rule
    for group in yaml.safe_load((HERE / "prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
TESTS = yaml.safe_load((HERE / "prometheus/alerts.test.yml").read_text())["tests"]


def known() -> set[str]:
    """Return every name that a query may ask for."""
    names = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes",
             "process_open_fds", "process_max_fds"}  # fmt: skip
    names |= {rule["record"] for rule in RULES}
    for _, rows in metrics_page.sections().values():
        for row in rows:
            if row.kind is Kind.COUNTER:
                names.add(f"{row.name}_total")
            elif row.kind is Kind.GAUGE:
                names.add(row.name)
            else:
                names |= {f"{row.name}_{part}" for part in ("bucket", "sum", "count")}
    return names


def asked(expr: str) -> set[str]:
    """Return the metrics that a query names."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]', "", expr)
    return set(re.findall(r"\b(?:[a-z]\w*:)?(?:quire|process)_\w+(?::\w+)?|\bup\b", bare))


def exprs() -> list[str]:
    panels = [
        query.expr
        for one in dashboard_rows.DASHBOARDS
        for row in one.rows
        for panel in row.panels
        for query in panel.queries
    ]
    return [*panels, *(rule["expr"] for rule in [*RULES, *ALERTS])]


@pytest.mark.parametrize("path", dashboard_rows.files(), ids=lambda path: path.stem)
def test_the_files_are_up_to_date(path: Path) -> None:
    """`python -m ops.monitoring.dashboard_rows` writes them."""
    assert path.read_text(encoding="utf-8") == dashboard_rows.files()[path]


def test_no_dashboard_is_left_over() -> None:
    assert set(dashboard_rows.FOLDER.glob("*.json")) == set(dashboard_rows.files())


def test_queries_name_metrics_that_exist() -> None:
    names = known()
    for expr in exprs():
        assert asked(expr), expr
        assert asked(expr) <= names, expr


def test_every_gauge_and_counter_of_ours_is_on_a_dashboard_or_in_an_alert_or_meant_not_to_be() -> (
    None
):
    """A metric that nobody looks at has to be worth its place here."""
    shown = {name for expr in exprs() for name in asked(expr)}
    looked_at_by_hand = {
        "quire_info",
        "quire_metadata_interruptions_total",
        "quire_broker_partitions_opening",
        "quire_client_metric",
        "quire_broker_received_bytes_total",
        "quire_broker_sent_bytes_total",
        "quire_broker_produced_records_total",
        "quire_broker_produced_batches_total",
        "quire_broker_recompressed_batches_total",
        "quire_broker_produced_bytes_total",
        "quire_broker_fetched_bytes_total",
        "quire_broker_compaction_bytes",
        "quire_broker_offload_bytes",
        "quire_broker_offload_lag_seconds",
        "quire_broker_offload_buried_objects",
        "quire_broker_archive_bytes",
        "quire_broker_users",
        "quire_broker_quota_entities",
        "quire_broker_acls",
        "quire_schemas_held_bytes",
        "quire_schemas_body_bytes",
        "quire_broker_compaction_dirty_ratio",
        "quire_broker_compaction_last_clean_seconds",
        "quire_broker_compaction_next_due_seconds",
        "quire_broker_compaction_saved_bytes",
        "quire_broker_compaction_rounds_total",
        "quire_broker_compaction_failures_total",
        "quire_broker_compaction_removed_records_total",
        "quire_bookie_reads_total",
        "quire_bookie_groups_total",
        "quire_bookie_logged_bytes_total",
        "quire_bookie_unreadable_files_total",
        "quire_bookie_minor_compactions_total",
        "quire_bookie_major_compactions_total",
        "quire_bookie_connections",
        "quire_bookie_pending_entries",
        "quire_bookie_open_group_requests",
        "quire_bookie_groups_in_flight",
        "quire_bookie_cache_entries",
        "quire_bookie_writable_directories",
        "quire_recovery_copied_entries_total",
        "quire_recovery_read_entries_total",
        "quire_recovery_read_bytes_total",
    }
    single = {name for name in known() if name.startswith("quire_")
              and not name.endswith(("_bucket", "_sum", "_count"))}  # fmt: skip
    assert single - shown == looked_at_by_hand


@pytest.mark.parametrize("path", dashboard_rows.files(), ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    panels: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_a_section_in_the_runbook_and_two_cases(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    document, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert HERE.parent.parent / document == HERE / "RUNBOOK.md"
    assert anchor == name.lower()
    section = (HERE / "RUNBOOK.md").read_text().split(f"\n### {name}\n")[1].partition("\n##")[0]
    for word in ("**Means**", "**Look**", "**Do**"):
        assert word in section
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description"} <= alert["annotations"].keys()
    cases = {case["name"]: case["promql_expr_test"][0] for case in TESTS}
    assert cases[f"{name} fires"]["exp_samples"]
    assert cases[f"{name} does not fire"]["exp_samples"] == []
    for word in ("fires", "does not fire"):
        assert f'"{name}"' in cases[f"{name} {word}"]["expr"]


@pytest.mark.parametrize("name", ["RUNBOOK.md", "EVENTS.md", "README.md"])
def test_commands_that_the_documents_name_exist(name: str) -> None:
    text = (HERE / name).read_text()
    for words in re.findall(r"`quire ((?:[a-z-]+ ?)+)", text):
        command: click.Command = main.quire
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"quire {words}"
            command = found


def test_the_runbook_has_no_other_sections() -> None:
    titles = re.findall(r"^### (\w+)$", (HERE / "RUNBOOK.md").read_text(), re.M)
    assert titles == [alert["alert"] for alert in ALERTS]


@pytest.mark.parametrize(
    ("file", "name"),
    [("bookies/bookies.yaml", "quire-bookie"), ("brokers/brokers.yaml", "quire-broker")],
)
def test_the_kubernetes_sample_finds_what_the_manifests_run(file: str, name: str) -> None:
    """Debian's promtool knows no Kubernetes, so this is held to the manifests by hand."""
    sample = yaml.safe_load((HERE / "prometheus/prometheus-kubernetes.yml").read_text())
    (job,) = sample["scrape_configs"]
    rules = {rule["source_labels"][0]: rule for rule in job["relabel_configs"]}
    manifest = HERE.parent / "deploy/kubernetes" / file
    templates = [
        found["spec"]["template"]
        for found in yaml.safe_load_all(manifest.read_text())
        if found["kind"] == "StatefulSet"
    ]
    assert templates
    for template in templates:
        labels = template["metadata"]["labels"]
        part_of = rules["__meta_kubernetes_pod_label_app_kubernetes_io_part_of"]
        assert part_of["regex"] == labels["app.kubernetes.io/part-of"]
        target = rules["__meta_kubernetes_pod_label_app_kubernetes_io_name"]["target_label"]
        assert (target, labels["app.kubernetes.io/name"]) == ("job", name)
        ports = [one["name"] for each in template["spec"]["containers"] for one in each["ports"]]
        assert rules["__meta_kubernetes_pod_container_port_name"]["regex"] in ports
