"""The fault phase: who is struck when, and what must hold meanwhile.

The plan comes from a seed: each class of faults once before any comes again. Faults overlap as
they like, but a cluster that takes no records at all tests nothing any more: when some partition
or some producer has got nowhere for PATIENCE_S, no further fault strikes until all of them do
again. They must within RECOVERY_S_MAX of the end of the last fault, however many there were.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import Strike
from tests.chaos.judges.checkers import Event
from tests.chaos.progress import Progress

PATIENCE_S = 20.0
RECOVERY_S_MAX = 60.0
_TICK_S = 0.05


class Plan(NamedTuple):
    """When to strike, and when it is enough. Times in seconds."""

    seed: int
    every_s: float
    """Mean time between faults."""
    for_s: float
    strikes: int = 0
    """If not 0: so many instead of `for_s`, each only once everything has recovered."""


class Unavailable(Exception):
    """Nothing was in the way, and yet a partition or a producer did not get on."""


class Campaign:
    """Strikes by a plan."""

    def __init__(
        self,
        plan: Plan,
        armed: dict[str, Callable[[], Strike | None]],
        cluster: ChaosCluster,
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._armed = armed
        self._cluster = cluster
        self._progress = progress
        self._say = say
        self._rng = random.Random(plan.seed)
        self._deck: Iterator[str] = iter(())
        self._undo: list[tuple[float, int, Strike]] = []
        self._last_s = time.monotonic()
        """When the last fault struck or ended."""
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Faults that found no victim."""
        self.restarts: Counter[str] = Counter()
        """Processes that ended by themselves."""
        self.recoveries_s: list[float] = []
        """Each time the plan waited for the cluster: how long after the last fault it was well."""

    def run(self) -> None:
        """Strike, and undo everything. Raises Unavailable."""
        if self._plan.strikes:
            for _ in range(self._plan.strikes):
                self._strike()
                self._wait_for_recovery()
                self._pass(time.monotonic() + self._pause_s())
            return
        end_s = time.monotonic() + self._plan.for_s
        while time.monotonic() < end_s:
            if self._progress.silent_s() >= PATIENCE_S:
                self._wait_for_recovery()
            self._strike()
            self._pass(min(end_s, time.monotonic() + self._pause_s()))
        for _, _, strike in sorted(self._undo, key=lambda entry: entry[:2]):
            strike.undo()

    def keep_alive(self) -> None:
        """Start what ended by itself, as a service manager would."""
        for member in self._cluster.members:
            if member.node.is_preferred and not member.node.is_running:
                self.restarts[member.node.name] += 1
                member.node.start()

    def _pause_s(self) -> float:
        return self._plan.every_s * self._rng.uniform(0.5, 1.5)

    def _strike(self) -> None:
        """Let the next class of faults strike that finds a victim."""
        strike: Strike | None = None
        while strike is None:
            name = next(self._deck, None)
            if name is None:
                self._deck = iter(self._rng.sample(list(self._armed), len(self._armed)))
                continue
            strike = self._armed[name]()
            if strike is None:
                self.missed[name] += 1
                self._tick()  # what is down already must come up again meanwhile
        self._last_s = time.monotonic()
        self.counts[name] += 1
        number = self.counts.total()
        self.events.append(
            {"f": "fault", "class": name, "text": strike.text, "ms": int(time.time() * 1e3)}
        )
        self._say(f"{number:4}  {name}: {strike.text}; {self._progress.count} acknowledged")
        heapq.heappush(self._undo, (self._last_s + strike.for_s, number, strike))

    def _wait_for_recovery(self) -> None:
        """Return once no fault is at work, and every producer and partition has got on since."""
        while self._undo or (silent := self._progress.silent(self._last_s)):
            waited_s = time.monotonic() - self._last_s
            if not self._undo and waited_s > RECOVERY_S_MAX:
                raise Unavailable(f"{', '.join(silent)}: nothing for {waited_s:.0f} s")
            self._tick()
        self.recoveries_s.append(time.monotonic() - self._last_s)
        self._say(f"      all well {self.recoveries_s[-1]:.1f} s after the last fault")

    def _pass(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            self._tick()

    def _tick(self) -> None:
        """Undo what is due, start what ended, look, and wait a moment."""
        while self._undo and self._undo[0][0] <= time.monotonic():
            heapq.heappop(self._undo)[2].undo()
            self._last_s = time.monotonic()
        self.keep_alive()
        self._progress.look()
        time.sleep(_TICK_S)
