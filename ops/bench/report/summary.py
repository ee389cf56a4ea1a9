"""The rows of `summary.json` and the Markdown table, from the figures of every round.

A row compares the medians of Quire and of one peer. Where no peer was measured the row stands with
Quire's figure alone, so that nothing measured is left out; limits of the machine stand as the peer
of no Quire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ops.bench.figures import Figure
from ops.bench.report.targets import ALONE, target_of
from ops.bench.spread import Spread, spread

QUIRE: Final = "quire"
HARDWARE: Final = "hardware"
_ROUNDED_ABOVE: Final = 100


class Measured(NamedTuple):
    """One figure, and which system gave it in which round."""

    system: str
    round: int
    figure: Figure


def spreads(measured: Iterable[Measured]) -> dict[tuple[str, str], dict[str, Spread]]:
    """Return the spread of each system, by (workload, measure) in the order they were measured."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in measured:
        key = (one.figure.workload, one.figure.measure)
        values.setdefault(key, {}).setdefault(one.system, []).append(one.figure.value)
    return {
        key: {system: spread(rounds) for system, rounds in systems.items()}
        for key, systems in values.items()
    }


def rows(measured: Iterable[Measured]) -> list[dict[str, Any]]:
    """Return the rows of `summary.json`: one for each measure and peer."""
    found = []
    for (workload, measure), systems in spreads(measured).items():
        ours = systems.get(QUIRE)
        if ours is None and HARDWARE not in systems:
            continue
        peers = [name for name in systems if name != QUIRE] or [ALONE]
        found += [_row(workload, measure, ours, peer, systems.get(peer)) for peer in peers]
    return found


def _row(
    workload: str, measure: str, ours: Spread | None, peer: str, theirs: Spread | None
) -> dict[str, Any]:
    ratio = ours.median / theirs.median if ours and theirs and theirs.median else None
    target = target_of(workload, measure, peer) if ours else None
    rounds = ours or theirs
    return {
        "workload": workload,
        "measure": measure,
        "quire": ours.median if ours else None,
        "peer": theirs.median if theirs is not None else None,
        "peer_name": peer or None,
        "ratio": ratio,
        "target": str(target) if target is not None else None,
        "met": target.met(ours.median, ratio) if target is not None and ours else None,
        "quire_least": ours.least if ours else None,
        "quire_most": ours.most if ours else None,
        "peer_least": theirs.least if theirs is not None else None,
        "peer_most": theirs.most if theirs is not None else None,
        "rounds": rounds.rounds if rounds else 0,
    }


_HEAD: Final = ("workload", "measure", "Quire", "peer", "", "ratio", "target", "met")
_MET: Final[Mapping[bool | None, str]] = {True: "yes", False: "**no**", None: ""}


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a Markdown table: medians, with the least and the most of the rounds."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
    for row in table:
        ratio = row["ratio"]
        cells = (
            row["workload"],
            row["measure"],
            _cell(row["quire"], row["quire_least"], row["quire_most"]),
            row["peer_name"] or "",
            _cell(row["peer"], row["peer_least"], row["peer_most"]),
            "" if ratio is None else f"{ratio:.2f}",
            row["target"] or "",
            _MET[row["met"]],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(median: float | None, least: float, most: float) -> str:
    if median is None:
        return ""
    return f"{_number(median)} ({_number(least)}–{_number(most)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _ROUNDED_ABOVE else f"{value:.3g}"
