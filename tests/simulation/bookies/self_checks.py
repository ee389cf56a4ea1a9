"""Lets cores check their own invariants after every input, in some schedules.

A core's `check` looks at all it holds, which takes time: so only schedules whose options say so
pay for it.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from client.ledger.core.adds import Adds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHECKED: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (Adds, ("add", "on_stored", "on_failed", "on_ensemble", "replace_suspended", "fail")),
)


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        effects = method(self, *args, **kwargs)
        self.check()
        return effects

    return checked


@contextlib.contextmanager
def checking(wanted: bool) -> Iterator[None]:
    """Check the cores' invariants while this lasts, if `wanted`."""
    saved: list[tuple[type[Any], str, Any]] = []
    try:
        for owner, names in _CHECKED if wanted else ():
            for name in names:
                saved.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, _checking(owner.__dict__[name]))
        yield
    finally:
        for owner, name, method in saved:
            setattr(owner, name, method)
