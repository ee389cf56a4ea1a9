"""One supervisor: no task and no thread is started but by it, or by those that stand here.

A task that nobody looks at ends in silence. Whoever starts one in another way than by
`client/node/background.py` gets a row here, which says who sees its end.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
NODES: Final = ("broker", "bookie", "client", "ops")
STARTERS: Final = {
    "create_task", "ensure_future", "Thread", "ThreadPoolExecutor", "ProcessPoolExecutor",
    "run_in_executor", "to_thread", "TaskGroup",
}  # fmt: skip
APART: Final = ("ops/bench", "ops/demo")
"""Programs that end with an error if anything in them fails."""

STARTED: Final[Mapping[str, tuple[int, str]]] = {
    "client/node/background.py": (3, "the supervisor"),
    "broker/access/password_checks.py": (2, "the login waits for its check"),
    "broker/__main__.py": (2, "what it waits for until it ends"),
    "bookie/__main__.py": (3, "what it waits for until it ends"),
    "ops/autorecovery.py": (2, "what it waits for until it ends"),
    "broker/front/dispatch.py": (1, "whatever a handler raises becomes an answer, and is logged"),
    "broker/front/handlers/fetch.py": (1, "the same"),
    "broker/leadership/ownership.py": (1, "logs and counts what it raises, and begins again"),
    "broker/partition/leading/leader_steps.py": (1, "its end is looked at, and raised to the loop"),
    "broker/compaction/child_worker.py": (1, "a step of a task that is supervised"),
    "bookie/server/handlers.py": (1, "its failure is the answer"),
    "bookie/storage/worker_thread.py": (1, "the failure of a job reaches who gave it"),
    "client/autorecovery/service.py": (4, "waited for; `failed()` tells whoever runs it"),
    "client/ledger/read/batch_read.py": (1, "waited for"),
    "client/ledger/write/ensemble_changes.py": (1, "its end is looked at by `add_pipeline.py`"),
    "client/ledger/write/writer.py": (1, "waited for by whoever closes"),
    "client/metadata/zookeeper.py": (1, "stops the library's own threads at the end"),
    "client/pubsub/transaction_sender.py": (1, "keeps what it met for the application"),
    "client/spark/ledgers/ledger_access.py": (1, "runs a loop; failures reach who calls"),
    "client/spark/read/prefetch.py": (1, "hands its failure to the reader"),
    "ops/cli/produce.py": (1, "waited for by the command"),
    "ops/cli/up.py": (2, "what it waits for until it ends"),
    "ops/local/cluster.py": (3, "kept by `up`, which ends with them; steps that are waited for"),
    "ops/schemas/service.py": (4, "steps of a request, which are waited for"),
    "ops/top/screen.py": (2, "what it waits for until it ends"),
}
"""File -> how many it starts, and who sees how they end."""


def test_every_task_has_somebody_who_sees_its_end() -> None:
    assert dict(started()) == {path: count for path, (count, _) in STARTED.items()}


def started() -> Iterator[tuple[str, int]]:
    """Yield each file that starts tasks or threads, and how many."""
    for top in NODES:
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(APART) and (count := _count(path)):
                yield name, count


def _count(path: Path) -> int:
    names = Counter(
        getattr(node.func, "attr", getattr(node.func, "id", ""))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
    return sum(names[one] for one in STARTERS)
