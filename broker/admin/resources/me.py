"""/me: who sent the request, as this broker sees it, and what is refused to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, map_of, record, ref, text

_ROLES: Final = [role.word for role in Role]

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Me": record(
        "Who sent the request.",
        {
            "name": text(
                "A token's name, or that of a certificate; anybody: there is no authentication."
            ),
            "role": text("What they may do.", enum=_ROLES),
            "refused": map_of(
                text("The role that it needs.", enum=_ROLES), "Operations that they may not use."
            ),
        },
    ),
}


async def describe_me(context: AdminContext, request: AdminRequest) -> Answer:
    """Show who asks."""
    caller = request.caller
    refused = {
        name: role.word for name, role in context.operation_roles.items() if role > caller.role
    }
    return Answer({"name": caller.name, "role": caller.role.word, "refused": refused})


OPERATIONS: Final = (
    Operation(
        name="describe_me", role=Role.LOOK, method="GET", path="/me",
        summary="Say who you are here, and which operations your role may not use.",
        handle=describe_me, gives={JSON: ref("Me")},
    ),
)  # fmt: skip
