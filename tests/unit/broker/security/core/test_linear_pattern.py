"""Expressions of clients: RE2's syntax, the whole text, and never more than linear time."""

from __future__ import annotations

import time

import pytest

from broker.errors import InvalidRegularExpression
from broker.security.core.linear_pattern import PATTERN_LENGTH_MAX, LinearPattern


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("a.*b", "a-b", True),
        ("a.*b", "a-b-", False),
        ("a|ab", "ab", True),
        (r"\pL+-\d{2}", "\u00fcber-42", True),
        ("(?i)TX", "tx", True),
        ("[[:alpha:]]+", "abc1", False),
        (".*", "", True),
    ],
)
def test_the_whole_text_has_to_match(pattern: str, text: str, is_match: bool) -> None:
    assert LinearPattern(pattern).matches(text) is is_match


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "a**", "(?=a)", r"(a)\1", "a{1001}", "((a{100}){100}){100}", ".*a.{990}",
     "a" * (PATTERN_LENGTH_MAX + 1)],
)  # fmt: skip
def test_what_is_no_expression_of_re2_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        LinearPattern(pattern)


def test_an_expression_that_is_slow_elsewhere() -> None:
    """Python's own takes longer than anybody waits."""
    began_s = time.process_time()
    assert not LinearPattern("(a+)+" * 10 + "b").matches("a" * 5_000)
    assert time.process_time() - began_s < 1
