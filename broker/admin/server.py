"""The broker's HTTP server: the admin API, its page and document, health and metrics.

    GET /healthz         200 while the process runs its loop
    GET /readyz          200 once clients are served and every partition due here is led
    GET /metrics         Prometheus text
    GET /openapi.json    what there is below /admin/v1 (`table.py`)
    GET /                the admin page

A request passes the guard, which asks for the operation's role, and the checks, is forwarded if
another broker must answer it, and goes to its handler; whatever fails becomes a problem document.
Health, document and page need no token: they reveal nothing that a probe should not know, and
change nothing. Metrics need one as soon as there is one, unless `admin_metrics_open` is on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web
from prometheus_client import ProcessCollector

from broker.admin import problems, table
from broker.admin.audit_trail import AuditTrail
from broker.admin.context import AdminContext
from broker.admin.json_bounds import encode, values_at_least
from broker.admin.lags import Lags
from broker.admin.operation import Operation
from broker.admin.peer_client import (
    CALLER_HEADER,
    FOR_HEADER,
    PEER_HEADER,
    PeerClient,
    name_of,
)
from broker.admin.problems import Problem
from broker.admin.request import BYTES, JSON, PREFIX, AdminRequest, Answer
from broker.admin.sampler import Sampler
from broker.admin.schema import Fault, Faults, Schema, read, read_text
from broker.app import Broker
from broker.cluster.core.topology import BrokerInfo
from broker.config import BrokerConfig
from client.config import DEFAULT, settings_of
from client.errors import QuireError
from client.node.http_bodies import make_runner, parse_json
from client.node.http_connections import CLOSE_S, HttpConnections
from client.node.http_guard import AccessRefused, HttpGuard, close_headers
from client.node.logs import AT_WILL, SECURITY
from client.node.scrapes import Scrapes
from client.security.admin_access import Caller

log = logging.getLogger(__name__)
_log = SECURITY

_EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104  (compared with, not listened on)
_LINE_BYTES_MAX: Final = 32 * 1024
"""Enough for names of `NAME_CHARS_MAX` characters, each of twelve in a URL."""
_FORWARDED_HEADERS: Final = ("Content-Type", "Accept")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_FOLDER: Final = Path(__file__).with_name("page")
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class AdminServer:
    """Serves one broker's API; can start before the broker does."""

    def __init__(
        self, config: BrokerConfig, broker: Broker, sources: Mapping[str, str] | None = None
    ) -> None:
        """`sources`: where each setting's value came from. Raises ConfigError (certificates,
        tokens)."""
        self._config = config
        self._broker = broker
        self._guard = guard = HttpGuard(config, config.admin_host)
        broker.metrics.add_part(guard.exposition())
        self._peer_client = PeerClient(config, broker.cluster)
        self._lags = Lags(broker, self._peer_client)
        self._sampler = Sampler(broker.metrics, broker.services.clock)
        broker.metrics.add_collector(ProcessCollector(registry=None))
        self._context = AdminContext(
            config=config,
            sources={
                **dict.fromkeys((one.key for one in settings_of(BrokerConfig)), DEFAULT),
                **(sources or {}),
            },
            broker=broker,
            peer_client=self._peer_client,
            lags=self._lags,
            sampler=self._sampler,
            audit_trail=AuditTrail(config.admin_audit_entries_max),
            operation_roles={one.name: one.role for one in table.OPERATIONS},
        )
        self._scrapes = Scrapes(broker.metrics.exposition)
        self._doors = doors = HttpConnections()
        broker.metrics.provide_one("quire_broker_admin_body_bytes", lambda: doors.bodies_bytes)
        self._runner: web.AppRunner | None = None
        self.url = ""
        """Where other brokers and operators reach it; empty while they do not."""

    async def start(self) -> int:
        """Listen; return the port, or 0 if there is no admin server.

        Raises OSError, ConfigError (certificates of other brokers).
        """
        config = self._config
        if config.admin_port < 0:
            return 0
        guard = self._guard
        await self._peer_client.start()
        self._lags.start()
        self._sampler.start()
        self._context.audit_trail.start()
        self._runner = make_runner(
            self._app(),
            handle_signals=False,
            shutdown_timeout=CLOSE_S,
            max_line_size=_LINE_BYTES_MAX,
        )
        await self._runner.setup()
        port = await self._doors.listen(
            self._runner, config.admin_host, config.admin_port, guard.tls
        )
        host = config.admin_advertised_host or config.admin_host
        if host in _EVERYWHERE:
            host = config.hostname or "127.0.0.1"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{guard.scheme}://{shown}:{port}"
        log.info("admin.serving url=%s token=%s", self.url, bool(config.admin_token))
        guard.warn(config.admin_host)
        return port

    async def close(self) -> None:
        """Stop listening."""
        self._doors.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._sampler.close()
        self._context.audit_trail.close()
        await self._lags.close()
        await self._peer_client.close()

    def _app(self) -> web.Application:
        app = web.Application(
            middlewares=[self._doors.watch, self._with_problems],
            client_max_size=self._config.control_request_bytes_max,
        )
        app.on_response_prepare.append(close_headers)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/openapi.json", self._openapi)
        page = PageFiles()
        app.router.add_get("/", page.index)
        app.router.add_get("/page/{name:.+}", page.file)
        for operation in table.OPERATIONS:
            app.router.add_route(
                operation.method, PREFIX + operation.path, self._handler(operation)
            )
        return app

    # --- paths without a token ----------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        reasons = self._broker.unready()
        if not reasons:
            return web.Response(text="ready\n")
        if not await self._guard.may_see_names(request):
            reasons = [f"{len(reasons)} reasons, which a token of role look is told"]
        return web.Response(status=503, text="".join(f"not ready: {why}\n" for why in reasons))

    async def _metrics(self, request: web.Request) -> web.Response:
        await self._guard.check_metrics(request)
        return self._scrapes.answer()

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.json_response(table.DOCUMENT)

    # --- the API ------------------------------------------------------------------------

    @web.middleware
    async def _with_problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn whatever goes wrong into a problem document."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _problem(_of_http(error, request), dict(error.headers))
        except QuireError as error:
            if problems.of(error)["status"] == 500:
                log.exception("admin.failed method=%s path=%s", request.method, request.path)
            return _problem(error)
        except Exception as error:  # the outermost loop of a request
            log.exception("admin.failed method=%s path=%s", request.method, request.path)
            return _problem(error)

    def _handler(self, operation: Operation) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            caller = await self._guard.check(request, operation.role)
            is_forwarded = self._check_meant(request)
            body = await self._doors.body(request) if operation.takes else b""
            checked = _checked(operation, request, body, self._config.admin_items_max, caller)
            if not self._broker.is_started:
                raise Problem(
                    503, "starting", "this broker is still starting", "Try again in a moment."
                )
            if operation.where is not None and not is_forwarded:
                broker = await operation.where(self._context, checked)
                if broker is not None and broker.id != self._config.node_id:
                    return await self._forward(broker, request, body, caller)
            answer = await operation.handle(self._context, checked)
            if operation.is_noted or operation.shows_records:
                self._note(operation, request, answer, caller, is_forwarded=is_forwarded)
            return await self._respond(answer)

        return handle

    def _note(
        self, operation: Operation, request: web.Request, answer: Answer, caller: Caller, *,
        is_forwarded: bool,
    ) -> None:  # fmt: skip
        """Log what was done, and who asked for it; a broker that forwards says who that was.

        Only another broker is believed, which has the token that all of them have: whoever has
        another one could say that somebody else did it.
        """
        name, peer = caller.name, request.remote or ""
        if is_forwarded and (caller.is_node or not self._config.asks_callers):
            name = request.headers.get(CALLER_HEADER, name)
            peer = request.headers.get(PEER_HEADER, peer)
        _log.info(
            "admin.done operation=%s path=%s status=%d user=%r from=%s",
            operation.name, request.path_qs, answer.status, name, peer,
            extra=None if operation.is_noted else AT_WILL,
        )  # fmt: skip

    async def _respond(self, answer: Answer) -> web.Response:
        if isinstance(answer.body, bytes):
            return web.Response(
                status=answer.status, body=answer.body,
                headers={**answer.headers, "Content-Type": BYTES},
            )  # fmt: skip
        if answer.body is None:
            return web.Response(status=answer.status, headers=answer.headers)
        body = await self._broker.services.turns.run(encode(answer.body))
        return web.Response(
            status=answer.status, body=body, headers=answer.headers, content_type=JSON,
            charset="utf-8",
        )  # fmt: skip

    def _check_meant(self, request: web.Request) -> bool:
        """Say whether another broker forwarded this; refuse what is meant for another one."""
        meant = request.headers.get(FOR_HEADER)
        if meant is None:
            return False
        me = f"{self._config.node_id}/{self._broker.incarnation}"
        if meant != me:
            raise Problem(
                421, "misdirected", f"this is broker {me}, not {meant}",
                "Set every broker's admin_host to an address at which the others reach it.",
                field=FOR_HEADER,
            )  # fmt: skip
        return True

    async def _forward(
        self, broker: BrokerInfo, request: web.Request, body: bytes, caller: Caller
    ) -> web.StreamResponse:
        headers = {
            name: request.headers[name] for name in _FORWARDED_HEADERS if name in request.headers
        }
        headers |= {CALLER_HEADER: caller.name, PEER_HEADER: request.remote or ""}
        reply = await self._peer_client.forward(
            broker, request.method, request.raw_path, headers, body
        )
        log.debug(
            "admin.forwarded path=%s to=%s status=%d",
            request.path_qs, name_of(broker), reply.status,
        )  # fmt: skip
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


