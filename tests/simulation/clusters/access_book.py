"""The judge of secured schedules: who was served, and who was let in, by what the store held.

It sees every change of access control entries and users in the metadata store, reads them with a
layout of its own, and decides by itself who might do what at which moment.

Brokers follow the store, so an answer may be by what held a while ago. For what only a leader
serves the while is `bound_s`: who is cut off from the store does not lead for longer. Everything
else, refusals and logins included, comes from any broker, which may be cut off, or have been
stopped: it goes by what it knows for `cut_off_s` (`security.access_age_max_ms`). After healing
(`all_follow`) `bound_s` holds for all.

    A1 nothing is served to somebody who was not allowed it at any moment of that while
    A2 nobody is refused what he was allowed all the while
    A3 nobody is logged in by a password that held at no moment of it, nor served without a login;
       and who had it all the while gets in, unless it was set anew: a broker that hears of that
       between two messages of a login may refuse it, whatever the new salt is made of. Who lets
       somebody in signs with what is kept of the password that was given
    A4 nothing is served on a connection whose login has ended
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from client.metadata import paths
from tests.fakes import sasl_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.machine.loop import SimLoop

V = TypeVar("V")

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31
DENIED = (TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED)
_LED = ("READ", "WRITE")
"""Operations that only a leader serves, or who has its list of segments as fresh."""
_IMPLIES_DESCRIBE = ("READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL")


class Entry(NamedTuple):
    """An access control entry."""

    kind: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    def concerns(self, user: str, host: str, name: str) -> bool:
        """Say whether it is about a topic, and about who asks."""
        if self.pattern == "PREFIXED":
            covers = name.startswith(self.name)
        else:
            covers = self.name in ("*", name)
        return (
            covers
            and self.kind == "TOPIC"
            and self.principal in (f"User:{user}", "User:*")
            and self.host in ("*", host)
        )


class Login(NamedTuple):
    """What is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes

    def is_of(self, password: str) -> bool:
        """Say whether it was made of a password."""
        made, _ = sasl_client.keys("sha256", password, self.salt, self.iterations)
        return made == self.stored_key


class Asked(NamedTuple):
    """What somebody asks of a topic."""

    user: str
    host: str
    """The address it comes from."""
    operation: str
    topic: str
    sent_s: float


class AccessBook:
    """Everything that held, and since when."""

    def __init__(
        self, loop: SimLoop, fail: Callable[[str, str], None], bound_s: float, cut_off_s: float
    ) -> None:
        self.bound_s = bound_s
        """For how long a leader may go on with what does not hold any more."""
        self.cut_off_s = cut_off_s
        """For how long any broker may."""
        self.all_follow = False
        """Whether no broker is cut off from the store any more."""
        self._loop = loop
        self._fail = fail
        self._nodes: dict[str, tuple[Entry, ...]] = {}
        self._entries: list[tuple[float, tuple[Entry, ...]]] = [(-math.inf, ())]
        """(since when, all entries) in order."""
        self._logins: dict[str, list[tuple[float, Login | None]]] = {}
        self._users: dict[str, str] = {}
        """Node -> the user it is about."""

    # ---------------------------------------------------------------- what the store holds

    def node_changed(self, path: str, data: bytes | None) -> None:
        """A node of the store has a value; None: it is gone."""
        if path.startswith(f"{paths.ACLS}/"):
            if data is None:
                self._nodes.pop(path, None)
            else:
                fields = json.loads(data)
                place = fields["resource_type"], fields["pattern"], fields["name"]
                self._nodes[path] = tuple(Entry(*place, *row) for row in fields["acls"])
            entries = tuple(entry for rows in self._nodes.values() for entry in rows)
            self._entries.append((self._loop.time(), entries))
        elif path.startswith(f"{paths.USERS}/"):
            login = None
            if data is not None:
                fields = json.loads(data)
                self._users[path] = fields["name"]
                kept = fields["scram"].get("SCRAM-SHA-256")
                if kept is not None:
                    keys = (base64.b64decode(kept[name]) for name in ("salt", "stored_key"))
                    salt, key = keys
                    login = Login(salt, kept["iterations"], key)
            history = self._logins.setdefault(self._users[path], [(-math.inf, None)])
            history.append((self._loop.time(), login))

    # ---------------------------------------------------------------- what clients are told

    def judge(self, asked: Asked, code: int) -> None:
        """Somebody's request about a topic was answered."""
        if code not in (0, TOPIC_DENIED):
            return
        from_s = self._from_s(asked.sent_s, is_led=code == 0 and asked.operation in _LED)
        found = [_is_allowed(entries, asked) for entries in _since(self._entries, from_s)]
        if code == 0 and not any(found):
            self._fail("A1", f"{self._text(asked)}: served, and not allowed since {from_s:.3f}")
        if code == TOPIC_DENIED and all(found):
            self._fail("A2", f"{self._text(asked)}: denied, and allowed since {from_s:.3f}")

    def logged_in(self, user: str, password: str, sent_s: float, is_taken: bool) -> None:
        """Somebody tried to log in."""
        from_s = self._from_s(sent_s, is_led=False)
        history = self._logins.get(user, [(-math.inf, None)])
        held = list(_since(history, from_s))
        found = [one is not None and one.is_of(password) for one in held]
        if is_taken and not any(found):
            self._fail("A3", f"{user} got in with a password that was not his since {from_s:.3f}")
        if not is_taken and all(found) and len(set(held)) == 1:
            self._fail("A3", f"{user} did not get in, with his password since {from_s:.3f}")

    def unproven(self, user: str, host: str) -> None:
        """A broker let somebody in, and its signature is not that of the password."""
        self._fail("A3", f"{host} let {user} in with a password that it does not know")

    def overstayed(self, user: str, late_s: float) -> None:
        """A request that left so long after its login had ended was answered."""
        self._fail("A4", f"{user} is served {late_s:.3f} s after the login has ended")

    def served_without_login(self, host: str) -> None:
        """Somebody got an answer who has not logged in."""
        self._fail("A3", f"{host} serves who has not logged in")

    def refused(self, user: str, code: int) -> None:
        """Somebody who has had all rights from the beginning was answered with an error."""
        if code in DENIED:
            self._fail("A2", f"{user} is denied what was always allowed: {code}")

    def _from_s(self, sent_s: float, *, is_led: bool) -> float:
        """Return since when what held counts."""
        return sent_s - (self.bound_s if is_led or self.all_follow else self.cut_off_s)

    def _text(self, asked: Asked) -> str:
        return f"{asked.operation} of {asked.topic} by {asked.user} at {asked.sent_s:.3f}"


def _since(history: list[tuple[float, V]], from_s: float) -> Iterator[V]:
    """Yield what held at some moment since then."""
    for at, (_, value) in enumerate(history):
        if at + 1 == len(history) or history[at + 1][0] >= from_s:
            yield value


def _is_allowed(entries: tuple[Entry, ...], asked: Asked) -> bool:
    mine = [one for one in entries if one.concerns(asked.user, asked.host, asked.topic)]
    wanted = (asked.operation, "ALL")
    if any(one.permission == "DENY" and one.operation in wanted for one in mine):
        return False
    if asked.operation == "DESCRIBE":
        wanted = _IMPLIES_DESCRIBE  # type: ignore[assignment]
    return any(one.permission == "ALLOW" and one.operation in wanted for one in mine)
