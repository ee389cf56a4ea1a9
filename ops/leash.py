"""Runs a program that dies with its parent: `python leash.py PARENT_PID COMMAND...`.

The supervisor starts every child through this file, so that nothing is left behind when the
supervisor itself is killed -9. Linux lets a process ask for a signal at its parent's death
(prctl PR_SET_PDEATHSIG), and the wish survives exec; asking here, after the fork, keeps Python
code out of the dangerous place between fork and exec. Elsewhere the program just runs.

It is run as a file with `-I -S` and imports almost nothing: it stands before every start.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent_pid = int(sys.argv[1])
    command = sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)  # the parent died before we asked
    os.execvp(command[0], command)  # noqa: S606  (becoming the command is the purpose)


if __name__ == "__main__":
    main()
