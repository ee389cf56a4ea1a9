"""Settings of who may use a program's HTTP port, and the roles that there are.

Brokers, bookies, auto recovery and schema registries have the same settings, and one piece checks
requests by them (`client/node/http_guard.py`). Without a token and without an authority for
clients' certificates, whoever reaches the port may do everything there.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from client.config import setting
from client.errors import ConfigError
from client.file_modes import warn_of_readers
from client.security.principal_rules import PrincipalRules

SECRET_CHARS_MIN = 16
"""Of a secret that programs send each other: what is shorter can be guessed."""

TOKENS_MAX: Final = 1_000
"""In a file: each request's token is compared with all of them."""
_RESERVED: Final = ("admin_token", "admin_read_token", "anybody")
"""What the log calls others by."""
_FILE_BYTES_MAX: Final = 1 << 20


class Role(enum.IntEnum):
    """What somebody may do by HTTP; a higher one may do all that a lower one may."""

    LOOK = 1
    """See how the cluster is, and no record's contents."""
    OPERATE = 2
    """Move, repair and tune what is there, read and publish records; nothing is lost by it."""
    ADMINISTER = 3
    """Everything: make, change and delete topics, ledgers and groups; see who did what."""

    @property
    def word(self) -> str:
        """Its name in settings and answers."""
        return self.name.lower()


ROLES = {role.word: role for role in Role}


