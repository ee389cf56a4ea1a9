"""AlterConfigs (33), versions 0-2: replace all settings of a topic.

Deviations from Kafka: topics and brokers can be configured. What can be changed of a broker while
it runs is in `broker/settings/core/dynamic_settings.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.front.config_changes import Edit, configure_all
from broker.front.services import Call, Services
from broker.security.rights import (
    ALTER_CONFIGS_CLUSTER,
    ALTER_CONFIGS_GROUP,
    ALTER_CONFIGS_TOPIC,
)
from broker.topics.core.config_resource import replaced
from client.wire.kafka.apis import ApiKey

KEY: Final = ApiKey.ALTER_CONFIGS
VERSIONS: Final = (0, 2)
NEEDS: Final = (ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_TOPIC)


async def handle(services: Services, call: Call, request: Any) -> Mapping[str, Any]:
    """Configure each topic by itself."""
    answers = await configure_all(
        services,
        call,
        request.resources,
        _edit_of,
        replaces=True,
        validate_only=request.validate_only,
    )
    return {"responses": answers}


def _edit_of(item: Any) -> Edit:
    settings = [(config.name, config.value) for config in item.configs]
    return lambda _: replaced(settings)
