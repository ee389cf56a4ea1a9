"""What a broker has for share groups, beside the coordinators of all groups: one bundle."""

from __future__ import annotations

from typing import NamedTuple

from broker.front.core.share_sessions import ShareSessions
from broker.front.shares.share_settings import GroupConfigs
from broker.groups.share_members import ShareMembers
from broker.groups.share_offsets import ShareOffsets


class ShareServices(NamedTuple):
    """Who reads here, who is a member, where groups are, and what they are set to."""

    sessions: ShareSessions
    members: ShareMembers
    offsets: ShareOffsets
    configs: GroupConfigs
