"""Find the entry of a ledger that holds an offset, by interpolation and bisection in turn.

Entry ids and offsets grow together, so the first eight bytes of an entry say on which side of it
an offset lies. They mostly grow evenly too, so a guess in proportion is close; but entries of very
different sizes can make pure interpolation crawl, so every other step halves what is left. In
300,000 entries that takes eight looks as a rule and fewer than thirty at worst. Places that are
known already (an index, a hint, the snapshots of the ledger) narrow the range before the first
look.
"""

from __future__ import annotations

from client.ids import EntryId, Offset


class OffsetSearch:
    """Looks for the last entry that stands at or before `target`.

    The caller reads the entry that `probe` names and reports where it stands, until `is_done`, or
    until `span` is short enough to read the rest in one go. Invariant: the answer is in
    [low, high); `low` stands at or before the target, `high` would stand after it.
    """

    def __init__(
        self,
        target: Offset,
        low: EntryId,
        high: EntryId,
        *,
        low_offset: Offset | None = None,
        high_offset: Offset | None = None,
    ) -> None:
        """`low_offset`, `high_offset`: where those entries stand, None if that is not known."""
        assert low < high, (low, high)
        assert low_offset is None or low_offset <= target, (low_offset, target)
        assert high_offset is None or target < high_offset, (target, high_offset)
        self._target = target
        self.low = low
        """The answer, once `is_done`; before, an entry that is not behind it."""
        self.high = high
        self._low_offset = low_offset
        self._high_offset = high_offset
        self._halve = False

    @property
    def span(self) -> int:
        """How many entries may still be the answer."""
        return self.high - self.low

    @property
    def is_done(self) -> bool:
        """Whether `low` is the answer."""
        return self.span == 1

    def probe(self) -> EntryId:
        """Name the entry to look at next; `span` is above 1."""
        assert self.span > 1
        low_offset, high_offset = self._low_offset, self._high_offset
        if self._halve or low_offset is None or high_offset is None:
            guess = self.low + self.span // 2
        else:
            ahead = self._target - low_offset
            guess = self.low + ahead * self.span // (high_offset - low_offset)
        self._halve = not self._halve
        return EntryId(min(max(guess, self.low + 1), self.high - 1))

    def on_entry(self, entry_id: EntryId, first_offset: Offset) -> None:
        """Narrow the range by where an entry stands; one outside of it says nothing new."""
        if not self.low < entry_id < self.high:
            return
        if first_offset <= self._target:
            self.low, self._low_offset = entry_id, first_offset
        else:
            self.high, self._high_offset = entry_id, first_offset
