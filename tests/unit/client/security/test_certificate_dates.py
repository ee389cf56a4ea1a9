"""Until when certificates are valid."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from client.security.certificate_dates import first_expiry_s
from tests.fakes import certificates


def unix_s(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


def test_both_kinds_of_time_are_read() -> None:
    assert first_expiry_s(certificates.BROKER) == unix_s(2120)
    assert first_expiry_s(certificates.EXPIRED) == unix_s(2021)


def test_the_first_of_a_chain_to_expire_counts() -> None:
    chain = certificates.BROKER + "words between\n" + certificates.EXPIRED
    assert first_expiry_s(chain) == unix_s(2021)


def pem(data: bytes) -> str:
    text = base64.b64encode(data).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


def test_damage_is_a_value_error_wherever_it_is() -> None:
    lines = certificates.BROKER.splitlines()
    whole = base64.b64decode("".join(lines[1:-1]))
    assert first_expiry_s(pem(whole)) == unix_s(2120)
    for size in range(120):
        with pytest.raises(ValueError, match=r"certificate"):
            first_expiry_s(pem(whole[:size]))
    for text in ("", certificates.BROKER_KEY, lines[0] + "\n!!\n" + lines[-1]):
        with pytest.raises(ValueError, match=r"certificate"):
            first_expiry_s(text)
