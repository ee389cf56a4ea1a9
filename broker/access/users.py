"""Users and what is kept of their passwords: in the metadata store, watched by every broker.

A user is a node named by the hash of its name (a name may hold any character), with JSON:

    {"version": 1, "name": ..., "scram": {"SCRAM-SHA-256": {"salt", "stored_key", "server_key"
                                           (base64), "iterations"}, ...}}

Logins ask the view, which follows changes within moments; who changes a user sees the change at
once on the same broker.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.cluster.editable_directory import EditableDirectory
from broker.errors import InvalidRequest
from broker.security.core.freshness import Freshness
from broker.security.core.mechanisms import Mechanism
from broker.security.core.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    ScramCredential,
)
from broker.security_errors import AccessUnknown, ResourceNotFound
from client.errors import LogCorrupt
from client.metadata import paths
from client.metadata.json_node import read_object, whole
from client.metadata.store import MetadataStore

_FORMAT: Final = 1

Credentials = Mapping[Mechanism, ScramCredential]
Edit = Callable[[Credentials], Credentials]


class Users:
    """All users. Implements `broker.security.core.sasl.Users`."""

    def __init__(
        self,
        store: MetadataStore,
        users_max: int,
        own: Mapping[str, Credentials] = MappingProxyType({}),
        freshness: Freshness | None = None,
    ) -> None:
        """`users_max`: how many are taken; `own`: who can log in whatever the store says, by name;
        `freshness`: of what else we know; None: it always counts."""
        self._users_max = users_max
        self._own = own
        self._freshness = freshness or Freshness()
        self._nodes: EditableDirectory[tuple[str, Credentials]] = EditableDirectory(
            store, paths.USERS, _decode, lambda: None, self._freshness
        )

    async def start(self) -> None:
        """Read all of them, then follow changes, unless that was done. Raises MetadataError.

        Brokers without SASL do so when somebody first asks for users.
        """
        await self._nodes.start()

    async def close(self) -> None:
        """Stop following."""
        await self._nodes.close()

    @property
    def count(self) -> int:
        """Users that are kept in memory."""
        return len(self._nodes.values)

    def names(self) -> list[str]:
        """Return the names of all users, sorted."""
        return sorted(name for name, _ in self._nodes.values.values())

    def credentials(self, user: str) -> Credentials:
        """Return what is kept of a user's passwords; empty: there is no such user.

        Raises AccessUnknown: what we know is too old.
        """
        if user in self._own:
            return self._own[user]
        if not self._freshness.is_fresh(asyncio.get_running_loop().time()):
            raise AccessUnknown(self._freshness.refusal("passwords"))
        found = self._nodes.values.get(_node_name(user))
        return {} if found is None or found[0] != user else found[1]

    async def edit(self, user: str, edit: Edit) -> None:
        """Change what is kept of a user; one of whom nothing is left is gone.

        Raises what `edit` raises, InvalidRequest (there are too many), MetadataError (it may have
        happened), RequestTimedOut.
        """
        name = _node_name(user)

        def change(data: bytes | None) -> bytes | None:
            after = edit({} if data is None else _decode(name, data)[1])
            if data is None and after and self.count >= self._users_max:
                raise InvalidRequest(
                    f"more than security.users_max ({self._users_max}) users: delete some that"
                    " nobody needs, or raise it on every broker"
                )
            return _encode(user, after) if after else None

        await self._nodes.edit(name, change, subject=f"user {user!r}")


def without(credentials: Credentials, mechanism: Mechanism, user: str) -> Credentials:
    """Return the credentials that are left. Raises ResourceNotFound."""
    if mechanism not in credentials:
        raise ResourceNotFound(f"user {user!r} has no {mechanism} credential")
    return {one: kept for one, kept in credentials.items() if one is not mechanism}


def _node_name(user: str) -> str:
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


def _encode(user: str, credentials: Credentials) -> bytes:
    kept = {
        str(mechanism): {
            "salt": _text(one.salt),
            "stored_key": _text(one.stored_key),
            "server_key": _text(one.server_key),
            "iterations": one.iterations,
        }
        for mechanism, one in credentials.items()
    }
    return json.dumps({"version": _FORMAT, "name": user, "scram": kept}, sort_keys=True).encode()


def _decode(node_name: str, data: bytes) -> tuple[str, Credentials]:
    """Read a user's node. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        if fields["version"] != _FORMAT:
            raise ValueError(f"format {fields['version']}")
        user = fields["name"]
        if not isinstance(user, str) or _node_name(user) != node_name:
            raise ValueError("another user's name")
        return user, {
            Mechanism(name): _credential(Mechanism(name), one)
            for name, one in fields["scram"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # Without the error's text: it may repeat what is kept of a password.
        raise LogCorrupt(f"user {node_name}: {type(error).__name__}") from None


def _credential(mechanism: Mechanism, fields: Mapping[str, Any]) -> ScramCredential:
    size = hashlib.new(HASHES[mechanism]).digest_size
    salt, stored_key, server_key = (
        base64.b64decode(fields[name], validate=True)
        for name in ("salt", "stored_key", "server_key")
    )
    if len(stored_key) != size or len(server_key) != size or not 0 < len(salt) <= SALT_BYTES_MAX:
        raise ValueError("keys of the wrong length")
    return ScramCredential(
        salt, stored_key, server_key, whole(fields, "iterations", ITERATIONS_MIN, ITERATIONS_MAX)
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
