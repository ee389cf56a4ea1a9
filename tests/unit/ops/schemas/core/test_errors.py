"""Codes and their HTTP statuses."""

from __future__ import annotations

import pytest

from ops.schemas.core import errors
from ops.schemas.core.errors import InvalidSchema, RegistryError


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (errors.INCOMPATIBLE, 409),
        (errors.INVALID_REQUEST, 422),
        (errors.SUBJECT_NOT_FOUND, 404),
        (errors.IS_REFERENCED, 422),
        (errors.STORE_FAILED, 500),
    ],
)
def test_the_status_is_the_first_digits_of_the_code(code: int, status: int) -> None:
    assert RegistryError(code, "no").status == status


def test_an_invalid_schema() -> None:
    assert (InvalidSchema("x").code, InvalidSchema("x").status) == (42201, 422)
