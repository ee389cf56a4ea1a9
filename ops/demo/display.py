"""How the demonstrations show themselves: events, bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ops.demo.report import Report

COUNTERS: Final = ("published", "acknowledged", "received")
_PLAIN_INTERVAL_S: Final = 2.0


class EventLines:
    """Tells events on lines of their own."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False, markup=False)
        self._started_s = time.monotonic()
        self._plain_s = 0.0
        self._total = 0

    def say(self, text: str) -> None:
        """Show an event on a line of its own, with the seconds since the start."""
        seconds = time.monotonic() - self._started_s
        self._console.print(f"{seconds:5.1f} s  {text}", soft_wrap=True)

    def is_due(self, interval_s: float) -> bool:
        """Whether a plain line may be written again: not more often than this."""
        now_s = time.monotonic()
        if now_s - self._plain_s < interval_s:
            return False
        self._plain_s = now_s
        return True


class Display(EventLines):
    """Shows events, three counters, and the report."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._progress: Progress | None = None

    def counting(self, total: int) -> AbstractContextManager[object]:
        """Return what shows the counters while it is entered."""
        self._total = total
        if not self._console.is_terminal:
            return nullcontext()
        self._progress = Progress(
            TextColumn("         {task.description:<13}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}"),
            console=self._console,
            transient=True,
            refresh_per_second=8,
        )
        for name in COUNTERS:
            self._progress.add_task(name, total=total)
        return self._progress

    def count(self, published: int, acknowledged: int, received: int) -> None:
        """Show how far the three counters are."""
        counts = (published, acknowledged, received)
        if self._progress is not None:
            for task_id, count in zip(self._progress.task_ids, counts, strict=True):
                self._progress.update(task_id, completed=min(count, self._total))
            return
        if self.is_due(_PLAIN_INTERVAL_S):
            shown = ", ".join(f"{c:,} {n}" for n, c in zip(COUNTERS, counts, strict=True))
            self.say(f"{shown} of {self._total:,}")

    def report(self, report: Report) -> None:
        """Show the closing page."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        for row in report.rows():
            table.add_row(*row)
        self._console.print()
        self._console.print(table)
        self._console.print()
        style = "bold green" if report.verdict.good else "bold red"
        self._console.print(
            report.conclusion(), style=style, soft_wrap=not self._console.is_terminal
        )
