"""The user that brokers log in as to each other: its name and password are settings of each broker.

So a cluster can start that nobody has made users in yet, and whoever knows that password can make
them. What is kept to check a login is derived at the start, and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.access.users import Credentials
from broker.cluster.peer_access import Account
from broker.security.config import SecurityConfig
from broker.security.core.mechanisms import SCRAM_NUMBERS, Mechanism
from broker.security.core.scram import ITERATIONS_MIN, ScramCredential, credential_of, salted
from client.ids import Rng

_SALT_BITS: Final = 128
_NONCE_BITS: Final = 192


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


def own_credentials(config: SecurityConfig, rng: Rng) -> Mapping[str, Credentials]:
    """Return what other brokers' logins are checked by, by user name."""
    if not config.inter_broker_user:
        return {}
    salt = rng.getrandbits(_SALT_BITS).to_bytes(_SALT_BITS // 8, "big")
    password = config.inter_broker_password
    return {
        config.inter_broker_user: {
            mechanism: _credential(mechanism, password, salt)
            for mechanism in SCRAM_NUMBERS.values()
        }
    }


def _credential(mechanism: Mechanism, password: str, salt: bytes) -> ScramCredential:
    made = salted(mechanism, password, salt, ITERATIONS_MIN)
    return credential_of(mechanism, made, salt, ITERATIONS_MIN)
