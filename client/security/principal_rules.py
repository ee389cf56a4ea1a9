"""Names a client by its certificate: distinguished names, and the rules that map them.

A principal is the certificate's distinguished name as Java writes it (RFC 2253, most specific part
first), or what the first rule that matches all of it makes of it:

    RULE:pattern/replacement/       $1 is the pattern's first group; L or U after the last slash:
    RULE:pattern/replacement/L      lower or upper case
    DEFAULT                         the distinguished name itself

A slash or comma inside is written with a backslash where it would end something. Source: Kafka's
ssl.principal.mapping.rules (KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from client.errors import ConfigError

_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^/\\])*)/(?P<to>(?:\\.|[^/\\])*)/"
    r"(?P<case>[LU]?))\s*(?:,|$)"
)
_GROUP: Final = re.compile(r"\$(\d)")

Subject = Sequence[Sequence[tuple[str, str]]]
"""Of a certificate, as the standard library's `getpeercert` has it: most general part first."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str
    case: str


def distinguished_name(subject: Subject) -> str:
    """Write a certificate's subject as Java does: CN=anna,OU=tests,O=quire."""
    parts = []
    for pairs in reversed(subject):
        parts.append("+".join(f"{_SHORT_NAMES.get(key, key)}={_escape(v)}" for key, v in pairs))
    return ",".join(parts)


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;=])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


class PrincipalRules:
    """Rules in order; the first that matches decides."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError."""
        self._rules = _parse(text)

    def name_of(self, subject: Subject) -> str | None:
        """Return the name of whoever has such a certificate; None if no rule matches it."""
        name = distinguished_name(subject)
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return name
            match = pattern.fullmatch(name)
            if match is None:
                continue
            found = _GROUP.sub(lambda at, match=match: match[int(at[1])] or "", replacement)  # type: ignore[misc]
            return found.lower() if case == "L" else found.upper() if case == "U" else found
        return None


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise ConfigError(
                "tls_principal_rules must be RULE:pattern/replacement/[LU] or DEFAULT, separated by"
                f" commas; not {text[at:]!r}"
            )
        rules.append(_rule(match))
        at = match.end()
    if not rules:
        raise ConfigError("tls_principal_rules has no rule")
    return rules


def _rule(match: re.Match[str]) -> _Rule:
    if match["default"]:
        return _Rule(None, "", "")
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise ConfigError(
            f"tls_principal_rules: {match['pattern']!r} is not a pattern: {error}"
        ) from None
    for group in _GROUP.findall(match["to"]):
        if int(group) > pattern.groups:
            raise ConfigError(f"tls_principal_rules: {match['pattern']!r} has no group {group}")
    return _Rule(pattern, re.sub(r"\\(.)", r"\1", match["to"]), match["case"])
