"""Paths of the admin server about the whole cluster, as Apache BookKeeper's bookies have them.

    DELETE   /api/v1/ledger/delete?ledger_id=
    GET      /api/v1/ledger/list?print_metadata=     {id: metadata, or null}
    GET      /api/v1/ledger/metadata?ledger_id=
    GET      /api/v1/ledger/read?ledger_id=&start_entry_id=&end_entry_id=     {entry: payload}
    GET      /api/v1/bookie/list_bookies?type=rw|ro&print_hostnames=          {id: host, or null}
    GET      /api/v1/bookie/list_bookie_info         free and total space of each
    GET      /api/v1/bookie/cluster_info             counts, the auditor, the switch
    GET PUT  /api/v1/autorecovery/status             {enabled}; ?enabled=true switches
    GET      /api/v1/autorecovery/who_is_auditor
    GET      /api/v1/autorecovery/list_under_replicated_ledger?print_missing_replica=
    PUT      /api/v1/autorecovery/trigger_audit
    GET PUT  /api/v1/autorecovery/lost_bookie_recovery_delay                  {delay_seconds}
    PUT      /api/v1/autorecovery/decommission       {bookie_src}
    PUT      /api/v1/autorecovery/bookie             {bookie_src: [...], delete_cookie}

The last two take long: they are answered when they have begun, and the log tells how they end.
Everything is done as any client would do it; the bookie itself has no part in it.

Source: Apache BookKeeper `HttpRouter` and the services behind it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from client.autorecovery.census import ask
from client.autorecovery.config import AutoRecoveryConfig
from client.autorecovery.decommission import Decommission
from client.autorecovery.fragment_replicator import FragmentReplicator
from client.autorecovery.tree import ReplicationTree
from client.errors import LedgerError, MetadataError, NoNode, QuireError
from client.ids import BookieId, Clock, LedgerId, Rng
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.ledger_metadata import LedgerMetadata
from client.ledger.under_replication import read_mark
from client.metadata import paths
from client.metadata.store import MetadataStore
from client.node import background
from client.node.http_bodies import parse_json, read_body
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from client.wire.bookkeeper.messages import BookieInfoRequest, BookieInfoResponse

logger = logging.getLogger(__name__)

_READ_ENTRIES_MAX: Final = 1000
_ASK_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 2.0
_GB: Final = 1e9


class ClusterAdmin:
    """The cluster as one of its bookies shows it."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        me: BookieId,
        root: str,
        clock: Clock,
        rng: Rng,
        security: ClusterSecurity = OPEN_CLUSTER,
    ) -> None:
        """`me`: the name under which the under-replication tree is used; `security`: how other
        bookies are reached."""
        self._security = security
        self._store = store
        self._root = root
        self._clock = clock
        self._rng = rng
        self._tree = ReplicationTree(store, me, root)
        self._working: set[asyncio.Task[None]] = set()
        """Long work that was begun."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths for the admin server."""
        recovery = "/api/v1/autorecovery"
        return [
            web.delete("/api/v1/ledger/delete", self._delete_ledger),
            web.get("/api/v1/ledger/list", self._list_ledgers),
            web.get("/api/v1/ledger/metadata", self._ledger_metadata),
            web.get("/api/v1/ledger/read", self._read_ledger),
            web.get("/api/v1/bookie/list_bookies", self._list_bookies),
            web.get("/api/v1/bookie/list_bookie_info", self._list_bookie_info),
            web.get("/api/v1/bookie/cluster_info", self._cluster_info),
            web.get(f"{recovery}/status", self._recovery_status),
            web.put(f"{recovery}/status", self._switch_recovery),
            web.get(f"{recovery}/who_is_auditor", self._who_is_auditor),
            web.get(f"{recovery}/list_under_replicated_ledger", self._list_marked),
            web.put(f"{recovery}/trigger_audit", self._trigger_audit),
            web.get(f"{recovery}/lost_bookie_recovery_delay", self._get_delay),
            web.put(f"{recovery}/lost_bookie_recovery_delay", self._set_delay),
            web.put(f"{recovery}/decommission", self._decommission),
            web.put(f"{recovery}/bookie", self._recover_bookies),
        ]

    @asynccontextmanager
    async def _ledgers(self) -> AsyncIterator[LedgerClient]:
        config = LedgerClientConfig(ledgers_root=self._root)
        client = LedgerClient(
            self._store, rng=self._rng, clock=self._clock, config=config, bookies=self._security
        )
        async with client:
            yield client

    async def _delete_ledger(self, request: web.Request) -> web.Response:
        ledger_id = _number(request, "ledger_id")
        async with self._ledgers() as client:
            await client.describe(ledger_id)
            await client.delete(ledger_id)
        return web.Response(text=f"Deleted ledger: {ledger_id}\n")

    async def _list_ledgers(self, request: web.Request) -> web.Response:
        is_preferred = request.query.get("print_metadata", "false") == "true"
        found: dict[str, str | None] = {}
        async with self._ledgers() as client:
            async for ledger_id in client.ledgers():
                found[str(ledger_id)] = None
                if is_preferred:
                    try:
                        found[str(ledger_id)] = _describe(await client.describe(ledger_id))
                    except LedgerError as error:
                        found[str(ledger_id)] = str(error)
        return web.json_response(found)

    async def _ledger_metadata(self, request: web.Request) -> web.Response:
        ledger_id = _number(request, "ledger_id")
        async with self._ledgers() as client:
            return web.json_response({str(ledger_id): _describe(await client.describe(ledger_id))})

    async def _read_ledger(self, request: web.Request) -> web.Response:
        """Payloads as text; what is no text shows as replacement characters."""
        ledger_id = _number(request, "ledger_id")
        first = _number(request, "start_entry_id", 0)
        async with self._ledgers() as client:
            reader = await client.open(ledger_id, password=None)
            last = min(_number(request, "end_entry_id", reader.last_entry), reader.last_entry)
            last = min(last, first + _READ_ENTRIES_MAX - 1)
            entries = await reader.read(first, last) if first <= last else []
        return web.json_response(
            {str(each.entry_id): bytes(each.payload).decode(errors="replace") for each in entries}
        )

    async def _list_bookies(self, request: web.Request) -> web.Response:
        kind = request.query.get("type", "rw")
        if kind not in ("rw", "ro"):
            raise web.HTTPBadRequest(text="type must be rw or ro\n")
        has_hosts = request.query.get("print_hostnames", "false") == "true"
        async with self._ledgers() as client:
            bookies = client.context.bookies
            listed = bookies.writable if kind == "rw" else bookies.readonly
        return web.json_response(
            {name: name.rpartition(":")[0] if has_hosts else None for name in listed}
        )

    async def _list_bookie_info(self, _request: web.Request) -> web.Response:
        found: dict[str, str] = {}
        sums = [0, 0]
        async with self._ledgers() as client:
            bookies = client.context.bookies
            for name in (*bookies.writable, *bookies.readonly):
                space = await space_of(client, name)
                if space is None:
                    found[name] = ": does not answer"
                    continue
                found[name] = f": {_space(*space)}"
                sums = [known + more for known, more in zip(sums, space, strict=True)]
        found["ClusterInfo: "] = _space(sums[0], sums[1])
        return web.json_response(found)

    async def _cluster_info(self, _request: web.Request) -> web.Response:
        ever = await self._tree.bookies_ever()
        now = await self._tree.bookies_now()
        writable = await self._store.children(paths.available(self._root))
        auditor = await self._tree.auditor()
        writable_count = sum(name in writable for name in now)
        return web.json_response(
            {
                "auditorElected": auditor is not None,
                "auditorId": auditor or "",
                "clusterUnderReplicated": bool(await self._tree.marked_ledgers()),
                "ledgerReplicationEnabled": not await self._tree.switches.is_disabled(),
                "totalBookiesCount": len({*ever, *now}),
                "writableBookiesCount": writable_count,
                "readonlyBookiesCount": len(now) - writable_count,
                "unavailableBookiesCount": len({*ever}.difference(now)),
            }
        )

    async def _recovery_status(self, _request: web.Request) -> web.Response:
        return web.json_response({"enabled": not await self._tree.switches.is_disabled()})

    async def _switch_recovery(self, request: web.Request) -> web.Response:
        wanted = request.query.get("enabled")
        if wanted not in ("true", "false"):
            raise web.HTTPBadRequest(text="say ?enabled=true or ?enabled=false\n")
        await (self._tree.switches.enable() if wanted == "true" else self._tree.switches.disable())
        return await self._recovery_status(request)

    async def _who_is_auditor(self, _request: web.Request) -> web.Response:
        auditor = await self._tree.auditor()
        if auditor is None:
            raise web.HTTPNotFound(text="No auditor elected\n")
        return web.json_response({"Auditor": auditor})

    async def _list_marked(self, request: web.Request) -> web.Response:
        """A list of ids, or with the missing bookies a map; only those that miss, or do not."""
        missing = request.query.get("missingreplica")
        excluded = request.query.get("excludingmissingreplica")
        found: dict[LedgerId, list[BookieId]] = {}
        for ledger_id in sorted(await self._tree.marked_ledgers()):
            mark = await read_mark(self._store, ledger_id, root=self._root)
            if mark is None or (missing and missing not in mark.bookies):
                continue
            if not excluded or excluded not in mark.bookies:
                found[ledger_id] = list(mark.bookies)
        if not found:
            raise web.HTTPNotFound(text="No under replicated ledgers found\n")
        if request.query.get("print_missing_replica", "false") == "true":
            return web.json_response({str(key): names for key, names in found.items()})
        return web.json_response(list(found))

    async def _trigger_audit(self, _request: web.Request) -> web.Response:
        await self._tree.switches.trigger()
        return web.Response(text="Success trigger audit.\n")

    async def _get_delay(self, _request: web.Request) -> web.Response:
        delay = await self._tree.switches.delay()
        seconds = 0 if delay is None else int(delay.seconds)
        return web.json_response({"lostBookieRecoveryDelay": seconds})

    async def _set_delay(self, request: web.Request) -> web.Response:
        wanted = (await _body(request)).get("delay_seconds")
        if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
            raise web.HTTPBadRequest(text='the body must be {"delay_seconds": SECONDS}\n')
        await self._tree.switches.set_delay(wanted)
        return web.Response(text=f"Success set lost bookie recovery delay to {wanted}\n")

    async def _decommission(self, request: web.Request) -> web.Response:
        bookie = (await _body(request)).get("bookie_src")
        if not isinstance(bookie, str):
            raise web.HTTPBadRequest(text='the body must be {"bookie_src": ID}\n')
        self._begin("decommission", bookie, self._do_decommission(BookieId(bookie)))
        return web.Response(text=f"Success send decommission Bookie command {bookie}\n")

    async def _do_decommission(self, bookie: BookieId) -> None:
        async with self._ledgers() as client:
            departure = Decommission(self._store, self._tree, client, bookie, self._root)
            await departure.decommission(_POLL_S, lambda left: None)

    async def _recover_bookies(self, request: web.Request) -> web.Response:
        asked = await _body(request)
        bookies = asked.get("bookie_src")
        forget = asked.get("delete_cookie", False)
        is_list = isinstance(bookies, list) and all(isinstance(each, str) for each in bookies)
        if not bookies or not is_list or not isinstance(forget, bool):
            text = 'the body must be {"bookie_src": [ID, ...], "delete_cookie": true or false}\n'
            raise web.HTTPBadRequest(text=text)
        for each in map(BookieId, bookies):
            self._begin("recover", each, self._do_recover(each, forget))
        return web.Response(text="Success send recovery request command.\n")

    async def _do_recover(self, bookie: BookieId, forget: bool) -> None:
        async with self._ledgers() as client:
            departure = Decommission(self._store, self._tree, client, bookie, self._root)
            replicator = FragmentReplicator(
                client, batch_entries=AutoRecoveryConfig().batch_entries
            )
            done = await departure.recover(replicator)
            if done.lacking:
                raise QuireError(f"{len(done.lacking)} ledgers could not be repaired")
            if forget:
                await self._store.delete(paths.cookie(bookie, self._root))

    def _begin(self, what: str, bookie: str, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            logger.info("work.begins work=%s bookie=%s", what, bookie)
            try:
                await work
            except (QuireError, NoNode) as error:
                logger.error("work.failed work=%s bookie=%s error=%s", what, bookie, error)
                return
            logger.info("work.done work=%s bookie=%s", what, bookie)

        task = background.begin(run(), f"work {what}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)


async def space_of(client: LedgerClient, bookie: BookieId) -> tuple[int, int] | None:
    """Ask a bookie for its free and its whole space in bytes; None if it does not say."""
    request = BookieInfoRequest(total_capacity=True, free_space=True)
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            answer = await ask(client.context.bookies, bookie, request)
    except (TimeoutError, MetadataError):
        return None
    if not isinstance(answer, BookieInfoResponse) or answer.free_space is None:
        return None
    return answer.free_space, answer.total_capacity or 0


def _space(free: int, total: int) -> str:
    return f"{{Free: {free}({free / _GB:.3f}GB), Total: {total}({total / _GB:.3f}GB)}}"


def _number(request: web.Request, name: str, default: int | None = None) -> int:
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    if text is None or re.fullmatch("[0-9]{1,19}", text) is None:
        raise web.HTTPBadRequest(text=f"{name} must be a number\n")
    return int(text)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = parse_json(await read_body(request))
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {}


def _describe(metadata: LedgerMetadata) -> str:
    digest = metadata.digest_type.name if metadata.digest_type else "unknown"
    ensembles = ", ".join(
        f"{fragment.first_entry}=[{', '.join(fragment.ensemble)}]"
        for fragment in metadata.fragments
    )
    return (
        f"LedgerMetadata{{ensembleSize={metadata.ensemble_size},"
        f" writeQuorumSize={metadata.write_quorum}, ackQuorumSize={metadata.ack_quorum},"
        f" state={metadata.state.name}, length={metadata.length},"
        f" lastEntryId={metadata.last_entry}, digestType={digest},"
        f" ensembles={{{ensembles}}}}}"
    )
