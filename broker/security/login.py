"""How a client of a SASL listener logs in: what it may send before, for how long, and how often.

Before it has logged in, a client may ask for the API versions and send the requests of SASL, none
of which may be large; anything else closes the connection, and so does taking too long. A login may
have an end: then the client has to log in again before (KIP-368).

A failed login is answered late, later with each failure from one address, and then the connection
is closed. How late is counted from the request on, so the time does not tell how long the password
took to check, which would tell who exists.

Who waits in such a delay holds nothing of what it sent, only so many of one address may wait, and
whatever goes on for a client ends with its connection: a failed login must cost whoever tries it,
nobody else.

PLAIN's passwords are checked on a thread (`PasswordChecks`), for each check is a long computation
on purpose. Hashing lets go of the interpreter while it works, so it keeps nobody waiting but those
who log in with a password. The thread is one, so that guessing costs one processor at most.
Addresses take turns, each with so many checks that wait and no more, so that whoever sends
thousands keeps nobody else from logging in; and a client that has gone before its turn costs
nothing.

Brokers log in to each other as a user whose name and password are settings of each broker
(`own_account`), so that a cluster can start that nobody has made users in yet, and whoever knows
that password can make them. What is kept to check such a login is derived at the start, and never
stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from broker.cluster.peer_access import Account
from broker.errors import AccessUnknown, TooManyLogins
from broker.security.config import SecurityConfig
from broker.security.core.bearer import Bearer, TokenRefused, bearer_of, token_of
from broker.security.core.sasl import (
    Accepted,
    Challenge,
    Handshake,
    PasswordCheck,
    Refused,
    SaslSession,
)
from broker.security.core.scram import (
    SCRAM_NUMBERS,
    USUAL_ITERATIONS,
    Mechanism,
    ScramCredential,
    credential_of,
    salt_of,
    salted,
)
from broker.security.token_keys import TokenKeys
from broker.security.users import Credentials, Users
from client.ids import Clock, Rng
from client.node.logs import AT_WILL, SECURITY
from client.node.turns import Turns
from client.security.failure_delays import FailureDelays
from client.security.networks import network_of
from client.wire.kafka.apis import ApiKey

_log = SECURITY

_BEFORE_LOGIN: Final = frozenset(
    (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
)
_FORGOTTEN_AFTER_S: Final = 300.0
_HOSTS_MAX: Final = 10_000
_NONCE_BITS: Final = 192

WAITING_MAX: Final = 200
"""Checks of one address: a few seconds of work, for a machine whose clients all come back."""


class Logins:
    """What all logins of a broker share."""

    def __init__(
        self,
        config: SecurityConfig,
        users: Users,
        turns: Turns,
        rng: Rng,
        clock: Clock,
    ) -> None:
        """Raises ConfigError: a package that is needed is not there."""
        self.config = config
        self.tokens = TokenKeys(config)
        self._token_rules = config.token_rules()
        self.clock = clock
        self.turns = turns
        self.passwords = PasswordChecks()
        self.accepted = 0
        self.refused = 0
        self.users = users
        self._rng = rng
        self._delays = FailureDelays(
            config.sasl_failure_delay_ms / 1000,
            config.sasl_failure_delay_max_ms / 1000,
            forgotten_after_s=_FORGOTTEN_AFTER_S,
            hosts_max=_HOSTS_MAX,
        )

    def session(self) -> SaslSession:
        """Return a new connection's state."""
        return SaslSession(
            self.config.sasl_mechanisms,
            self.users,
            nonce=self._nonce,
            secret=self.users.secret,
            bearer=self._bearer,
        )

    async def start(self) -> None:
        """Read users and keys. Raises ConfigError, MetadataError."""
        await self.users.start()
        await self.tokens.start()

    def close(self) -> None:
        """Check no further password."""
        self.passwords.close()

    def _bearer(self, token: str) -> Bearer:
        """Return who a token speaks for. Raises TokenRefused."""
        claims = self.tokens.claims(token)
        return bearer_of(claims, self._token_rules, self.clock.now_ms() / 1000)

    def is_full(self, host: str, now_s: float) -> bool:
        """Whether so many failures of an address wait that it may not try again now."""
        return self._delays.is_full(host, now_s)

    def delay_s(self, host: str, now_s: float) -> float:
        """Count a failure of an address; return how long its answer waits."""
        return self._delays.fail(host, now_s)

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(_NONCE_BITS):048x}"


