"""The table of defences says what is there: each rule's place, each test, and the page."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.defences import all_defences, page

ROOT = Path(__file__).resolve().parent.parent.parent


def test_each_defence_stands_where_its_row_says() -> None:
    wrong = [
        (each.rule, change.text)
        for each in all_defences()
        for change in each.changes
        if (ROOT / change.file).read_text(encoding="utf-8").count(change.text) != 1
        or change.text == change.without
    ]
    assert wrong == []


def test_each_defence_has_tests_that_exist_and_failed() -> None:
    missing = []
    for each in all_defences():
        assert each.tests and each.seen, each.rule
        for test in each.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            if f"def {name.rpartition('::')[2]}(" not in text:
                missing.append(test)
    assert missing == []
    assert {each.defect for each in all_defences()} == {f"D{number}" for number in range(1, 11)}


def test_the_page_is_made_of_the_table() -> None:
    text = (ROOT / "tests/hostile/DEFENCES.md").read_text(encoding="utf-8")
    assert page() in text, "put in what `python -m tests.hostile.defences --page` prints"
