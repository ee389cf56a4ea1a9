"""Asks pip-audit for known vulnerabilities of pinned versions, and says so if it cannot know.

    python -m ops.docs.audit PIP_AUDIT REQUIREMENTS

prints a line for each vulnerability. The exit code is 0 if every version was looked up and none has
one, 1 if some have, and 2 if some could not be looked up: what nobody has asked is not known to be
good, though pip-audit itself passes over it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

_SHOWN: Final = 5


def judge(report: Any) -> tuple[int, list[str]]:
    """Return the exit code, and what to tell, of pip-audit's report as JSON has it.

    Raises KeyError, TypeError: it is none.
    """
    found, unknown, count = [], [], 0
    for each in report["dependencies"]:
        count += 1
        if "skip_reason" in each:
            unknown.append(str(each["name"]))
        for one in each.get("vulns", ()):
            fixed = ", ".join(one["fix_versions"]) or "no version yet"
            found.append(f"{each['name']} {each['version']}: {one['id']}, fixed in {fixed}")
    if unknown or not count:
        names = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        found.append(
            f"{len(unknown)} of {count} versions could not be looked up ({names or 'none named'}):"
            " the index that pip uses here has no data about them"
        )
    elif not found:
        return 0, [f"no known vulnerability in {count} versions"]
    return (2 if unknown or not count else 1), found


def main(arguments: Sequence[str]) -> int:
    """Ask, and print what is known."""
    program, requirements = arguments
    command = [program, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run(  # noqa: S603  (what the Makefile names, with fixed arguments)
        [*command, "--format", "json", "--requirement", requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        code, lines = judge(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        code, lines = 2, [f"pip-audit could not look anything up: {why[:300]}"]
    for line in lines:
        sys.stdout.write(f"audit: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
