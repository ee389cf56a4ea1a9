"""Asks the coordinators of share groups who is a member, and answers for those that are here.

A leader asks once for each share session. What it hears is which group of that name the member is
in: groups are deleted and made again, and what a partition keeps for one is nobody else's. What is
asked of one group is asked one after the other, so that an older answer never comes behind a newer
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from broker.cluster.cluster import Cluster
from broker.coordinator.core.routing import OFFSETS_TOPIC, coordinator_partition
from broker.errors import (
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    NotCoordinator,
    PeerError,
    UnknownMember,
)
from broker.faults import Code, code_of
from broker.groups.core.consumer_group_records import NO_INCARNATION
from broker.groups.core.share_messages import SHARE_MEMBERS, ShareAnswer, ShareQuestion
from broker.groups.groups import Groups
from broker.link.link_services import LinkServices
from broker.link.links import Links
from client.ids import BrokerId

LANE: Final = "share members"
ASK_S_MAX: Final = 2.0
"""How long a question is asked again while nobody can answer it."""
_PAUSE_S: Final = 0.05

_KNOWN: Final[Mapping[int, Callable[[str], BrokerError]]] = {
    Code.group_id_not_found: GroupIdNotFound,
    Code.unknown_member_id: UnknownMember,
    Code.coordinator_load_in_progress: CoordinatorLoading,
    Code.not_coordinator: NotCoordinator,
}


class ShareMembers:
    """The questions of one broker, and its answers."""

    def __init__(self, cluster: Cluster, links: Links, groups: Groups) -> None:
        self._cluster = cluster
        self._links = links
        self._groups = groups
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}
        """By group: who asks has the lock, and how many want it."""

    def serve(self, link: LinkServices) -> None:
        """Answer what leaders ask."""
        link.serve(SHARE_MEMBERS, self._answer)

    async def incarnation(self, group_id: str, member_id: str) -> UUID:
        """Return which group of a name a member is in.

        Raises GroupIdNotFound, UnknownMember; CoordinatorNotAvailable: nobody could answer.
        """
        lock, count = self._turns.get(group_id, (asyncio.Lock(), 0))
        self._turns[group_id] = lock, count + 1
        try:
            async with lock:
                return await self._ask(ShareQuestion(group_id, member_id))
        finally:
            lock, count = self._turns[group_id]
            if count == 1:
                del self._turns[group_id]
            else:
                self._turns[group_id] = lock, count - 1

    async def _ask(self, question: ShareQuestion) -> UUID:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ASK_S_MAX
        while True:
            problem: BrokerError
            try:
                async with asyncio.timeout_at(until_s):
                    answer = await self._links.ask(
                        self._coordinator(question.group_id), SHARE_MEMBERS, question, LANE
                    )
            except TimeoutError:
                problem = CoordinatorNotAvailable("the group's coordinator has not answered")
            except (PeerError, CoordinatorNotAvailable) as unreached:
                problem = unreached
            else:
                if not answer.code:
                    return answer.incarnation
                kind = _KNOWN.get(answer.code, CoordinatorNotAvailable)
                problem = kind(f"the coordinator of {question.group_id!r} says {answer.code}")
                if not problem.retriable:
                    raise problem
            if loop.time() + _PAUSE_S >= until_s:
                raise CoordinatorNotAvailable(str(problem))
            await asyncio.sleep(_PAUSE_S)

    def _coordinator(self, group_id: str) -> BrokerId:
        topic = self._cluster.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("this cluster has coordinated no group yet")
        index = coordinator_partition(group_id, topic.partition_count)
        broker = self._cluster.preferred_leader(topic, index)
        if broker is None:
            raise CoordinatorNotAvailable("no broker is available to coordinate the group")
        return broker

    async def _answer(self, _sender: BrokerId, question: ShareQuestion) -> ShareAnswer:
        try:
            view = self._groups.coordinator(question.group_id).view()
            if not question.member_id:
                found = view.incarnation(question.group_id)
                if found is None:
                    raise GroupIdNotFound(question.group_id)
            else:
                found = view.incarnation_for(question.group_id, question.member_id)
        except BrokerError as error:
            return ShareAnswer(code_of(error), NO_INCARNATION)
        return ShareAnswer(int(Code.none), found)
