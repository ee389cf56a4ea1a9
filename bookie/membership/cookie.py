"""The cookie: proof that these directories are that bookie of that cluster.

The same text lies in the file VERSION of every data directory and in the metadata store under
`cookies/<bookie id>`. A bookie whose directory was lost must not come back under its old id: it
would answer "no such entry" for entries it once acknowledged, and a recovery would believe it
(Apache BookKeeper issue 2612). So:

    VERSION              node      log
    absent or present    absent    never used   a new bookie, or its first start was cut short
                                                (305, 544, 3306): write all of them
    equal everywhere     equal     any          go, if there are as many directories as it says
    absent in some       present   unused there the directories are to be more, if that is allowed
    anything else                               refuse

Growing by directories writes the new cookie into the new ones first, then into the node, then into
the old ones; wherever that is cut short, the next start with the same settings completes it. The
text is a line with the layout version, then protobuf text of CookieFormat. Source: Apache
BookKeeper `Cookie`, `LegacyCookieValidation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from google.protobuf import text_format

from bookie.storage.ledger_directory import Directory
from bookie.storage.replay import init_log, is_unused
from client.errors import ConfigError, ConnectionLoss, NodeExists, NoNode
from client.ids import BookieId, Rng
from client.metadata import paths
from client.metadata.bookkeeper import check_layout, read_instance_id
from client.metadata.store import MetadataStore, Versioned
from client.metadata.unreadable import ADVICE
from client.wire.bookkeeper import protobuf

FILE_NAME: Final = "VERSION"
_LAYOUT_VERSION: Final = 5


class Cookie(NamedTuple):
    """Who this bookie is, where it keeps its data, and which cluster it belongs to."""

    bookie_id: BookieId
    directories: tuple[str, ...]
    instance_id: str

    def encode(self) -> bytes:
        """Return the text, as Apache BookKeeper writes it."""
        message = protobuf.CookieFormat(
            bookieHost=self.bookie_id,
            journalDir=",".join(self.directories),
            ledgerDirs="\t".join((str(len(self.directories)), *self.directories)),
            instanceId=self.instance_id,
        )
        return f"{_LAYOUT_VERSION}\n{text_format.MessageToString(message)}".encode()


def decode_cookie(text: bytes, where: str) -> Cookie:
    """Parse a cookie. Raises ConfigError when it is not one."""
    version, _, body = text.partition(b"\n")
    if version != b"%d" % _LAYOUT_VERSION:
        raise ConfigError(f"the cookie in {where} has layout version {version[:20]!r}")
    try:
        return _parse(body)
    except ValueError as error:
        raise ConfigError(f"the cookie in {where} cannot be parsed: {error}") from error


@lru_cache(maxsize=16)  # a start finds the same text in every directory and in the store
def _parse(body: bytes) -> Cookie:
    """Return the cookie in a text without its first line. Raises ValueError."""
    message = protobuf.CookieFormat()
    protobuf.parse_text(body, message)
    directories = tuple(message.ledgerDirs.split("\t")[1:])
    return Cookie(BookieId(message.bookieHost), directories, message.instanceId)


async def admit(
    store: MetadataStore,
    directories: Sequence[Directory],
    *,
    bookie_id: BookieId,
    may_grow: bool,
    root: str,
    rng: Rng,
) -> Cookie:
    """Check the cookies, or write them for a new bookie; return the one that holds.

    `may_grow`: directories may have been added. Raises ConfigError when the directories are not
    this bookie's, MetadataCorrupt for a tree that is not ours, MetadataErrors.
    """
    # A server that lags shows neither a cluster that was just made nor a cookie that just went.
    await store.sync(root)
    try:
        await check_layout(store, root=root)
        instance_id = await read_instance_id(store, root=root)
    except NoNode as error:
        raise ConfigError(
            f"there is no cluster at {root} in the metadata store: run `quire metadata init` first"
        ) from error
    wanted = Cookie(bookie_id, tuple(directory.path for directory in directories), instance_id)
    local = {directory.path: _load(directory) for directory in directories}
    for path, found in local.items():
        if found is not None:
            _check(found, path, wanted)
    node = await _load_node(store, paths.cookie(bookie_id, root))
    if node is None:
        _check_unused(directories, local, bookie_id)
        return await _write_first(store, directories, wanted, rng, root)
    known = _decode_node(store, paths.cookie(bookie_id, root), node)
    if all(found == known for found in local.values()):
        _check_count(known, wanted)
        return known
    return await _grow(store, directories, local, wanted, node, may_grow, rng, root)


def _load(directory: Directory) -> Cookie | None:
    text = directory.disk.load(FILE_NAME)
    return None if text is None else decode_cookie(text, f"{FILE_NAME} of {directory.path}")


def _check(cookie: Cookie, path: str, wanted: Cookie) -> None:
    if cookie.bookie_id != wanted.bookie_id:
        raise ConfigError(f"the data directory {path} belongs to bookie {cookie.bookie_id}")
    if cookie.instance_id != wanted.instance_id:
        raise ConfigError(
            f"the data directory {path} belongs to cluster {cookie.instance_id},"
            f" this is {wanted.instance_id}"
        )


def _check_unused(
    directories: Sequence[Directory], local: Mapping[str, Cookie | None], bookie_id: BookieId
) -> None:
    for directory in directories:
        if is_unused(directory.disk):
            continue
        if local[directory.path] is None:
            raise ConfigError(f"{directory.path} holds a log but no VERSION: it cannot be trusted")
        raise ConfigError(
            f"bookie {bookie_id} has data but no cookie in the metadata store:"
            " it was removed from the cluster"
        )


def _check_count(known: Cookie, wanted: Cookie) -> None:
    if len(known.directories) != len(wanted.directories):
        raise ConfigError(
            f"bookie {wanted.bookie_id} keeps its data in {len(known.directories)} directories"
            f" ({', '.join(known.directories)}), but {len(wanted.directories)} are given"
        )


async def _write_first(
    store: MetadataStore,
    directories: Sequence[Directory],
    wanted: Cookie,
    rng: Rng,
    root: str,
) -> Cookie:
    text = wanted.encode()
    for directory in directories:
        # First, so that a VERSION without a checkpoint is proof of loss.
        init_log(directory.disk, rng)
        directory.disk.save(FILE_NAME, text)
    path = paths.cookie(wanted.bookie_id, root)
    try:
        await store.create(path, text, make_parents=True)
    except (NodeExists, ConnectionLoss):
        await store.sync(path)  # one whose answer was lost may still be on its way
        found = _decode_node(store, path, await store.get(path))
        if found != wanted:
            raise ConfigError(
                f"the cookie of bookie {wanted.bookie_id} in the metadata store"
                " belongs to another bookie"
            ) from None
    return wanted


async def _grow(
    store: MetadataStore,
    directories: Sequence[Directory],
    local: Mapping[str, Cookie | None],
    wanted: Cookie,
    node: Versioned,
    may_grow: bool,
    rng: Rng,
    root: str,
) -> Cookie:
    """Take empty directories in, or complete what was cut short. Raises ConfigError."""
    known = decode_cookie(node.data, "the metadata store")
    if known == wanted:
        # Cut short behind the node: all directories are ours, some still say what was before.
        is_right = None not in local.values()
    else:
        old = [d for d in directories if local[d.path] == known]
        new = [d for d in directories if local[d.path] in (None, wanted) and is_unused(d.disk)]
        is_right = may_grow and len(old) == len(known.directories) == len(directories) - len(new)
    if not is_right:
        raise ConfigError(_what_is_wrong(known, local))
    # With what only another release understands.
    text = wanted.encode() + protobuf.unknown_text(node.data, protobuf.CookieFormat())
    for directory in directories:
        if local[directory.path] is None:
            init_log(directory.disk, rng)
            directory.disk.save(FILE_NAME, text)
    if known != wanted:
        await store.set(paths.cookie(wanted.bookie_id, root), text, node.version)
    for directory in directories:
        directory.disk.save(FILE_NAME, text)
    return wanted


def _what_is_wrong(known: Cookie, local: Mapping[str, Cookie | None]) -> str:
    for path, found in local.items():
        if found is None:
            return (
                f"bookie {known.bookie_id} is known to the cluster, but {path} is not a data"
                " directory of it (there is no VERSION in it): give the right --data-dir, or a"
                " new --bookie-id; an empty directory can be added with --allow-storage-expansion"
            )
    wrong = next(path for path, found in local.items() if found != known)
    return f"the cookie of bookie {known.bookie_id} is not the one in {wrong}"


def _decode_node(store: MetadataStore, path: str, node: Versioned) -> Cookie:
    """Raises ConfigError, which names the node and says what to do; so does the log."""
    try:
        return store.unreadable.decode(path, node.data, partial(decode_cookie, where=path))
    except ConfigError as error:
        raise ConfigError(f"{error}; {ADVICE}") from error


async def _load_node(store: MetadataStore, path: str) -> Versioned | None:
    try:
        return await store.get(path)
    except NoNode:
        return None
