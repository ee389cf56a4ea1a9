"""/groups/{group}/config: what is set for one group, and what holds for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, list_of, nullable, record, ref, text, truth
from broker.front.config_listing import Listed, Source, group_listing
from broker.groups.core.group_settings import GROUP_KEYS
from broker.topics.core import config_resource
from broker.topics.core.config_resource import Change

_SOURCES: Final = {Source.GROUP: "group"}
_VALUE: Final = {"type": ["string", "integer", "boolean"], "maxLength": 1_000}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "GroupSetting": record(
        "One setting of a group.",
        {
            "name": text("Kafka's name."),
            "value": text("The value in force."),
            "source": text("Whether it was set for this group.", enum=["group", "default"]),
            "default": text("The value it has unless it is set."),
            "has_effect": truth("Whether Quire acts on it, or only keeps it for tools."),
            "doc": text("What it means."),
        },
    ),
    "GroupConfig": record(
        "The settings of a group.",
        {"settings": list_of(ref("GroupSetting"), "All of them, by name.")},
    ),
    "GroupConfigChange": record(
        "What to change; the rest stays.",
        {
            "settings": record(
                "What to set; null: its default again.",
                {
                    key.name: {**nullable(_VALUE), "description": key.doc}
                    for key in GROUP_KEYS.values()
                },
                optional=tuple(GROUP_KEYS),
            ),
        },
    ),
}


def settings_of(context: AdminContext, group_id: str) -> list[dict[str, Any]]:
    """Return every setting of a group."""
    services = context.broker.services
    limits = services.groups.limits
    values = services.group_settings.of(group_id)
    return [_shown(row) for row in group_listing(values, services.settings, limits)]


def _shown(row: Listed) -> dict[str, Any]:
    others = [one.value for one in row.synonyms if one.source is not Source.GROUP]
    return {
        "name": row.name,
        "value": row.value,
        "source": _SOURCES.get(row.source, "default"),
        "default": others[0],
        "has_effect": GROUP_KEYS[row.name].effect,
        "doc": row.doc,
    }


async def describe_config(context: AdminContext, request: AdminRequest) -> Answer:
    """Show every setting of a group, which need not exist."""
    return Answer({"settings": settings_of(context, request.path["group"])})


async def change_config(context: AdminContext, request: AdminRequest) -> Answer:
    """Change a group's settings, for every broker."""
    name, services = request.path["group"], context.broker.services
    changes = [_change(key, value) for key, value in request.body["settings"].items()]
    await services.group_settings.edit(
        name, changes, services.groups.limits, replaces=False, validate_only=False
    )
    return Answer({"settings": settings_of(context, name)})


def _change(name: str, value: str | int | bool | None) -> Change:
    if value is None:
        return Change(name, config_resource.Operation.DELETE, None)
    word = str(value).lower() if isinstance(value, bool) else str(value)
    return Change(name, config_resource.Operation.SET, word)


OPERATIONS: Final = (
    Operation(
        name="describe_group_config", role=Role.LOOK, method="GET", path="/groups/{group}/config",
        summary="Show every setting of a group, and where its value came from. The group need not"
        " exist.",
        handle=describe_config, gives={JSON: ref("GroupConfig")},
    ),
    Operation(
        name="change_group_config", role=Role.OPERATE, method="PATCH",
        path="/groups/{group}/config", summary="Change the settings of a group.",
        handle=change_config, takes={JSON: ref("GroupConfigChange")},
        gives={JSON: ref("GroupConfig")},
    ),
)  # fmt: skip
