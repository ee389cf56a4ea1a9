"""What can go wrong between a command and the brokers' admin API.

A file of its own, so that whoever only names the errors does not import an HTTP client.
"""

from __future__ import annotations

from client.errors import QuireError


class AdminError(QuireError):
    """A broker refused a request, or could not do it; the text says why and what to do."""

    def __init__(
        self, text: str, *, status: int, problem: str, may_be_repeated: bool = False
    ) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem
        """Constant name of what went wrong, for programs: "unknown-group"."""
        self.may_be_repeated = may_be_repeated
        """Whether it certainly was not done, and may work in a moment."""


class AdminUnreachable(QuireError):
    """No broker answers at any of the addresses."""
