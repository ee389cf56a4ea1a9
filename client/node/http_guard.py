"""Decides who may use a program's HTTP port, and with which certificate the port shows itself.

Who is asked (`client/security/admin_access.py`) sends a bearer token, or shows a certificate; the
better of both roles counts. While nobody is asked, the port is on loopback unless configured
otherwise, and no other site's page may send a browser there: a request that changes something must
not come from a page of another origin, and while listening on loopback a program answers to
loopback names only, which defeats DNS rebinding.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from client.errors import ConfigError, QuireError
from client.node.exposition import Exposition, table
from client.node.logs import AT_WILL, SECURITY
from client.node.process_metrics import ADMIN_EXPIRES, ADMIN_REFUSED, ADMIN_ROWS
from client.security.admin_access import (
    AdminAccess,
    Caller,
    Role,
    Tokens,
    check_secret,
    is_loopback,
    roles_of,
)
from client.security.certificate_dates import first_expiry_s
from client.security.failure_delays import WAITING_MAX, FailureDelays
from client.security.principal_rules import PrincipalRules
from client.security.tls_contexts import FreshContext, load_authority, server_context

log = logging.getLogger(__name__)
_log = SECURITY

SAFE: Final = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""
CALLER: Final = web.RequestKey("quire.caller", Caller)
"""Key of a request's `Caller`, once it was checked."""
METRICS: Final[Literal["metrics"]] = "metrics"
"""In a table of rights: everybody's or not, as the settings say."""
ANYBODY: Final = Caller("anybody", Role.ADMINISTER)
"""Whoever reaches a port that asks nobody."""
Rights = Mapping[str, Role | Literal["metrics"] | None]
"""Method and path, as `GET /subjects/{subject}` -> the role it needs; None: none."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BEARER: Final = "Bearer "
_BASIC: Final = "Basic "
_CHARS_MAX: Final = 249

_FORGOTTEN_AFTER_S: Final = 300.0
_HOSTS_MAX: Final = 10_000


class AccessRefused(QuireError):
    """A request that may not be served."""

    def __init__(
        self, status: int, code: str, detail: str, hint: str, field: str,
        retry_after_s: int | None = None,
    ) -> None:  # fmt: skip
        """`status`: of HTTP; `code`: a constant name; `field`: the header that is wrong;
        `retry_after_s`: when it may be sent again, if ever."""
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.field = field
        self.retry_after_s = retry_after_s

    @property
    def sentence(self) -> str:
        """One line for people."""
        return f"{self.detail}. {self.hint}\n"

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP wants beside a 401, and may have beside a 429."""
        if self.retry_after_s is not None:
            return {"Retry-After": str(self.retry_after_s)}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}

    def response(self) -> web.Response:
        """Return the answer of a server whose errors are sentences."""
        return web.Response(status=self.status, text=self.sentence, headers=self.headers)


