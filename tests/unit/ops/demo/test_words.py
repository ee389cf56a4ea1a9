"""What the Spark demonstration counts, and how it says what differs."""

from __future__ import annotations

import io
import re
from collections import Counter

from ops.demo import words
from ops.demo.spark_display import SparkDisplay, SparkReport

SOURCE = [
    b"import os, sys\n",
    b"    from collections.abc import Iterator\r\n",
    b"x = os.path  # os\n",
    b"\n",
    "naïve = 'for'\n".encode(),
]


def test_imports_names_and_lines() -> None:
    counts = words.count(SOURCE)
    assert counts[words.LINES, ""] == 5
    assert words.most_used(counts, words.IMPORTS, 9) == [("collections", 1), ("os", 1)]
    assert words.most_used(counts, words.NAMES, 2) == [("os", 3), ("Iterator", 1)]
    assert counts[words.NAMES, "import"] == counts[words.NAMES, "for"] == 0
    assert counts[words.NAMES, "na"] == counts[words.NAMES, "ve"] == 1


def test_every_difference_is_named() -> None:
    counts = words.count(SOURCE)
    assert words.differences(counts, Counter(counts)) == []
    theirs = Counter(counts)
    theirs[words.NAMES, "os"] -= 1
    theirs[words.IMPORTS, "re"] += 1
    assert words.differences(counts, theirs) == [
        "import 're': 1 instead of 0",
        "name 'os': 2 instead of 3",
    ]


def report(*differences: str) -> SparkReport:
    return SparkReport(3, 5, 9, 2, 0.5, 1.0, differences)


def test_the_page_says_what_is_right_and_what_is_not() -> None:
    out = io.StringIO()
    display = SparkDisplay(out)
    with display.counting(5):
        display.show(words.standing(words.count(SOURCE), 9), 5)
    display.report(report())
    text = out.getvalue()
    assert "5 published, 5 counted of 5 lines; most imported: collections 1, os 1" in text
    assert "every count is the same" in text
    display.report(report("name 'os': 2 instead of 3"))
    assert "name 'os': 2 instead of 3" in out.getvalue()
    assert "This is NOT right: 1 counts differ." in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_of_a_terminal() -> None:
    out = Terminal()
    display = SparkDisplay(out)
    with display.counting(5):
        display.show(words.standing(words.count(SOURCE), 2), 4)
    text = out.getvalue()
    assert "4 published, 5 counted of 5 lines" in text
    assert re.search(r"collections +1 +os +3", text)
    assert re.search(r"os +1 +Iterator +1", text)
