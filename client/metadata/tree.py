"""The node tree of the in-memory metadata store: versions, children, sequences, owners.

Everything ZooKeeper decides about nodes alone is decided here, synchronously: what exists, which
version a node has, which sequence number comes next, which nodes belong to a session. Who is
connected, who waits for a change and how long an answer travels is `memory.py`'s business.

Every change has a number, ZooKeeper's zxid. While `keeps_past` is set, the tree remembers what
each change replaced, so that `as_of` can show what a server that lags behind still shows.

Sources: ZooKeeper's programmer's guide ("Data model", "Sequence nodes", "Ephemeral nodes") and
the behaviour of server 3.9, which `tests/unit/client/metadata/contract.py` compares.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from client.errors import MetadataError, NodeExists, NoNode, NotEmpty, VersionConflict
from client.metadata.store import (
    Change,
    Changed,
    Create,
    Delete,
    SetData,
    Versioned,
    check_path,
    check_size,
)


class Touched(NamedTuple):
    """What a mutation changed, as watches see it: nodes, and directories by their children."""

    nodes: tuple[str, ...] = ()
    """Paths that were created, set or deleted."""
    directories: tuple[str, ...] = ()
    """Paths whose list of children changed, and deleted paths."""


class _Node:
    __slots__ = ("children", "created_count", "ctime_ms", "data", "owner", "version")

    def __init__(self, data: bytes, ctime_ms: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.ctime_ms = ctime_ms
        self.owner = owner
        self.children: dict[str, None] = {}
        self.created_count = 0
        """Children ever created: the next sequence number. Deletes do not lower it."""

    def read(self) -> Versioned:
        return Versioned(self.data, self.version, self.ctime_ms, self.owner)

    def copy(self) -> _Node:
        twin = _Node(self.data, self.ctime_ms, self.owner)
        twin.version = self.version
        twin.children = dict(self.children)
        twin.created_count = self.created_count
        return twin


class _Replaced(NamedTuple):
    zxid: int
    """Of the change that replaced it."""
    node: _Node | None


class _Overlay(dict[str, _Node]):
    """Nodes of a tree, each copied when it is first looked at: changes leave the tree alone."""

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        super().__init__()
        self._nodes = nodes
        self._seen: dict[str, None] = {}

    def get(self, path: str, default: Any = None) -> Any:
        self._look_at(path)
        return super().get(path, default)

    def __contains__(self, path: object) -> bool:
        assert isinstance(path, str)
        self._look_at(path)
        return super().__contains__(path)

    def __getitem__(self, path: str) -> _Node:
        self._look_at(path)
        return super().__getitem__(path)

    def _look_at(self, path: str) -> None:
        if path not in self._seen:
            self._seen[path] = None
            if path in self._nodes:
                self[path] = self._nodes[path].copy()


class Readable(Protocol):
    """What reads ask: the newest tree, or that of a server which lags behind."""

    def get(self, path: str) -> Versioned:
        """Return a node. Raises NoNode."""
        ...

    def find(self, path: str) -> Versioned | None:
        """Return a node, None if it is not there."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the sorted child names. Raises NoNode."""
        ...


