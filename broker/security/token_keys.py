"""The keys that tokens of OAUTHBEARER are signed with: a key set (JWKS) from a file or a URL.

It is read at the start, again from time to time, and when a token names a key that is not there:
issuers rotate keys. Such a token makes us ask at most once in some seconds, whoever sends how many.
While the issuer does not answer, the keys of before stay good. Source: RFC 7517.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from broker.security.config import SecurityConfig
from broker.security.core.bearer import TokenRefused
from client.errors import ConfigError
from client.node import background

log = logging.getLogger(__name__)

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
                     "ES512", "EdDSA")  # fmt: skip
"""All of them need a key that only the issuer has; "none" and those with a shared secret are not
among them."""
_KEYS_BYTES_MAX: Final = 256 * 1024
_FETCH_TIMEOUT_S: Final = 5.0
_ASK_AGAIN_S: Final = 10.0

Fetch = Callable[[str], Awaitable[bytes]]


class TokenKeys:
    """Implements `broker.security.core.bearer.Signatures`."""

    def __init__(self, config: SecurityConfig, fetch: Fetch | None = None) -> None:
        """`fetch` returns what a URL has; raises OSError."""
        self._where = config.oauth_jwks
        self._refresh_s = config.oauth_jwks_refresh_ms / 1000
        self._fetch = fetch_url if fetch is None else fetch
        self._keys: Any = None
        self._ids: frozenset[str] = frozenset()
        self._looked_s = -math.inf
        self._looking: asyncio.Task[None] | None = None
        self._jose = _jose() if self._where else None

    async def start(self) -> None:
        """Read the keys, if there are any. Raises ConfigError."""
        if self._where:
            try:
                await self._read()
            except (OSError, ValueError) as error:
                raise ConfigError(f"security.oauth_jwks {self._where}: {error}") from error

    async def prepare(self, token: str) -> None:
        """Read the keys again if they are old, or the token names one that is not known."""
        since_s = asyncio.get_running_loop().time() - self._looked_s
        is_known = _key_id(token) in self._ids
        if since_s < (self._refresh_s if is_known else _ASK_AGAIN_S):
            return
        if self._looking is None or self._looking.done():
            self._looking = background.begin(self._look(), "token keys")
        await asyncio.shield(self._looking)

    def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that is signed by one of the keys. Raises TokenRefused."""
        assert self._jose is not None, "a broker with OAUTHBEARER has keys"
        jwt, errors, _ = self._jose
        try:
            claims: Mapping[str, Any] = jwt.decode(token, self._keys, list(ALGORITHMS)).claims
        except (errors.JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenRefused(f"its signature is not valid: {type(error).__name__}") from error
        return claims

    async def _look(self) -> None:
        try:
            await self._read()
        except (OSError, ValueError) as error:
            self._looked_s = asyncio.get_running_loop().time()
            log.warning("login.keys_stale source=%s error=%r", self._where, str(error))

    async def _read(self) -> None:
        assert self._jose is not None
        if "://" in self._where:
            data = await self._fetch(self._where)
        else:
            data = _file(self._where)
        if len(data) > _KEYS_BYTES_MAX:
            raise ValueError("the key set is too large")
        tree = json.loads(data)
        if not isinstance(tree, dict) or not isinstance(tree.get("keys"), list):
            raise ValueError("it is not a JSON Web Key set")
        kept = [row for row in tree["keys"] if _is_public(row)]
        if not kept:
            raise ValueError("the key set has no public key to verify with")
        try:
            self._keys = self._jose[2].import_key_set({"keys": kept})
        except (self._jose[1].JoseError, TypeError, KeyError) as error:
            raise ValueError(f"the key set has an invalid key: {error}") from error
        self._ids = frozenset(str(row.get("kid")) for row in kept)
        self._looked_s = asyncio.get_running_loop().time()


def _file(path: str) -> bytes:
    """Return what a small local file has. Raises OSError."""
    return Path(path).read_bytes()


def _is_public(row: Any) -> bool:
    """Whether a key may verify: a shared secret is none, as whoever verifies could sign."""
    return (
        isinstance(row, dict)
        and row.get("kty") in ("RSA", "EC", "OKP")
        and row.get("use", "sig") == "sig"
        and "d" not in row
    )


def _key_id(token: str) -> str:
    """Return which key a token says that it is signed with."""
    try:
        head = token.split(".", 1)[0]
        fields = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        return str(fields.get("kid"))
    except (ValueError, AttributeError, RecursionError):
        return ""


def _jose() -> tuple[Any, Any, Any]:
    try:
        from joserfc import errors, jwt
        from joserfc.jwk import KeySet
    except ImportError as error:
        raise ConfigError("OAUTHBEARER needs the package joserfc: pip install joserfc") from error
    return jwt, errors, KeySet


async def fetch_url(url: str) -> bytes:
    """Return what a URL has. Raises OSError."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=_FETCH_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
            return await answer.content.read(_KEYS_BYTES_MAX + 1)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error) or type(error).__name__) from error
