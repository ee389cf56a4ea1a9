"""The bookie's HTTP server, with the paths that Apache BookKeeper's has.

    GET      /heartbeat                             "OK"
    GET      /metrics                               Prometheus text
    GET      /api/v1/config/server_config           every setting
    GET      /api/v1/bookie/is_ready                200, or 503 while not serving: for probes
    GET      /api/v1/bookie/state                   {running, readOnly, shuttingDown, ...}
    GET PUT  /api/v1/bookie/state/readonly          {readOnly}; an operator's word
    GET      /api/v1/bookie/sanity                  {passed, readOnly}
    GET      /api/v1/bookie/info                    {freeSpace, totalSpace} in bytes
    GET      /api/v1/bookie/last_log_mark           how far each log is durable
    GET      /api/v1/bookie/list_disk_file          names of files, ?file_type=entrylog,index
    GET PUT  /api/v1/bookie/gc                      {forceMajor, forceMinor} asks for a round
    GET      /api/v1/bookie/gc_details              what collection did and does
    GET PUT  /api/v1/bookie/gc/suspend_compaction   {suspendMajor, suspendMinor}
    GET PUT  /api/v1/bookie/gc/resume_compaction    {resumeMajor, resumeMinor}

What is about the whole cluster is in `cluster.py`. A wrong request gets one sentence. Who may ask
for what is a table (`RIGHTS`); what changes something is logged, with who asked for it.
Covers the paths about one bookie.

Source: Apache BookKeeper `HttpRouter` and the services behind it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from bookie.admin import bookkeeper_metrics
from bookie.config import BookieConfig
from bookie.membership.garbage import GarbageCollection
from bookie.membership.read_only_state import ReadOnlyState
from bookie.metrics import BookieMetrics
from bookie.storage.core.append_log import file_number
from bookie.storage.ledger_directories import LedgerDirectories
from client.config import settings_of
from client.config_kinds import plain
from client.errors import MetadataError, NoSuchLedger, QuireError
from client.node.http_bodies import make_runner, parse_json, read_body
from client.node.http_connections import CLOSE_S, HttpConnections
from client.node.http_guard import (
    CALLER,
    METRICS,
    SAFE,
    AccessRefused,
    HttpGuard,
    Rights,
    close_headers,
)
from client.node.logs import SECURITY
from client.node.scrapes import Scrapes
from client.security.admin_access import Role

logger = logging.getLogger(__name__)
_log = SECURITY

Routes = Sequence[web.RouteDef]

_BOOKIE: Final = "/api/v1/bookie"
_RECOVERY: Final = "/api/v1/autorecovery"

RIGHTS: Final[Rights] = {
    "GET /heartbeat": None,
    f"GET {_BOOKIE}/is_ready": None,
    "GET /metrics": METRICS,
    "GET /api/v1/config/server_config": Role.LOOK,
    f"GET {_BOOKIE}/state": Role.LOOK,
    f"GET {_BOOKIE}/state/readonly": Role.LOOK,
    f"PUT {_BOOKIE}/state/readonly": Role.OPERATE,
    f"GET {_BOOKIE}/sanity": Role.LOOK,
    f"GET {_BOOKIE}/info": Role.LOOK,
    f"GET {_BOOKIE}/last_log_mark": Role.LOOK,
    f"GET {_BOOKIE}/list_disk_file": Role.LOOK,
    f"GET {_BOOKIE}/gc": Role.LOOK,
    f"PUT {_BOOKIE}/gc": Role.OPERATE,
    f"GET {_BOOKIE}/gc_details": Role.LOOK,
    f"GET {_BOOKIE}/gc/suspend_compaction": Role.LOOK,
    f"PUT {_BOOKIE}/gc/suspend_compaction": Role.OPERATE,
    f"GET {_BOOKIE}/gc/resume_compaction": Role.LOOK,
    f"PUT {_BOOKIE}/gc/resume_compaction": Role.OPERATE,
    # the whole cluster (`cluster.py`)
    "DELETE /api/v1/ledger/delete": Role.ADMINISTER,
    "GET /api/v1/ledger/list": Role.LOOK,
    "GET /api/v1/ledger/metadata": Role.LOOK,
    "GET /api/v1/ledger/read": Role.OPERATE,
    f"GET {_BOOKIE}/list_bookies": Role.LOOK,
    f"GET {_BOOKIE}/list_bookie_info": Role.LOOK,
    f"GET {_BOOKIE}/cluster_info": Role.LOOK,
    f"GET {_RECOVERY}/status": Role.LOOK,
    f"PUT {_RECOVERY}/status": Role.OPERATE,
    f"GET {_RECOVERY}/who_is_auditor": Role.LOOK,
    f"GET {_RECOVERY}/list_under_replicated_ledger": Role.LOOK,
    f"PUT {_RECOVERY}/trigger_audit": Role.OPERATE,
    f"GET {_RECOVERY}/lost_bookie_recovery_delay": Role.LOOK,
    f"PUT {_RECOVERY}/lost_bookie_recovery_delay": Role.OPERATE,
    f"PUT {_RECOVERY}/decommission": Role.ADMINISTER,
    f"PUT {_RECOVERY}/bookie": Role.ADMINISTER,
}
"""Method and path -> role; a test finds what is missing here.

