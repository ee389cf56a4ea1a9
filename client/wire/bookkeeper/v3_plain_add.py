"""The v3 frame of an ordinary add, read and answered without protobuf objects.

    frame   0A n {08 03 10 02 18 txn} AA06 n {08 ledger 10 entry 1A 14 master key 20 22 n body}
    answer  0A n {08 03 10 02 18 txn} 10 00 AA06 n {08 00 10 ledger 18 entry}

Nearly all that Java writers send looks like this, byte for byte: fields in the order of their
numbers, a key of 20 bytes, no flags and no priority. The answer repeats the request's header, and
its ids as they were written. Whatever looks different is for `v3_requests.py`, which means the
same by it.

Sources: Apache BookKeeper `BookkeeperProtocol.proto`; protobuf's encoding of messages.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from client.fast_tuple import new_tuple
from client.wire.bookkeeper.messages import MASTER_KEY_BYTES, AddRequest

_NUMBER: Final = rb"([\x80-\xff]{0,7}[\x00-\x7f])"
"""A varint of 56 bits at most, which no size and no counter exceeds."""
_PLAIN_ADD: Final = re.compile(
    rb"(\x0a(.)\x08\x03\x10\x02\x18%(number)b)\xaa\x06%(number)b"
    rb"\x08%(number)b\x10%(number)b\x1a\x%(key_bytes)02x(.{%(key_bytes)d})\x22%(number)b"
    % {b"number": _NUMBER, b"key_bytes": MASTER_KEY_BYTES},
    re.DOTALL,
)
_ADD_BYTES: Final = 4
"""Which group of the pattern: behind it the `AddRequest` begins."""
_FIELDS_AT: Final = 2
"""Where a header's fields begin: behind its tag and its length."""
_SIZES_MAX: Final = 4096


def decode_plain_add(frame: memoryview) -> tuple[int, AddRequest, bytes] | None:
    """Return (transaction id, request, the frame that says it is stored); None: looks different.

    The entry is a view into the frame.
    """
    found = _PLAIN_ADD.match(frame)
    if found is None:
        return None
    header, header_size, txn_id, add_size, ledger_id, entry_id, key, size = found.groups()
    entry = frame[found.end() :]
    if (
        header_size[0] != len(header) - _FIELDS_AT
        or _repeated(add_size) != len(frame) - found.end(_ADD_BYTES)
        or _repeated(size) != len(entry)
    ):
        return None
    request = new_tuple(
        AddRequest,
        (_repeated(ledger_id), _number(entry_id), key, entry, False, False, False, (), ()),
    )
    ids = b"\x08\x00\x10%b\x18%b" % (ledger_id, entry_id)
    answer = b"%b\x10\x00\xaa\x06%c%b" % (header, len(ids), ids)
    return _number(txn_id), request, len(answer).to_bytes(4, "big") + answer


def _number(varint: bytes) -> int:
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    return value


_repeated: Final = lru_cache(_SIZES_MAX)(_number)
"""The same, of a number that is likely to come again."""
