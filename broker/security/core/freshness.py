"""How old what a broker knows of users and access control entries may be.

A broker that is cut off from the metadata store does not hear that a password or a right was taken
away. So it goes by what it knows for a bounded time only. What it knows is as of the last question
that the store answered, counted from when the question left: the store tells of every change that
it had made before it answers. A change that we were told of and have not read yet holds the time
where it was before: at the last question that was answered before we were told.
"""

from __future__ import annotations

import math


class Freshness:
    """Of everything that decides who may come in, and do what."""

    def __init__(self, age_max_s: float = math.inf) -> None:
        """`age_max_s`: what is older does not count any more."""
        self._age_max_s = age_max_s
        self._asked_s = self._known_s = -math.inf
        self._unread: dict[str, float] = {}
        """What we were told of and have not read yet -> as of when we know all but that."""

    def answered(self, asked_s: float) -> None:
        """The store answered a question that left at `asked_s`."""
        self._asked_s = max(self._asked_s, asked_s)
        self._known_s = max(self._known_s, min((self._asked_s, *self._unread.values())))

    def told(self, node: str) -> None:
        """A node has changed."""
        self._unread.setdefault(node, self._asked_s)

    def found(self, node: str, directory: str) -> None:
        """A node is new in a directory whose list is being read."""
        self._unread.setdefault(node, self._unread.get(directory, self._asked_s))

    def read(self, node: str) -> None:
        """A node was read after it had changed, and what is in it holds from now on."""
        self._unread.pop(node, None)

    def is_fresh(self, now_s: float) -> bool:
        """Whether what is known still counts."""
        return math.isinf(self._age_max_s) or now_s < self._known_s + self._age_max_s

    def refusal(self, subject: str) -> str:
        """Say why nobody is let in, or served, by what is known of a subject."""
        return (
            f"this broker is cut off from the metadata store: what it knows of {subject} is older"
            f" than security.access_age_max_ms ({self._age_max_s * 1000:.0f}). Try again, or"
            " another broker"
        )
