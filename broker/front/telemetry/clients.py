"""Which client asks about metrics, and which metrics it should push."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.front.core.client_telemetry import Who
from broker.front.services import Call, Services
from broker.settings.core.client_metrics import Wanted

NOBODY: Final = UUID(int=0)


def who(services: Services, call: Call) -> Who:
    """Return how a client's metrics are labelled."""
    software = " ".join(filter(None, services.telemetry.software(call.connection)))
    return Who(call.client_id or "", software)


def wanted(services: Services, call: Call, instance_id: UUID) -> Wanted:
    """Return what is wanted of a client."""
    name, version = services.telemetry.software(call.connection)
    return services.subscriptions.wanted(
        {
            "client_instance_id": str(instance_id),
            "client_id": call.client_id or "",
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": call.peer.host,
            "client_source_port": str(call.peer.port),
        }
    )
