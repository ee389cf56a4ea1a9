"""One row of the admin API's table, and what its handler is given and gives back.

This file is the only home of that shape. Routing, checking, forwarding and the OpenAPI document
all read the same rows (`table.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.admin.schema import Schema
from broker.core.topology import BrokerInfo

if TYPE_CHECKING:
    from broker.admin.site import Site

PREFIX: Final = "/admin/v1"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
SAFE: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


class Ask(NamedTuple):
    """A request, checked."""

    path: Mapping[str, Any]
    """Path parameters."""
    query: Mapping[str, Any]
    """Query parameters; those that were not given have their default, or are absent."""
    body: Any
    """The JSON body, bytes if the request had another media type, None without a body."""
    accepts_bytes: bool = False
    """Whether the client prefers `application/octet-stream` to JSON."""


class Answer(NamedTuple):
    """What a handler gives back."""

    body: Any
    """A JSON value; bytes are sent as `application/octet-stream`."""
    status: int = 200
    headers: Mapping[str, str] = {}


Handle = Callable[["Site", Ask], Awaitable[Answer]]
Where = Callable[["Site", Ask], Awaitable[BrokerInfo | None]]
"""Says which broker must answer; None: any, so this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    name: str
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
    def tag(self) -> str:
        """The first word of the path groups operations in the document."""
        return self.path.split("/")[1]
