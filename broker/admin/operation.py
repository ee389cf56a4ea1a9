"""One row of the admin API's table: a method of a path, its handler and its schemas.

Routing, checking, forwarding and the OpenAPI document all read the same rows (`table.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from broker.admin.context import AdminContext
from broker.admin.request import AdminRequest, Answer
from broker.admin.schema import Schema
from broker.cluster.core.topology import BrokerInfo
from client.security.admin_access import Role

Handle = Callable[[AdminContext, AdminRequest], Awaitable[Answer]]
Where = Callable[[AdminContext, AdminRequest], Awaitable[BrokerInfo | None]]
"""Says which broker must answer; None: any, so this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    name: str
    role: Role
    """Which role whoever asks for it needs."""
    method: str
    path: str
    """Below `PREFIX`, with parameters in braces; their schemas are in `table.PATH`."""
    summary: str
    handle: Handle
    gives: Mapping[str, Schema]
    """Media type -> schema of a successful answer."""
    status: tuple[int, ...] = (200,)
    query: Mapping[str, Schema] = field(default_factory=dict)
    takes: Mapping[str, Schema] = field(default_factory=dict)
    """Media type -> schema of the body; empty: there is none."""
    where: Where | None = None
    is_frequent: bool = False
    """Not worth a line in the log each time, although it is no GET."""
    problems: tuple[int, ...] = ()
    """Statuses of errors beside those that every operation has."""

    @property
    def is_noted(self) -> bool:
        """Whether it is told who did it, each time."""
        return self.method != "GET" and not self.is_frequent

    @property
    def shows_records(self) -> bool:
        """Whether it publishes records or shows what is in them, of which is told what may be
        written of one user."""
        return "/records" in self.path and self.role >= Role.OPERATE

    @property
    def tag(self) -> str:
        """The first word of the path groups operations in the document."""
        return self.path.split("/")[1]


__all__ = ["Handle", "Operation", "Role", "Where"]
