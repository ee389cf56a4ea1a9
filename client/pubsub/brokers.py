"""Where the brokers are, and with which security settings they are reached."""

from __future__ import annotations

from typing import NamedTuple

from client.kafka_security import PLAIN_TEXT, ClientSecurity
from client.pubsub.addresses import parse, why_unreachable


class Brokers(NamedTuple):
    """Addresses, one of which is enough, and the security settings of a client."""

    bootstrap_servers: str
    security: ClientSecurity = PLAIN_TEXT

    @classmethod
    def of(cls, given: str | Brokers) -> Brokers:
        """Return the same, checked. Raises ConfigError if it is not `host:port[,host:port...]`."""
        brokers = given if isinstance(given, Brokers) else cls(given)
        parse(brokers.bootstrap_servers)
        return brokers

    def settings(self) -> dict[str, object]:
        """Return what aiokafka's clients take. Raises ConfigError if a file cannot be read."""
        security = self.security
        found: dict[str, object] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": security.protocol,
        }
        if security.is_tls:
            found["ssl_context"] = security.context()
        if security.is_sasl:
            found["sasl_mechanism"] = security.mechanism
            found["sasl_plain_username"] = security.username
            found["sasl_plain_password"] = security.password
        return found

    async def why_unreachable(self) -> str:
        """Try each address once and say, in one clause, what stands in the way."""
        reason = await why_unreachable(self.bootstrap_servers)
        if self.security is PLAIN_TEXT:
            return reason
        return f"{reason}; or it refuses {self.security.protocol} with these settings"
