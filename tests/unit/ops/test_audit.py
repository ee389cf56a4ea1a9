"""What `make audit` says of pip-audit's reports: never that all is well when nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from ops.docs.audit import judge

GOOD = {"name": "click", "version": "8.5.1", "vulns": []}
BAD = {
    "name": "kio",
    "version": "0.1",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.2"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
UNKNOWN = {"name": "plyvel", "skip_reason": "not found"}


def test_all_were_looked_up_and_none_has_any() -> None:
    assert judge({"dependencies": [GOOD]}) == (0, ["no known vulnerability in 1 versions"])


def test_each_vulnerability_is_named_with_the_version_that_fixes_it() -> None:
    code, lines = judge({"dependencies": [GOOD, BAD]})
    assert code == 1
    assert lines == [
        "kio 0.1: PYSEC-1, fixed in 0.2",
        "kio 0.1: PYSEC-2, fixed in no version yet",
    ]


@pytest.mark.parametrize("others", [[GOOD], [BAD], []])
def test_what_was_not_looked_up_is_not_good(others: list[Any]) -> None:
    code, lines = judge({"dependencies": [*others, UNKNOWN]})
    assert code == 2
    assert "1 of" in lines[-1] and "plyvel" in lines[-1]


def test_a_report_of_nothing_is_not_good() -> None:
    assert judge({"dependencies": []})[0] == 2
    with pytest.raises(KeyError):
        judge({})