class HttpGuard:
    """Of one HTTP port."""

    def __init__(self, access: AdminAccess, host: str, *, takes_basic: bool = False) -> None:
        """`host`: where the port listens. `takes_basic`: whether a token may also come as the
        password of HTTP's basic login, for clients that know nothing else.

        Reads the files. Raises ConfigError.
        """
        check_secret("admin_token", access.admin_token, [host])
        check_secret("admin_read_token", access.admin_read_token, [host])
        self._access = access
        self._takes_basic = takes_basic
        self._only_loopback = not access.asks_callers and is_loopback(host)
        self._roles = roles_of(access.admin_principals)
        self._rules = PrincipalRules(access.admin_tls_principal_rules)
        self._tokens = FreshContext((access.admin_tokens_file,), lambda: Tokens(access))
        self._contexts: FreshContext[tuple[ssl.SSLContext, int]] | None = None
        if access.admin_tls_cert is not None:
            files = access.admin_tls_cert, access.admin_tls_key, access.admin_tls_client_ca
            self._contexts = FreshContext(files, self._make)
        self._wrong = WrongTokens(
            access.admin_failure_delay_ms / 1000, access.admin_failure_delay_max_ms / 1000
        )
        self.refused_count = 0
        """Requests of those who did not say who they are, or may not do what they asked for."""

    @property
    def scheme(self) -> str:
        """How URLs of the port begin."""
        return "http" if self._contexts is None else "https"

    @property
    def expires_s(self) -> int | None:
        """When the first certificate of the chain expires, as Unix time; None without TLS."""
        return None if self._contexts is None else self._contexts.get()[1]

    def exposition(self) -> Exposition:
        """Return what the port shows of itself, a part of what the program shows."""
        made = Exposition(table(ADMIN_ROWS))
        made.provide_one(ADMIN_REFUSED, lambda: self.refused_count)
        if self._contexts is not None:
            made.provide_one(ADMIN_EXPIRES, lambda: self.expires_s or 0)
        return made

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of the next connection; None: plain text."""
        return None if self._contexts is None else self._contexts.get()[0]

    def check_browser(self, request: web.Request) -> None:
        """Refuse what a foreign web page may have sent. Raises AccessRefused."""
        host = request.headers.get("Host", "")
        if self._only_loopback and not is_loopback(_host_name(host)):
            raise self._refusal(
                request, 403, "foreign-host", f"this port does not answer to the name {host!r}",
                "Use 127.0.0.1 or localhost, or set an admin_token.", field="Host",
            )  # fmt: skip
        origin = request.headers.get("Origin")
        if origin and request.method not in SAFE and _place(origin) != host:
            raise self._refusal(
                request, 403, "foreign-origin", f"a page from {origin} may not change this cluster",
                "Use the page that a broker serves, or a command-line client.", field="Origin",
            )  # fmt: skip

    async def check(self, request: web.Request, role: Role) -> Caller:
        """Say who sent a request that needs a role; a wrong token takes a while.

        Raises AccessRefused.
        """
        self.check_browser(request)
        if not self._access.asks_callers:
            return ANYBODY
        caller = await self._caller(request)
        if caller.role < role:
            code = "read-only-token" if caller.role is Role.LOOK else "role-too-low"
            raise self._refusal(
                request, 403, code,
                f"this needs role {role.word}, and {caller.name} has role {caller.role.word}",
                f"Send a token of role {role.word}.", field="Authorization", name=caller.name,
            )  # fmt: skip
        return caller

    def by_table(self, rights: Rights) -> Middleware:
        """Return the middleware that asks for the role that a table has beside a request's route.

        What the table does not have needs the highest role. It raises AccessRefused.
        """

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            if resource is not None:  # else there is no such path, and nothing to hide
                method = "GET" if request.method == "HEAD" else request.method
                role = rights.get(f"{method} {resource.canonical}", Role.ADMINISTER)
                if isinstance(role, Role):
                    request[CALLER] = await self.check(request, role)
                elif role == METRICS:
                    await self.check_metrics(request)
            return await handler(request)

        return check

    async def check_metrics(self, request: web.Request) -> None:
        """Refuse what /metrics is not for. Raises AccessRefused."""
        if self._access.metrics_are_open:
            self.check_browser(request)
        else:
            await self.check(request, Role.LOOK)

    async def may_see_names(self, request: web.Request) -> bool:
        """Say whether the answer to a probe, which needs no token, may name topics.

        Raises AccessRefused if there is a token, and it is wrong.
        """
        if not self._access.asks_callers:
            return True
        if self._token(request) is None and self._by_certificate(request) is None:
            return False
        await self.check(request, Role.LOOK)
        return True

    async def _caller(self, request: web.Request) -> Caller:
        shown = self._by_certificate(request)
        given = self._token(request)
        sent = None if given is None else await self._by_token(request, given)
        known = [caller for caller in (shown, sent) if caller is not None]
        if not known:
            raise self._refusal(
                request, 401, "no-token", "this API needs a token",
                "Send the header `Authorization: Bearer TOKEN` with the admin_token.",
                field="Authorization",
            )  # fmt: skip
        return max(known, key=lambda caller: caller.role)

    async def _by_token(self, request: web.Request, given: str) -> Caller:
        host = request.remote or ""
        if self._wrong.is_full(host):
            raise self._refusal(
                request, 429, "too-many-wrong-tokens",
                f"this address has sent {WAITING_MAX} wrong tokens just now",
                f"Try again in {self._wrong.retry_after_s} seconds.", field="Authorization",
                retry_after_s=self._wrong.retry_after_s,
            )  # fmt: skip
        sent = self._tokens.get().caller(given)
        if sent is None:
            refusal = self._refusal(
                request, 401, "wrong-token", "the token is wrong",
                "Send the admin_token, or one of admin_tokens_file.", field="Authorization",
            )  # fmt: skip
            await self._wrong.wait(host)
            raise refusal
        return sent

    def _by_certificate(self, request: web.Request) -> Caller | None:
        certificate = request.get_extra_info("peercert") if self._roles else None
        name = self._rules.name_of(certificate["subject"]) if certificate else None
        role = None if name is None else self._roles.get(name)
        return None if name is None or role is None else Caller(name, role)

    def _token(self, request: web.Request) -> str | None:
        given = request.headers.get("Authorization", "")
        if given.startswith(_BEARER):
            return given.removeprefix(_BEARER)
        if self._takes_basic and given.startswith(_BASIC):
            try:
                words = base64.b64decode(given.removeprefix(_BASIC), validate=True).decode()
            except (binascii.Error, UnicodeError):
                return ""
            return words.partition(":")[2]
        return None

    def _refusal(
        self, request: web.Request, status: int, code: str, detail: str, hint: str, *,
        field: str, name: str = "", retry_after_s: int | None = None,
    ) -> AccessRefused:  # fmt: skip
        self.refused_count += 1
        _log.warning(
            "admin.refused user=%r peer=%s method=%s path=%r reason=%s",
            name, request.remote, request.method, request.path[:_CHARS_MAX], code, extra=AT_WILL,
        )  # fmt: skip
        return AccessRefused(status, code, detail, hint, field, retry_after_s)

    def _make(self) -> tuple[ssl.SSLContext, int]:
        access = self._access
        cert, key = access.admin_tls_cert, access.admin_tls_key
        assert cert is not None and key is not None, "the settings were checked"
        context = server_context("admin_", cert, key, version_min="1.2")
        if access.admin_tls_client_ca is not None:
            load_authority(context, "admin_", "tls_client_ca", access.admin_tls_client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        try:
            return context, first_expiry_s(cert.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"admin_tls_cert {cert}: {error}") from error

    def warn(self, host: str) -> None:
        """Log what is wrong with a port on which something can be changed."""
        if is_loopback(host):
            return
        if not self._access.asks_callers:
            log.warning(
                "admin.open host=%s hint=%s", host,
                "anyone who reaches this port can change the cluster; set admin_token",
            )  # fmt: skip
        elif self._contexts is None:
            log.warning(
                "admin.plain host=%s hint=%s", host,
                "tokens are sent in plain text; set admin_tls_cert and admin_tls_key",
            )  # fmt: skip


async def close_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Tell nobody which libraries run here, and let nobody keep or reinterpret an answer.

    For `on_response_prepare` of an application.
    """
    response.headers["Server"] = "quire"
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Cache-Control", "no-store")


