"""What is asked of both brokers: every API in every version, with good requests and bad ones.

`STEPS` is the order; topics are deleted last of all (`topics.DELETING`), when whole lives of group
members (`group_members.py`) and of transactional ids (`transactions.py`) are over, and features
have been changed (`features.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.integration.differential.conversation import Step
from tests.integration.differential.steps.cluster import CLUSTER
from tests.integration.differential.steps.fields import NOW_MS, UNKNOWN_ID, always, batch
from tests.integration.differential.steps.groups import ADMINISTRATION, FINDING, GROUPS, OFFSETS
from tests.integration.differential.steps.quotas import LIMITING
from tests.integration.differential.steps.records import (
    EPOCHS,
    FETCHING,
    LISTING,
    PRODUCING,
    RECORDS,
)
from tests.integration.differential.steps.settings import SETTINGS
from tests.integration.differential.steps.topics import CREATING, DELETING, GROWING, METADATA

__all__ = ["DELETING", "NOW_MS", "STEPS", "UNKNOWN_ID", "always", "batch"]

STEPS: Sequence[Step] = (
    *CREATING, *METADATA, *GROWING, *PRODUCING, *FETCHING, *LISTING, *EPOCHS, *RECORDS, *FINDING,
    *GROUPS, *OFFSETS, *ADMINISTRATION, *SETTINGS, *CLUSTER, *LIMITING,
)  # fmt: skip
