"""Says until when a certificate is valid: the standard library shows that only of a peer's.

A certificate (RFC 5280) is nested DER: Certificate { TBSCertificate { [0] version OPTIONAL, serial,
signature, issuer, Validity { notBefore, notAfter }, ... } ... }. Times are UTCTime (YYMMDDHHMMSSZ,
years 1950 to 2049) or GeneralizedTime (YYYYMMDDHHMMSSZ).
"""

from __future__ import annotations

import base64
import binascii
import calendar
import re
from typing import Final

_BLOCK: Final = re.compile(
    r"-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----(?P<base64>.+?)-----END", re.DOTALL
)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


def first_expiry_s(pem: str) -> int:
    """Return the Unix time, in seconds, at which the first of a file's certificates expires.

    Raises ValueError if there is none, or one cannot be read.
    """
    blocks = [found["base64"] for found in _BLOCK.finditer(pem)]
    if not blocks:
        raise ValueError("there is no certificate")
    return min(_expiry_s(block) for block in blocks)


def _expiry_s(block: str) -> int:
    try:
        der = base64.b64decode("".join(block.split()), validate=True)
        _, body, _ = _element(der, 0)
        _, to_be_signed, _ = _element(body, 0)
        tag, _, at = _element(to_be_signed, 0)
        if tag == _VERSION:
            _, _, at = _element(to_be_signed, at)
        for _ in range(2):
            _, _, at = _element(to_be_signed, at)
        _, validity, _ = _element(to_be_signed, at)
        _, _, at = _element(validity, 0)
        tag, text, _ = _element(validity, at)
        return _time_s(tag, text.decode("ascii"))
    except (IndexError, binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"a certificate is damaged: {error!r}") from error


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return (tag, content, where the next one begins). Raises IndexError, ValueError."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length >= 0x80:
        count = length - 0x80
        length = int.from_bytes(data[at : at + count], "big")
        at += count
    if at + length > len(data):
        raise ValueError("a certificate is cut off")
    return tag, data[at : at + length], at + length


def _time_s(tag: int, text: str) -> int:
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("a certificate has no validity")
    match = re.fullmatch(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z", text)
    if match is None:
        raise ValueError(f"a certificate is valid until {text!r}")
    return calendar.timegm(tuple(map(int, match.groups())))