@web.middleware
async def with_sentences(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what may not be asked with one sentence."""
    try:
        return await handler(request)
    except AccessRefused as error:
        return error.response()


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


class WrongTokens:
    """Makes guessing the tokens of an HTTP port slow: the answer to a wrong one waits.

    It waits longer with each wrong one of an address, as failed logins of Kafka's clients do, and
    while several answers of an address wait, further tokens of it are not even compared
    (`client/security/failure_delays.py`).
    """

    def __init__(self, delay_s: float, delay_max_s: float) -> None:
        """`delay_s`: of the first answer; 0: none waits."""
        self._delay_max_s = delay_max_s
        self._delays = FailureDelays(
            delay_s, delay_max_s, forgotten_after_s=_FORGOTTEN_AFTER_S, hosts_max=_HOSTS_MAX
        )

    def is_full(self, host: str) -> bool:
        """Whether no token of an address may be compared now."""
        return self._delays.is_full(host, asyncio.get_running_loop().time())

    @property
    def retry_after_s(self) -> int:
        """When it is worth coming again."""
        return int(self._delay_max_s) + 1

    async def wait(self, host: str) -> None:
        """A token of an address was wrong: return when that may be answered."""
        delay_s = self._delays.fail(host, asyncio.get_running_loop().time())
        if delay_s:
            await asyncio.sleep(delay_s)
