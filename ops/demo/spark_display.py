"""How the Spark demonstration shows itself: a table that updates, plain lines elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, TextIO

from rich.live import Live
from rich.table import Table

from ops.demo.display import EventLines
from ops.demo.words import Standing

ROWS: Final = 12
"""Imports, and names, that are shown."""

_PLAIN_ROWS: Final = 4
_PLAIN_INTERVAL_S: Final = 3.0


class SparkReport(NamedTuple):
    """What was counted, and whether it is right."""

    files: int
    lines: int
    distinct: int
    """Different imports and names."""
    batches: int
    """Microbatches that counted them."""
    publish_s: float
    count_s: float
    """From the first line that was published to the last one that was counted."""
    differences: tuple[str, ...]
    """Counts that differ from the plain ones."""

    @property
    def good(self) -> bool:
        """Whether every count is right."""
        return not self.differences


class SparkDisplay(EventLines):
    """Shows events, the live table, and the report."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._live: Live | None = None

    def counting(self, total: int) -> AbstractContextManager[object]:
        """Return what shows the table while it is entered."""
        self._total = total
        if not self._console.is_terminal:
            return nullcontext()
        self._live = Live(console=self._console, refresh_per_second=4)
        return self._live

    def show(self, standing: Standing, published: int) -> None:
        """Show what is most used so far."""
        title = f"{published:,} published, {standing.lines:,} counted of {self._total:,} lines"
        if self._live is not None:
            self._live.update(_table(standing, title))
            return
        if self.is_due(_PLAIN_INTERVAL_S):
            top = ", ".join(f"{text} {number:,}" for text, number in standing.imports[:_PLAIN_ROWS])
            self.say(f"{title}; most imported: {top or 'nothing yet'}")

    def report(self, report: SparkReport) -> None:
        """Show the closing page."""
        self._console.print()
        rate = report.lines / max(report.count_s, 0.001)
        self.say(
            f"{report.lines:,} lines counted in {report.count_s:.1f} s ({rate:,.0f} a second), in"
            f" {report.batches} batches; published in {report.publish_s:.1f} s"
        )
        for difference in report.differences[:10]:
            self.say(difference)
        if report.good:
            text = (
                f"Spark counted {report.distinct:,} different imports and names of"
                f" {report.files:,} files while they were published, and every count is the same"
                " as that of a plain Python loop."
            )
        else:
            text = f"This is NOT right: {len(report.differences):,} counts differ."
        self._console.print()
        self._console.print(
            text,
            style="bold green" if report.good else "bold red",
            soft_wrap=not self._console.is_terminal,
        )


def _table(standing: Standing, title: str) -> Table:
    table = Table("most imported", "times", "most used names", "times", title=title, box=None)
    sides = (standing.imports, standing.names)
    for row in range(max(map(len, sides))):
        cells: list[str] = []
        for side in sides:
            text, number = side[row] if row < len(side) else ("", 0)
            cells += [text, f"{number:,}" if text else ""]
        table.add_row(*cells)
    for column in (1, 3):
        table.columns[column].justify = "right"
    return table
