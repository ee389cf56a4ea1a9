"""From py-spy's sampled stacks to shares of functions and of modules. Pure.

A line of its raw format is a stack, outermost frame first, and how often it was seen:
`main (/path/a.py:3);work (/path/b.py:7) 42`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

ROOT: Final = Path(__file__).resolve().parent.parent.parent
_FRAME: Final = re.compile(r"^(?P<name>.*) \((?P<file>[^()]*?)(?::\d+)?\)$")
_PYTHON_LIBRARY: Final = re.compile(r"^.*/lib/python3\.\d+/(?P<rest>.+)$")
_PACKAGES: Final = "site-packages/"
_T = TypeVar("_T")


class Function(NamedTuple):
    """A function, and the module it is in as people know it."""

    name: str
    module: str

    def __str__(self) -> str:
        return f"`{self.name}` {self.module}"


WAITS: Final = frozenset(
    {
        Function("_wait", "client/metadata/zookeeper_io.py"),
        Function("_worker", "python: concurrent/futures/thread"),
    }
)
"""What a thread with nothing to do is in; py-spy takes some of it for running."""


class Shares(NamedTuple):
    """Parts of all samples, from 0 to 1, the largest first."""

    modules: list[tuple[str, float]]
    """By what was running itself."""
    itself: list[tuple[Function, float]]
    with_callees: list[tuple[Function, float]]
    """Whatever was below a function is counted to it too."""
    samples: int


def module_of(file: str) -> str:
    """Return a file as people know it: ours below the root, else its package or `python`."""
    path = Path(file)
    library = _PYTHON_LIBRARY.match(file)
    if library is not None:
        rest = library["rest"]
        if rest.startswith(_PACKAGES):
            return rest.removeprefix(_PACKAGES).partition("/")[0].removesuffix(".py")
        return f"python: {rest.removesuffix('.py')}"
    if path.is_relative_to(ROOT):
        return path.relative_to(ROOT).as_posix()
    return path.name or file


def function_of(frame: str) -> Function:
    """Parse one frame. A frame without a file is of native code."""
    found = _FRAME.match(frame)
    if found is None:
        return Function(frame, "native")
    return Function(found["name"], module_of(found["file"]))


def shares(lines: Iterable[str]) -> Shares:
    """Add up the lines of a recording but for threads that wait. Lines that are no stacks are none
    of py-spy's."""
    modules: Counter[str] = Counter()
    itself: Counter[Function] = Counter()
    with_callees: Counter[Function] = Counter()
    for line in lines:
        stack, _, count_text = line.rstrip("\n").rpartition(" ")
        if not stack:
            continue
        count = int(count_text)
        functions = [function_of(frame) for frame in stack.split(";")]
        if functions[-1] in WAITS:
            continue
        modules[functions[-1].module] += count
        itself[functions[-1]] += count
        for function in dict.fromkeys(functions):
            with_callees[function] += count
    total = sum(itself.values())
    return Shares(
        _parts(modules, total), _parts(itself, total), _parts(with_callees, total), total
    )  # fmt: skip


def _parts(counted: Counter[_T], total: int) -> list[tuple[_T, float]]:
    return [(what, count / total) for what, count in counted.most_common()]


def markdown(found: Shares, rows: int) -> str:
    """Return the largest shares as one Markdown table, three lists side by side."""
    columns: Sequence[Sequence[tuple[object, float]]] = (
        found.modules[:rows], found.itself[:rows], found.with_callees[:rows],
    )  # fmt: skip
    lines = [
        "| module | itself | function | itself | function | with what it calls |",
        "|---|---|---|---|---|---|",
    ]
    for i in range(max(map(len, columns), default=0)):
        cells = []
        for column in columns:
            cells += [str(column[i][0]), f"{column[i][1]:.1%}"] if i < len(column) else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def limits_table(limits: Mapping[str, float]) -> str:
    """Return the limits of the machine as a Markdown table."""
    lines = ["| what this machine can do at best | |", "|---|---|"]
    lines += [f"| {name} | {value:,.3g} |" if value < 100 else f"| {name} | {value:,.0f} |"
              for name, value in limits.items()]  # fmt: skip
    return "\n".join(lines) + "\n"
