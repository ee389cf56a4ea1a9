"""Moves one member of a consumer group towards its part of the target assignment (KIP-848).

RELEASE-FIRST  A partition has one owner at any time: the member that has it assigned, or that was
               told to give it up and has not said yet that it did. Until then nobody else gets it.

    state        when                                                  next
    STABLE       the target or the subscription changed                revoke, else take
    UNREVOKED    the member still names, or may have, what it gives up  wait
                 it does not                                           take
    UNRELEASED   always                                                take what is free by now

`revoke`: what is not in the target goes to `revoking`, the epoch stays, and the member is
UNREVOKED. `take`: the epoch becomes the target's, and the member gets what of the target is free;
what is not makes it UNRELEASED. A member that does not say what it owns (None) owns the same as
before.

Source: Kafka's CurrentAssignmentBuilder; KIP-1251 on the epoch of each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from broker.groups.core.consumer_group_records import Current, Held, MemberState, Partitions

Owner = Callable[[UUID, int], str | None]
"""Returns the member that owns a partition of a topic, None if nobody does."""


def reconcile(
    member_id: str,
    current: Current,
    target: Partitions,
    target_epoch: int,
    *,
    owned: Partitions | None,
    owner: Owner,
    subscribed: Collection[UUID],
) -> Current:
    """Return what a member has next; `current` itself if nothing changes.

    `owned`: what it says that it has, None if that is the same as before. `subscribed`: ids of the
    topics that it wants now, which the target may not know yet.
    """
    wanted = {topic_id: held for topic_id, held in target.items() if topic_id in subscribed}
    if current.state is MemberState.UNREVOKED:
        if owned is None or overlap(owned, current.revoking):
            return current
    elif current.state is MemberState.STABLE and current.epoch == target_epoch:
        has_more = any(
            held.keys() - wanted.get(topic_id, frozenset())
            for topic_id, held in current.assigned.items()
        )
        if not has_more:
            return current
    kept, revoked = _split(current.assigned, wanted)
    if revoked and (owned is None or overlap(owned, revoked)):
        return current._replace(state=MemberState.UNREVOKED, assigned=kept, revoking=revoked)
    return _take(member_id, current, wanted, target_epoch, kept, owner)


def _take(
    member_id: str,
    current: Current,
    wanted: Partitions,
    target_epoch: int,
    kept: Held,
    owner: Owner,
) -> Current:
    """The member has nothing to give up: it is at the target's epoch and gets what is free."""
    assigned = {topic_id: dict(held) for topic_id, held in kept.items()}
    is_complete = True
    for topic_id, indexes in wanted.items():
        for index in sorted(indexes - kept.get(topic_id, {}).keys()):
            if owner(topic_id, index) in (None, member_id):
                assigned.setdefault(topic_id, {})[index] = target_epoch
            else:
                is_complete = False
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    previous = current.epoch if current.epoch != target_epoch else current.previous_epoch
    return Current(target_epoch, previous, state, assigned, {})


def _split(assigned: Held, wanted: Partitions) -> tuple[Held, Held]:
    """Return what of the assignment stays, and what goes."""
    kept: dict[UUID, dict[int, int]] = {}
    gone: dict[UUID, dict[int, int]] = {}
    for topic_id, held in assigned.items():
        stays = wanted.get(topic_id, frozenset())
        if some := {index: epoch for index, epoch in held.items() if index in stays}:
            kept[topic_id] = some
        if others := {index: epoch for index, epoch in held.items() if index not in stays}:
            gone[topic_id] = others
    return kept, gone


def overlap(owned: Partitions, others: Held) -> bool:
    """Whether any partition is in both."""
    return any(
        not indexes.isdisjoint(others[topic_id])
        for topic_id, indexes in owned.items()
        if topic_id in others
    )


def within(owned: Partitions, assigned: Held) -> bool:
    """Whether all that a member says it has is assigned to it."""
    return all(indexes <= assigned.get(topic_id, {}).keys() for topic_id, indexes in owned.items())
