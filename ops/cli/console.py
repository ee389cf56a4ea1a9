"""How the commands talk: results on stdout, everything else on stderr, one sentence per error.

Covers the command line's manners:

- Results go to stdout, as a table or, with `--json`, as JSON; tables use the terminal's width,
  and a pipe gets plain columns without truncation.
- Progress, hints and summaries go to stderr.
- Exit codes: 0 done, 1 it failed (one sentence says why and what to do), 2 wrong usage,
  130 stopped by Ctrl-C, 141 the reader of our output went away. The last two say nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.table import Table

from client.errors import QuireError
from client.pubsub.errors import BrokerUnreachable, TopicExists, TopicNotFound
from ops.admin_errors import AdminUnreachable

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141

_HINTS: Final[tuple[tuple[type[QuireError], str], ...]] = (
    (
        BrokerUnreachable,
        "Start a cluster with `quire up`, or give its address with --bootstrap-server HOST:PORT.",
    ),
    (
        AdminUnreachable,
        "Start a cluster with `quire up`, or give an address with --bootstrap-server HOST:PORT"
        " or --admin URL.",
    ),
    (TopicNotFound, "`quire topic list` shows what there is, `quire topic create` makes one."),
    (TopicExists, "Use it, choose another name, or delete it with `quire topic delete`."),
)

_WORD: Final = re.compile(r"[a-z]+(?=[ ,]|$)")

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of text, for scripts."
)
"""Option of every command that prints results."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command's coroutine and turn whatever ends it into the right exit code."""
    # The libraries' own complaints say less than our sentence, and say it many times.
    for library in ("aiokafka", "kazoo"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        asyncio.run(work)
        sys.stdout.flush()
    except QuireError as error:
        fail(sentence(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Python flushes stdout once more at exit: give it a place where that works.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)


def run_blocking(work: Callable[[], None]) -> None:
    """Run a command that waits for its answers, with the same exit codes."""

    async def wrapped() -> None:
        work()

    run(wrapped())


def sentence(error: QuireError) -> str:
    """Say what went wrong and, where we know it, what to do."""
    text = str(error) or type(error).__name__
    if _WORD.match(text):  # an address, a path, or the name of a setting stays as it is
        text = text[0].upper() + text[1:]
    if not text.endswith((".", "!", "?")):
        text += "."
    hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)
    return f"{text} {hint}" if hint else text


def fail(text: str) -> None:
    """Print one sentence on stderr and exit with code 1."""
    say(f"quire: {text}")
    sys.exit(EXIT_FAILED)


def say(text: str) -> None:
    """Print a hint or a summary on stderr."""
    print(text, file=sys.stderr, flush=True)


def is_interactive() -> bool:
    """Tell whether a person watches stderr."""
    return sys.stderr.isatty()


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their column titles: numbers to the right, None as a dash."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    if not sys.stdout.isatty():
        _print_columns(columns, cells, right)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, numeric in zip(columns, right, strict=True):
        table.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def _is_number(cell: object) -> bool:
    return cell is None or (isinstance(cell, int) and not isinstance(cell, bool))


def _print_columns(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]
) -> None:
    widths = [max(len(row[i]) for row in [columns, *cells]) for i in range(len(columns))]
    for row in [columns, *cells]:
        padded = (
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(row, widths, right, strict=True)
        )
        print("  ".join(padded).rstrip())
