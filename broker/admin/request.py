"""What an admin handler is given and gives back, and the words both sides of HTTP share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from client.security.admin_access import Caller, Role

PREFIX: Final = "/admin/v1"
JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"


class AdminRequest(NamedTuple):
    """A request, checked."""

    path: Mapping[str, Any]
    """Path parameters."""
    query: Mapping[str, Any]
    """Query parameters; those that were not given have their default, or are absent."""
    body: Any
    """The JSON body, bytes if the request had another media type, None without a body."""
    accepts_bytes: bool = False
    """Whether the client prefers `application/octet-stream` to JSON."""
    caller: Caller = Caller("", Role.LOOK)
    """Who sent it."""


class Answer(NamedTuple):
    """What a handler gives back."""

    body: Any
    """A JSON value; bytes are sent as `application/octet-stream`."""
    status: int = 200
    headers: Mapping[str, str] = {}
