"""What a link writes to a bookie through TLS; `test_guard.py` of the bookie has the handshake."""

from __future__ import annotations

from typing import Any

from client.ledger.bookies.bookie_link import _Secured


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 7


def test_what_leaves_together_shares_its_records() -> None:
    transport: Any = Transport()
    secured = _Secured(transport)
    secured.writelines([b"head", b"payload", b"head", memoryview(b"payload")])
    assert transport.written == [b"headpayload" * 2]


def test_the_rest_is_the_transports() -> None:
    transport: Any = Transport()
    secured = _Secured(transport)
    assert secured.get_write_buffer_size() == 7
    secured.abort()
    assert transport.is_aborted
