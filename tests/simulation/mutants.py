"""Planted defects."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a defect by name; none for an empty name."""
    assert not name
    yield
