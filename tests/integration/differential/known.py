"""What only a broker's answers tell, and so differs between two brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Known:
    """A value by its name: `id of t`, `member 7`, `producer 7`."""

    name: str
    otherwise: Any = None
    """What is sent if it never came to be known."""

    def __repr__(self) -> str:
        return f"<{self.name}>"


def put_in(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a tree with the values in the place of their names."""
    if isinstance(value, Known):
        return values.get(value.name, value.otherwise)
    if isinstance(value, dict):
        return {name: put_in(one, values) for name, one in value.items()}
    if isinstance(value, list):
        return [put_in(one, values) for one in value]
    return value
