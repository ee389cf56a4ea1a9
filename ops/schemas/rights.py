"""The role that each path of the registry needs: a table, and nothing but a table.

Who reads schemas, or asks whether one would fit, changes nothing; serializers that register need
`operate`; what deletes versions, or changes how subjects are checked, needs `administer`.
"""

from __future__ import annotations

from typing import Final

from client.node.http_guard import METRICS, Rights
from client.security.admin_access import Role

_LOOK: Final = (
    "GET /",
    "GET /schemas",
    "GET /schemas/types",
    "GET /schemas/ids/{id}",
    "GET /schemas/ids/{id}/schema",
    "GET /schemas/ids/{id}/subjects",
    "GET /schemas/ids/{id}/versions",
    "GET /schemas/guids/{guid}",
    "GET /subjects",
    "POST /subjects/{subject}",
    "GET /subjects/{subject}/versions",
    "GET /subjects/{subject}/versions/{version}",
    "GET /subjects/{subject}/versions/{version}/schema",
    "GET /subjects/{subject}/versions/{version}/referencedby",
    "POST /compatibility/subjects/{subject}/versions",
    "POST /compatibility/subjects/{subject}/versions/{version}",
    "GET /contexts",
    "GET /v1/metadata/id",
    "GET /v1/metadata/version",
    "GET /config",
    "GET /config/{subject}",
    "GET /mode",
    "GET /mode/{subject}",
)
_ADMINISTER: Final = (
    "DELETE /subjects/{subject}",
    "DELETE /subjects/{subject}/versions/{version}",
    "PUT /config",
    "PUT /config/{subject}",
    "DELETE /config",
    "DELETE /config/{subject}",
    "PUT /mode",
    "PUT /mode/{subject}",
    "DELETE /mode",
    "DELETE /mode/{subject}",
)

RIGHTS: Final[Rights] = {
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /metrics": METRICS,
    "POST /subjects/{subject}/versions": Role.OPERATE,
    **dict.fromkeys(_LOOK, Role.LOOK),
    **dict.fromkeys(_ADMINISTER, Role.ADMINISTER),
}
"""Method and path -> role; a test finds what is missing here."""
