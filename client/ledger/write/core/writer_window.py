"""How much of one ledger may be unconfirmed at a time, so that it does not keep others waiting.

What a writer sends waits at the bookies in the order in which it came, whichever ledger it is for.
A full window is many times what bookies need to be busy, and all of it stands before an entry of a
ledger that has one a second. So a writer that is not alone has a window of its own measure: what
was confirmed of it within `target_s`, which then is about how long the others wait. Confirmations
that take longer make the window smaller, and the next ones come sooner.

    WINDOW-ALONE   a writer with nobody beside it has the whole window.
    WINDOW-SHARED  otherwise it has what is confirmed within the target, and never less than
                   `shared_bytes_min`, so that a slow moment does not stop it.
"""

from __future__ import annotations

from typing import Final

_INTERVAL_S: Final = 0.02
"""Over so long the rate of confirmations is taken."""

_COMPANY_S: Final = 5.0
"""Who added something so long ago still counts as writing."""


class Company:
    """Whether several writers of a process are adding, or one alone."""

    __slots__ = ("current", "last_change_s")

    def __init__(self) -> None:
        self.current: object = None
        """Who added last."""
        self.last_change_s = float("-inf")
        """When somebody else had added before."""

    def change(self, writer: object, now_s: float) -> None:
        """Somebody adds who is not `current`."""
        if self.current is not None:
            self.last_change_s = now_s
        self.current = writer


class WriterWindow:
    """The window of one writer."""

    __slots__ = (
        "_bytes_max",
        "_company",
        "_mark_bytes",
        "_mark_s",
        "_shared_bytes",
        "_shared_bytes_min",
        "_target_s",
        "size",
    )

    def __init__(
        self, company: Company, bytes_max: int, *, shared_bytes_min: int, target_s: float
    ) -> None:
        self.size = bytes_max
        """Payload bytes that may be unconfirmed now."""
        self._company = company
        self._bytes_max = bytes_max
        self._shared_bytes_min = min(shared_bytes_min, bytes_max)
        self._shared_bytes = self._shared_bytes_min
        self._target_s = target_s
        self._mark_bytes = 0
        self._mark_s = float("-inf")

    def on_confirmed(self, confirmed_bytes: int, now_s: float) -> None:
        """So much of the ledger is confirmed by now."""
        took_s = now_s - self._mark_s
        if took_s >= _INTERVAL_S:
            fits = (confirmed_bytes - self._mark_bytes) / took_s * self._target_s
            self._shared_bytes = min(max(int(fits), self._shared_bytes_min), self._bytes_max)
            self._mark_bytes, self._mark_s = confirmed_bytes, now_s
        # Whether more than one writer added something lately.
        is_shared = now_s - self._company.last_change_s < _COMPANY_S
        self.size = self._shared_bytes if is_shared else self._bytes_max
