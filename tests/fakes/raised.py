"""Callbacks that raise, and what was reported of them."""

from __future__ import annotations

import asyncio
from typing import Any

from client import callbacks
from client.callbacks import Kind


class Bug(Exception):
    """What the broken callbacks of tests raise."""


def broken(*_args: Any, **_options: Any) -> Any:
    """Raise, whatever it is called with."""
    raise Bug("a bug of the owner")


class Reports:
    """What is reported on the running loop from now on; anything else there fails the test."""

    def __init__(self) -> None:
        self._before = dict(callbacks.failures)
        self.seen: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(self._on_exception)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.seen.append(context["exception"])

    def kinds(self) -> dict[Kind, int]:
        """Return how many callbacks of which kind raised."""
        counted = {kind: count - self._before[kind] for kind, count in callbacks.failures.items()}
        counted = {kind: count for kind, count in counted.items() if count}
        assert sum(counted.values()) == len(self.seen), self.seen
        return counted
