"""What AlterShareGroupOffsets and DeleteShareGroupOffsets have in common: an order about a group
without members."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from broker.cluster.core.features import SHARE_VERSION
from broker.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from broker.faults import Code
from broker.front.services import Call, Services
from broker.front.shares.share_requests import SHARE_GROUPS
from broker.groups.core.group_types import GroupState
from broker.security.rights import Need

NO_ERROR: Final[dict[str, Any]] = {"error_code": Code.none, "error_message": None}


def empty_group(services: Services, call: Call, group_id: str, need: Need) -> UUID:
    """Return which group of a name it is that an order is about.

    Raises InvalidGroupId, GroupAuthorizationFailed, UnsupportedVersion, GroupIdNotFound,
    NonEmptyGroup, NotCoordinator, CoordinatorLoading.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    services.rights.require(call.peer, need, group_id)
    services.features.require(SHARE_VERSION, SHARE_GROUPS)
    view = services.groups.coordinator(group_id).view()
    incarnation, headline = view.incarnation(group_id), view.headline(group_id)
    if incarnation is None or headline is None:
        raise GroupIdNotFound(f"Group {group_id[:249]} not found.")
    if headline.state is not GroupState.EMPTY:
        raise NonEmptyGroup(f"share group {group_id} has members: stop them first")
    return incarnation
