"""What a check of `quire doctor` says: how bad it is, what it saw, and what to do.

Every check is a function of facts that returns findings; who gathers the facts is `examine.py`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Level(enum.Enum):
    """How bad a finding is."""

    FINE = "fine"
    WARNING = "warning"
    """It works today, and will hurt."""
    TROUBLE = "trouble"
    """Something does not, or will not, work."""


class Finding(NamedTuple):
    """One sentence about one check."""

    check: str
    """Constant name, for scripts."""
    level: Level
    what: str
    advice: str = ""
    """What to do; empty when all is fine."""


def fine(check: str, what: str) -> Finding:
    """Nothing is wrong."""
    return Finding(check, Level.FINE, what)


def warning(check: str, what: str, advice: str) -> Finding:
    """It works today, and will hurt."""
    return Finding(check, Level.WARNING, what, advice)


def trouble(check: str, what: str, advice: str) -> Finding:
    """Something does not, or will not, work."""
    return Finding(check, Level.TROUBLE, what, advice)
