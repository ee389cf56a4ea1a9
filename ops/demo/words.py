"""What the Spark demonstration counts in a source line: the module it imports, and its names.

Covers the plain count that Spark's is compared with. The patterns mean the same to Python and to
Java: ASCII only, nothing that depends on a locale. A line counts as itself too, so that both sides
agree on how many there were.
"""

from __future__ import annotations

import heapq
import keyword
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

IMPORT: Final = r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][A-Za-z0-9_]*)"
NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
KEYWORDS: Final = tuple(sorted(keyword.kwlist))

LINES: Final = "line"
IMPORTS: Final = "import"
NAMES: Final = "name"

Counts = Counter[tuple[str, str]]
"""(kind, text) -> how often."""

_IMPORT: Final = re.compile(IMPORT)
_NAME: Final = re.compile(NAME)
_NOT_COUNTED: Final = frozenset(KEYWORDS)


def count(lines: Iterable[bytes]) -> Counts:
    """Count in plain Python, line by line."""
    counts: Counts = Counter()
    for line in lines:
        text = line.decode(errors="replace")
        counts[LINES, ""] += 1
        found = _IMPORT.match(text)
        if found:
            counts[IMPORTS, found[1]] += 1
        for name in _NAME.findall(text):
            if name not in _NOT_COUNTED:
                counts[NAMES, name] += 1
    return counts


def most_used(counts: Counts, kind: str, limit: int) -> list[tuple[str, int]]:
    """Return the most frequent texts of a kind, equal ones by name."""
    rows = ((text, number) for (found, text), number in counts.items() if found == kind)
    return heapq.nsmallest(limit, rows, key=lambda row: (-row[1], row[0]))


class Standing(NamedTuple):
    """What a display needs of counts, which are many."""

    lines: int
    imports: list[tuple[str, int]]
    names: list[tuple[str, int]]


def standing(counts: Counts, limit: int) -> Standing:
    """Return the lines counted and the most used imports and names."""
    return Standing(
        counts[LINES, ""], most_used(counts, IMPORTS, limit), most_used(counts, NAMES, limit)
    )


def differences(ours: Counts, theirs: Counts) -> list[str]:
    """Name every text whose two counts differ."""
    return [
        f"{kind} {text!r}: {theirs[kind, text]} instead of {ours[kind, text]}"
        for kind, text in sorted({*ours, *theirs})
        if ours[kind, text] != theirs[kind, text]
    ]
