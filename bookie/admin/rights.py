"""The role that each path of the bookie's HTTP server needs: a table, and nothing but a table.

What only shows how things are needs `look`; what changes nothing that is stored `operate`, as does
reading entries; what deletes copies, or lets go of bookies, `administer`. Probes need none.
"""

from __future__ import annotations

from typing import Final

from client.node.http_guard import METRICS, Rights
from client.security.admin_access import Role

_BOOKIE: Final = "/api/v1/bookie"
_RECOVERY: Final = "/api/v1/autorecovery"

RIGHTS: Final[Rights] = {
    "GET /heartbeat": None,
    f"GET {_BOOKIE}/is_ready": None,
    "GET /metrics": METRICS,
    "GET /api/v1/config/server_config": Role.LOOK,
    f"GET {_BOOKIE}/state": Role.LOOK,
    f"GET {_BOOKIE}/state/readonly": Role.LOOK,
    f"PUT {_BOOKIE}/state/readonly": Role.OPERATE,
    f"GET {_BOOKIE}/sanity": Role.LOOK,
    f"GET {_BOOKIE}/info": Role.LOOK,
    f"GET {_BOOKIE}/last_log_mark": Role.LOOK,
    f"GET {_BOOKIE}/list_disk_file": Role.LOOK,
    f"GET {_BOOKIE}/gc": Role.LOOK,
    f"PUT {_BOOKIE}/gc": Role.OPERATE,
    f"GET {_BOOKIE}/gc_details": Role.LOOK,
    f"GET {_BOOKIE}/gc/suspend_compaction": Role.LOOK,
    f"PUT {_BOOKIE}/gc/suspend_compaction": Role.OPERATE,
    f"GET {_BOOKIE}/gc/resume_compaction": Role.LOOK,
    f"PUT {_BOOKIE}/gc/resume_compaction": Role.OPERATE,
    # the whole cluster (`cluster.py`)
    "DELETE /api/v1/ledger/delete": Role.ADMINISTER,
    "GET /api/v1/ledger/list": Role.LOOK,
    "GET /api/v1/ledger/metadata": Role.LOOK,
    "GET /api/v1/ledger/read": Role.OPERATE,
    f"GET {_BOOKIE}/list_bookies": Role.LOOK,
    f"GET {_BOOKIE}/list_bookie_info": Role.LOOK,
    f"GET {_BOOKIE}/cluster_info": Role.LOOK,
    f"GET {_RECOVERY}/status": Role.LOOK,
    f"PUT {_RECOVERY}/status": Role.OPERATE,
    f"GET {_RECOVERY}/who_is_auditor": Role.LOOK,
    f"GET {_RECOVERY}/list_under_replicated_ledger": Role.LOOK,
    f"PUT {_RECOVERY}/trigger_audit": Role.OPERATE,
    f"GET {_RECOVERY}/lost_bookie_recovery_delay": Role.LOOK,
    f"PUT {_RECOVERY}/lost_bookie_recovery_delay": Role.OPERATE,
    f"PUT {_RECOVERY}/decommission": Role.ADMINISTER,
    f"PUT {_RECOVERY}/bookie": Role.ADMINISTER,
}
"""Method and path -> role; a test finds what is missing here."""
