"""Which whole-cluster schedules are secured, and how: logins, access control entries that change.

In these every client logs in as a user of its own, which has from the beginning the rights that
it needs. On top there are a keeper, who gives and takes rights and passwords all the time, and a
wanderer, whose rights these are and who tries everything at every broker. `access_book.py` says
what must hold.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.security.config import SecurityConfig
from broker.security.core.scram import Mechanism
from client.metadata import paths
from tests.fakes import sasl_client
from tests.simulation.kafka.connection import MECHANISM, PORT

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE = 0.25
"""Of the schedules of the kind "mixed", out of random numbers of its own."""
ADMIN, WANDERER = "admin", "wanderer0"
_BROKERS = "broker"
_ITERATIONS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredOptions:
    """How a secured schedule is secured."""

    change_every_s: float
    """How often the keeper changes something."""
    visit_every_s: float
    """How often the wanderer tries something."""
    reauth_max_ms: int
    """How long a login is good for; 0: as long as its connection."""
    brokers_log_in: bool
    """Whether brokers log in to each other; else they have a listener of their own."""


def draw_secured(seed: int) -> SecuredOptions | None:
    """Draw how a schedule is secured; None: it is not."""
    rng = random.Random(f"secured {seed}")
    if rng.random() >= SHARE:
        return None
    return SecuredOptions(
        change_every_s=rng.choice((0.05, 0.2, 0.6)),
        visit_every_s=rng.choice((0.02, 0.1)),
        reauth_max_ms=rng.choice((0, 300, 1_500)),
        brokers_log_in=rng.random() < 0.3,
    )


def password_of(user: str) -> str:
    """Return the password that a user has at first."""
    return f"first of {user}"


def security(
    options: SecuredOptions | None, host: str, access_age_max_ms: int | None = None
) -> SecurityConfig:
    """Return the settings of the broker on a host."""
    if options is None:
        return SecurityConfig(quotas=False)  # nobody is limited in these schedules
    listeners = {"SASL_PLAINTEXT": PORT}
    if not options.brokers_log_in:
        listeners["PLAINTEXT"] = PORT + 1
    return SecurityConfig(
        access_age_max_ms=access_age_max_ms,
        listeners=tuple(f"{name}://0.0.0.0:{port}" for name, port in listeners.items()),
        advertised_listeners=tuple(f"{name}://{host}:{port}" for name, port in listeners.items()),
        inter_broker_listener=list(listeners)[-1],
        inter_broker_mechanism=Mechanism.SCRAM_SHA_256,
        inter_broker_user=_BROKERS if options.brokers_log_in else "",
        inter_broker_password="theirs-is-long-enough" if options.brokers_log_in else "",
        sasl_mechanisms=(Mechanism.SCRAM_SHA_256,),
        sasl_failure_delay_ms=10,
        sasl_failure_delay_max_ms=100,
        sasl_reauth_max_ms=options.reauth_max_ms,
        authorization=True,
        super_users=(f"User:{ADMIN}", f"User:{_BROKERS}"),
        quotas=False,
    )


def users(clients: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the nodes of users that there are at first: (path, content)."""
    for user in clients:
        yield _user_node(user)


def _user_node(user: str) -> tuple[str, bytes]:
    salt, algorithm = b"salt of " + user.encode(), sasl_client.HASHES[MECHANISM]
    stored, server = sasl_client.keys(algorithm, password_of(user), salt, _ITERATIONS)
    kept = {
        "salt": sasl_client.text(salt),
        "stored_key": sasl_client.text(stored),
        "server_key": sasl_client.text(server),
        "iterations": _ITERATIONS,
    }
    node = {"version": 1, "name": user, "scram": {MECHANISM: kept}}
    name = hashlib.sha256(user.encode()).hexdigest()
    return f"{paths.USERS}/{name}", json.dumps(node).encode()


def entries(topic: str, group: str) -> Iterator[tuple[str, bytes]]:
    """Yield the nodes of the entries that there are from the beginning: (path, content).

    Everybody but the wanderer may use everything; nobody's entries are among those that the keeper
    changes."""
    rights = {
        ("TOPIC", "PREFIXED", topic[:1]): ("READ", "WRITE"),
        ("GROUP", "LITERAL", group): ("READ",),
    }
    for (kind, pattern, name), operations in rights.items():
        rows = [
            [f"User:{user}", "*", operation, "ALLOW"]
            for user in _clients()
            for operation in operations
        ]
        fields = {"version": 1, "resource_type": kind, "pattern": pattern, "name": name}
        text = f"{kind}/{pattern}/{name}"
        node = hashlib.sha256(text.encode()).hexdigest()
        yield f"{paths.ACLS}/{node}", json.dumps({**fields, "acls": rows}).encode()


def _clients() -> Iterator[str]:
    for role in ("producer", "reader", "member"):
        for number in range(4):
            yield f"{role}{number}"
