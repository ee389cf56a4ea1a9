"""Who does the work of a round of compaction: this process, in slices, or another one.

A broker has a child process do it (`child_worker.py`); who starts none, as simulations and tests,
has it done here. Both are asked the same, and do the same.
"""

from __future__ import annotations

from typing import Protocol

from broker.compaction.core.round_messages import BeginRound, Request, WorkDone
from broker.compaction.core.round_work import RoundWork
from client.node.turns import Turns


class Worker(Protocol):
    """Does the work of one round after the other."""

    @property
    def key_bytes(self) -> int:
        """Memory of this process that the keys of the round under way take."""
        ...

    async def do(self, request: Request) -> WorkDone:
        """Do what is asked next. Raises CompactionFailed, after which a round begins anew."""
        ...

    async def close(self) -> None:
        """Nothing is asked any more for now."""
        ...


class LocalWorker:
    """Between two slices everything else of the process has its turn (`client/node/turns.py`)."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._work: RoundWork | None = None

    @property
    def key_bytes(self) -> int:
        """Memory of the keys."""
        return 0 if self._work is None else self._work.key_bytes

    async def do(self, request: Request) -> WorkDone:
        """Do what is asked next, in turns. Raises CompactionFailed."""
        if isinstance(request, BeginRound):
            self._work = RoundWork(request)
        assert self._work is not None
        return await self._turns.run(self._work.do(request))

    async def close(self) -> None:
        """Forget the keys."""
        self._work = None