def _checked(
    operation: Operation, request: web.Request, body: bytes, items_max: int, caller: Caller
) -> AdminRequest:
    """Check everything in a request; report every wrong field at once."""
    faults: list[Fault] = []

    def value_of(schema: Schema, words: list[str], name: str) -> Any:
        try:
            return read_text(schema, words, name)
        except Faults as error:
            faults.extend(error.faults)
            return None

    path = {
        name: value_of(table.PATH[name], [word], name) for name, word in request.match_info.items()
    }
    query: dict[str, Any] = {
        name: schema["default"] for name, schema in operation.query.items() if "default" in schema
    }
    for name in dict.fromkeys(request.query):
        schema = operation.query.get(name)
        if schema is None:
            known = ", ".join(operation.query) or "none"
            faults.append(Fault(name, f"is not a parameter of this request, which takes: {known}"))
        else:
            query[name] = value_of(schema, request.query.getall(name), name)
    content: Any = None
    try:
        content = _body(operation, request, body, items_max)
    except Faults as error:
        faults.extend(error.faults)
    if faults:
        raise problems.invalid(faults)
    accepts_bytes = BYTES in operation.gives and BYTES in request.headers.get("Accept", "")
    return AdminRequest(path, query, content, accepts_bytes, caller)


def _body(operation: Operation, request: web.Request, body: bytes, items_max: int) -> Any:
    if not operation.takes:
        return None
    hint = f"Send one with Content-Type: {' or '.join(operation.takes)}."
    # Without that header the HTTP library would call it octets.
    kind = request.content_type if "Content-Type" in request.headers else "of no type"
    if not body and kind != BYTES:
        raise Problem(400, "no-body", "the request has no body", hint, field="body")
    if kind not in operation.takes:
        raise Problem(415, "wrong-media-type", f"the body is {kind}", hint, field="Content-Type")
    if request.content_type != JSON:
        return body
    count = values_at_least(body, items_max)
    if count > items_max:
        raise Problem(
            413, "too-many-values",
            f"the body has {count} values or more; at most {items_max} are allowed",
            "Send less at once, or raise admin_items_max.", field="body",
        )  # fmt: skip
    try:
        value = parse_json(body, checks_text=False)  # the schema names the field
    except ValueError as error:
        raise Faults([Fault("body", f"is not valid JSON: {error}")]) from error
    return read(operation.takes[JSON], value, "", table.COMPONENTS)