class Caller(NamedTuple):
    """Who sent a request, as far as that is known."""

    name: str
    """A token's name, or the name in a certificate."""
    role: Role
    is_node: bool = False
    """Whether it has the token that nodes use with each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """Of one program's HTTP port; programs' settings inherit them."""

    admin_token: str = setting(
        "",
        "Bearer token of role administer, the same on all nodes: brokers use it with each other"
        " and with bookies. Without it, or clients' certificates, everybody may do everything.",
        secret=True,
    )
    admin_read_token: str = setting(
        "", "Another bearer token, of role look. Needs admin_token.", secret=True
    )
    admin_tokens_file: Path | None = setting(
        None,
        "File with further tokens, one a line: NAME ROLE TOKEN, where ROLE is look, operate or"
        " administer. Needs admin_token. A changed file is picked up without a restart.",
    )
    admin_tls_cert: Path | None = setting(
        None,
        "PEM file with the certificate chain of the HTTP port; with it, the port speaks HTTPS. A"
        " changed file is picked up without a restart, as are those below.",
    )
    admin_tls_key: Path | None = setting(None, "PEM file with the certificate's key.")
    admin_tls_client_ca: Path | None = setting(
        None,
        "PEM file with the authority of clients' certificates; with it, a client may show one"
        " instead of a token.",
    )
    admin_tls_principal_rules: str = setting(
        "DEFAULT",
        "How a certificate's distinguished name becomes a client's name, as in Kafka's"
        " ssl.principal.mapping.rules.",
    )
    admin_principals: tuple[str, ...] = setting(
        (),
        "Roles of clients with certificates, as NAME:ROLE. Clients that are not listed need a"
        " token.",
    )
    admin_metrics_open: bool | None = setting(
        None,
        "Whether /metrics, which has the names of topics, groups and bookies, is open to everybody"
        " who reaches the port. Off: it needs role look. By default it is off as soon as there is"
        " an admin_token or an authority of clients' certificates.",
    )

    admin_failure_delay_ms: int = setting(
        100,
        "How long the answer to a wrong token is delayed; twice as long each time for the same"
        " address, up to admin_failure_delay_max_ms.",
        at_least=0,
    )
    admin_failure_delay_max_ms: int = setting(
        5_000,
        "The longest such delay. While ten answers to an address are delayed, further tokens from"
        " it are refused with 429, which slows down guessing.",
        at_least=0,
    )

    @property
    def asks_callers(self) -> bool:
        """Whether anybody has to say who they are."""
        return bool(self.admin_token) or self.admin_tls_client_ca is not None

    @property
    def metrics_are_open(self) -> bool:
        """Whether nobody has to say who they are for /metrics."""
        return not self.asks_callers if self.admin_metrics_open is None else self.admin_metrics_open


def check_admin_access(access: AdminAccess) -> None:
    """Check relations; for `__post_init__` of settings that inherit these. Raises ConfigError."""
    for name in ("admin_read_token", "admin_tokens_file"):
        if getattr(access, name) and not access.admin_token:
            raise ConfigError(f"{name} has no effect without admin_token")
    if access.admin_token and access.admin_token == access.admin_read_token:
        raise ConfigError("admin_token and admin_read_token must differ")
    if (access.admin_tls_cert is None) != (access.admin_tls_key is None):
        raise ConfigError("admin_tls_cert and admin_tls_key must be set together")
    if access.admin_tls_client_ca is not None and access.admin_tls_cert is None:
        raise ConfigError("admin_tls_client_ca needs admin_tls_cert and admin_tls_key")
    if (access.admin_tls_client_ca is None) != (not access.admin_principals):
        raise ConfigError("admin_tls_client_ca and admin_principals must be set together")
    if access.admin_metrics_open is False and not access.asks_callers:
        raise ConfigError("admin_metrics_open = false needs admin_token or admin_tls_client_ca")
    if access.admin_failure_delay_ms > access.admin_failure_delay_max_ms:
        raise ConfigError("admin_failure_delay_ms exceeds admin_failure_delay_max_ms")
    roles_of(access.admin_principals)
    try:
        PrincipalRules(access.admin_tls_principal_rules)
    except ConfigError as error:
        raise ConfigError(f"admin_{error}") from None


def roles_of(principals: tuple[str, ...]) -> dict[str, Role]:
    """Read NAME:ROLE of each. Raises ConfigError."""
    found = {}
    for entry in principals:
        name, _, word = entry.rpartition(":")
        if not name or word not in ROLES:
            known = ", ".join(ROLES)
            raise ConfigError(f"admin_principals: {entry!r} is not NAME:ROLE with one of {known}")
        found[name] = ROLES[word]
    return found


def check_reachable(access: AdminAccess, host: str, *, why: str) -> None:
    """Refuse a port that strangers can reach and that asks nobody who they are. `why`: the setting
    that makes it one too many. Raises ConfigError."""
    if not access.asks_callers and not is_loopback(host):
        raise ConfigError(
            f"{why} needs admin_token: whoever reaches the admin API at {host or 'all addresses'}"
            " may do everything"
        )


def check_secret(name: str, secret: str, hosts: Iterable[str]) -> None:
    """Refuse a secret that can be guessed, where strangers may try. Raises ConfigError.

    `name`: of the setting; `hosts`: where programs listen that let in whoever has it.
    """
    if 0 < len(secret) < SECRET_CHARS_MIN and not all(map(is_loopback, hosts)):
        raise ConfigError(
            f"{name} has {len(secret)} characters, which other machines can guess: it needs at"
            f" least {SECRET_CHARS_MIN}, as of `openssl rand -hex 16`"
        )


class Teller(NamedTuple):
    """Who told the addresses of the admin API, if the operator did not name them."""

    hosts: frozenset[str]
    """Where it was asked: the operator has named these."""
    is_proven: bool
    """Whether its certificate was good for that name, so that nobody else can have answered."""


def may_carry_token(scheme: str, host: str) -> bool:
    """Say whether a token may be sent to an address: who listens to a network must not have it."""
    return scheme == "https" or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Say whether a host name or address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Token(NamedTuple):
    secret: bytes
    caller: Caller


class Tokens:
    """The tokens that a program's HTTP port takes, with names and roles.

    A file of them has one a line, `NAME ROLE TOKEN`; empty lines and lines that begin with # say
    nothing. No error shows a token.
    """

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
            is_node = role is Role.ADMINISTER
            yield _Token(secret.encode(), Caller(name, role, is_node))
    path = access.admin_tokens_file
    if path is not None:
        try:
            with path.open("rb") as file:
                lines = file.read(_FILE_BYTES_MAX + 1)
            if len(lines) > _FILE_BYTES_MAX:
                raise ValueError(f"it has more than {_FILE_BYTES_MAX} bytes")
            warn_of_readers(path)
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
        if len(secret) < SECRET_CHARS_MIN:
            raise ValueError(f"line {number}: a token has at least {SECRET_CHARS_MIN} characters")
        if name in _RESERVED:
            raise ValueError(f"line {number}: {name} is the name of another token")
        if name in names or len(names) == TOKENS_MAX:
            raise ValueError(f"line {number}: {name} is there twice, or more than {TOKENS_MAX}")
        names.add(name)
        yield _Token(secret.encode(), Caller(name, ROLES[role]))
