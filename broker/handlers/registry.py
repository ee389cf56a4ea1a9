"""The list of APIs that this broker serves: what is here is advertised, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Final

from broker.dispatch import Handler
from broker.handlers import (
    api_versions,
    fetch,
    metadata,
    produce,
)

_MODULES: Final[Sequence[ModuleType]] = (
    produce,
    fetch,
    metadata,
    api_versions,
)


def handlers() -> list[Handler]:
    """Return every handler, by API key."""
    found = [
        Handler(
            module.KEY,
            module.VERSIONS,
            getattr(module, "handle", None),
            getattr(module, "start", None),
        )
        for module in _MODULES
    ]
    return sorted(found, key=lambda handler: handler.key)
