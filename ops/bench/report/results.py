"""What was measured, on disk: a file for each workload, and the summary that is made of all.

`<workload>.json` holds how a workload was measured and every figure of every round. Measuring a
workload again replaces its file, or goes on with it; the other files stay. `summary.json`,
`summary.md` and the pictures are made of all files there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ops.bench.catalog import WORKLOADS
from ops.bench.figures import Figure
from ops.bench.report import plots, summary
from ops.bench.report.summary import Measured

_SUMMARY: Final = "summary"
_MACHINE: Final = ("processor", "cores", "memory bytes", "kernel")


@dataclass(slots=True)
class Result:
    """One workload, as far as it was measured."""

    workload: str
    about: dict[str, Any] = field(default_factory=dict)
    """How: the command, the commit, the machine, the systems' settings, whether it counts."""
    measured: list[Measured] = field(default_factory=list)

    def has(self, system: str, number: int) -> bool:
        """Tell whether a system had its turn in a round."""
        return any((one.system, one.round) == (system, number) for one in self.measured)

    def rounds(self) -> int:
        """Return how many rounds there are."""
        return max((one.round for one in self.measured), default=0)


def path_of(folder: Path, workload: str) -> Path:
    """Return the file of a workload."""
    return folder / f"{workload}.json"


def save(folder: Path, result: Result) -> None:
    """Write a workload's file, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = [
        {"system": one.system, "round": one.round, **one.figure._asdict()}
        for one in result.measured
    ]
    about = json.dumps(result.about, indent=1)
    lines = ",\n".join(json.dumps(figure) for figure in figures)
    scratch = path_of(folder, result.workload).with_suffix(".new")
    scratch.write_text(f'{{"about": {about},\n"figures": [\n{lines}\n]}}\n')
    scratch.replace(path_of(folder, result.workload))


def load(folder: Path, workload: str) -> Result:
    """Return what is there of a workload; nothing is an empty result."""
    path = path_of(folder, workload)
    if not path.exists():
        return Result(workload)
    found = json.loads(path.read_text())
    measured = [
        Measured(one["system"], one["round"], Figure(one["workload"], one["measure"], one["value"]))
        for one in found["figures"]
    ]
    return Result(workload, found["about"], measured)


def load_all(folder: Path) -> list[Result]:
    """Return every workload there is: those of the catalogue in its order, then others."""
    names = {path.stem for path in folder.glob("*.json")} - {_SUMMARY}
    ordered = [name for name in WORKLOADS if name in names]
    return [load(folder, name) for name in [*ordered, *sorted(names.difference(WORKLOADS))]]


def sum_up(folder: Path, *, pictures: bool = True) -> str:
    """Write the summary of all workloads there are, and the pictures; return the table."""
    folder.mkdir(parents=True, exist_ok=True)
    results = load_all(folder)
    rows = [
        {**row, "is a result": bool(result.about.get("is a result"))}
        for result in results
        for row in summary.rows(result.measured)
    ]
    (folder / f"{_SUMMARY}.json").write_text(json.dumps(rows, indent=1) + "\n")
    table = summary.markdown(rows)
    (folder / f"{_SUMMARY}.md").write_text(f"{head(results)}\n{table}")
    if pictures:
        plots.draw(summary.spreads(every(results)), folder)
    return table


def every(results: Iterable[Result]) -> list[Measured]:
    """Return the figures of several workloads."""
    return [one for result in results for one in result.measured]


def head(results: Sequence[Result]) -> str:
    """Say how each workload was measured, and which are no results."""
    lines = []
    doubtful = [result.workload for result in results if not result.about.get("is a result")]
    if doubtful:
        lines += [
            f"**Not a result**: {', '.join(doubtful)}. The machine was busy, or the run was short.",
            "",
        ]
    machines = {tuple(_machine(result.about)) for result in results}
    lines += [f"- {', '.join(map(str, machine))}" for machine in sorted(machines) if machine]
    lines += ["", "| workload | measured | rounds | commit | command |", "|---|---|---|---|---|"]
    for result in results:
        about = result.about
        cells = (
            result.workload, about.get("began", ""), rounds_told(result), about.get("commit", ""),
            f"`{about.get('command', '')}`",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def rounds_told(result: Result) -> str:
    """Return how many rounds there are, and of how many and why if there should be more."""
    have, wanted = result.rounds(), result.about.get("rounds wanted", 0)
    if have >= wanted:
        return str(have)
    return f"{have} of {wanted} ({result.about.get('why fewer rounds') or 'interrupted'})"


def _machine(about: Mapping[str, Any]) -> list[str]:
    facts = about.get("machine", {})
    return [f"{name}: {facts[name]}" for name in _MACHINE if name in facts]
