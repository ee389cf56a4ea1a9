"""The login of a load's own connection: SASL before the first request, if the broker wants one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from client.kafka_security import ClientSecurity, read_properties
from client.wire.kafka.sasl_client import SaslExchange
from client.wire.kafka.sasl_login import SaslLogin


def properties_of(file: str) -> Mapping[str, str]:
    """Return the settings of librdkafka in a file; none without one.

    The file is named and its content not given: arguments of processes are no place for passwords.
    Raises ConfigError.
    """
    return read_properties(Path(file)) if file else {}


def login_of(security: ClientSecurity) -> SaslLogin | None:
    """Return the login of a new connection; None if there is nobody to be."""
    if not security.is_sasl:
        return None
    name, password = security.username, security.password
    exchange = SaslExchange(security.mechanism, name, password, secrets.token_hex(16))
    return SaslLogin(security.mechanism, exchange)
