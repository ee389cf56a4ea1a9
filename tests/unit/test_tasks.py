"""One supervisor: no task and no thread is started but by it, or by those that stand here.

A task that nobody looks at ends in silence. Whoever starts one in another way than by
`client/node/background.py` gets a row here, which says who sees its end.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
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

STARTED: Final[Mapping[str, str]] = {
    "client/node/background.py": "the supervisor",
    "broker/security/login.py": "the login waits for its check",
    "broker/__main__.py": "what it waits for until it ends",
    "bookie/__main__.py": "what it waits for until it ends",
    "ops/autorecovery.py": "what it waits for until it ends",
    "broker/front/dispatch.py": "whatever a handler raises becomes an answer, and is logged",
    "broker/front/codec_thread.py": "what the codec raises goes to whoever began it",
    "broker/front/handlers/fetch.py": "the same",
    "broker/leadership/ownership.py": "logs and counts what it raises, and begins again",
    "broker/partition/leading/leader_steps.py": "its end is looked at, and raised to the loop",
    "broker/compaction/child_worker.py": "a step of a task that is supervised",
    "bookie/server/handlers.py": "its failure is the answer",
    "bookie/storage/disk.py": "the failure of a job reaches who gave it",
    "client/autorecovery/service.py": "waited for; `failed()` tells whoever runs it",
    "client/ledger/read/batch_read.py": "waited for",
    "client/ledger/write/ensemble_changes.py": "its end is looked at by `writer.py`",
    "client/ledger/write/writer.py": "waited for by whoever closes",
    "client/metadata/zookeeper.py": "stops the library's own threads at the end",
    "client/objects/obstore_store.py": "waited for",
    "client/pubsub/transaction_sender.py": "keeps what it met for the application",
    "client/spark/ledgers/ledger_access.py": "runs a loop; failures reach who calls",
    "client/spark/read/prefetch.py": "hands its failure to the reader",
    "ops/cli/produce.py": "waited for by the command",
    "ops/cli/up.py": "what it waits for until it ends",
    "ops/local/cluster.py": "kept by `up`, which ends with them; steps that are waited for",
    "ops/schemas/service.py": "steps of a request, which are waited for",
    "ops/top/screen.py": "what it waits for until it ends",
}
"""File -> who sees the end of what it starts."""


def test_every_task_has_somebody_who_sees_its_end() -> None:
    assert list(started() - STARTED.keys()) == [], "say who sees how its tasks end"


def started() -> set[str]:
    """Return the files that start tasks or threads."""
    files = (path for top in NODES for path in (ROOT / top).rglob("*.py"))
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {name for name, path in names.items() if not name.startswith(APART) and _starts(path)}


def _starts(path: Path) -> bool:
    return any(
        getattr(node.func, "attr", getattr(node.func, "id", "")) in STARTERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
