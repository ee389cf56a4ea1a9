"""Carries out the effects of a partition's leader in order, even if they produce more effects.

Carrying out an effect may lead to another input with effects of its own: these are queued after the
current ones. If an effect fails, the remaining ones are carried out together with the next effects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.partition.core.leader_effects import PLAN, SEND, Effect, Effects


class EffectRunner:
    """The effects of one leader."""

    __slots__ = ("_carry_out", "_is_running", "_loop", "_on_turn_over", "_queue", "_send", "now_s")

    def __init__(
        self,
        carry_out: Callable[[Effect], None],
        send: Callable[[], None],
        on_turn_over: Callable[[], Effects],
    ) -> None:
        """`send` carries out `SendEntries`; `on_turn_over` is the input that `PlanSend` asks for.
        Both mostly come alone, once for each entry."""
        self._carry_out = carry_out
        self._send = send
        self._on_turn_over = on_turn_over
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time
        """The loop's time, for intervals."""
        self._queue: list[Effect] = []  # short: a deque takes 760 bytes in each idle partition
        self._is_running = False

    def plan(self) -> None:
        """Call `on_turn_over` when this turn of the loop is over."""
        self._loop.call_soon(self._end_turn)

    def run(self, effects: Effects) -> None:
        """Carry out effects, after those in progress."""
        queue = self._queue
        if self._is_running or queue:
            queue.extend(effects)
        elif effects is PLAN:
            self._loop.call_soon(self._end_turn)
            return
        elif effects is SEND:
            self._send()
            return
        if self._is_running:
            return
        rest = iter(() if queue else effects)
        self._is_running = True
        try:
            for effect in rest:
                self._carry_out(effect)
            while queue:
                self._carry_out(queue.pop(0))
        except BaseException:
            queue[:0] = rest  # the next call carries them out
            raise
        finally:
            self._is_running = False

    def _end_turn(self) -> None:
        effects = self._on_turn_over()
        if effects:
            self.run(effects)
