"""Attacks on a schema registry: schemas that are large, deep, or refer to very many others."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from ops.ports import pick_free
from tests.hostile.attacks.target import Attack, Target
from tests.integration.cluster import ROOT, wait_until
from tests.integration.memory_crowd import resident_bytes

_FIELDS: Final = 5_000
_DEEP: Final = 100_000
_CHAIN: Final = 20
_AT_ONCE: Final = 4
_ANSWER_S_MAX: Final = 30.0
_GROWN_MIB_MAX: Final = 1_024


@contextmanager
def registry(target: Target) -> Iterator[tuple[str, int]]:
    """Run one; yield its URL and process id."""
    (port,) = pick_free(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "ops.cli.main", "schemas", "--port", str(port)]
    command += ["-b", target.cluster.bootstrap_servers]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _ask(f"{url}/readyz")[0] == 200, "the registry answers", 60)
        yield url, process.pid
        assert process.poll() is None, "it has ended"
    finally:
        process.terminate()
        process.wait(30)


async def schemas(target: Target) -> str:
    """Everything at once, while somebody else asks for the subjects."""
    run = registry(target)
    url, pid = await asyncio.to_thread(run.__enter__)
    try:
        return await _strike(url, pid)
    finally:
        await asyncio.to_thread(run.__exit__, None, None, None)


async def _strike(url: str, pid: int) -> str:
    before_mib = resident_bytes(pid) / (1 << 20)
    pool = ThreadPoolExecutor(_AT_ONCE)
    loop = asyncio.get_running_loop()
    work = [loop.run_in_executor(pool, _send, url, subject, body) for subject, body in _hostile()]
    longest_s, most_mib = 0.0, 0.0
    while not all(task.done() for task in work):
        began_s = time.monotonic()
        status, _ = await asyncio.to_thread(_ask, f"{url}/subjects")
        assert status == 200, status
        longest_s = max(longest_s, time.monotonic() - began_s)
        most_mib = max(most_mib, resident_bytes(pid) / (1 << 20))
        await asyncio.sleep(0.02)
    pool.shutdown()
    codes = sorted({task.result() for task in work})
    assert not any(code >= 500 for code in codes), codes
    assert longest_s < _ANSWER_S_MAX, f"others waited for {longest_s:.1f} s"
    assert most_mib - before_mib < _GROWN_MIB_MAX, f"{most_mib - before_mib:.0f} MiB more"
    return (
        f"{len(work)} requests, answers {codes}; others waited for {longest_s * 1000:.0f} ms at"
        f" most; {most_mib - before_mib:+.0f} MiB"
    )


def _hostile() -> Iterator[tuple[str, bytes]]:
    for number in range(3):
        fields = [{"name": f"f{at}", "type": "string", "doc": "x" * 60} for at in range(_FIELDS)]
        wide = {"type": "record", "name": f"Wide{number % 2}", "fields": fields}
        yield "wide", _body(json.dumps(wide))
        yield f"huge-{number}", _body(json.dumps({**wide, "doc": "x" * (3 << 20)}))
        yield f"deep-{number}", _body("[" * _DEEP + "]" * _DEEP)
        yield f"deeper-{number}", b"[" * _DEEP
        deep = '{"type":"array","items":' * 5_000 + '"string"' + "}" * 5_000
        yield f"nested-{number}", _body(deep)
        alternatives: Any = {"type": "string"}
        for _ in range(8):
            alternatives = {"oneOf": [alternatives, {"anyOf": [alternatives, {"type": "null"}]}]}
        yield "choices", _body(json.dumps(alternatives), schemaType="JSON")
    for at in range(_CHAIN):
        names = [f"r{other}" for other in range(at)]
        fields = [{"name": name, "type": f"n.R{name[1:]}"} for name in names]
        record = {"type": "record", "name": f"R{at}", "namespace": "n", "fields": fields}
        references = [{"name": f"n.R{one[1:]}", "subject": one, "version": 1} for one in names]
        yield f"r{at}", _body(json.dumps(record), references=references)


def _body(schema: str, **more: Any) -> bytes:
    return json.dumps({"schema": schema, **more}).encode()


def _send(url: str, subject: str, body: bytes) -> int:
    return _ask(f"{url}/subjects/{subject}/versions", body)[0]


def _ask(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    head = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    try:
        request = urllib.request.Request(url, body, head)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


ATTACKS: Final = (Attack("schemas that are large and deep", schemas),)
