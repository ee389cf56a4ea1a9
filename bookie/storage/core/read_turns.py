"""Which reads of the disk begin, and which wait: beside adds they give way.

A reader that catches up asks for as much as the bookie can read. Adds would wait for it everywhere:
for the device, for a processor, for the event loop that sends what was read.

    READ-FEW     at most `at_once` jobs are under way.
    READ-TURNS   ledgers take turns, job by job: who reads a whole ledger does not keep away who
                 needs a few entries of another one. The jobs of a ledger keep their order.
    READ-REST    beside adds only one job is under way, and when it is over, none begins for
                 `rest_times` as long as it took: the busier the machine, the longer.
    READ-LEAST   unless reads would get less than `bytes_per_s_min` that way, or than was added in
                 the second before: a consumer has to read faster than others write, or it never
                 catches up.
    READ-WAIT    what has waited for `wait_s_max` rests no more: clients that wait longer ask
                 another bookie too, which makes it worse for all.
    READ-URGENT  what a recovery reads comes first, and waits for no rest: a partition has no leader
                 meanwhile.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

from client.ids import LedgerId

T = TypeVar("T")

_NEVER_S: Final = float("-inf")
_RATE_SPAN_S: Final = 1.0
"""For so long is counted what is added."""
_FIRST_BYTES: Final = 256 * 1024
"""What the first job is expected to bring."""


class ReadLimits(NamedTuple):
    """Bounds of the reads of one disk; see the fields of the same names in `config.py`."""

    rest_times: float
    bytes_per_s_min: int
    wait_s_max: float


class Begun(NamedTuple, Generic[T]):
    """A job that was told to begin."""

    job: T
    since_s: float
    """Since when it has waited."""
    began_s: float
    charged_s: float
    """How long its bytes keep others from beginning by READ-LEAST; 0 if they do not."""
    gives_way: bool


class ReadTurns(Generic[T]):
    """The jobs that wait to read one disk, and those that do."""

    def __init__(self, limits: ReadLimits, *, at_once: int) -> None:
        self._limits = limits
        self._at_once = at_once
        self._urgent: deque[T] = deque()
        self._lines: dict[LedgerId, deque[tuple[float, T]]] = {}
        """What waits of each ledger, in the order of their turns, and since when."""
        self._under_way = 0
        self._rests_until_s = _NEVER_S
        self._least_due_s = _NEVER_S
        """When the next job begins at the latest, for READ-LEAST."""
        self._least_per_s = float(limits.bytes_per_s_min)
        self._added_bytes = 0
        self._added_s = _NEVER_S
        """When that was counted."""
        self._expected_s = _FIRST_BYTES / limits.bytes_per_s_min
        """For how long the bytes of a job are enough by READ-LEAST: of the last one that is over.
        What another one brings is known afterwards."""

    def push(
        self,
        ledger_id: LedgerId,
        job: T,
        since_s: float,
        *,
        is_urgent: bool = False,
        is_rest: bool = False,
    ) -> None:
        """A job waits for its turn. `is_rest`: it is the rest of an earlier one of that ledger,
        waits since that did, and comes before what came later."""
        if is_urgent:
            self._urgent.append(job)
            return
        line = self._lines.setdefault(ledger_id, deque())
        if is_rest:
            line.appendleft((since_s, job))
        else:
            line.append((since_s, job))

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._urgent) + sum(map(len, self._lines.values()))

    def on_added(self, added_bytes: int, now_s: float) -> None:
        """So many bytes were added by now, ever."""
        span_s = now_s - self._added_s
        if span_s >= _RATE_SPAN_S:
            added_per_s = (added_bytes - self._added_bytes) / span_s
            self._least_per_s = max(float(self._limits.bytes_per_s_min), added_per_s)
            self._added_bytes, self._added_s = added_bytes, now_s

    def pop(self, now_s: float, *, beside_adds: bool) -> Begun[T] | None:
        """Return the job that begins now, if one does. Tell `over` when it has ended."""
        if self._under_way == self._at_once:
            return None
        if self._urgent:
            begun = Begun(self._urgent.popleft(), now_s, now_s, 0.0, gives_way=False)
        elif not self._lines or (beside_adds and not self._may_begin(now_s)):
            return None
        else:
            charged_s = self._expected_s if beside_adds else 0.0
            if beside_adds:
                self._least_due_s = now_s + charged_s
            since_s, job = self._take()
            begun = Begun(job, since_s, now_s, charged_s, gives_way=beside_adds)
        self._under_way += 1
        return begun

    def over(self, begun: Begun[T], now_s: float, size: int) -> None:
        """A job has ended and brought `size` bytes."""
        self._under_way -= 1
        if begun.gives_way:
            self._expected_s = size / self._least_per_s
            self._least_due_s += self._expected_s - begun.charged_s
            self._rests_until_s = now_s + self._limits.rest_times * (now_s - begun.began_s)

    def wait_s(self, now_s: float) -> float | None:
        """Return after how long `pop` may have a job though nothing else happens; None: it will
        not."""
        if not self._lines or self._under_way == self._at_once:
            return None
        due_s = min(self._least_due_s, self._next_since_s() + self._limits.wait_s_max)
        if not self._under_way:
            due_s = min(due_s, self._rests_until_s)
        return max(0.0, due_s - now_s)

    def _may_begin(self, now_s: float) -> bool:
        is_rested = not self._under_way and now_s >= self._rests_until_s
        if is_rested or now_s >= self._least_due_s:
            return True
        return now_s >= self._next_since_s() + self._limits.wait_s_max

    def _next_since_s(self) -> float:
        """Return since when the job waits whose turn is next; there must be one."""
        return next(iter(self._lines.values()))[0][0]

    def _take(self) -> tuple[float, T]:
        ledger_id = next(iter(self._lines))
        line = self._lines.pop(ledger_id)
        waited = line.popleft()
        if line:
            self._lines[ledger_id] = line
        return waited
