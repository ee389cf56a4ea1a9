"""What one schedule came to, as plain data that crosses process borders."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Result:
    """Outcome and figures of one schedule."""

    seed: int
    world: str = ""
    violation: str = ""
    """Empty if every invariant held."""
    detail: str = ""
    """Options and traceback of a violation."""
    virtual_s: float = 0.0
    healed_s: float = 0.0
    """How long it took after the last fault until all was well."""
    cpu_s: float = 0.0
    steps: int = 0
    segments: int = 0
    digest: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    log: list[str] | None = None


def add_counts(total: dict[str, int], more: dict[str, int]) -> None:
    """Add one table of counts to another."""
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
