"""Users and what is kept of their passwords: in the metadata store, watched by every broker.

A user is a node named by the hash of its name (a name may hold any character), with JSON:

    {"version": 1, "name": ..., "scram": {"SCRAM-SHA-256": {"salt", "stored_key", "server_key"
                                           (base64), "iterations"}, ...}}

Logins ask the view, which follows changes within moments; who changes a user sees the change at
once on the same broker. A user whose node cannot be read cannot log in: the password that was
readable last may have been changed or taken away since. A credential of a mechanism that this
release does not know, or does not take, stays as it is; the user's other mechanisms work.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.cluster.directory_view import Freshness
from broker.cluster.editable_directory import EditableDirectory
from broker.errors import AccessUnknown, InvalidRequest, ResourceNotFound
from broker.security.core.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    Mechanism,
    ScramCredential,
)
from client.errors import LogCorrupt, NodeExists
from client.ids import Rng
from client.metadata import paths
from client.metadata.json_node import carried, read_object, whole
from client.metadata.store import MetadataStore

_FORMAT: Final = 1
_FIELDS: Final = frozenset(("version", "name", "scram"))

Credentials = Mapping[Mechanism, ScramCredential]
Edit = Callable[[Credentials], Credentials]


class Users:
    """All users. Implements `broker.security.core.sasl.Users`."""

    def __init__(
        self,
        store: MetadataStore,
        users_max: int,
        own: Callable[[bytes], Mapping[str, Credentials]] = lambda _: {},
        freshness: Freshness | None = None,
        rng: Rng | None = None,
    ) -> None:
        """`users_max`: how many are taken; `own`: returns who can log in whatever the store says,
        by name, and takes the secret; `freshness`: of what else we know; None: it always counts;
        `rng`: makes the secret, if the cluster has none yet."""
        self._store = store
        self._rng = rng
        self._users_max = users_max
        self._make_own = own
        self._own: Mapping[str, Credentials] = {}
        self.secret = b""
        """Hides who exists: what is told of a user that does not is derived from it. The same at
        all brokers, or one that tells otherwise would give it away; empty before `start`."""
        self._freshness = freshness or Freshness()
        self._nodes: EditableDirectory[tuple[str, Credentials]] = EditableDirectory(
            store, paths.USERS, decode, lambda: None, self._freshness, in_place=lambda _: None
        )

    async def start(self) -> None:
        """Read all of them, then follow changes, unless that was done. Raises MetadataError.

        Brokers without SASL do so when somebody first asks for users.
        """
        await self._nodes.start()
        if not self.secret:
            self.secret = await self._settle_secret()
            self._own = self._make_own(self.secret)

    async def _settle_secret(self) -> bytes:
        made = b"" if self._rng is None else self._rng.getrandbits(256).to_bytes(32, "big")
        try:
            await self._store.create(paths.SECRET, made)
            found = made
        except NodeExists:
            found = (await self._store.get(paths.SECRET)).data
        return hashlib.sha256(found).digest()  # whatever is in it, so that nothing can be wrong

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
            before = {} if data is None else decode(name, data)[1]
            after = edit(before)
            if data is None and after and self.count >= self._users_max:
                raise InvalidRequest(
                    f"more than security.users_max ({self._users_max}) users: delete some that"
                    " nobody needs, or raise it on every broker"
                )
            kept = carried(data, _FIELDS)
            scram = {} if data is None else _foreign(read_object(data)["scram"], before)
            return _encode(user, after, scram, kept) if after or scram or kept else None

        await self._nodes.edit(name, change, subject=f"user {user!r}")


def without(credentials: Credentials, mechanism: Mechanism, user: str) -> Credentials:
    """Return the credentials that are left. Raises ResourceNotFound."""
    if mechanism not in credentials:
        raise ResourceNotFound(f"user {user!r} has no {mechanism} credential")
    return {one: kept for one, kept in credentials.items() if one is not mechanism}


def _node_name(user: str) -> str:
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


def _encode(
    user: str, credentials: Credentials, foreign: Mapping[str, Any], kept: Mapping[str, Any]
) -> bytes:
    """`foreign`: credentials, and `kept`: fields, that only another release understands."""
    known = {
        str(mechanism): {
            "salt": _text(one.salt),
            "stored_key": _text(one.stored_key),
            "server_key": _text(one.server_key),
            "iterations": one.iterations,
        }
        for mechanism, one in credentials.items()
    }
    fields = {**kept, "version": _FORMAT, "name": user, "scram": {**foreign, **known}}
    return json.dumps(fields, sort_keys=True).encode()


def _foreign(stored: Mapping[str, Any], understood: Credentials) -> dict[str, Any]:
    return {name: one for name, one in stored.items() if name not in map(str, understood)}


def decode(node_name: str, data: bytes) -> tuple[str, Credentials]:
    """Read a user's node. Raises LogCorrupt."""
    try:
        fields = read_object(data)
        if fields["version"] != _FORMAT:
            raise ValueError(f"format {fields['version']}")
        user = fields["name"]
        if not isinstance(user, str) or _node_name(user) != node_name:
            raise ValueError("another user's name")
        found = {}
        for name, one in fields["scram"].items():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                found[Mechanism(name)] = _credential(Mechanism(name), one)
        return user, found
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
