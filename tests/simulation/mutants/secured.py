"""Planted defects of logins and access control lists; see `table.py`."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from broker.cluster.directory_view import DirectoryView
from broker.security import rights
from broker.security.core import acls, scram
from broker.security.core.acls import Authorizer, Operation, PatternType
from broker.security.login import Login
from broker.security.rights import Need, Rights
from client.errors import MetadataError
from client.metadata import paths

if TYPE_CHECKING:
    from collections.abc import Callable


def decisions_outlive_entries(patch: Any) -> None:
    """What was decided once is remembered when entries change."""

    def replace(self: Authorizer, entries: acls.Acls) -> None:
        self._acls = entries

    patch(Authorizer, "replace", replace)


def denials_are_overruled(patch: Any) -> None:
    """Whoever is allowed something is not denied it by another entry."""
    patch(acls, "_is_denial", lambda acl, operation: False)


def host_is_ignored(patch: Any) -> None:
    """Entries are about their principal, wherever it is."""
    patch(acls, "_concerns", lambda acl, who, host: acl.principal in (who, "User:*"))


def prefixes_are_names(patch: Any) -> None:
    """What is said of all names with a prefix is said of that name alone."""

    def put(self: acls.Acls, source: str, entries: Any) -> None:
        original(self, source, (acl._replace(pattern=PatternType.LITERAL) for acl in entries))

    original = patch(acls.Acls, "put", put)


def any_right_is_every_right(patch: Any) -> None:
    """Who may do something to a resource may do everything to it."""

    def is_allowance(acl: acls.Acl, operation: Operation) -> bool:
        return acl.permission is acls.Permission.ALLOW

    patch(acls, "_is_allowance", is_allowance)


def _unasked(need: Need) -> Callable[[Any], None]:
    def plant(patch: Any) -> None:
        def may(self: Rights, who: Any, wanted: Need, *name: str) -> bool:
            return wanted == need or original(self, who, wanted, *name)

        original = patch(Rights, "may", may)

    return plant


def writing_needs_no_right(patch: Any) -> None:
    """Everybody may append."""
    _unasked(rights.WRITE_TOPIC)(patch)


def reading_needs_no_right(patch: Any) -> None:
    """Everybody may read."""
    _unasked(rights.READ_TOPIC)(patch)


def looking_needs_no_right(patch: Any) -> None:
    """Everybody sees what topics there are."""
    _unasked(rights.DESCRIBE_TOPIC)(patch)


def refused_all_the_same(patch: Any) -> None:
    """Somebody who may do something is told now and then that he may not."""

    def may(self: Rights, *asked: Any) -> bool:
        counts[0] += 1
        return counts[0] % 50 != 0 and original(self, *asked)

    counts = [0]
    original = patch(Rights, "may", may)


def _deaf(patch: Any, path: str, watch: str) -> None:
    def on_change(self: Any, *name: str) -> None:
        if self._path != path:
            original(self, *name)

    original = patch(DirectoryView, watch, on_change)


def changed_entries_are_not_followed(patch: Any) -> None:
    """Brokers look at entries about a resource once."""
    _deaf(patch, paths.ACLS, "_on_child")


def new_entries_are_not_followed(patch: Any) -> None:
    """Brokers look once about which resources there are entries."""
    _deaf(patch, paths.ACLS, "_on_listing")


def new_passwords_are_not_followed(patch: Any) -> None:
    """Brokers look at a user once."""
    _deaf(patch, paths.USERS, "_on_child")


def a_lost_read_is_the_last(patch: Any) -> None:
    """A broker whose read of entries fails goes on with what it has."""

    async def read_some(self: Any) -> None:
        try:
            await original(self)
        except MetadataError:
            if self._path != paths.ACLS:
                raise
            self._stale.clear()

    original = patch(DirectoryView, "_read_some", read_some)


def entries_are_read_while_serving(patch: Any) -> None:
    """A broker serves before it has read who may do what."""

    async def start(self: Rights) -> None:
        async def later() -> None:
            await asyncio.sleep(0.2)
            await original(self)

        self.__dict__["later"] = asyncio.get_running_loop().create_task(later())

    original = patch(Rights, "start", start)


def requests_before_a_login(patch: Any) -> None:
    """Who has not logged in is served."""
    patch(Login, "refusal", lambda self, api_key: "")


def any_password(patch: Any) -> None:
    """A proof is not compared with what is kept of the password."""
    patch(scram.hmac, "compare_digest", lambda one, other: True)


def logins_never_end(patch: Any) -> None:
    """A connection is served after its login has ended."""

    def refusal(self: Login, api_key: int) -> str:
        self._ends_s = math.inf
        return original(self, api_key)

    original = patch(Login, "refusal", refusal)


KIND = "secured"
WORLD = "cluster"
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
}
