"""The metadata store interface: a tree of small versioned nodes with sessions.

Covers what the rest of Quire may expect from ZooKeeper. Two implementations stand behind it:
`memory.py` (sessions can be expired by a test or by the simulator) and `zookeeper.py`. One
contract suite runs on both.

Semantics, all from ZooKeeper:

- A node has bytes, a version that starts at 0 and grows by one with every set, and children.
- `create`, `set` and `delete` are linearizable; reads may lag on another server but never go
  back for one session.
- An ephemeral node disappears when the session that made it ends.
- Watches fire once, on the event loop, as a plain call without arguments. They say "look
  again", not what changed. A watch fires before any later read of this session can see the
  change. One callable that waits on one path twice, by the same call, is called once.
- After every interruption (`SUSPENDED`, with or without `EXPIRED`), as soon as a session is there
  again, the session listeners hear `CONNECTED` and then every pending watch fires once, whether
  something changed or not.
- `ConnectionLoss` on create, set, delete or multi means the operation may have happened: the caller
  must read back and recognise its own write.
- An operation that starts during an interruption waits for the connection: it runs after
  `CONNECTED`, fails with `SessionExpired` when the session turns out to be gone, and with
  `ConnectionLoss` when a session timeout has passed without a connection.
- After `close` every operation raises `SessionExpired`, and no watch or listener is called.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from client.errors import MetadataError
from client.metadata.unreadable import UnreadableNodes

NODE_BYTES_MAX: Final = 1_000_000
"""Largest node: ZooKeeper drops connections that carry more than 1 MiB (`jute.maxbuffer`)."""
_NORMAL_PATH: Final = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[^/]+)+")
"""No empty part, none that is "." or ".."."""


class Versioned(NamedTuple):
    """A node as read: its bytes, data version, creation time and owner session."""

    data: bytes
    version: int
    ctime_ms: int
    ephemeral_owner: int
    """Session id that made it; 0 for a persistent node."""


class Create(NamedTuple):
    """Make a node, whose parent is there; see `MetadataStore.create`."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace a node's bytes; see `MetadataStore.set`."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a node; see `MetadataStore.delete`."""

    path: str
    version: int = -1


Change = Create | SetData | Delete
Changed = str | int | None
"""What a change came to: the path of a node that was made, the new version of one that was set."""


class SessionState(enum.Enum):
    """What a session listener is told."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No server answers right now; our ephemerals may be gone soon."""
    EXPIRED = "expired"
    """Our ephemerals are gone. The store opens a new session by itself."""


Watcher = Callable[[], None]
SessionListener = Callable[[SessionState], None]


class MetadataStore(Protocol):
    """One session with the metadata store. All coroutines raise `MetadataError`s."""

    unreadable: UnreadableNodes
    """Nodes whose bytes whoever reads them through this session cannot decode."""

    @property
    def session_id(self) -> int:
        """Id of the current session; 0 while there is none."""
        ...

    @property
    def state(self) -> SessionState:
        """Current state of the session."""
        ...

    def add_session_listener(self, listener: SessionListener) -> None:
        """Call `listener` on every session state change, on the event loop."""
        ...

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        """Read a node. The watch fires on set or delete. Raises NoNode (no watch is left)."""
        ...

    async def exists(self, path: str, watcher: Watcher | None = None) -> Versioned | None:
        """Like `get`, but None for an absent node; then the watch fires on its creation.

        `Versioned.data` is empty here: only version, ctime_ms and ephemeral_owner count.
        """
        ...

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        """Return child names, sorted. The watch fires when a child comes or goes. Raises NoNode."""
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node at version 0 and return its path (with the 10-digit sequence appended).

        Raises NodeExists, NoNode (parent absent and not make_parents), ConnectionLoss.
        """
        ...

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        """Replace a node's bytes if its version matches (-1: any); return the new version.

        Raises NoNode, VersionConflict, ConnectionLoss (unknown outcome).
        """
        ...

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNode, NotEmpty, VersionConflict, ConnectionLoss."""
        ...

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        """Make several changes, at least one, in one transaction: all or none, in their order.

        Raises what the first that is refused raises alone (nothing has happened then), and
        ConnectionLoss and SessionExpired: all may have happened, or none.
        """
        ...

    async def get_many(
        self, paths: Sequence[str], watchers: Sequence[Watcher] = ()
    ) -> list[Versioned | None]:
        """Read several nodes, at least one, in one request; None: there is no such node.

        `watchers`: one for each path, or none. Each waits as that of `get` does, from when this
        has returned; for what changes before, it may fire though the change was read.
        """
        ...

    async def sync(self, path: str) -> None:
        """Return once this session's server has caught up with the leader."""
        ...

    async def close(self) -> None:
        """End the session: its ephemerals disappear at once."""
        ...


def check_path(path: str) -> None:
    """Raise ValueError unless `path` is absolute and normal. For implementations."""
    if path != "/" and _NORMAL_PATH.fullmatch(path) is None:
        raise ValueError(f"not a node path: {path!r}")


def check_size(path: str, data: bytes) -> None:
    """Raise MetadataError if `data` is larger than a node may be. For implementations."""
    if len(data) > NODE_BYTES_MAX:
        raise MetadataError(f"{path} would hold {len(data)} bytes, the limit is {NODE_BYTES_MAX}")
