"""Numbers as people read them."""

from __future__ import annotations

import pytest

from ops.amounts import count, size


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 records"), (1, "1 record"), (1234, "1,234 records")]
)
def test_counts(number: int, text: str) -> None:
    assert count(number, "record") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (3210, "3.2 kB"), (5 * 10**13, "50.0 TB")],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text
