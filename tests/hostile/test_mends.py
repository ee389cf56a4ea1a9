"""The table of mends says what is there: each rule's place, each test, and the page."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.mends import all_mends, page

ROOT = Path(__file__).resolve().parent.parent.parent


def test_each_mend_stands_where_its_row_says() -> None:
    wrong = [
        (mend.rule, change.text)
        for mend in all_mends()
        for change in mend.changes
        if (ROOT / change.file).read_text(encoding="utf-8").count(change.text) != 1
        or change.text == change.without
    ]
    assert wrong == []


def test_each_mend_has_tests_that_exist_and_failed() -> None:
    missing = []
    for mend in all_mends():
        assert mend.tests and mend.seen, mend.rule
        for test in mend.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            if f"def {name.rpartition('::')[2]}(" not in text:
                missing.append(test)
    assert missing == []
    assert {mend.defect for mend in all_mends()} == {f"D{number}" for number in range(1, 11)}


def test_the_page_is_made_of_the_table() -> None:
    text = (ROOT / "tests/hostile/MENDS.md").read_text(encoding="utf-8")
    assert page() in text, "put in what `python -m tests.hostile.mends --page` prints"
