"""Keeps the tables of `RESULTS.md`: rows are replaced by their first cells, the rest stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

PAGE = Path(__file__).with_name("RESULTS.md")
_RULE = "|---"


def record(
    section: str,
    rows: Sequence[Sequence[object]],
    *,
    key_cells: int = 1,
    keep: Collection[str] | None = None,
    page: Path = PAGE,
) -> None:
    """Put rows into the table of a section, in place of those with the same first cells.

    `keep`: first cells of which rows may stay; others go. Raises ValueError when there is no such
    section, or no table in it.
    """
    lines = page.read_text().splitlines()
    first, end = _table(lines, section)
    table: dict[tuple[str, ...], str] = {}
    for line in lines[first:end]:
        table[_cells(line)[:key_cells]] = line
    for row in rows:
        line = "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
        table[_cells(line)[:key_cells]] = line
    kept = [line for key, line in sorted(table.items()) if keep is None or key[0] in keep]
    page.write_text("\n".join([*lines[:first], *kept, *lines[end:]]) + "\n")


def rows(section: str, page: Path = PAGE) -> list[tuple[str, ...]]:
    """Return the rows of a section's table. Raises as `record`."""
    lines = page.read_text().splitlines()
    first, end = _table(lines, section)
    return [_cells(line) for line in lines[first:end]]


def _table(lines: list[str], section: str) -> tuple[int, int]:
    """Return where the rows of a section's table begin and end."""
    start = lines.index(f"## {section}")
    first = next(at for at in range(start, len(lines)) if lines[at].startswith(_RULE)) + 1
    end = next((at for at in range(first, len(lines)) if not lines[at].startswith("|")), len(lines))
    return first, end


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split(" | "))
