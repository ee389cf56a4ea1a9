"""The cookie: proof that this data directory is that bookie of that cluster.

The same text lies in the file VERSION of the data directory and in the metadata store under
`cookies/<bookie id>`. A bookie whose directory was lost must not come back under its old id: it
would answer "no such entry" for entries it once acknowledged, and a recovery would believe it
(Apache BookKeeper issue 2612). So:

    VERSION   node      log
    absent    absent    never used   a new bookie: write both
    present   absent    never used   the first start was cut short: write the node
    present   equal     any          go
    anything else                    refuse

The text is a line with the layout version, then protobuf text of CookieFormat. This file is the
only home of it. Source: Apache BookKeeper `Cookie`, `LegacyCookieValidation`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf import text_format

from bookie.disk import Disk
from bookie.replay import init_log, is_unused
from client.errors import ConfigError, ConnectionLoss, NodeExists, NoNode
from client.ids import BookieId, Rng
from client.metadata import paths
from client.metadata.bookkeeper import check_layout, read_instance_id
from client.metadata.store import MetadataStore
from client.wire.bookkeeper import protobuf

FILE_NAME: Final = "VERSION"
_LAYOUT_VERSION: Final = 5


class Cookie(NamedTuple):
    """Who this bookie is, where it keeps its data, and which cluster it belongs to."""

    bookie_id: BookieId
    data_dir: str
    instance_id: str

    def encode(self) -> bytes:
        """Return the text, as Apache BookKeeper writes it for one journal and ledger directory."""
        message = protobuf.CookieFormat(
            bookieHost=self.bookie_id,
            journalDir=self.data_dir,
            ledgerDirs=f"1\t{self.data_dir}",
            instanceId=self.instance_id,
        )
        return f"{_LAYOUT_VERSION}\n{text_format.MessageToString(message)}".encode()


def decode_cookie(text: bytes, where: str) -> Cookie:
    """Parse a cookie. Raises ConfigError when it is not one."""
    version, _, body = text.decode("utf-8", "replace").partition("\n")
    if version != str(_LAYOUT_VERSION):
        raise ConfigError(f"the cookie in {where} has layout version {version!r}")
    message = protobuf.CookieFormat()
    try:
        text_format.Parse(body, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise ConfigError(f"the cookie in {where} cannot be parsed: {error}") from error
    return Cookie(BookieId(message.bookieHost), message.journalDir, message.instanceId)


async def admit(
    store: MetadataStore, disk: Disk, *, bookie_id: BookieId, data_dir: str, root: str, rng: Rng
) -> None:
    """Check the cookie, or write it for a new bookie.

    Raises ConfigError when the directory is not this bookie's, MetadataCorrupt for a tree that
    is not ours, MetadataErrors.
    """
    try:
        await check_layout(store, root=root)
        instance_id = await read_instance_id(store, root=root)
    except NoNode as error:
        raise ConfigError(
            f"there is no cluster at {root} in the metadata store: initialise it first"
        ) from error
    local = disk.load(FILE_NAME)
    remote = await _load_node(store, paths.cookie(bookie_id, root))
    if local is None:
        if remote is not None:
            raise ConfigError(
                f"bookie {bookie_id} is known to the cluster, but {data_dir} is not its data"
                " directory (there is no VERSION in it): give the right --data-dir, or a new"
                " --bookie-id"
            )
        if not is_unused(disk):
            raise ConfigError(f"{data_dir} holds a log but no VERSION: it cannot be trusted")
        # First, so that a VERSION without a checkpoint is proof of loss.
        init_log(disk, rng)
        local = Cookie(bookie_id, data_dir, instance_id).encode()
        disk.save(FILE_NAME, local)
    _check(decode_cookie(local, FILE_NAME), bookie_id, instance_id)
    if remote is None:
        if not is_unused(disk):
            raise ConfigError(
                f"bookie {bookie_id} has data but no cookie in the metadata store:"
                " it was removed from the cluster"
            )
        remote = await _make_node(store, paths.cookie(bookie_id, root), local)
    if decode_cookie(remote, "the metadata store") != decode_cookie(local, FILE_NAME):
        raise ConfigError(f"the cookie of bookie {bookie_id} is not the one in {data_dir}")


def _check(cookie: Cookie, bookie_id: BookieId, instance_id: str) -> None:
    if cookie.bookie_id != bookie_id:
        raise ConfigError(f"the data directory belongs to bookie {cookie.bookie_id}")
    if cookie.instance_id != instance_id:
        raise ConfigError(
            f"the data directory belongs to cluster {cookie.instance_id}, this is {instance_id}"
        )


async def _load_node(store: MetadataStore, path: str) -> bytes | None:
    try:
        return (await store.get(path)).data
    except NoNode:
        return None


async def _make_node(store: MetadataStore, path: str, text: bytes) -> bytes:
    """Create the node and return what is in it."""
    try:
        await store.create(path, text, make_parents=True)
    except (NodeExists, ConnectionLoss):
        return (await store.get(path)).data
    return text
