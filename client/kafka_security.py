"""How a client reaches brokers that want TLS or a login: the settings of Kafka's clients.

The names are those of Java's client and of librdkafka, so that one file serves all tools:

    security.protocol    PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    sasl.mechanism       PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    sasl.username, sasl.password, or Java's sasl.jaas.config with both
    ssl.ca.location, or Java's ssl.truststore.location of type PEM: whom to trust; without it, whom
                         this machine trusts
    ssl.certificate.location and ssl.key.location, or Java's ssl.keystore.location of type PEM with
                         both: the client's own certificate; ssl.key.password if it is encrypted
    ssl.endpoint.identification.algorithm
                         https, or none (empty) not to compare the broker's name with its
                         certificate

Any other setting of theirs is refused: nobody may believe that it had an effect.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from client.errors import ConfigError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PREFIXES: Final = ("security.", "sasl.", "ssl.")
"""What names of such settings begin with."""

_SAME: Final = {"sasl.mechanisms": "sasl.mechanism"}
_KNOWN: Final = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password",
        "sasl.jaas.config", "ssl.ca.location", "ssl.truststore.location", "ssl.truststore.type",
        "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.keystore.location", "ssl.keystore.type", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_JAAS: Final = re.compile(
    r"\s*[\w.]*\.(?:Plain|Scram)LoginModule\s+required\s+(?P<options>.*?);\s*", re.DOTALL
)
_JAAS_OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """Settings that fit together."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)
    checks_name: bool = True
    """Whether the broker's certificate has to be good for the name that it is reached by."""

    @property
    def is_tls(self) -> bool:
        """Whether everything is inside TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_sasl(self) -> bool:
        """Whether the client logs in."""
        return self.protocol.startswith("SASL_")

    def context(self) -> ssl.SSLContext:
        """Return the context of connections. Raises ConfigError if a file cannot be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if not self.checks_name:
                context.check_hostname = False
            if self.certificate is not None:
                password = self.key_password
                context.load_cert_chain(self.certificate, self.key, lambda: password)
        except (OSError, ValueError) as error:
            files = ", ".join(str(path) for path in (self.ca, self.certificate, self.key) if path)
            raise ConfigError(f"ssl settings ({files}): {error}") from error
        return context


PLAIN_TEXT: Final = ClientSecurity()
"""Neither TLS nor a login."""


def security_of(properties: Mapping[str, str]) -> ClientSecurity:
    """Read settings by their Kafka names; others than those of security are left alone.

    Raises ConfigError, which never repeats a password.
    """
    given = {
        _SAME.get(name, name): value.strip()
        for name, value in properties.items()
        if name.startswith(PREFIXES)
    }
    for name in given:
        if name not in _KNOWN:
            raise ConfigError(f"setting {name} is not supported")
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol must be one of {', '.join(PROTOCOLS)}")
    for name in given:
        if name.startswith("ssl.") and "SSL" not in protocol:
            raise ConfigError(f"{name} has no effect with security.protocol {protocol}")
        if name.startswith("sasl.") and "SASL" not in protocol:
            raise ConfigError(f"{name} has no effect with security.protocol {protocol}")
    found = ClientSecurity(protocol=protocol, **_tls(given), **_login(given))  # type: ignore[arg-type]
    if found.is_sasl and not (found.mechanism and found.username and found.password):
        raise ConfigError(
            f"security.protocol {protocol} needs sasl.mechanism, sasl.username and sasl.password"
        )
    return found


def _login(given: Mapping[str, str]) -> dict[str, object]:
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism and mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    jaas = given.get("sasl.jaas.config")
    if jaas is not None:
        if username or password:
            raise ConfigError("sasl.jaas.config excludes sasl.username and sasl.password")
        match = _JAAS.fullmatch(jaas)
        if match is None:
            raise ConfigError(
                'sasl.jaas.config must be "...PlainLoginModule required username=... password=...;"'
                " or the same of ScramLoginModule"
            )
        options = {
            name: re.sub(r"\\(.)", r"\1", quoted) or single or bare
            for name, quoted, single, bare in _JAAS_OPTION.findall(match["options"])
        }
        username, password = options.get("username", ""), options.get("password", "")
    return {"mechanism": mechanism, "username": username, "password": password}


def _tls(given: Mapping[str, str]) -> dict[str, object]:
    for kind in ("truststore", "keystore"):
        if f"ssl.{kind}.location" in given and given.get(f"ssl.{kind}.type", "").upper() != "PEM":
            raise ConfigError(f"ssl.{kind}.location must be a PEM file: set ssl.{kind}.type=PEM")
    ca = given.get("ssl.ca.location") or given.get("ssl.truststore.location")
    certificate = given.get("ssl.certificate.location")
    key = given.get("ssl.key.location")
    if (certificate is None) != (key is None):
        raise ConfigError("ssl.certificate.location and ssl.key.location must be set together")
    certificate = certificate or given.get("ssl.keystore.location")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise ConfigError("ssl.endpoint.identification.algorithm must be https, or none")
    return {
        "ca": Path(ca) if ca else None,
        "certificate": Path(certificate) if certificate else None,
        "key": Path(key) if key else None,
        "key_password": given.get("ssl.key.password", ""),
        "checks_name": algorithm == "https",
    }


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of Java's properties: `name=value` lines, # comments, a backslash at the end
    goes on. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    found: dict[str, str] = {}
    joined = re.sub(r"\\\n[ \t]*", "", text)
    for number, line in enumerate(joined.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        match = re.fullmatch(r"([^\s=:]+)\s*[=:]\s*(.*)", stripped)
        if match is None:
            raise ConfigError(f"{path}, line {number}: not of the form name=value")
        found[match[1]] = match[2]
    return found