What only shows how things are needs `look`; what changes nothing that is stored `operate`, as does
reading entries; what deletes copies, or lets go of bookies, `administer`. Probes need none.
"""


class Serving(NamedTuple):
    """The parts of a bookie that serves."""

    ledger_directories: LedgerDirectories
    read_only_state: ReadOnlyState
    garbage: GarbageCollection


class BookieStatus(NamedTuple):
    """What the bookie says of itself, at any time."""

    is_ready: bool
    is_stopping: bool
    is_failed: bool
    serving: Serving | None


class AdminServer:
    """Serves one bookie's paths, and further ones that are given."""

    def __init__(
        self,
        config: BookieConfig,
        metrics: BookieMetrics,
        status: Callable[[], BookieStatus],
        routes: Routes = (),
    ) -> None:
        """Raises ConfigError (certificates, tokens)."""
        self._config = config
        self._metrics = metrics
        self._status = status
        self._doors = doors = HttpConnections()
        self.guard = guard = HttpGuard(config, config.admin_host)
        metrics.gauges["admin_body_bytes"] = lambda: doors.bodies_bytes
        metrics.add_part(guard.exposition())
        self._scrapes = Scrapes(self._metrics_text)
        checks = guard.by_table(RIGHTS)
        app = web.Application(middlewares=[doors.watch, _sentences, checks, _noted, doors.whole])
        bookie = "/api/v1/bookie"
        app.on_response_prepare.append(close_headers)
        app.router.add_get("/heartbeat", self._heartbeat)
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/api/v1/config/server_config", self._server_config)
        app.router.add_get(f"{bookie}/is_ready", self._ready)
        app.router.add_get(f"{bookie}/state", self._describe_state)
        app.router.add_get(f"{bookie}/state/readonly", self._describe_readonly)
        app.router.add_put(f"{bookie}/state/readonly", self._set_readonly)
        app.router.add_get(f"{bookie}/sanity", self._sanity)
        app.router.add_get(f"{bookie}/info", self._info)
        app.router.add_get(f"{bookie}/last_log_mark", self._last_log_mark)
        app.router.add_get(f"{bookie}/list_disk_file", self._list_disk_file)
        app.router.add_get(f"{bookie}/gc", self._is_forced)
        app.router.add_put(f"{bookie}/gc", self._force_gc)
        app.router.add_get(f"{bookie}/gc_details", self._gc_details)
        app.router.add_get(f"{bookie}/gc/suspend_compaction", self._describe_suspension)
        app.router.add_put(f"{bookie}/gc/suspend_compaction", self._suspend)
        app.router.add_get(f"{bookie}/gc/resume_compaction", self._describe_suspension)
        app.router.add_put(f"{bookie}/gc/resume_compaction", self._resume)
        app.router.add_routes(routes)
        self._runner = make_runner(app, shutdown_timeout=CLOSE_S)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError if it is taken."""
        await self._runner.setup()
        self.guard.warn(host)
        return await self._doors.listen(self._runner, host, port, self.guard.tls)

    async def stop(self) -> None:
        """Close the server and its connections."""
        self._doors.close()
        await self._runner.cleanup()

    @property
    def _serving(self) -> Serving:
        serving = self._status().serving
        if serving is None:
            raise web.HTTPServiceUnavailable(text="the bookie is not serving yet\n")
        return serving

    async def _heartbeat(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK\n")

    async def _exposition(self, _request: web.Request) -> web.Response:
        return self._scrapes.answer()

    def _metrics_text(self) -> bytes:
        now_s = asyncio.get_running_loop().time()
        return self._metrics.exposition() + bookkeeper_metrics.exposition(self._metrics, now_s)

    async def _server_config(self, _request: web.Request) -> web.Response:
        return web.json_response(_settings(self._config))

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._status().is_ready:
            return web.Response(text="OK\n")
        return web.Response(status=503, text="the bookie is not serving\n")

    async def _describe_state(self, _request: web.Request) -> web.Response:
        status = self._status()
        serving = status.serving
        is_running = serving is not None and not status.is_failed
        return web.json_response(
            {
                "running": is_running,
                "readOnly": serving is not None and serving.read_only_state.is_read_only,
                "shuttingDown": status.is_stopping,
                "availableForHighPriorityWrites": is_running
                and serving is not None
                and serving.read_only_state.takes_priority,
            }
        )

    async def _describe_readonly(self, _request: web.Request) -> web.Response:
        reasons = self._serving.read_only_state.reasons
        return web.json_response({"readOnly": bool(reasons), "reasons": reasons})

    async def _set_readonly(self, request: web.Request) -> web.Response:
        wanted = (await body_of(request, "readOnly"))["readOnly"]
        read_only_state = self._serving.read_only_state
        read_only_state.force(wanted)
        if read_only_state.is_read_only and not wanted:
            # A script that waits for a writable bookie must not go on.
            reasons = "; ".join(read_only_state.reasons)
            raise web.HTTPConflict(text=f"the bookie stays read-only: {reasons}\n")
        return await self._describe_readonly(request)

    async def _sanity(self, _request: web.Request) -> web.Response:
        status = self._status()
        is_sound = status.is_ready and all(
            not ledger_directory.storage.is_failed and not ledger_directory.storage.has_damage
            for ledger_directory in self._serving.ledger_directories.directories
        )
        is_read_only = self._serving.read_only_state.is_read_only
        return web.json_response({"passed": is_sound, "readOnly": is_read_only})

    async def _info(self, _request: web.Request) -> web.Response:
        usage = await self._serving.ledger_directories.usage()
        return web.json_response({"freeSpace": usage.free, "totalSpace": usage.total})

    async def _last_log_mark(self, _request: web.Request) -> web.Response:
        marks = {}
        for ledger_directory in self._serving.ledger_directories.directories:
            number, position = ledger_directory.storage.indexer.checkpoint.start
            marks[f"LastLogMark: Journal Id - {number}({ledger_directory.path})"] = (
                f"Pos - {position}"
            )
        return web.json_response(marks)

    async def _list_disk_file(self, request: web.Request) -> web.Response:
        """Our log is journal and entry log at once, so it is listed under either word."""
        kinds = request.query.get("file_type", "journal,entrylog,index").split(",")
        found: dict[str, list[str]] = {}
        for ledger_directory in self._serving.ledger_directories.directories:
            names = await ledger_directory.disk.reader_job(ledger_directory.disk.names)
            log = [
                f"{ledger_directory.path}/{name}" for name in names if file_number(name) is not None
            ]
            for kind in kinds:
                files = [f"{ledger_directory.path}/index"] if kind == "index" else log
                found[f"{kind} files"] = found.get(f"{kind} files", []) + files
        return web.json_response({kind: " \n".join(files) for kind, files in found.items()})

    async def _is_forced(self, _request: web.Request) -> web.Response:
        is_forced = self._serving.garbage.is_forced
        return web.json_response({"is_in_force_gc": str(is_forced).lower()})

    async def _force_gc(self, request: web.Request) -> web.Response:
        """As Apache's: a body without a word, or no body at all, asks for both rewritings."""
        asked = await body_of(request, forceMajor=True, forceMinor=True)
        self._serving.garbage.ask(minor=asked["forceMinor"], major=asked["forceMajor"])
        return web.Response(text="Triggered GC on BookieServer\n")

    async def _gc_details(self, _request: web.Request) -> web.Response:
        garbage = self._serving.garbage
        details: dict[str, Any] = {"forceCompacting": garbage.is_forced}
        for name, kind in (("major", garbage.major), ("minor", garbage.minor)):
            last = f"last{name.capitalize()}CompactionTime"
            details |= {
                f"{name}Compacting": kind.is_running,
                last: kind.last_ms,
                f"{name}CompactionCounter": kind.count,
                f"{name}CompactionSuspended": kind.is_suspended,
            }
        return web.json_response([details])

    async def _describe_suspension(self, _request: web.Request) -> web.Response:
        garbage = self._serving.garbage
        return web.json_response(
            {
                "isMajorGcSuspended": str(garbage.major.is_suspended).lower(),
                "isMinorGcSuspended": str(garbage.minor.is_suspended).lower(),
            }
        )

    async def _suspend(self, request: web.Request) -> web.Response:
        asked = await body_of(request, suspendMajor=False, suspendMinor=False)
        self._change(request, asked["suspendMajor"], asked["suspendMinor"], is_suspended=True)
        return await self._describe_suspension(request)

    async def _resume(self, request: web.Request) -> web.Response:
        asked = await body_of(request, resumeMajor=False, resumeMinor=False)
        self._change(request, asked["resumeMajor"], asked["resumeMinor"], is_suspended=False)
        return await self._describe_suspension(request)

    def _change(
        self, request: web.Request, major: bool, minor: bool, *, is_suspended: bool
    ) -> None:
        verb = request.path.rpartition("/")[2].partition("_")[0]
        if not major and not minor:
            raise web.HTTPBadRequest(
                text=f'say which: {{"{verb}Major": true, "{verb}Minor": true}}\n'
            )
        garbage = self._serving.garbage
        for is_meant, kind in ((major, garbage.major), (minor, garbage.minor)):
            if is_meant:
                logger.info("gc.switched suspended=%s threshold=%g", is_suspended, kind.threshold)
                kind.is_suspended = is_suspended