def _problem(error: BaseException, headers: Mapping[str, str] | None = None) -> web.Response:
    body = problems.of(error)
    response = web.json_response(body, status=body["status"], content_type=problems.MEDIA_TYPE)
    if "Allow" in (headers or {}):
        response.headers["Allow"] = (headers or {})["Allow"]
    if body["status"] == 503:
        response.headers["Retry-After"] = str(problems.RETRY_AFTER_S)
    if isinstance(error, AccessRefused):
        response.headers.update(error.headers)
    return response


def _of_http(error: web.HTTPException, request: web.Request) -> Problem:
    """Say what the HTTP library refused."""
    hint = "GET /openapi.json lists every path and method."
    if error.status == 404:
        return Problem(404, "no-such-path", f"there is nothing at {request.path}", hint)
    if error.status == 405:
        detail = f"{request.path} does not support {request.method}"
        return Problem(405, "no-such-method", detail, hint)
    text = (error.text or error.reason).strip()
    if error.status == 413:
        return Problem(413, "body-too-large", text, "Send less.", field="body")
    if error.status == 503:
        return Problem(503, "busy", text, "Try again in a moment.")
    if error.status == 415:
        return Problem(
            415, "wrong-encoding", text, "Send the body without it.", field="Content-Encoding"
        )
    if error.status == 400:
        return Problem(400, "unreadable-body", text, "Send the body again.", field="body")
    return Problem(error.status, "refused", error.reason, hint)


class _File(NamedTuple):
    body: bytes
    kind: str
    tag: str


class PageFiles:
    """The admin page: plain files, kept in memory, without a build step or third-party hosts.

    The page may load nothing but itself and talk only to the broker it came from; a header makes
    the browser enforce that.
    """

    def __init__(self) -> None:
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _read(path)
            for path in sorted(_FOLDER.rglob("*"))
            if path.suffix in _KINDS
        }

    async def index(self, request: web.Request) -> web.Response:
        """Answer `/`."""
        return self._answer(request, _INDEX)

    async def file(self, request: web.Request) -> web.Response:
        """Answer `/page/{name}`. Raises Problem."""
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            raise Problem(
                404, "no-such-path", f"there is nothing at {request.path}", "The page is at /."
            )
        headers = {**HEADERS, "ETag": file.tag}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.body, headers={**headers, "Content-Type": file.kind})


def _read(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _KINDS[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
