"""A client's way through SASL: mechanism, tokens, and again before its session ends.

    start ──handshake──> tokens ──token──> ... ──> logged in ──handshake──> tokens (again)
                            └─PLAIN's token──> checking ──checked──> logged in
      any step that fails: over, and the connection is closed

Requests in, verdicts out; who holds the connection acts on them. A client that logs in again must
do so by the same mechanism and as the same user (KIP-368). Passwords (PLAIN) are checked against
the SCRAM credentials of the user: nothing else is kept of them. That takes long on purpose, so it
is not done here but by whoever gets the `PasswordCheck`. What is refused says nothing to the
client of the reason; `Refused.reason` is for the log. Sources: KIP-43, KIP-152, KIP-255, RFC 4616.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.security.core import scram
from broker.security.core.bearer import INVALID, Bearer, TokenRefused, token_of
from broker.security.core.scram import Mechanism, ScramCredential, ScramError, ScramExchange

_PLAIN_BYTES_MAX: Final = 4_096
"""Of user and password: passwords are hashed as they are."""


class Users(Protocol):
    """Who there is."""

    def credentials(self, user: str) -> Mapping[Mechanism, ScramCredential]:
        """Return what is kept of a user's passwords; empty: there is no such user.

        May raise an error of who asks: nobody knows.
        """
        ...


class Challenge(NamedTuple):
    """The client has to answer this."""

    token: bytes


class Accepted(NamedTuple):
    """The client is who it says."""

    user: str
    token: bytes
    expires_s: float = math.inf
    """Until when it can show that, as Unix time."""


class PasswordCheck(NamedTuple):
    """A password has to be compared; `SaslSession.checked` wants to hear the outcome."""

    mechanism: Mechanism
    credential: ScramCredential
    password: str

    def is_right(self) -> bool:
        """Say whether it is the password. Takes some milliseconds, and may run on any thread."""
        return scram.is_password(self.mechanism, self.credential, self.password)

    def __repr__(self) -> str:
        """Show nothing of the password."""
        return f"PasswordCheck({self.mechanism})"


class Refused(NamedTuple):
    """The client is nobody; close the connection."""

    user: str | None
    """Who it said it was, if it came so far."""
    reason: str


class Handshake(enum.Enum):
    """What becomes of a SaslHandshake request."""

    DONE = "done"
    UNSUPPORTED = "unsupported"
    """There is no such mechanism here, or it is another one than before. The session is over."""
    OUT_OF_TURN = "out of turn"
    """Tokens are due. The session is over."""


class _State(enum.Enum):
    START = "start"
    TOKENS = "tokens"
    CHECKING = "checking"
    LOGGED_IN = "logged in"
    OVER = "over"


def _no_tokens(token: str) -> Bearer:
    raise TokenRefused("tokens are not accepted here")


class SaslSession:
    """One connection's."""

    def __init__(
        self,
        mechanisms: Sequence[Mechanism],
        users: Users,
        *,
        nonce: Callable[[], str],
        secret: bytes,
        bearer: Callable[[str], Bearer] = _no_tokens,
    ) -> None:
        """`nonce` returns another text each time; `secret` hides who exists, and is the same for
        all connections; `bearer` returns who a token of OAUTHBEARER speaks for, or raises
        TokenRefused."""
        self._bearer = bearer
        self._refusal = ""
        """Why a token is not taken, while the client is to hear so."""
        self.mechanisms = mechanisms
        self._users = users
        self._nonce = nonce
        self._secret = secret
        self._state = _State.START
        self.mechanism: Mechanism | None = None
        """What the client chose."""
        self.user: str | None = None
        """Who the client is, once it has logged in."""
        self._exchange: ScramExchange | None = None
        self._credential: ScramCredential | None = None
        """What the exchange, or check, goes by; None: there is no such user."""
        self._claimed: str | None = None
        self._compared: Mechanism | None = None
        """Of which credential it is, where that is not the mechanism's."""

    @property
    def is_logged_in(self) -> bool:
        """Whether requests may be served: the client is known, and stays so while it logs in
        again."""
        return self.user is not None and self._state is not _State.OVER

    @property
    def is_over(self) -> bool:
        """Whether it failed."""
        return self._state is _State.OVER

    def handshake(self, name: str) -> Handshake:
        """The client chooses a mechanism."""
        if self._state not in (_State.START, _State.LOGGED_IN):
            self._state = _State.OVER
            return Handshake.OUT_OF_TURN
        chosen = next((one for one in self.mechanisms if one == name), None)
        if chosen is None or (self.user is not None and chosen is not self.mechanism):
            self._state = _State.OVER
            return Handshake.UNSUPPORTED
        self._state, self.mechanism = _State.TOKENS, chosen
        return Handshake.DONE

    def authenticate(self, token: bytes) -> Challenge | Accepted | Refused | PasswordCheck:
        """The client sends a token.

        Raises what `Users.credentials` raises.
        """
        if self._state is not _State.TOKENS:
            self._state = _State.OVER
            return Refused(None, "a token without a handshake")
        try:
            if self.mechanism is Mechanism.PLAIN:
                return self._plain(token)
            if self.mechanism is Mechanism.OAUTHBEARER:
                return self._by_token(token)
            if self._exchange is None:
                return self._scram_first(token)
            return self._scram_last(self._exchange, token)
        except ScramError as error:
            return self._refuse(str(error))

    def checked(self, is_right: bool) -> Accepted | Refused:
        """A password was compared.

        Raises what `Users.credentials` raises.
        """
        if self._state is not _State.CHECKING:
            self._state = _State.OVER
            return Refused(self._claimed, "another request while the password was checked")
        if is_right and self._credential is not None:
            return self._accept_kept(b"")
        exists = self._credential is not None
        return self._refuse("the password is wrong" if exists else "there is no such user")

    def _plain(self, token: bytes) -> PasswordCheck | Refused:
        """Check `authzid NUL user NUL password`."""
        parts = token.split(b"\0") if len(token) <= _PLAIN_BYTES_MAX else []
        if len(parts) != 3:
            return self._refuse("the message is not in the format of PLAIN")
        try:
            acting_for, user, password = (part.decode("utf-8") for part in parts)
        except UnicodeDecodeError:
            return self._refuse("the message is not UTF-8 text")
        self._claimed = user
        if acting_for not in ("", user):
            return self._refuse("acting for another user is not allowed")
        kept = self._users.credentials(user)
        # A name that nobody has is checked like others. Other mechanisms and iterations take other
        # times, so whoever answers must not let the client see how long a check took.
        mechanism = next(iter(kept), Mechanism.SCRAM_SHA_256)
        self._credential = kept.get(mechanism)
        credential = self._credential or scram.nobodys(mechanism, user, self._secret)
        self._state, self._compared = _State.CHECKING, mechanism
        return PasswordCheck(mechanism, credential, password)

    def _by_token(self, message: bytes) -> Challenge | Accepted | Refused:
        """Check a token; the client of one that is not taken is told so, and answers."""
        if self._refusal:
            return self._refuse(self._refusal)
        try:
            bearer = self._bearer(token_of(message))
        except TokenRefused as error:
            self._refusal = str(error)
            return Challenge(INVALID)
        self._claimed = bearer.user
        return self._accept(b"", bearer.expires_s)

    def _scram_first(self, token: bytes) -> Challenge:
        assert self.mechanism is not None, "chosen by the handshake"
        first = scram.parse_first(token)
        self._claimed = first.name
        kept = self._credential = self._users.credentials(first.name).get(self.mechanism)
        credential = kept or scram.nobodys(self.mechanism, first.name, self._secret)
        self._exchange = ScramExchange(self.mechanism, first, credential, self._nonce())
        return Challenge(self._exchange.challenge.encode())

    def _scram_last(self, exchange: ScramExchange, token: bytes) -> Accepted | Refused:
        """Check the proof."""
        self._compared = self.mechanism
        return self._accept_kept(exchange.finish(token))

    def _accept_kept(self, token: bytes) -> Accepted | Refused:
        """Accept if the password is still kept: a check may have waited, and whoever logs in again
        may have waited with the proof for as long as it liked."""
        assert self._compared is not None and self._claimed is not None, "a token had both"
        if self._users.credentials(self._claimed).get(self._compared) != self._credential:
            return self._refuse("the password was changed meanwhile")
        return self._accept(token)

    def _accept(self, token: bytes, expires_s: float = math.inf) -> Accepted | Refused:
        assert self._claimed is not None, "named in the first token"
        if self.user is not None and self._claimed != self.user:
            return self._refuse("it is not the user who logged in before")
        self._state, self._exchange = _State.LOGGED_IN, None
        self.user = self._claimed
        return Accepted(self.user, token, expires_s)

    def _refuse(self, reason: str) -> Refused:
        self._state, self._exchange = _State.OVER, None
        return Refused(self._claimed, reason)
