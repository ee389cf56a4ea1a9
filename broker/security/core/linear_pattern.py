"""Regular expressions of clients, matched in a time that is linear in the text.

Python's own can take a time that doubles with each character. RE2's cannot, and its syntax is that
of RE2J, which Kafka's brokers use. What is left to bound is the size of an expression.
"""

from __future__ import annotations

from typing import Final

from broker.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX: Final = 1_000
MEMORY_BYTES_MAX: Final = 128 * 1024
"""Of a compiled expression with what it remembers while it matches. Higher: an expression with
many counted repetitions may cost more for each character."""


class LinearPattern:
    """One expression."""

    def __init__(self, pattern: str) -> None:
        """Raises InvalidRegularExpression."""
        import re2  # nobody else needs it, and it takes its time

        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression(
                f"the expression has {len(pattern)} characters; at most"
                f" {PATTERN_LENGTH_MAX} are allowed"
            )
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            raise InvalidRegularExpression(f"{pattern!r}: {error}") from error

    def matches(self, text: str) -> bool:
        """Say whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None
