"""Makes named tuples on the hot path, without their Python constructor.

    new_tuple(Location, (number, position, size))    the same as Location(number, position, size)

A NamedTuple's own constructor is a Python function and costs more than twice as much in CPython
3.11; here nobody counts the fields or fills in defaults, so all of them have to be given.
"""

from __future__ import annotations

from typing import Final

new_tuple: Final = tuple.__new__