async def body_of(request: web.Request, *required: str, **defaults: bool) -> dict[str, bool]:
    """Return the truth values in a JSON body: those that must be there, and those that may.

    Raises HTTPBadRequest.
    """
    body = await read_body(request)
    try:
        given = parse_json(body) if body.strip() else {}
        found = {**defaults, **given}
        asked = {name: found[name] for name in (*required, *defaults)}
    except (ValueError, KeyError, TypeError):
        asked = {}
    if not asked or not all(isinstance(value, bool) for value in asked.values()):
        wanted = ", ".join(f'"{name}": true or false' for name in (*required, *defaults))
        raise web.HTTPBadRequest(text=f"the body must be JSON: {{{wanted}}}\n")
    return asked


def _settings(config: Any) -> dict[str, Any]:
    """Return every setting by name, those of a table with a dot, and of secrets no more than
    whether they are set."""
    found: dict[str, Any] = {}
    for setting in settings_of(type(config)):
        value = functools.reduce(getattr, setting.key.split("."), config)
        found[setting.key] = "(hidden)" if setting.secret and value else plain(value)
    return found


@web.middleware
async def _noted(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Log what was changed, and who asked for it."""
    answer = await handler(request)
    if request.method not in SAFE:
        _log.info(
            "admin.done operation=%s path=%s status=%d user=%r from=%s", request.method,
            request.path_qs, answer.status, request[CALLER].name, request.remote,
        )  # fmt: skip
    return answer


@web.middleware
async def _sentences(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer our errors with one sentence."""
    try:
        return await handler(request)
    except AccessRefused as error:
        return error.response()
    except NoSuchLedger as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error
    except MetadataError as error:
        text = f"the metadata store cannot be reached: {error or type(error).__name__}\n"
        raise web.HTTPServiceUnavailable(text=text) from error
    except QuireError as error:
        raise web.HTTPInternalServerError(text=f"{error}\n") from error
