"""Grafana dashboards made from short descriptions of their panels.

Covers Grafana's JSON. What is on the dashboards stands in `dashboard_rows.py`. `$__rate_interval`
follows the zoom.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _STAT_HEIGHT = 12, 8, 4


class Query(NamedTuple):
    """One line, or bundle of lines, in a panel."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """One panel. Units are Grafana's: s, bytes, Bps, reqps, short, percentunit."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    stacked: bool = False
    steps: Sequence[tuple[str, float | None]] = ()
    """Colours from a value on, for stats."""


class Row(NamedTuple):
    """A titled run of panels."""

    title: str
    panels: Sequence[Panel]


class Dashboard(NamedTuple):
    """One dashboard."""

    uid: str
    title: str
    text: str
    variables: Mapping[str, str]
    """Name -> the query for its values."""
    rows: Sequence[Row]


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Return the rate of a counter, summed up by labels."""
    selector = f"{metric}{{{where}}}" if where else metric
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({selector}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "", where: str = "") -> str:
    """Return a quantile of a histogram, by labels."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, where)})"


def mean(metric: str, by: str = "", where: str = "") -> str:
    """Return the mean of a histogram, by labels."""
    return f"{rate(f'{metric}_sum', by, where)} / {rate(f'{metric}_count', by, where)}"


def stat(title: str, expr: str, unit: str = "short", *, bad_from: float | None = None,
         good_from: float | None = None, text: str = "") -> Panel:  # fmt: skip
    """Return one number, red from `bad_from` on, or below `good_from`."""
    steps: list[tuple[str, float | None]] = [("green", None)]
    if bad_from is not None:
        steps = [("green", None), ("red", bad_from)]
    elif good_from is not None:
        steps = [("red", None), ("green", good_from)]
    return Panel(title, [Query(expr)], unit, text, kind="stat", steps=steps)


def lines(title: str, *queries: tuple[str, str], unit: str = "short", text: str = "") -> Panel:
    """Return curves."""
    return Panel(title, [Query(*query) for query in queries], unit, text)


def shares(title: str, *queries: tuple[str, str], unit: str = "short", text: str = "") -> Panel:
    """Return curves stacked upon each other: the parts of a whole."""
    return Panel(title, [Query(*query) for query in queries], unit, text, stacked=True)


def _panel(panel: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    height = _STAT_HEIGHT if panel.kind == "stat" else _HEIGHT
    steps = panel.steps or [("green", None)]
    made: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend or "__auto",
            }
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"color": color, "value": value} for color, value in steps],
                },
            },
            "overrides": [],
        },
    }
    if panel.kind == "timeseries":
        made["fieldConfig"]["defaults"]["custom"] = {
            "fillOpacity": 30 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        made["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return made


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in rows:
        number += 1
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        y += 1
        x, height = 0, 0
        for panel in row.panels:
            is_stat = panel.kind == "stat"
            width = 24 // min(6, len(row.panels)) if is_stat else _WIDTH
            if x + width > 24:
                x, y = 0, y + height
            number += 1
            yield _panel(panel, number, x, y, width)
            x, height = x + width, _STAT_HEIGHT if is_stat else _HEIGHT
        y += height


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def as_json(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana reads it."""
    source = {"name": "datasource", "label": "source", "type": "datasource", "query": "prometheus"}
    variables = [source, *(_variable(*item) for item in dashboard.variables.items())]
    made = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["quire"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["quire"], "title": "Quire", "asDropdown": True,
             "includeVars": True, "keepTime": True}
        ],
        "templating": {"list": variables},
        "panels": list(_panels(dashboard.rows)),
    }  # fmt: skip
    return json.dumps(made, indent=1) + "\n"
