"""As whom we come to ZooKeeper, whose the nodes are that we make, and the login by SASL.

ZooKeeper has two ways to say who a client is, its schemes `digest` and `sasl`. With `digest` the
password itself goes to the server, which takes any: a wrong one is just another user. With `sasl`
a login precedes everything else on each connection, here by DIGEST-MD5; the password stays where
it is, the server proves that it knows it, too, and refuses a wrong one.

kazoo's own login is not used. It stops for good, and with the session all leaderships end, when a
connection breaks during a login, as when a server restarts; and it asks a server that knows no
SASL again and again, without a pause. Here a broken connection is one like any other, and a
refusal leads to the next server. Only when no server lets us in any more, for longer than a session
lasts, the session is given up: we kept it alive by coming back, and others wait for its end.
"""

from __future__ import annotations

import logging
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

import kazoo.exceptions as zk
from kazoo.client import KazooClient
from kazoo.protocol.serialization import SASL, Auth
from kazoo.security import ACL, make_acl, make_digest_acl

from client.metadata.zookeeper_handler import NumberedConnection
from client.security.cluster_security import ClusterSecurity
from client.security.core.digest_md5 import DigestError, DigestMd5Client

_SERVICE: Final = "zookeeper"
_HOST: Final = "zk-sasl-md5"
"""What all of ZooKeeper's servers call themselves, whatever they are called."""
_NONCE_BYTES: Final = 24
_REFUSALS: Final = (zk.AuthFailedError.code, zk.SessionClosedRequireSaslError.code)

NO_SASL: Final = (
    "it knows no SASL: give the server a JAAS file with a section Server"
    " (java.security.auth.login.config), or set cluster_security.zookeeper_scheme to digest"
)
NO_DIGEST_MD5: Final = (
    "it does not take DIGEST-MD5 ({what}): its JAAS file needs DigestLoginModule in the section"
    " Server, or set cluster_security.zookeeper_scheme to digest"
)
UNKNOWN_TO_SERVER: Final = (
    "cluster_security.zookeeper_password is not what the server's JAAS file has for that user"
    " (user_NAME in the section Server), or it has no such user"
)
NOT_THE_SERVER: Final = (
    "it does not prove that it knows cluster_security.zookeeper_password ({what}): is this address"
    " that of your ZooKeeper?"
)


class _NoLogins(logging.Filter):
    """Keeps what we log in with out of kazoo's log of all requests, whoever switches that on."""

    def filter(self, record: logging.LogRecord) -> bool:
        shown = record.args if isinstance(record.args, tuple) else ()
        return not any(isinstance(each, Auth | SASL) for each in shown)


_KAZOOS_LOG: Final = logging.getLogger("kazoo.client")
_NO_LOGINS: Final = _NoLogins()


class LoginRefused(Exception):
    """A server refuses our login, or is not one to log in at; the message says what to do."""


def credentials(security: ClusterSecurity) -> dict[str, Any]:
    """Return as whom kazoo comes, whose alone the nodes are that it makes, and what tells of it."""
    user, password = security.zookeeper_user, security.zookeeper_password
    if not user:
        return {}
    _KAZOOS_LOG.addFilter(_NO_LOGINS)
    found: dict[str, Any] = {"default_acl": None, "logger": _KAZOOS_LOG}
    if security.zookeeper_by_digest:
        found["auth_data"] = [("digest", f"{user}:{password}")]
    if security.zookeeper_acl:
        found["default_acl"] = _owners(security)
    return found


def _owners(security: ClusterSecurity) -> list[ACL]:
    user, password = security.zookeeper_user, security.zookeeper_password
    owners = []
    if security.zookeeper_by_digest:
        owners.append(make_digest_acl(user, password, all=True))
    if security.zookeeper_by_sasl:
        owners.append(make_acl("sasl", user, all=True))
    return owners


class SaslConnection(NumberedConnection):
    """kazoo's connection, with a login of ours. All of it runs in the connection thread."""

    def __init__(
        self,
        client: KazooClient,
        security: ClusterSecurity,
        *,
        on_login: Callable[[], object],
        on_refusal: Callable[[str, str], object],
    ) -> None:
        """`on_login`: called when requests may leave. `on_refusal`: called with the host and what
        to do."""
        super().__init__(client, sasl_options={})
        self._security = security
        self._on_login = on_login
        self._on_refusal = on_refusal
        self._refused_since_s: float | None = None
        """When servers began to refuse us, by the machine's clock; None: the last one did not."""

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Log in, before the first request. kazoo calls it by this name on each connection.

        `timeout` is in seconds. Raises kazoo's errors of a connection that broke; another server
        is tried then.
        """
        try:
            self._log_in(timeout)
        except LoginRefused as error:
            self._refused(host, str(error))
        self._refused_since_s = None
        self._on_login()

    def _refused(self, host: str, reason: str) -> NoReturn:
        self._on_refusal(host, reason)
        now_s = time.monotonic()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        if now_s - self._refused_since_s > self.client._session_timeout / 1000:
            self._refused_since_s = None
            raise zk.SessionExpiredError("no server lets us in any more")
        raise zk.ConnectionDropped("login refused")

    def _log_in(self, timeout_s: float) -> None:
        digest = DigestMd5Client(
            self._security.zookeeper_user,
            self._security.zookeeper_password,
            service=_SERVICE,
            host=_HOST,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
        )
        challenge = self._ask(1, b"", timeout_s, NO_DIGEST_MD5.format(what="it wants another"))
        if not challenge:
            raise LoginRefused(NO_SASL)
        try:
            response = digest.respond(challenge)
        except DigestError as error:
            raise LoginRefused(NO_DIGEST_MD5.format(what=error)) from error
        final = self._ask(2, response, timeout_s, UNKNOWN_TO_SERVER)
        if not final:  # the server goes on with whom it refuses (allowSaslFailedClients)
            raise LoginRefused(UNKNOWN_TO_SERVER)
        try:
            digest.check(final)
        except DigestError as error:
            raise LoginRefused(NOT_THE_SERVER.format(what=error)) from error

    def _ask(self, xid: int, token: bytes, timeout_s: float, refusal: str) -> bytes | None:
        """Send a token; return the server's. Raises LoginRefused with `refusal`."""
        self._submit(SASL(token), timeout_s, xid)
        try:
            header, buffer, offset = self._read_header(timeout_s)
            if header.xid == xid and not header.err:
                answer: bytes | None = SASL.deserialize(buffer, offset)[0]
                return answer
        except struct.error:
            raise zk.ConnectionDropped("not an answer to a login") from None
        if header.xid == xid and header.err in _REFUSALS:
            raise LoginRefused(refusal)
        raise zk.ConnectionDropped(f"not an answer to a login (error {header.err})")
