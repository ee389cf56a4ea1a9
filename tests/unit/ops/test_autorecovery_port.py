"""The HTTP port of auto recovery alone: probes, and metrics that may need a token, with TLS."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from client.autorecovery.metrics import PROGRAM_TABLE
from client.node.exposition import Exposition
from ops.autorecovery import RIGHTS, AdminServer, AutoRecoveryProgram
from tests.fakes import made_certificates as certificates


async def test_probes_are_open_and_metrics_as_the_settings_say(tmp_path: Path) -> None:
    certificates.make(tmp_path, "node")
    program = AutoRecoveryProgram(
        admin_port=0, admin_token="of all",
        **certificates.port_settings(tmp_path, "node"),
    )  # fmt: skip
    admin = AdminServer(Exposition(PROGRAM_TABLE), program, program.admin_host)
    routes = admin._runner.app.router.routes()
    assert {f"{one.method} {one.resource.canonical}" for one in routes if one.resource} == {
        *RIGHTS, *(route.replace("GET", "HEAD") for route in RIGHTS),
    }  # fmt: skip
    port = await admin.start(0)
    found = {}
    async with aiohttp.ClientSession() as session:
        for path in ("/heartbeat", "/readyz", "/metrics"):
            for token in ("", "of all"):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                url = f"https://127.0.0.1:{port}{path}"
                tls = certificates.client(tmp_path)
                async with session.get(url, headers=headers, ssl=tls) as answer:
                    found[path, token] = answer.status
    await admin.close()
    assert found == {
        ("/heartbeat", ""): 200, ("/heartbeat", "of all"): 200,
        ("/readyz", ""): 503, ("/readyz", "of all"): 503,
        ("/metrics", ""): 401, ("/metrics", "of all"): 200,
    }  # fmt: skip
