"""Metrics as rows of a table, and their text for Prometheus.

Covers how a number gets from the place that counts it into the answer to a scrape. Each package
lists its metrics in a table of rows (name, kind, meaning, labels); parts of a program hand in
functions that read numbers they keep anyway. Hot paths add to plain ints and histograms; samples
are made when somebody scrapes. Every program has a registry of its own, so several live in one
process.

The text is written here rather than by the Prometheus library, which takes some ten times as long:
a scrape runs on the event loop, and thousands of lags must not make records wait. What others
collect (numbers of the process) still goes through the library.

Names follow Prometheus' conventions: base units, the unit last, `_total` on what only grows (added
when it is shown). Labels are bounded.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from client.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `exposition` returns."""


class Kind(enum.Enum):
    """What a metric does."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Row(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    parent: str = ""
    """The latency that this one is a part of."""


Samples = Iterable[tuple[Mapping[str, str], "float | Histogram"]]
"""(labels, value) pairs."""


def table(*parts: Sequence[Row]) -> Mapping[str, Row]:
    """Return rows by name; a name stands once."""
    rows = [row for part in parts for row in part]
    found = {row.name: row for row in rows}
    assert len(found) == len(rows), "a metric is listed twice"
    return found


class Exposition:
    """The metrics of one program."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = rows
        self._providers: dict[str, Callable[[], Samples]] = {}
        self._parts: list[Exposition] = []
        self._registry = CollectorRegistry()
        """What others collect."""

    def provide(self, name: str, read: Callable[[], Samples]) -> None:
        """Show numbers kept elsewhere; `read` yields (labels, value) pairs at each scrape."""
        assert name in self._rows, name
        self._providers[name] = read

    def provide_one(self, name: str, read: Callable[[], float | Histogram]) -> None:
        """Show one number that has no labels."""
        self.provide(name, lambda: [({}, read())])

    def add_collector(self, collector: Collector) -> None:
        """Show what somebody else collects, such as numbers of the process."""
        self._registry.register(collector)

    def add_part(self, part: Exposition) -> None:
        """Show what is exposed by a part of the program that comes and goes."""
        self._parts.append(part)

    def remove_part(self, part: Exposition) -> None:
        """Undo `add_part`."""
        self._parts.remove(part)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        lines = [
            line
            for name, row in self._rows.items()
            if name in self._providers
            for line in _lines(row, self._providers[name]())
        ]
        own = "".join(lines).encode()
        parts = [part.exposition() for part in self._parts]
        return b"".join([own, *parts, generate_latest(self._registry)])


def _lines(row: Row, samples: Samples) -> Iterator[str]:
    """Yield the lines of one metric."""
    name = row.name + ("_total" if row.kind is Kind.COUNTER else "")
    text = row.text.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {text}\n# TYPE {name} {row.kind.value}\n"
    for values, value in samples:
        labels = ",".join([f'{label}="{_escaped(values[label])}"' for label in row.labels])
        if row.kind is Kind.HISTOGRAM:
            assert isinstance(value, Histogram), row.name
            yield from _histogram_lines(name, labels, value)
        else:
            assert not isinstance(value, Histogram), row.name
            where = f"{{{labels}}}" if labels else ""
            yield f"{name}{where} {_number(value)}\n"


def _histogram_lines(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    before, where = (f"{labels},", f"{{{labels}}}") if labels else ("", "")
    count = 0.0
    for bound, count in histogram.cumulative():
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    yield f"{name}_count{where} {count}\n"
    yield f"{name}_sum{where} {_number(histogram.total)}\n"


def _number(value: float) -> str:
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]  # it has no types
    return text


def _escaped(value: str) -> str:
    """Return a label's value as it stands between quotes; hardly ever another one."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
