"""Hands this broker's partitions over for maintenance, and takes them back, step by step.

`core/hand_over_steps.py` says which partitions move together. A step is a change of our
registration, from which every broker computes the plan; it is complete once the leader epochs of
its partitions have grown, that is, other brokers lead them. A slow step does not delay the next
one. Safety does not depend on any of this: until its step, this broker leads a partition as before,
and then leadership changes as it always does (`broker/leadership/ownership.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker.cluster.cluster import Cluster
from broker.cluster.core.hand_over_steps import END, FIRST, Step, steps
from broker.cluster.core.topology import Position
from broker.cluster.registration import Registration
from client.errors import MetadataError
from client.ids import LeaderEpoch
from client.node import background

_LOG = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 0.005
"""Polling interval: much shorter than a takeover, and a check is cheap."""
_STEP_MAX_S: Final = 2.0
"""A partition without a next leader by then will not get one soon: the others need not wait."""


class HandOver:
    """At most one hand-over at a time; a new one begins where the previous one stopped."""

    def __init__(self, cluster: Cluster, registration: Registration, at_once: int) -> None:
        """`at_once`: partitions that move in one step."""
        self._cluster = cluster
        self._registration = registration
        self._at_once = at_once
        self._task: asyncio.Task[None] | None = None

    async def begin(self, *, unloaded: bool) -> None:
        """Begin to hand all partitions over, or to take them back.

        Returns once the registration says so, before any partition has moved. Raises MetadataError;
        the hand-over goes on nevertheless, and the registration is updated later.
        """
        info = self._registration.info
        here = info.leads_from
        if info.unloaded != unloaded:
            if here is None:
                here = FIRST if unloaded else END
            if self._task is not None:
                self._task.cancel()
            self._task = background.run(self._go(), "hand-over")
        await self._registration.set_eligibility(unloaded=unloaded, leads_from=here)

    async def close(self) -> None:
        """Stop in the middle of it."""
        await background.stop(self._task)

    async def _go(self) -> None:
        brokers, topics = self._cluster.brokers.values(), self._cluster.topics.values()
        for step in steps(self._registration.info, topics, brokers, self._at_once):
            await self._take(step)

    async def _take(self, step: Step) -> None:
        """Carry out one step; wait until its partitions have their next leaders."""
        before = await self._epochs(step.moving)
        unloaded = self._registration.info.unloaded
        try:
            await self._registration.set_eligibility(unloaded=unloaded, leads_from=step.leads_from)
        except MetadataError as error:
            _LOG.warning("hand_over.not_told error=%r", error)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _STEP_MAX_S
        waiting = step.moving
        while waiting:
            if loop.time() >= deadline_s:
                _LOG.warning("hand_over.slow partitions=%d", len(waiting))
                return
            await asyncio.sleep(_LOOK_AGAIN_S)
            now = await self._epochs(waiting)
            waiting = [at for at in waiting if at in now and now[at] <= before.get(at, now[at])]

    async def _epochs(self, positions: list[Position]) -> dict[Position, LeaderEpoch]:
        """Return the leader epochs of those partitions whose topics still exist."""
        current, epochs = self._cluster.topic_by_id, self._cluster.leader_epochs
        here = [(current[at[0]], at) for at in positions if at[0] in current]
        await epochs.load({topic.topic_id: topic for topic, _ in here}.values())
        return {at: epochs.get(topic, at[1]) for topic, at in here}
