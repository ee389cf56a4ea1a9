"""The admin servers of brokers with a certificate that openssl makes."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.fakes.admin import AdminCloud

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=quire", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


async def test_tls_between_clients_and_brokers(certificate: Path) -> None:
    settings = {
        "admin_tls_cert": certificate / "cert.pem",
        "admin_tls_key": certificate / "key.pem",
        "admin_tls_ca": certificate / "cert.pem",
    }
    async with AdminCloud(2, **settings) as cloud:
        assert cloud.admins[1].url.startswith("https://127.0.0.1:")
        trusts = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
        assert (await cloud.get("/brokers/2", ssl=trusts))["broker_id"] == 2
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await cloud.get("/brokers/2")