class Tree:
    """All nodes of one cluster. Every method is atomic; mutators return what they touched."""

    def __init__(self) -> None:
        self.zxid = 0
        """Number of the last change; those that are refused count, too."""
        self.keeps_past = False
        """Whether what is replaced from now on is kept for `as_of`."""
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}
        self._past: dict[str, deque[_Replaced]] = {}
        """By path, what changes replaced, oldest first."""
        self._past_order: deque[tuple[int, str]] = deque()
        self._is_transaction = False

    def get(self, path: str) -> Versioned:
        """Return a node. Raises NoNode."""
        return self._find(path).read()

    def find(self, path: str) -> Versioned | None:
        """Return a node, None if it is not there."""
        return self.get(path) if path in self._nodes else None

    def children(self, path: str) -> list[str]:
        """Return the sorted child names. Raises NoNode."""
        return sorted(self._find(path).children)

    def as_of(self, zxid: int) -> Readable:
        """Return the tree as it was after that change; what it replaced since must be kept."""
        return _Past(self, zxid)

    def forget_past(self, zxid: int) -> None:
        """Forget what that change and those before it replaced."""
        while self._past_order and self._past_order[0][0] <= zxid:
            path = self._past_order.popleft()[1]
            self._past[path].popleft()
            if not self._past[path]:
                del self._past[path]

    def create(
        self,
        path: str,
        data: bytes,
        *,
        now_ms: int,
        owner: int = 0,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> tuple[str, Touched]:
        """Create a node and return its final path. Raises NodeExists, NoNode."""
        self._begin()
        check_size(path, data)
        touched: list[tuple[str, str]] = []
        parent = parent_of(path)
        if make_parents:
            touched += self._make_missing(parent, now_ms)
        directory = self._find(parent)
        if directory.owner:
            raise MetadataError(f"{parent} is ephemeral and takes no children")
        if sequential:
            path = f"{path}{directory.created_count:010d}"
        if path in self._nodes:
            raise NodeExists(path)
        self._attach(path, _Node(data, now_ms, owner))
        touched.append((path, parent))
        nodes, directories = zip(*touched, strict=True)
        return path, Touched(nodes, directories)

    def multi(
        self, changes: Sequence[Change], *, now_ms: int, owner: int
    ) -> list[tuple[Changed, Touched]]:
        """Make all changes or none; `owner` is the session of ephemerals.

        Raises what the first one that is refused raises.
        """
        trial = Tree()
        trial._nodes = _Overlay(self._nodes)
        for change in changes:
            trial._change(change, now_ms, owner)
        with self._transaction():
            return [self._change(change, now_ms, owner) for change in changes]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._begin()
        self._is_transaction = True
        try:
            yield
        finally:
            self._is_transaction = False

    def _begin(self) -> None:
        if not self._is_transaction:
            self.zxid += 1

    def _change(self, change: Change, now_ms: int, owner: int) -> tuple[Changed, Touched]:
        check_path(change.path)
        match change:
            case Create(path, data, ephemeral, sequential):
                return self.create(
                    path,
                    data,
                    now_ms=now_ms,
                    owner=owner if ephemeral else 0,
                    sequential=sequential,
                )
            case SetData(path, data, version):
                return self.set(path, data, version)
            case Delete(path, version):
                return None, self.delete(path, version)

    def set(self, path: str, data: bytes, version: int) -> tuple[int, Touched]:
        """Replace a node's bytes; return its new version. Raises NoNode, VersionConflict."""
        self._begin()
        check_size(path, data)
        node = self._find(path)
        _check_version(path, node, version)
        self._remember(path)
        node.data = data
        node.version += 1
        return node.version, Touched(nodes=(path,))

    def delete(self, path: str, version: int) -> Touched:
        """Delete a leaf. Raises NoNode, NotEmpty, VersionConflict."""
        self._begin()
        node = self._find(path)
        _check_version(path, node, version)
        if node.children:
            raise NotEmpty(path)
        if path == "/":
            raise MetadataError("the root cannot be deleted")
        return self._detach(path)

    def delete_owned(self, owner: int) -> list[Touched]:
        """Delete every ephemeral of a session, in order of creation."""
        doomed = [path for path, node in self._nodes.items() if node.owner == owner]
        with self._transaction():
            return [self._detach(path) for path in doomed]

    def paths(self) -> list[str]:
        """Return every path but the root, sorted."""
        return sorted(path for path in self._nodes if path != "/")

    def _find(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _make_missing(self, path: str, now_ms: int) -> list[tuple[str, str]]:
        missing: list[str] = []
        while path not in self._nodes:
            missing.append(path)
            path = parent_of(path)
        if missing and self._nodes[path].owner:
            raise MetadataError(f"{path} is ephemeral and takes no children")
        for made in reversed(missing):
            self._attach(made, _Node(b"", now_ms, 0))
        return [(made, parent_of(made)) for made in reversed(missing)]

    def _remember(self, path: str) -> None:
        """Keep what a change is about to replace."""
        if self.keeps_past:
            node = self._nodes.get(path)
            replaced = _Replaced(self.zxid, None if node is None else node.copy())
            self._past.setdefault(path, deque()).append(replaced)
            self._past_order.append((self.zxid, path))

    def _attach(self, path: str, node: _Node) -> None:
        self._remember(path)
        self._remember(parent_of(path))
        directory = self._nodes[parent_of(path)]
        directory.children[path.rpartition("/")[2]] = None
        directory.created_count += 1
        self._nodes[path] = node

    def _detach(self, path: str) -> Touched:
        parent = parent_of(path)
        self._remember(path)
        self._remember(parent)
        del self._nodes[path]
        del self._nodes[parent].children[path.rpartition("/")[2]]
        return Touched(nodes=(path,), directories=(path, parent))


class _Past:
    """The tree as it was after a change. Implements `Readable`."""

    def __init__(self, tree: Tree, zxid: int) -> None:
        self._tree = tree
        self._zxid = zxid

    def get(self, path: str) -> Versioned:
        return self._find(path).read()

    def find(self, path: str) -> Versioned | None:
        node = self._node(path)
        return None if node is None else node.read()

    def children(self, path: str) -> list[str]:
        return sorted(self._find(path).children)

    def _find(self, path: str) -> _Node:
        node = self._node(path)
        if node is None:
            raise NoNode(path)
        return node

    def _node(self, path: str) -> _Node | None:
        for replaced in self._tree._past.get(path, ()):
            if replaced.zxid > self._zxid:
                return replaced.node
        return self._tree._nodes.get(path)


def parent_of(path: str) -> str:
    """Return the parent directory of a path; the root's parent is the root."""
    return path.rpartition("/")[0] or "/"


def _check_version(path: str, node: _Node, version: int) -> None:
    if version not in (-1, node.version):
        raise VersionConflict(f"{path} has version {node.version}, expected {version}")
