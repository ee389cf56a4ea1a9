"""SASL mechanisms by their registered names, and the numbers that Kafka's API has for some."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Mechanism(enum.StrEnum):
    """How a client proves who it is."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


PASSWORD_MECHANISMS: Final = (Mechanism.PLAIN, Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
"""Those of users with passwords."""

SCRAM_NUMBERS: Final[Mapping[int, Mechanism]] = {
    1: Mechanism.SCRAM_SHA_256,
    2: Mechanism.SCRAM_SHA_512,
}
"""Of DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""
