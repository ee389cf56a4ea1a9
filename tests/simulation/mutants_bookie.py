"""Planted defects of the bookie; see `mutants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PLANTS: dict[str, Callable[[Any], None]] = {}
