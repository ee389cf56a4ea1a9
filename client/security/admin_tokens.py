"""The tokens that a program's HTTP port takes, with names and roles.

A file of them has one a line, `NAME ROLE TOKEN`; empty lines and lines that begin with # say
nothing. No error shows a token.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from client.errors import ConfigError
from client.security.admin_access import ROLES, AdminAccess, Caller, Role

TOKENS_MAX: Final = 1_000
"""In a file: each request's token is compared with all of them."""
_CHARS_MIN: Final = 16
"""Of a token in a file: what is shorter can be guessed."""
_FILE_BYTES_MAX: Final = 1 << 20


class _Token(NamedTuple):
    secret: bytes
    caller: Caller


class Tokens:
    """All tokens of a program."""

    def __init__(self, access: AdminAccess) -> None:
        """Read the file, if there is one. Raises ConfigError."""
        self._tokens = tuple(_tokens(access))

    def caller(self, token: str) -> Caller | None:
        """Say whose a token is; every one is compared, however soon one fits."""
        given = token.encode("utf-8", "surrogateescape")
        found = None
        for one in self._tokens:
            if hmac.compare_digest(given, one.secret):
                found = one.caller
        return found


def _tokens(access: AdminAccess) -> Iterator[_Token]:
    for name, secret, role in (
        ("admin_token", access.admin_token, Role.ADMINISTER),
        ("admin_read_token", access.admin_read_token, Role.LOOK),
    ):
        if secret:
            yield _Token(secret.encode(), Caller(name, role))
    path = access.admin_tokens_file
    if path is not None:
        try:
            with path.open("rb") as file:
                lines = file.read(_FILE_BYTES_MAX + 1)
            if len(lines) > _FILE_BYTES_MAX:
                raise ValueError(f"it has more than {_FILE_BYTES_MAX} bytes")
            yield from _lines(lines.decode().splitlines())
        except (OSError, ValueError) as error:
            why = "is not UTF-8" if isinstance(error, UnicodeError) else error
            raise ConfigError(f"admin_tokens_file {path}: {why}") from None


def _lines(lines: Iterable[str]) -> Iterator[_Token]:
    """Raises ValueError, whose text shows no token."""
    names: set[str] = set()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or words[1] not in ROLES:
            raise ValueError(f"line {number} is not NAME ROLE TOKEN with one of {', '.join(ROLES)}")
        name, role, secret = words
        if len(secret) < _CHARS_MIN:
            raise ValueError(f"line {number}: a token has at least {_CHARS_MIN} characters")
        if name in names or len(names) == TOKENS_MAX:
            raise ValueError(f"line {number}: {name} is there twice, or more than {TOKENS_MAX}")
        names.add(name)
        yield _Token(secret.encode(), Caller(name, ROLES[role]))