class Login:
    """One connection's."""

    def __init__(
        self,
        logins: Logins,
        on_user: Callable[[str], None],
        fail: Callable[[str], None],
        let_go: Callable[[], None],
    ) -> None:
        """`on_user` hears who the client is; `fail` closes the connection; `let_go` drops what is
        held of its requests."""
        self._logins = logins
        self._session = logins.session()
        self._on_user = on_user
        self._fail = fail
        self._let_go = let_go
        self._work: asyncio.Task[Any] | None = None
        """What goes on for the client."""
        self._answer_at_s = -math.inf
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(
            logins.config.sasl_login_timeout_ms / 1000, self._on_timeout
        )
        self._ends_s = math.inf
        self.lifetime_ms = 0
        """How long the login is good for; 0: as long as the connection."""
        self.failure = ""
        """Why the connection has to be closed once it is answered; empty: it has not."""

    def close(self) -> None:
        """The connection is gone, and is not kept by us, whom it keeps; nothing goes on for it."""
        self._timer.cancel()
        self._on_user = self._fail = _ignore
        self._let_go = _do_nothing
        if self._work is not None:
            self._work.cancel()

    def refusal(self, api_key: int) -> str:
        """Return why a request must not be served; empty if it may."""
        if self._session.is_logged_in and self._loop.time() < self._ends_s:
            return ""
        if api_key in _BEFORE_LOGIN:
            return ""
        when = "before logging in" if self._session.user is None else "after the login has ended"
        return f"a request of api {api_key} {when}"

    @property
    def is_logged_in(self) -> bool:
        """Whether the client is known."""
        return self._session.is_logged_in

    @property
    def mechanisms(self) -> list[str]:
        """What clients may choose from."""
        return [str(mechanism) for mechanism in self._session.mechanisms]

    def handshake(self, name: str) -> Handshake:
        """The client chooses a mechanism."""
        outcome = self._session.handshake(name)
        if self._session.is_over:
            self.failure = f"SASL mechanism {name[:100]!r} is {outcome.value}"
        return outcome

    async def authenticate(self, host: str, token: bytes) -> Challenge | Accepted | Refused:
        """The client sends a token; `wait` says when the outcome may be told.

        Raises AccessUnknown, TooManyLogins; then the connection is to be closed as well.
        """
        asked_s = self._loop.time()
        if self._logins.is_full(host, asked_s):
            self.failure = "too many logins of this address have just failed"
            raise TooManyLogins(self.failure)
        self._work = asyncio.current_task()
        try:
            outcome = await self._outcome(host, token)
        finally:
            self._work = None
        if isinstance(outcome, Refused):
            self._on_refused(outcome, host, asked_s)
        return outcome

    async def wait(self) -> None:
        """Return once the last outcome may be told. Whoever asks has to let go of the request."""
        wait_s = self._answer_at_s - self._loop.time()
        if wait_s > 0:
            self._let_go()
            self._work = asyncio.current_task()
            try:
                await asyncio.sleep(wait_s)
            finally:
                self._work = None

    async def _outcome(self, host: str, token: bytes) -> Challenge | Accepted | Refused:
        logins = self._logins
        if self._session.mechanism is Mechanism.OAUTHBEARER:
            await self._prepare(token)
            await logins.turns.next()  # a signature is checked; SCRAM's steps are short
        try:
            outcome = self._session.authenticate(token)
            if isinstance(outcome, PasswordCheck):
                is_right = await logins.passwords.is_right(outcome, host)
                outcome = self._session.checked(is_right)
        except AccessUnknown as error:
            _log.warning("login.unknown peer=%s reason=%r", host, str(error), extra=AT_WILL)
            self.failure = "nobody knows the passwords now"
            raise
        except TooManyLogins as error:
            self.failure = str(error)
            raise
        if isinstance(outcome, Accepted):
            logins.accepted += 1
            self._timer.cancel()
            self.lifetime_ms = self._lifetime_ms(outcome)
            self._ends_s = math.inf
            if self.lifetime_ms:
                self._ends_s = self._loop.time() + self.lifetime_ms / 1000
            self._on_user(outcome.user)
        return outcome

    def _on_refused(self, outcome: Refused, host: str, asked_s: float) -> None:
        logins = self._logins
        logins.refused += 1
        _log.warning(
            "login.refused peer=%s user=%r mechanism=%s reason=%r",
            host, (outcome.user or "")[:100], self._session.mechanism, outcome.reason,
            extra=AT_WILL,
        )  # fmt: skip
        self._answer_at_s = asked_s + logins.delay_s(host, self._loop.time())
        self.failure = "the login failed"

    async def _prepare(self, token: bytes) -> None:
        """Have the key that a token is signed with, if its issuer has it."""
        with contextlib.suppress(TokenRefused):
            await self._logins.tokens.prepare(token_of(token))

    def _lifetime_ms(self, accepted: Accepted) -> int:
        """Return how long a login is good for; 0: as long as the connection."""
        most_ms = self._logins.config.sasl_reauth_max_ms
        if accepted.expires_s == math.inf:
            return most_ms
        left_ms = max(1, int(accepted.expires_s * 1000) - self._logins.clock.now_ms())
        return min(left_ms, most_ms) if most_ms else left_ms

    def _on_timeout(self) -> None:
        self._fail("no login within sasl_login_timeout_ms")


