"""How a client of a SASL listener logs in: what it may send before, for how long, and how often.

Before it has logged in, a client may ask for the API versions and send the requests of SASL, none
of which may be large; anything else closes the connection, and so does taking too long. A login may
have an end: then the client has to log in again before (KIP-368).

A failed login is answered late, later with each failure from one address, and then the connection
is closed. How late is counted from the request on, so the time does not tell how long the password
took to check, which would tell who exists. The checks of PLAIN's passwords have a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from typing import Final

from broker.access.password_checks import PasswordChecks
from broker.access.token_keys import TokenKeys
from broker.access.users import Users
from broker.security.config import SecurityConfig
from broker.security.core.bearer import Bearer, TokenRefused, bearer_of, token_of
from broker.security.core.mechanisms import Mechanism
from broker.security.core.sasl import (
    Accepted,
    Challenge,
    Handshake,
    PasswordCheck,
    Refused,
    SaslSession,
)
from broker.security_errors import AccessUnknown
from client.ids import Clock, Rng
from client.node.logs import AT_WILL
from client.node.turns import Turns
from client.security.failure_delays import FailureDelays
from client.wire.kafka.apis import ApiKey

log = logging.getLogger(__name__)

_BEFORE_LOGIN: Final = frozenset(
    (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
)
_FORGOTTEN_AFTER_S: Final = 300.0
_HOSTS_MAX: Final = 10_000
_NONCE_BITS: Final = 192


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
        self._secret = rng.getrandbits(256).to_bytes(32, "big")
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
            secret=self._secret,
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

    def delay_s(self, host: str, now_s: float) -> float:
        """Count a failure of an address; return how long its answer waits."""
        return self._delays.fail(host, now_s)

    def _nonce(self) -> str:
        return f"{self._rng.getrandbits(_NONCE_BITS):048x}"


class Login:
    """One connection's."""

    def __init__(
        self, logins: Logins, on_user: Callable[[str], None], fail: Callable[[str], None]
    ) -> None:
        """`on_user` hears who the client is; `fail` closes the connection."""
        self._logins = logins
        self._session = logins.session()
        self._on_user = on_user
        self._fail = fail
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
        """The connection is gone, and is not kept by us, whom it keeps."""
        self._timer.cancel()
        self._on_user = self._fail = _ignore

    def refusal(self, api_key: int) -> str:
        """Return why a request must not be served; empty if it may."""
        if self._session.is_logged_in and self._loop.time() < self._ends_s:
            return ""
        if api_key in _BEFORE_LOGIN:
            return ""
        when = "before logging in" if self._session.user is None else "after the login has ended"
        return f"a request of api {api_key} {when}"

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
        """The client sends a token; what is refused is answered late. Raises AccessUnknown."""
        logins, asked_s = self._logins, self._loop.time()
        if self._session.mechanism is Mechanism.OAUTHBEARER:
            await self._prepare(token)
            await logins.turns.next()  # a signature is checked; SCRAM's steps are short
        try:
            outcome = self._session.authenticate(token)
            if isinstance(outcome, PasswordCheck):
                outcome = self._session.checked(await logins.passwords.is_right(outcome))
        except AccessUnknown as error:
            log.warning("login.unknown peer=%s reason=%r", host, str(error), extra=AT_WILL)
            self.failure = "nobody knows the passwords now"
            raise
        if isinstance(outcome, Accepted):
            logins.accepted += 1
            self._timer.cancel()
            self.lifetime_ms = self._lifetime_ms(outcome)
            self._ends_s = math.inf
            if self.lifetime_ms:
                self._ends_s = self._loop.time() + self.lifetime_ms / 1000
            self._on_user(outcome.user)
        elif isinstance(outcome, Refused):
            logins.refused += 1
            mechanism = self._session.mechanism
            log.warning(
                "login.refused peer=%s user=%r mechanism=%s reason=%r",
                host, (outcome.user or "")[:100], mechanism, outcome.reason, extra=AT_WILL,
            )  # fmt: skip
            now_s = self._loop.time()
            await asyncio.sleep(max(0.0, asked_s + logins.delay_s(host, now_s) - now_s))
            self.failure = "the login failed"
        return outcome

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


def _ignore(text: str) -> None:
    """There is nobody to tell any more."""
