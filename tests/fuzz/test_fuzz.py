"""Every parser under a few thousand bad inputs; `make fuzz` tries many more."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz.judge import feed, weigh
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, Target, allowed

RUNS = int(os.environ.get("QUIRE_FUZZ_RUNS", "2000"))
WEIGHED = 60


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_bad_bytes_get_our_own_error_quickly(target: Target) -> None:
    rng = random.Random(target.name)
    for _ in range(RUNS):
        feed(target, mutate(target.seeds, rng))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_memory_is_paid_for_by_the_input(target: Target) -> None:
    rng = random.Random(target.name)
    for _ in range(WEIGHED):
        weigh(target, mutate(target.seeds, rng))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_at_least_one_seed_is_a_good_input(target: Target) -> None:
    for seed in target.seeds:
        try:
            target.parse(seed)
        except Exception as error:
            assert allowed(error)
        else:
            return
    pytest.fail("no seed is accepted: the fuzzer does not get past the door")
