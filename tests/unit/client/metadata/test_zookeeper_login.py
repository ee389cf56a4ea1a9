"""The login by SASL on a connection that a script stands for, and what the store makes of it."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any

import kazoo.exceptions as zk
import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.protocol.serialization import SASL, Auth, GetChildren, ReplyHeader, write_buffer

from client.errors import AuthFailed, MetadataError
from client.metadata import zookeeper_login
from client.metadata.store import SessionState
from client.metadata.zookeeper import ZooKeeperStore
from client.metadata.zookeeper_errors import translate
from client.metadata.zookeeper_login import SaslConnection, credentials
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity
from client.security.core.digest_md5 import DigestMd5Client

CHALLENGE = b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess'
AUTH_FAILED, LOGIN_WANTED = -115, -124
SESSION_MS = 10_000


def user(scheme: Any = "sasl", **rest: Any) -> ClusterSecurity:
    return ClusterSecurity(
        zookeeper_user="quire", zookeeper_password="secret", zookeeper_scheme=scheme, **rest
    )


def proven(response: bytes) -> bytes:
    """Say what a server says that knows the password."""
    nonce = response.partition(b'cnonce="')[2].partition(b'"')[0].decode()
    server = DigestMd5Client(
        "quire", "secret", service="zookeeper", host="zk-sasl-md5", nonce=nonce
    )
    assert server.respond(CHALLENGE) == response
    return b"rspauth=" + server._expected


Answer = bytes | int | None | Exception | Callable[[bytes], bytes]
"""A token, an error code, no token, what happens to the connection, or what follows of ours."""

LOGIN: Sequence[Answer] = [CHALLENGE, proven]


class Scripted(SaslConnection):
    """Has the server's answers in a list, by whole logins."""

    def __init__(self, *logins: Sequence[Answer]) -> None:
        self.answers = [answer for login in logins for answer in login]
        self.sent: list[bytes] = []
        self.logins: list[str] = []
        self.refusals: list[tuple[str, str]] = []
        super().__init__(
            KazooClient("a:1", timeout=SESSION_MS / 1000),
            user(),
            on_login=lambda: self.logins.append("login"),
            on_refusal=lambda host, reason: self.refusals.append((host, reason)),
        )

    def _submit(self, request: SASL, _timeout_s: float, xid: int) -> None:
        self.sent.append(request.challenge)
        self.xid = xid

    def _read_header(self, _timeout_s: float) -> tuple[ReplyHeader, bytes, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return ReplyHeader(self.xid, 0, answer), b"", 0
        token = answer(self.sent[-1]) if callable(answer) else answer
        return ReplyHeader(self.xid, 0, 0), bytes(write_buffer(token)), 0

    def log_in(self) -> None:
        self._authenticate_with_sasl("host", 1.0)


def test_a_login() -> None:
    connection = Scripted(LOGIN)
    connection.log_in()
    assert (connection.logins, connection.refusals) == (["login"], [])
    assert connection.sent[0] == b"" and b'username="quire"' in connection.sent[1]
    assert b"secret" not in b"".join(connection.sent)


def test_no_two_logins_are_alike() -> None:
    connection = Scripted(LOGIN, LOGIN)
    connection.log_in()
    connection.log_in()
    assert connection.sent[1] != connection.sent[3]


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ([None], "a JAAS file"),
        ([b""], "a JAAS file"),
        ([AUTH_FAILED], "DigestLoginModule"),
        ([LOGIN_WANTED], "DigestLoginModule"),
        ([b"nonsense"], "DigestLoginModule"),
        ([CHALLENGE, AUTH_FAILED], "zookeeper_password"),
        ([CHALLENGE, LOGIN_WANTED], "zookeeper_password"),
        ([CHALLENGE, None], "zookeeper_password"),
        ([CHALLENGE, b"rspauth=0123"], "is this address"),
    ],
)
def test_a_refusal_says_what_to_do(answers: Sequence[Answer], what: str) -> None:
    """The next server is tried, and after them all the first: the session goes on."""
    connection = Scripted(answers, answers)
    for _ in range(2):
        with pytest.raises(zk.ConnectionDropped):
            connection.log_in()
    assert not connection.answers and not connection.logins
    (host, reason), again = connection.refusals
    assert (host, reason) == again and host == "host"
    assert what in reason and "secret" not in reason


@pytest.mark.parametrize(
    "broken",
    [zk.ConnectionDropped("gone"), TimeoutError("late"), struct.error("short"), -4, -999],
)
@pytest.mark.parametrize("before", [[], [CHALLENGE]])
def test_a_connection_that_breaks_is_no_refusal(before: list[Answer], broken: Answer) -> None:
    connection = Scripted([*before, broken])
    with pytest.raises((zk.ConnectionDropped, TimeoutError)):
        connection.log_in()
    assert not connection.refusals and not connection.logins


def test_an_answer_to_something_else_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Scripted()
    header = ReplyHeader(7, 0, AUTH_FAILED)
    monkeypatch.setattr(connection, "_read_header", lambda _timeout_s: (header, b"", 0))
    with pytest.raises(zk.ConnectionDropped):
        connection.log_in()
    assert not connection.refusals


