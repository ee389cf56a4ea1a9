"""Every planted defect still fits the code that it replaces.

One that is called with other arguments than it takes would be found by its own TypeError.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest

from tests.simulation.mutants.table import PLANTS, Patch


def function_of(found: Any) -> FunctionType | None:
    """Return what a call runs; None for what is no function of Python's."""
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    return found if isinstance(found, FunctionType) else None


class Compared(Patch):
    """Looks whether each replacement can be called as the original is."""

    def __init__(self) -> None:
        super().__init__()
        self.unfit: list[str] = []

    def __call__(self, owner: Any, name: str, replacement: Any) -> Any:
        original = super().__call__(owner, name, replacement)
        called, taken = function_of(original), function_of(replacement)
        if called is None or taken is None:
            return original
        parameters = inspect.signature(called).parameters.values()
        positional = [one for one in parameters if one.kind <= one.POSITIONAL_OR_KEYWORD]
        by_name = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        try:
            inspect.signature(taken).bind(*positional, **by_name)
        except TypeError as error:
            self.unfit.append(f"{name}: {error}")
        return original


@pytest.mark.parametrize("name", PLANTS)
def test_it_is_called_as_what_it_replaces(name: str) -> None:
    patch = Compared()
    try:
        PLANTS[name].plant(patch)
    finally:
        patch.undo()
    assert patch.unfit == []
