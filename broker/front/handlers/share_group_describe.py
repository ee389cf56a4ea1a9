"""ShareGroupDescribe (77), version 1: members, epochs and assignments of share groups (KIP-932).

Behaviour: a group that does not exist, or is no share group, is GROUP_ID_NOT_FOUND; otherwise as
that of consumer groups (`consumer_group_describe.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.front.handlers.consumer_group_describe import Kind, describe
from broker.front.services import Call, Services
from broker.groups.core.group_table import GroupView
from broker.security.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS: Final = (1, 1)
NEEDS: Final = (DESCRIBE_GROUP, DESCRIBE_TOPIC)

_SHARES: Final = Kind("share", GroupView.describe_share, ("assignment",))


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Describe each group, one that is named twice once."""
    return await describe(services, call, request, _SHARES)
