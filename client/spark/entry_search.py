"""Which entry of a ledger holds an offset: interpolation and bisection by turns.

This file is the only home of that search. Entry ids and offsets grow together, mostly evenly, so
a guess in proportion is close; but entries of very different sizes can make pure interpolation
crawl, so every other step halves what is left. In 300,000 entries that takes eight looks as a
rule and fewer than thirty at worst. Places that are known already (a hint, the snapshots of the
ledger) narrow the range before the first look.
"""

from __future__ import annotations


class EntrySearch:
    """Looks for the last entry that stands at or before `target`.

    The caller reads the entry that `probe` names and tells where it stands, until `is_done`.
    Invariant: entry `low` stands at `low_offset` <= target, entry `high` would stand at
    `high_offset` > target.
    """

    def __init__(self, target: int, low: int, low_offset: int, high: int, high_offset: int) -> None:
        assert low < high, (low, high)
        assert low_offset <= target < high_offset, (low_offset, target, high_offset)
        self._target = target
        self._low, self._low_offset = low, low_offset
        self._high, self._high_offset = high, high_offset
        self._halve = False

    @property
    def found(self) -> int:
        """The entry, once `is_done`; before, one that is not behind it."""
        return self._low

    @property
    def is_done(self) -> bool:
        """Whether `found` is the answer."""
        return self._high - self._low == 1

    def probe(self) -> int:
        """Name the entry to look at next."""
        span = self._high - self._low
        assert span > 1
        if self._halve:
            guess = self._low + span // 2
        else:
            ahead = self._target - self._low_offset
            guess = self._low + ahead * span // (self._high_offset - self._low_offset)
        self._halve = not self._halve
        return min(max(guess, self._low + 1), self._high - 1)

    def on_entry(self, entry_id: int, offset: int) -> None:
        """Narrow the range by where an entry stands; one outside of it says nothing new."""
        if not self._low < entry_id < self._high:
            return
        if offset <= self._target:
            self._low, self._low_offset = entry_id, offset
        else:
            self._high, self._high_offset = entry_id, offset
