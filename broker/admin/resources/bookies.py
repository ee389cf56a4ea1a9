"""/bookies and /under-replication: the storage, as the metadata store shows it.

Every bookie that ever joined has a cookie; one that is running is registered, as writable or as
read-only. How full its disk is comes from its own admin server, if it has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from broker.admin.context import AdminContext
from broker.admin.operation import Operation, Role
from broker.admin.pages import QUERY, number_after, page
from broker.admin.problems import Problem
from broker.admin.request import JSON, AdminRequest, Answer
from broker.admin.schema import Schema, list_of, nullable, page_of, record, ref, text, whole
from broker.leadership.orphan_ledgers import purpose_of
from client.errors import BookieUnavailable, LedgerError, NoNode
from client.ids import BookieId, LedgerId
from client.ledger.bookies.bookie_directory import ServiceInfo, parse_service_info
from client.ledger.under_replication import read_mark
from client.metadata import paths
from client.metadata.store import MetadataStore, Versioned

WRITABLE: Final = "writable"
READ_ONLY: Final = "read_only"
DOWN: Final = "down"
STATES: Final = (WRITABLE, READ_ONLY, DOWN)
_READONLY_CHILD: Final = "readonly"
_MARK_LEVELS: Final = 4
_MARK: Final = "urL"

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Bookie": record(
        "A bookie. What only the bookie itself knows is null while it does not answer.",
        {
            "bookie_id": text("Its id."),
            "state": text(
                "down: not registered, its ledgers lack copies until it is back or they are"
                " copied.",
                enum=[*STATES],
            ),
            "registered_ms": nullable(whole("Since when it is in this state.")),
            "address": nullable(text("Where it listens.")),
            "rack": nullable(text("Its failure domain.")),
            "admin_url": nullable(text("Its admin server.")),
            "disk_free_bytes": nullable(whole("Free space.")),
            "disk_total_bytes": nullable(whole("Size of its disk.")),
        },
    ),
    "BookiePage": page_of(ref("Bookie"), "Bookies by id."),
    "UnderReplicated": record(
        "A ledger that lacks copies.",
        {
            "ledger_id": whole("The ledger."),
            "topic": nullable(text("The topic that it was made for; null: not known, or none.")),
            "partition": nullable(whole("The partition.")),
            "bookies": list_of(text("A bookie."), "Whose copies are missing."),
            "since_ms": nullable(whole("When that was noticed.")),
        },
    ),
    "UnderReplicatedPage": page_of(ref("UnderReplicated"), "Ledgers by id."),
}


async def states(context: AdminContext) -> dict[BookieId, str]:
    """Return every bookie that ever was, with its state, by id. Raises MetadataError."""
    root = context.config.ledger.ledgers_root
    store = context.broker.store
    lists = await asyncio.gather(
        _children(store, paths.cookies(root)),
        _children(store, paths.readonly(root)),
        _children(store, paths.available(root)),
    )
    found: dict[BookieId, str] = {}
    for state, names in zip((DOWN, READ_ONLY, WRITABLE), lists, strict=True):
        found |= {BookieId(name): state for name in names if name != _READONLY_CHILD}
    return dict(sorted(found.items()))


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNode:
        return []


async def list_bookies(context: AdminContext, request: AdminRequest) -> Answer:
    """List the bookies."""
    found = await states(context)
    answer = await page(
        context.broker.services.turns,
        found.items(),
        request.query,
        lambda one: one[0],
        lambda one: one,
    )
    shown = (_describe(context, bookie, state) for bookie, state in answer.body["items"])
    answer.body["items"] = await asyncio.gather(*shown)
    return answer


async def describe_bookie(context: AdminContext, request: AdminRequest) -> Answer:
    """Describe a bookie."""
    bookie = BookieId(request.path["bookie"])
    state = (await states(context)).get(bookie)
    if state is None:
        raise Problem(
            404, "unknown-bookie", f"there is no bookie {bookie!r}",
            "GET /admin/v1/bookies lists the bookies.", field="bookie",
        )  # fmt: skip
    return Answer(await _describe(context, bookie, state))


async def _describe(context: AdminContext, bookie: BookieId, state: str) -> dict[str, Any]:
    node = None if state == DOWN else await _registration(context, bookie, state)
    info = _service_info(bookie, node)
    url = None if info is None else info.admin_url
    disk = await context.peer_client.ask_bookie(f"{url}/api/v1/bookie/info") if url else None
    return {
        "bookie_id": bookie,
        "state": state,
        "registered_ms": None if node is None else node.ctime_ms,
        "address": None if info is None else f"{info.address.host}:{info.address.port}",
        "rack": None if info is None else info.rack,
        "admin_url": url,
        "disk_free_bytes": None if disk is None else disk.get("freeSpace"),
        "disk_total_bytes": None if disk is None else disk.get("totalSpace"),
    }


async def _registration(context: AdminContext, bookie: BookieId, state: str) -> Versioned | None:
    root = context.config.ledger.ledgers_root
    path_of = paths.available_bookie if state == WRITABLE else paths.readonly_bookie
    try:
        return await context.broker.store.get(path_of(bookie, root))
    except NoNode:
        return None  # it went, or changed its state, at this moment


def _service_info(bookie: BookieId, node: Versioned | None) -> ServiceInfo | None:
    try:
        return None if node is None else parse_service_info(bookie, node.data)
    except BookieUnavailable:
        return None  # it says nothing


async def list_under_replicated(context: AdminContext, request: AdminRequest) -> Answer:
    """List the ledgers that lack copies."""
    root = context.config.ledger.ledgers_root
    after, limit = number_after(request.query), request.query["limit"]
    names = {topic.id_text: topic.name for topic in context.broker.cluster.topics.values()}
    found: list[dict[str, Any]] = []
    more = False
    async for ledger_id in marked_ledgers(context.broker.store, root):
        if ledger_id <= after:
            continue
        if len(found) == limit:
            more = True
            break
        mark = await read_mark(context.broker.store, ledger_id, root=root)
        if mark is not None:
            topic, partition = await _use(context, ledger_id, names)
            found.append(
                {
                    "ledger_id": ledger_id,
                    "topic": topic,
                    "partition": partition,
                    "bookies": list(mark.bookies),
                    "since_ms": mark.ctime_ms,
                }
            )
    return Answer({"items": found, "next": str(found[-1]["ledger_id"]) if more else None})


async def _use(
    context: AdminContext, ledger_id: LedgerId, names: Mapping[str, str]
) -> tuple[str | None, int | None]:
    """Return (topic, partition) that a ledger was made for, as far as that is known."""
    try:
        metadata = await context.broker.ledgers.describe(ledger_id)
    except LedgerError:
        return None, None  # deleted meanwhile, or not readable; the mark says enough
    purpose = purpose_of(metadata.custom_metadata)
    if purpose is None or purpose.topic_id not in names:
        return None, None
    return names[purpose.topic_id], purpose.partition


async def marked_ledgers(store: MetadataStore, root: str) -> AsyncIterator[LedgerId]:
    """Walk the ledgers that are marked as lacking copies, by id. Raises MetadataError."""
    directories = [paths.under_replicated_ledgers(root)]
    for _ in range(_MARK_LEVELS):
        directories = [
            f"{directory}/{name}"
            for directory in directories
            for name in await _children(store, directory)
        ]
    for directory in directories:
        for name in await _children(store, directory):
            yield LedgerId(int(name.removeprefix(_MARK)))


OPERATIONS: Final = (
    Operation(
        name="list_bookies", role=Role.LOOK,
        method="GET", path="/bookies", summary="List the bookies.",
        handle=list_bookies, query=QUERY, gives={JSON: ref("BookiePage")},
    ),
    Operation(
        name="describe_bookie", role=Role.LOOK, method="GET", path="/bookies/{bookie}",
        summary="Describe a bookie.", handle=describe_bookie, gives={JSON: ref("Bookie")},
        problems=(404,),
    ),
    Operation(
        name="list_under_replicated", role=Role.LOOK, method="GET", path="/under-replication",
        summary="List the ledgers that lack copies.", handle=list_under_replicated, query=QUERY,
        gives={JSON: ref("UnderReplicatedPage")},
    ),
)  # fmt: skip
