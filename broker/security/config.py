"""Settings of a broker's listeners and of TLS on them: the table `[security]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from broker.security.core.acls import ANONYMOUS, USER
from broker.security.core.bearer import TokenRules
from broker.security.core.listeners import DEFAULT_NAME, Listener, parse_listeners
from broker.security.core.scram import Mechanism
from client.config import check_ranges, setting
from client.errors import ConfigError
from client.security.admin_access import check_reachable, check_secret, is_loopback
from client.security.principal_rules import PrincipalRules

ClientAuth = Literal["none", "requested", "required"]

_LISTENER_SETTINGS: Final = (
    "listener_protocols", "advertised_listeners", "inter_broker_listener", "tls_cert",
)  # fmt: skip

_REPLACED_BY_LISTENERS: Final = {
    "listen_host": "127.0.0.1", "port": 9092, "advertised_host": None, "advertised_port": 0,
}  # fmt: skip
"""The broker's settings of the one listener of plain text, with their defaults."""
_SESSIONS_OLD: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Who may reach a broker where, and how."""

    listeners: tuple[str, ...] = setting(
        (),
        "Where clients connect, each NAME://host:port, Kafka's listeners; port 0 takes a free one."
        " Default: one that speaks plain text, at listen_host and port.",
    )
    listener_protocols: tuple[str, ...] = setting(
        (),
        "Security protocol of each listener, NAME:PROTOCOL, Kafka's listener.security.protocol.map:"
        " PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. A listener named like a protocol needs none.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        "Address that clients of a listener are told, NAME://host:port, Kafka's"
        " advertised.listeners; default: the address each client connected to.",
    )
    inter_broker_listener: str | None = setting(
        None,
        "Name of the listener that other brokers use, Kafka's inter.broker.listener.name; default:"
        " the first one. If it asks nobody who they are, and there are others, whoever reaches it"
        " counts as a broker: keep clients away from it.",
    )
    inter_broker_mechanism: Mechanism = setting(
        Mechanism.SCRAM_SHA_512,
        "How brokers log in to each other, where that listener is a SASL one, Kafka's"
        " sasl.mechanism.inter.broker.protocol.",
    )
    inter_broker_user: str = setting(
        "",
        "The user that brokers log in as, the same on all of them. It needs no entry among the"
        " users: whoever knows inter_broker_password can log in as that user.",
    )
    inter_broker_password: str = setting("", "That user's password.", secret=True)
    tls_cert: Path | None = setting(
        None, "PEM file with the certificate chain of the broker; SSL listeners need it."
    )
    tls_key: Path | None = setting(None, "PEM file with the certificate's key, unencrypted.")
    tls_client_ca: Path | None = setting(
        None, "PEM file with the authorities of clients' certificates (mutual TLS)."
    )
    tls_client_auth: ClientAuth = setting(
        "none", "Whether clients of SSL listeners show a certificate, Kafka's ssl.client.auth."
    )
    tls_peer_ca: Path | None = setting(
        None,
        "PEM file with the authority of other brokers' certificates, for connections to them;"
        " default: those that this machine trusts. Certificates must name the advertised host.",
    )
    tls_version_min: Literal["1.2", "1.3"] = setting("1.2", "Lowest TLS version of clients.")
    tls_principal_rules: str = setting(
        "DEFAULT",
        "How a client certificate's distinguished name becomes a user name, Kafka's"
        " ssl.principal.mapping.rules.",
    )
    sasl_mechanisms: tuple[Mechanism, ...] = setting(
        (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
        "How clients of SASL listeners log in, Kafka's sasl.enabled.mechanisms. PLAIN sends the"
        " password itself: have it with SASL_SSL only.",
    )
    sasl_login_timeout_ms: int = setting(
        10_000,
        "A connection of a SASL listener whose client has not logged in after this time is closed.",
        at_least=100,
    )
    sasl_login_bytes_max: int = setting(
        64 * 1024, "Largest request of a client that has not logged in.", at_least=1024
    )
    sasl_logins_bytes_max: int = setting(
        16 << 20,
        "Bytes of requests of clients that have not logged in, over all connections, and as much"
        " again of those that are incomplete. Beyond, such clients wait for each other, nobody"
        " else.",
        at_least=64 * 1024,
    )
    sasl_failure_delay_ms: int = setting(
        100,
        "How long the answer to a failed login is delayed. Twice as long each time for the same"
        " address, up to sasl_failure_delay_max_ms.",
        at_least=0,
    )
    sasl_failure_delay_max_ms: int = setting(
        5_000, "The longest such delay. It slows down guessing of passwords.", at_least=0
    )
    sasl_reauth_max_ms: int = setting(
        0,
        "How long a login is valid, Kafka's connections.max.reauth.ms: clients log in again"
        " before; a connection that did not is closed. 0: for as long as the connection lasts.",
        at_least=0,
    )
    oauth_jwks: str = setting(
        "",
        "Key set (JWKS) of the issuer of OAUTHBEARER's tokens: an https URL or a file, Kafka's"
        " sasl.oauthbearer.jwks.endpoint.url. Tokens must be signed with one of its keys.",
    )
    oauth_jwks_refresh_ms: int = setting(
        3_600_000,
        "How old that key set may be when a token arrives. A key that is missing in it makes the"
        " broker read it again at once, at most every 10 s.",
        at_least=1_000,
    )
    oauth_issuer: str = setting("", "Required value of a token's claim iss.")
    oauth_audiences: tuple[str, ...] = setting((), "One of these must be in claim aud.")
    oauth_scopes: tuple[str, ...] = setting((), "All of these must be in claim scope.")
    oauth_user_claim: str = setting("sub", "The claim that names the user.")
    oauth_user_prefix: str = setting(
        "",
        "What names of users begin with who come with a token. Without it, tokens that name a super"
        " user are refused, because whoever chooses names at the issuer would choose that one.",
    )
    oauth_clock_skew_ms: int = setting(
        30_000,
        "How far the issuer's clock may differ from the broker's.",
        at_least=0,
        at_most=600_000,
    )
    authorization: bool = setting(
        False,
        "Whether access control lists decide who may do what, Kafka's authorizer.class.name."
        " Whatever they do not allow is refused, except to super users; brokers have to be among"
        " these.",
    )
    super_users: tuple[str, ...] = setting(
        (),
        "Principals that may do everything, each User:NAME, Kafka's super.users; the one that"
        " brokers have towards each other must be among them, or be allowed CLUSTER_ACTION, unless"
        " inter_broker_listener names one beside others that asks nobody who they are.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Whether everybody may use a topic, group or id for which there is no entry."
    )
    acls_max: int = setting(
        20_000,
        "Most access control entries in the cluster; each takes half a KiB of memory. Higher:"
        " listing all of them holds up others for longer.",
        at_least=1, at_most=200_000,
    )  # fmt: skip
    users_max: int = setting(
        10_000,
        "Most users with passwords (SCRAM); each takes 2 KiB of memory on every broker. ZooKeeper"
        " lists at most some 15,000 at once.",
        at_least=1, at_most=15_000,
    )  # fmt: skip
    access_age_max_ms: int | None = setting(
        None,
        "A broker that is cut off from the metadata store for longer than this lets nobody log in"
        " with a password, and serves nobody whose rights it would have to know, except super"
        " users; the others get an error that clients retry. A removed password or right may still"
        " count there for this long. Leadership, and with it reads and writes, ends sooner."
        " Default: five times session_timeout_ms; at least that.",
        at_least=1_000,
    )
    quotas: bool = setting(
        True,
        "Whether the quotas of the cluster (users, client ids, addresses) are enforced here.",
    )
    quota_window_ms: int = setting(
        10_000,
        "A client that was idle may use at once what its quota allows in this time. Low: bursts of"
        " normal clients are slowed down; high: whatever the quota protects sees longer bursts.",
        at_least=1_000, at_most=600_000,
    )  # fmt: skip
    quota_owners_max: int = setting(
        10_000,
        "Users, client ids and addresses whose use is counted separately; further ones share the"
        " quota of one.",
        at_least=1,
    )
    quota_entities_max: int = setting(
        10_000,
        "Most users, client ids, addresses, and pairs of user and client id, with quotas; each"
        " takes 2 KiB of memory. ZooKeeper lists at most some 15,000 at once.",
        at_least=1, at_most=15_000,
    )  # fmt: skip
    tls_handshake_timeout_ms: int = setting(
        10_000,
        "A connection whose TLS handshake is not complete after this time is closed. Low: clients"
        " that are far away, or on a busy machine, cannot connect.",
        at_least=100,
    )
    tls_handshakes_max: int = setting(
        1_000,
        "TLS handshakes under way, of one address at most half of them; further connections are"
        " closed as they arrive.",
        at_least=1,
    )
    tls_reload_interval_ms: int = setting(
        10_000,
        "How often the files of certificates and keys are checked for changes; new connections use"
        " the new ones.",
        at_least=100,
    )

    def __post_init__(self) -> None:
        """Check ranges and relations; raise ConfigError."""
        check_ranges(self)
        if not self.listeners:
            for name in _LISTENER_SETTINGS:
                if getattr(self, name):
                    raise ConfigError(f"security.{name} has no effect without listeners")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("security.tls_cert and security.tls_key must be set together")
        if self.tls_client_auth != "none" and self.tls_client_ca is None:
            raise ConfigError(
                f"security.tls_client_auth {self.tls_client_auth} needs security.tls_client_ca"
            )
        if self.tls_client_ca is not None and self.tls_client_auth == "none":
            raise ConfigError("security.tls_client_ca has no effect with tls_client_auth none")
        self._check_sasl()
        self._check_authorization()
        PrincipalRules(self.tls_principal_rules)
        found = self.parsed_listeners()
        if any(listener.protocol.is_tls for listener in found):
            if self.tls_cert is None:
                raise ConfigError("SSL listeners need security.tls_cert and security.tls_key")
        elif self.tls_cert is not None:
            raise ConfigError("security.tls_cert has no effect: no listener speaks TLS")
        if found:
            self._check_inter_broker(found)
            self._check_anonymous(found)

    def check_beside(self, broker: Any) -> None:
        """Check relations to settings of the broker, which has this table. Raises ConfigError."""
        for name, default in _REPLACED_BY_LISTENERS.items():
            if self.listeners and getattr(broker, name) != default:
                raise ConfigError(f"{name} has no effect beside security.listeners")
        least_ms = broker.session_timeout_ms
        if self.access_age_max_ms is not None and self.access_age_max_ms < least_ms:
            raise ConfigError(
                f"security.access_age_max_ms must be at least session_timeout_ms ({least_ms}):"
                " leadership has to end first"
            )
        hosts = [listener.bind.host for listener in self.parsed_listeners()]
        check_secret("security.inter_broker_password", self.inter_broker_password, hosts)
        if self.authorization and broker.admin_port >= 0:
            check_reachable(broker, broker.admin_host, why="security.authorization")

    def _check_authorization(self) -> None:
        if not self.authorization and (self.super_users or self.allow_everyone_if_no_acl_found):
            raise ConfigError(
                "security.super_users and allow_everyone_if_no_acl_found have no effect without"
                " authorization"
            )
        for principal in self.super_users:
            if not principal.startswith(USER) or principal == USER:
                raise ConfigError(
                    f"security.super_users: {principal!r} is not of the form User:NAME"
                )

    def _check_sasl(self) -> None:
        if not self.sasl_mechanisms:
            raise ConfigError("security.sasl_mechanisms is empty: name a mechanism")
        if self.sasl_failure_delay_ms > self.sasl_failure_delay_max_ms:
            raise ConfigError("security.sasl_failure_delay_ms exceeds sasl_failure_delay_max_ms")
        self._check_oauth()
        if bool(self.inter_broker_user) != bool(self.inter_broker_password):
            raise ConfigError(
                "security.inter_broker_user and security.inter_broker_password must be set together"
            )
        mechanism = self.inter_broker_mechanism
        if self.inter_broker_user and mechanism not in self.sasl_mechanisms:
            raise ConfigError(
                f"security.inter_broker_mechanism {mechanism} is not among sasl_mechanisms"
            )

    def _check_oauth(self) -> None:
        needed = ("oauth_jwks", "oauth_issuer", "oauth_audiences")
        there = [name for name in needed if getattr(self, name)]
        if Mechanism.OAUTHBEARER not in self.sasl_mechanisms:
            if there:
                raise ConfigError(f"security.{there[0]} has no effect without OAUTHBEARER")
        elif len(there) < len(needed):
            raise ConfigError(f"OAUTHBEARER needs security.{', '.join(needed)}")
        elif self.oauth_jwks.startswith("http://") and not _is_loopback(self.oauth_jwks):
            raise ConfigError("security.oauth_jwks must be an https URL or a file")
        if self.inter_broker_mechanism is Mechanism.OAUTHBEARER:
            raise ConfigError("security.inter_broker_mechanism must be one with a password")

    def access_age_max_s(self, session_timeout_ms: int) -> float:
        """Return for how long what is known of users and rights counts."""
        age_ms = self.access_age_max_ms
        return (_SESSIONS_OLD * session_timeout_ms if age_ms is None else age_ms) / 1000

    @property
    def reserved_users(self) -> frozenset[str]:
        """Users that neither a token nor a certificate may name: the one of brokers, who come with
        its password, and the one of clients that say nothing of themselves."""
        return frozenset((ANONYMOUS, self.inter_broker_user)) - {""}

    def token_rules(self) -> TokenRules:
        """Return what tokens of OAUTHBEARER have to say."""
        supers = frozenset(principal.removeprefix(USER) for principal in self.super_users)
        return TokenRules(
            issuer=self.oauth_issuer,
            audiences=self.oauth_audiences,
            scopes=self.oauth_scopes,
            user_claim=self.oauth_user_claim,
            user_prefix=self.oauth_user_prefix,
            reserved=self.reserved_users | (frozenset() if self.oauth_user_prefix else supers),
            skew_s=self.oauth_clock_skew_ms / 1000,
        )

    def _check_inter_broker(self, found: tuple[Listener, ...]) -> None:
        names = [listener.name for listener in found]
        name = self.inter_broker_listener
        if name is not None and name.upper() not in names:
            raise ConfigError(f"security.inter_broker_listener {name} is not among the listeners")
        used = found[0] if name is None else found[names.index(name.upper())]
        if used.protocol.is_sasl and not self.inter_broker_user:
            raise ConfigError(
                f"brokers cannot log in to each other at listener {used.name}, which is"
                f" {used.protocol}: set security.inter_broker_user and inter_broker_password, or"
                " name another listener as security.inter_broker_listener"
            )

    def _check_anonymous(self, found: tuple[Listener, ...]) -> None:
        """Brokers are ANONYMOUS to each other at a listener that asks for nothing, but so are the
        clients of any other such listener. Raises ConfigError."""
        others = [one.name for one in found if one.name != self.inter_broker_name]
        open_ones = [one.name for one in found if one.name in others and self._is_anonymous(one)]
        if USER + ANONYMOUS in self.super_users and open_ones:
            raise ConfigError(
                f"security.super_users has {USER}{ANONYMOUS}, which every client of listener"
                f" {open_ones[0]} is: each of them could do everything. Brokers do not need it if"
                " security.inter_broker_listener names a listener of their own"
            )

    def _is_anonymous(self, listener: Listener) -> bool:
        """Say whether a client of a listener may say nothing of itself."""
        protocol = listener.protocol
        return not protocol.is_sasl and not (protocol.is_tls and self.tls_client_auth == "required")

    @property
    def links_by_listener(self) -> bool:
        """Whether who may open a link is decided by the listener alone: it was named for brokers,
        is not the only one, and cannot tell who its clients are."""
        if self.inter_broker_listener is None or len(self.listeners) < 2:
            return False
        (used,) = (one for one in self.parsed_listeners() if one.name == self.inter_broker_name)
        return self._is_anonymous(used)

    @property
    def inter_broker_name(self) -> str:
        """Name of the listener that other brokers use."""
        if self.inter_broker_listener is not None:
            return self.inter_broker_listener.upper()
        return self.parsed_listeners()[0].name if self.listeners else DEFAULT_NAME

    def parsed_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners; none if one of plain text is asked for. Raises ConfigError."""
        return parse_listeners(self.listeners, self.listener_protocols, self.advertised_listeners)


def _is_loopback(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")
