"""Results as pictures: for each measure that systems share, a bar per system with its spread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ops.bench.spread import Spread

_ROW_INCHES: Final = 0.9
_WIDTH_INCHES: Final = 9.0
_BAR: Final = 0.8
_COLOURS: Final = {
    "quire": "#1f4e79",
    "kafka, synced": "#c55a11",
    "kafka, defaults": "#f4b183",
    "bookkeeper": "#548235",
}
_OTHER_COLOUR: Final = "#a5a5a5"

Spreads = Mapping[tuple[str, str], Mapping[str, Spread]]


def by_picture(spreads: Spreads) -> dict[tuple[str, str], dict[str, Mapping[str, Spread]]]:
    """Group rows into pictures: (first word of the workload, measure) -> workload -> systems."""
    pictures: dict[tuple[str, str], dict[str, Mapping[str, Spread]]] = {}
    for (workload, measure), systems in spreads.items():
        pictures.setdefault((workload.split()[0].rstrip(",:"), measure), {})[workload] = systems
    return pictures


def file_name(kind: str, measure: str) -> str:
    """Return a picture's file name: lower case, no blanks."""
    return re.sub(r"[^a-z0-9.]+", "-", f"{kind} {measure}".lower()).strip("-") + ".png"


def draw(spreads: Spreads, folder: Path) -> list[Path]:
    """Draw every picture into the folder; return the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written = []
    for (kind, measure), shown in by_picture(spreads).items():
        systems = list(dict.fromkeys(name for row in shown.values() for name in row))
        height = 1.2 + _ROW_INCHES * len(shown)
        figure, axes = pyplot.subplots(figsize=(_WIDTH_INCHES, height), layout="constrained")
        thickness = _BAR / len(systems)
        for i, system in enumerate(systems):
            rows = [(at, row[system]) for at, row in enumerate(shown.values()) if system in row]
            axes.barh(
                [at + i * thickness for at, _ in rows],
                [one.median for _, one in rows],
                height=thickness,
                xerr=[
                    [one.median - one.least for _, one in rows],
                    [one.most - one.median for _, one in rows],
                ],
                label=system,
                color=_COLOURS.get(system, _OTHER_COLOUR),
                capsize=3,
            )
        middle = (len(systems) - 1) * thickness / 2
        axes.set_yticks([at + middle for at in range(len(shown))], list(shown))
        axes.invert_yaxis()
        axes.set_xlabel(measure)
        axes.set_xlim(left=0)
        axes.legend()
        path = folder / file_name(kind, measure)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        written.append(path)
    return written