def _do_nothing() -> None:
    """There is nothing to let go of any more."""


def _ignore(text: str) -> None:
    """There is nobody to tell any more."""


class PasswordChecks:
    """The thread. It begins with the first check."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "passwords")
        self._waiting: dict[str, deque[tuple[PasswordCheck, asyncio.Future[bool]]]] = {}
        """By address, in the order of their turns."""
        self._is_busy = False

    @property
    def waiting_count(self) -> int:
        """Checks that have not begun."""
        return sum(map(len, self._waiting.values()))

    async def is_right(self, check: PasswordCheck, host: str) -> bool:
        """Say whether it is the password; who is cancelled before its turn costs nothing.

        Raises TooManyLogins: too many checks of that address wait.
        """
        network = network_of(host)
        waiting = self._waiting.setdefault(network, deque())
        if len(waiting) >= WAITING_MAX:
            raise TooManyLogins(f"{WAITING_MAX} logins of this address wait already")
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = check, outcome
        waiting.append(entry)
        self._begin()
        try:
            return await outcome
        except asyncio.CancelledError:
            self._withdraw(network, entry)
            raise

    def close(self) -> None:
        """Begin no further check."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._waiting.clear()

    def _withdraw(self, network: str, entry: tuple[PasswordCheck, asyncio.Future[bool]]) -> None:
        waiting = self._waiting.get(network)
        if waiting is not None and entry in waiting:
            waiting.remove(entry)
            if not waiting:
                del self._waiting[network]

    def _begin(self) -> None:
        """Have the next address checked, unless a check is under way."""
        if self._is_busy or not self._waiting:
            return
        network = next(iter(self._waiting))
        waiting = self._waiting.pop(network)
        check, outcome = waiting.popleft()
        if waiting:
            self._waiting[network] = waiting  # behind all others
        self._is_busy = True
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._thread, check.is_right).add_done_callback(
            lambda done: self._on_checked(done, outcome)
        )

    def _on_checked(self, done: asyncio.Future[bool], outcome: asyncio.Future[bool]) -> None:
        self._is_busy = False
        if not outcome.done():
            if done.cancelled():
                outcome.cancel()
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())
        if not done.cancelled():
            self._begin()


def own_account(config: SecurityConfig, rng: Rng) -> Account | None:
    """Return what this broker logs in as; None: it cannot."""
    if not config.inter_broker_user:
        return None
    return Account(
        str(config.inter_broker_mechanism),
        config.inter_broker_user,
        config.inter_broker_password,
        lambda: f"{rng.getrandbits(_NONCE_BITS):048x}",
    )


def own_credentials(config: SecurityConfig, secret: bytes) -> Mapping[str, Credentials]:
    """Return what other brokers' logins are checked by, by user name. `secret`: with it, this user
    looks like one that does not exist."""
    user = config.inter_broker_user
    if not user:
        return {}
    return {
        user: {
            mechanism: _credential(
                mechanism, config.inter_broker_password, salt_of(mechanism, user, secret)
            )
            for mechanism in SCRAM_NUMBERS.values()
        }
    }


def _credential(mechanism: Mechanism, password: str, salt: bytes) -> ScramCredential:
    made = salted(mechanism, password, salt, USUAL_ITERATIONS)
    return credential_of(mechanism, made, salt, USUAL_ITERATIONS)
