"""Which bookies are in the ensemble of one ledger handle, and which of them get no adds for now.

Covers the state of an ensemble between two changes of it. A member is in at most one of these:

    failed      it did not store an add, and no change has dealt with it yet
    changing    the running change is to replace it
    suspended   it could not be replaced (rule CHANGE-SUSPEND): it gets nothing but a probe now and
                then, and takes part again when it has stored one

Which add needs whom, and what follows from that, is decided by `adds.py`. Members are named by
their index, sets of them are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from client.ids import BookieId

PROBE_INTERVAL_S: Final = 1.0
"""How often one add is also sent to a suspended bookie, to see whether it is back."""


class Members:
    """The ensemble of one `Adds`."""

    __slots__ = ("_is_planned", "changing", "ensemble", "failed", "probe_at_s", "unsent")

    def __init__(self, ensemble: Sequence[BookieId]) -> None:
        self.ensemble = tuple(ensemble)
        self.failed: dict[int, BookieId] = {}
        self.changing: dict[int, BookieId] = {}
        self.probe_at_s: dict[int, float] = {}
        """Those who are suspended, and when each is probed next."""
        self.unsent = 0
        """Mask of those that get no adds now: under change or suspended."""
        self._is_planned = False
        """Whether nobody has failed of those that the running change is to replace."""

    @property
    def suspended(self) -> list[BookieId]:
        """Members that get no adds because nobody could replace them."""
        return [self.ensemble[index] for index in self.probe_at_s]

    def named(self, mask: int) -> dict[int, BookieId]:
        """Return the members in a mask."""
        return {i: bookie for i, bookie in enumerate(self.ensemble) if mask >> i & 1}

    def is_out(self, index: int) -> bool:
        """Whether a member is under change or suspended, so that a failure of it is no news."""
        return bool(self.unsent >> index & 1)

    def begin_change(self) -> Mapping[int, BookieId]:
        """Let a change replace those who have failed or are suspended; return them."""
        suspended = {index: self.ensemble[index] for index in self.probe_at_s}
        return self._begin({**suspended, **self.failed}, is_planned=False)

    def begin_planned_change(self, index: int) -> Mapping[int, BookieId]:
        """Let a change replace a member that has not failed; without a replacement it stays."""
        return self._begin({index: self.ensemble[index]}, is_planned=True)

    def replaced_by(self, ensemble: Sequence[BookieId]) -> int:
        """Return the mask of members that `ensemble` has others in place of."""
        return mask_of(i for i, bookie in enumerate(ensemble) if bookie != self.ensemble[i])

    def end_change(self, ensemble: Sequence[BookieId], now_s: float) -> None:
        """The change is over; metadata names `ensemble`.

        Who was to be replaced and is still there is suspended, unless that was only a plan.
        """
        replaced = self.replaced_by(ensemble)
        left = () if self._is_planned else [i for i in self.changing if not replaced >> i & 1]
        self.ensemble = tuple(ensemble)
        self.changing = {}
        self.probe_at_s.update((index, now_s + PROBE_INTERVAL_S) for index in left)
        self.failed = {
            index: bookie
            for index, bookie in self.failed.items()
            if not replaced >> index & 1 and index not in self.probe_at_s
        }
        self.unsent = mask_of(self.probe_at_s)

    def give_up_change(self) -> None:
        """The handle has failed: nobody waits for the change any more."""
        self.changing = {}
        self.unsent = mask_of(self.probe_at_s)

    def resume(self, index: int) -> bool:
        """A member stored an add; return whether it was suspended and takes part again."""
        if self.probe_at_s.pop(index, None) is None:
            return False
        self.unsent &= ~(1 << index)
        return True

    def take_due_probes(self, mask: int, now_s: float) -> int:
        """Return the suspended members in `mask` that are due for a probe, and re-arm them."""
        due = 0
        for index, probe_s in self.probe_at_s.items():
            if mask >> index & 1 and now_s >= probe_s:
                self.probe_at_s[index] = now_s + PROBE_INTERVAL_S
                due |= 1 << index
        return due

    def check(self) -> None:
        """Assert the invariants."""
        assert self.unsent == mask_of(self.probe_at_s) | mask_of(self.changing)
        assert not self.changing.keys() & self.probe_at_s.keys()

    def _begin(self, changing: dict[int, BookieId], *, is_planned: bool) -> Mapping[int, BookieId]:
        self.changing = changing
        self.failed = {}
        self.probe_at_s = {}
        self.unsent = mask_of(changing)
        self._is_planned = is_planned
        return dict(changing)


def mask_of(indices: Iterable[int]) -> int:
    """Return a set of indices as a bit mask."""
    return sum(1 << index for index in indices)
