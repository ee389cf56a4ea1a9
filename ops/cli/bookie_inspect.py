"""`quire bookie inspect`: read a stopped bookie's files and verify every record."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from bookie.admin.inspect import FileReport, Inspection, LedgerReport, Report
from bookie.errors import CorruptIndex
from bookie.storage.disk import at_rest
from bookie.storage.index.index import Index
from bookie.storage.index.level_db import LevelDb
from client.errors import QuireError
from client.ids import NO_ENTRY
from ops.amounts import count, size
from ops.cli.console import (
    EXIT_FAILED,
    fail,
    is_interactive,
    json_option,
    print_json,
    print_table,
    say,
    sentence,
)

_INDEX_MEMORY_BYTES = 4 * 1024 * 1024


@click.command()
@click.argument("data_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--index", "with_index", is_flag=True, help="Look up every entry of the index, too.")
@json_option
def inspect(data_dir: Path, with_index: bool, as_json: bool) -> None:
    """Read the files of the stopped bookie in DIR and verify every record in them.

    Nothing is changed. Shows the log files, the ledgers and what is damaged. The exit code is 0
    if nothing is wrong, 1 if something is damaged or missing. A torn end is no damage: a crash cut
    short a write that was never acknowledged. --index works on a copy of the index, in the folder
    for temporary files.

    \b
    Example:
      quire bookie inspect data/bookie-0
    """
    try:
        with at_rest(data_dir) as files:
            inspection = Inspection(files, _show_progress)
            report = inspection.run()
            if with_index:
                _look_up(inspection, data_dir / "index", report)
    except QuireError as error:
        fail(sentence(error))
    except OSError as error:
        fail(f"cannot read {data_dir}: {error.strerror}.")
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    if report.problems:
        for problem in report.problems:
            say(f"quire: {problem}.")
        sys.exit(EXIT_FAILED)
    say("No damage was found.")


def _show_progress(name: str, byte_count: int) -> None:
    if is_interactive():
        say(f"Reading {name}, {size(byte_count)} ...")


def _look_up(inspection: Inspection, folder: Path, report: Report) -> None:
    """Opening an index changes it, so a copy is opened."""
    if not folder.is_dir():
        report.problems.append("there is no index: a start rebuilds it from the log")
        return
    with tempfile.TemporaryDirectory(prefix="quire-inspect-") as scratch:
        copy = Path(scratch) / "index"
        shutil.copytree(folder, copy)
        try:
            index = Index(
                LevelDb(
                    copy,
                    wipe=False,
                    write_buffer_bytes=_INDEX_MEMORY_BYTES,
                    block_cache_bytes=_INDEX_MEMORY_BYTES,
                )
            )
        except CorruptIndex as error:
            report.problems.append(
                f"the index is damaged: {error}; a start rebuilds it from the log"
            )
            return
        inspection.look_up(index)
        index.close()


def _print(report: Report) -> None:
    cookie, checkpoint = report.cookie, report.checkpoint
    rows: list[list[object]] = [
        ["cluster", None if cookie is None else cookie.instance_id],
        ["log in the index up to", None if checkpoint is None else _place(*checkpoint.start)],
        ["entries in the index", report.indexed_entries],
    ]
    print_table(["BOOKIE", "-" if cookie is None else cookie.bookie_id], rows)
    print()
    print_table(
        ["LOG FILE", "SIZE", "RECORDS", "DAMAGED BYTES", "REMARK"],
        [
            [file.name, file.size, file.record_count, file.damaged_bytes, _remark(file)]
            for file in report.files
        ],
    )
    print()
    ledgers = sorted(report.ledgers.values(), key=lambda each: each.ledger_id)
    print_table(
        ["LEDGER", "ENTRIES", "LAST ENTRY", "LAST CONFIRMED", "BYTES", "FENCED"],
        [
            [
                each.ledger_id,
                each.entry_count,
                _entry(each.last_entry),
                _entry(each.last_confirmed),
                each.entry_bytes,
                "yes" if each.is_fenced else "no",
            ]
            for each in ledgers
        ],
    )
    print()
    entries = sum(each.entry_count for each in ledgers)
    damaged = sum(file.damaged_bytes for file in report.files)
    say(
        f"{count(len(report.files), 'log file')}, {count(len(ledgers), 'ledger')},"
        f" {entries:,} entries, {count(damaged, 'damaged byte')}."
    )


def _remark(file: FileReport) -> str | None:
    if file.torn_at is not None:
        return f"torn write from {file.torn_at} on"
    if file.damage:
        return "damaged: " + ", ".join(f"{start}-{end}" for start, end in file.damage)
    return "a copy of others" if file.is_copy else None


def _place(number: int, position: int) -> str:
    return f"file {number}, position {position}"


def _entry(entry_id: int) -> int | None:
    return None if entry_id == NO_ENTRY else entry_id


def _as_json(report: Report) -> dict[str, Any]:
    cookie, checkpoint = report.cookie, report.checkpoint
    return {
        "bookie": None if cookie is None else cookie.bookie_id,
        "cluster": None if cookie is None else cookie.instance_id,
        "checkpoint": None if checkpoint is None else list(checkpoint.start),
        "indexed_entries": report.indexed_entries,
        "files": [
            {
                "name": file.name,
                "bytes": file.size,
                "records": file.record_count,
                "record_bytes": file.record_bytes,
                "damage": [list(damage) for damage in file.damage],
                "torn_at": file.torn_at,
            }
            for file in report.files
        ],
        "ledgers": [_ledger_as_json(each) for _, each in sorted(report.ledgers.items())],
        "problems": report.problems,
    }


def _ledger_as_json(ledger: LedgerReport) -> dict[str, Any]:
    return {
        "ledger": ledger.ledger_id,
        "entries": ledger.entry_count,
        "entry_bytes": ledger.entry_bytes,
        "last_entry": _entry(ledger.last_entry),
        "last_confirmed": _entry(ledger.last_confirmed),
        "fenced": ledger.is_fenced,
    }
