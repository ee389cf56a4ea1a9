"""What a registry refuses: HTTP statuses, and codes that its clients know.

Codes are five digits, the first three of which are the HTTP status, as in Confluent's REST API;
clients decide by them. The sentences are ours.
"""

from __future__ import annotations

from typing import Final

from client.errors import QuireError

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_SUBJECT_LEVEL: Final = 40408
NO_SUBJECT_MODE: Final = 40409
INCOMPATIBLE: Final = 409
INVALID_REQUEST: Final = 422
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
IS_REFERENCED: Final = 42206
INVALID_SUBJECT: Final = 42208
STORE_FAILED: Final = 50001
STORE_TIMED_OUT: Final = 50002


class RegistryError(QuireError):
    """A request was refused; nothing of it happened, unless the code is one of the store's.

    `STORE_FAILED` and `STORE_TIMED_OUT`: it may have happened; the same request may be repeated.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return self.code if self.code < 1000 else self.code // 100


class InvalidSchema(RegistryError):
    """The text is no schema of its kind, or more than the registry takes."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_SCHEMA, message)