def test_a_session_ends_when_nobody_lets_us_in_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before; and a login in between begins anew."""
    now_s = [1_000.0]
    monkeypatch.setattr(zookeeper_login.time, "monotonic", lambda: now_s[0])
    refused = [CHALLENGE, AUTH_FAILED]
    connection = Scripted(refused, refused, LOGIN, refused, refused, refused, refused)

    def refusal() -> type[Exception]:
        with pytest.raises((zk.ConnectionDropped, zk.SessionExpiredError)) as found:
            connection.log_in()
        return found.type

    assert refusal() is zk.ConnectionDropped
    now_s[0] += SESSION_MS / 1000
    assert refusal() is zk.ConnectionDropped
    connection.log_in()
    now_s[0] += SESSION_MS
    assert refusal() is zk.ConnectionDropped, "connected for hours, and the first refusal"
    now_s[0] += SESSION_MS / 1000 + 0.1
    assert refusal() is zk.SessionExpiredError
    assert refusal() is zk.ConnectionDropped, "and then the next session, with its own time"


def owners(security: ClusterSecurity) -> list[tuple[str, str, int]]:
    acl = credentials(security)["default_acl"]
    return [(each.id.scheme, each.id.id.partition(":")[0], each.perms) for each in acl]


def test_who_owns_what_we_make() -> None:
    assert credentials(OPEN_CLUSTER) == {}
    assert owners(user("digest")) == [("digest", "quire", 31)]
    assert owners(user("sasl")) == [("sasl", "quire", 31)]
    assert owners(user("both")) == [("digest", "quire", 31), ("sasl", "quire", 31)]
    for scheme in ("digest", "sasl", "both"):
        assert credentials(user(scheme, zookeeper_acl=False))["default_acl"] is None


def test_a_password_is_sent_only_by_digest() -> None:
    assert "auth_data" not in credentials(user("sasl"))
    for scheme in ("digest", "both"):
        assert credentials(user(scheme))["auth_data"] == [("digest", "quire:secret")]


def test_kazoos_log_of_requests_has_no_login(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An application may log everything that its libraries say."""
    caplog.set_level(logging.DEBUG, "kazoo.client")
    connection = KazooClient("a:1", **credentials(user("both")))._connection
    monkeypatch.setattr(connection, "_write", lambda _message, _timeout_s: None)
    for request in (Auth(0, "digest", "quire:secret"), SASL(b"secret"), GetChildren("/seen", None)):
        connection._submit(request, 1.0, 1)
    assert "/seen" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize(
    ("error", "kind", "what"),
    [
        (zk.SessionClosedRequireSaslError(), AuthFailed, "zookeeper_scheme to what"),
        (zk.InvalidACLError(), MetadataError, "SASLAuthenticationProvider"),
        (zk.NoAuthError(), MetadataError, "another user's"),
        (zk.AuthFailedError(), MetadataError, "another user's"),
    ],
)
def test_what_servers_refuse(error: Exception, kind: type[Exception], what: str) -> None:
    ours = translate(error, "/node")
    assert type(ours) is kind and str(ours).startswith("/node: ") and what in str(ours)


class Opening:
    """A store of two servers that opens its session, without a thread of kazoo's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, start_timeout_ms: int = 60_000) -> None:
        self.store = ZooKeeperStore("a:1,b:1", security=user(), start_timeout_ms=start_timeout_ms)
        monkeypatch.setattr(self.store._client, "start_async", lambda: None)
        self.opening = asyncio.ensure_future(self.store.start())

    async def turn(self) -> None:
        """Let what was put into the inbox be looked at."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_requests_wait_for_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        opening = Opening(monkeypatch)
        await opening.turn()
        opening.store._on_kazoo_state(KazooState.CONNECTED)
        await opening.turn()
        assert not opening.opening.done()
        assert opening.store.state is SessionState.SUSPENDED
        opening.store._on_login()
        await opening.opening
        state = opening.store.state
        assert state is SessionState.CONNECTED

    asyncio.run(main())


def test_opening_ends_when_all_servers_refuse(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        opening = Opening(monkeypatch)
        await opening.turn()
        opening.store._on_refusal("a", "first")
        await opening.turn()
        assert not opening.opening.done(), "the other one may let us in"
        opening.store._on_refusal("b", "what to do")
        with pytest.raises(AuthFailed, match="a:1,b:1 refuses the login: what to do"):
            await opening.opening

    asyncio.run(main())
    assert "login_refused" not in caplog.text, "who opens it is told"


def test_a_refusal_counts_if_nobody_else_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        opening = Opening(monkeypatch, start_timeout_ms=1)
        opening.store._opening.refuse("a", "what to do")
        with pytest.raises(AuthFailed, match="what to do"):
            await opening.opening

    asyncio.run(main())


def test_one_server_that_lets_us_in_will_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says of each server that refuses us, once for each time that we were connected."""

    async def main() -> None:
        opening = Opening(monkeypatch)
        await opening.turn()
        opening.store._on_refusal("a", "first")
        opening.store._on_login()
        await opening.opening
        for _ in range(3):
            opening.store._on_refusal("a", "later")
            opening.store._on_refusal("b", "later")
        opening.store._on_login()
        opening.store._on_refusal("a", "later")
        await opening.turn()
        assert opening.store.state is SessionState.CONNECTED

    asyncio.run(main())
    told = [each.args for each in caplog.records if "login_refused" in each.getMessage()]
    assert told == [("a", "first"), ("a", "later"), ("b", "later"), ("a", "later")]
