"""The models hold, and each of their rules is needed: TLC finds what breaks without it."""

from __future__ import annotations

import pytest

from tests.model.specs import MODELS, Bounds, Model, Mutant
from tests.model.tlc import HERE, check

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

SHORT = [(model, size) for model in MODELS for size in model.bounds if not size.is_long]
MUTANTS = [(model, mutant) for model in MODELS for mutant in model.mutants]


@pytest.mark.parametrize(
    ("model", "size"), SHORT, ids=[f"{model.module}-{size.name}" for model, size in SHORT]
)
def test_every_state_is_right(model: Model, size: Bounds) -> None:
    verdict = check(model, size)
    assert not verdict.violated
    assert verdict.states > 1000, "a model that goes nowhere proves nothing"


@pytest.mark.parametrize(
    ("model", "mutant"), MUTANTS, ids=[f"{model.module}-{m.rule}" for model, m in MUTANTS]
)
def test_without_the_rule_something_breaks(model: Model, mutant: Mutant) -> None:
    verdict = check(model, model.sized(mutant.bounds), mutant.rule, mutant.violates)
    assert verdict.violated in mutant.violates


def test_every_rule_of_a_model_has_a_mutant() -> None:
    for model in MODELS:
        assert {mutant.rule for mutant in model.mutants} == set(model.rules)


def test_the_readme_names_size_and_violation_of_each_rule_of_transactions() -> None:
    rows = (HERE / "README.md").read_text()
    (model,) = (model for model in MODELS if model.module == "Transactions")
    for mutant in model.mutants:
        assert f"\n| `{mutant.rule}` | {mutant.bounds} | {', '.join(mutant.violates)} |" in rows
