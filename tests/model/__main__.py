"""`make model`: checks every model in every size, and that each rule is needed.

python -m tests.model [--short]     --short: what CI runs, without the long sizes
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.model.specs import MODELS, Bounds, Model
from tests.model.tlc import Verdict, check

Job = tuple[Model, Bounds, str, tuple[str, ...]]


def jobs(is_short: bool) -> list[Job]:
    """Return what there is to check: model, bounds, rule switched off, violations expected."""
    whole: list[Job] = [
        (model, bounds, "", ())
        for model in MODELS
        for bounds in model.bounds
        if not (is_short and bounds.is_long)
    ]
    return whole + [
        (model, model.sized(mutant.bounds), mutant.rule, mutant.violates)
        for model in MODELS
        for mutant in model.mutants
    ]


def _say(job: Job, verdict: Verdict) -> bool:
    model, bounds, without, expected = job
    good = verdict.violated in expected if without else not verdict.violated
    what = f"without {without}" if without else "as it is"
    told = f"{verdict.violated or 'holds'}, {verdict.states:,} states, depth {verdict.depth}"
    mark = "ok  " if good else "BAD "
    print(
        f"{mark}{model.module:12} {bounds.name:15} {what:26} {told} ({verdict.seconds:.0f} s)",
        flush=True,
    )
    return good


def main() -> int:
    """Return 0 if all models hold and all mutants are found."""
    todo = jobs("--short" in sys.argv[1:])
    with ThreadPoolExecutor(2) as pool:
        verdicts = pool.map(lambda job: check(*job), todo)
        good = [_say(job, verdict) for job, verdict in zip(todo, verdicts, strict=True)]
    mutants = sum(1 for job in todo if job[2])
    print(f"{len(todo) - mutants} sizes, {mutants} mutants, {good.count(False)} unexpected")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
