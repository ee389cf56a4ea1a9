"""Runs a program that dies with its parent: `python leash.py PARENT_PID COMMAND...`.

The supervisor starts every child through this file, so that nothing is left behind when the
supervisor itself is killed -9. Linux lets a process ask for a signal at its parent's death
(prctl PR_SET_PDEATHSIG), and the wish survives exec; asking here, after the fork, keeps Python
code out of the dangerous place between fork and exec. Systems without that (macOS) get a second,
small process that looks twice a second whether the supervisor is still there.

It is run as a file with `-I -S` and imports almost nothing: it stands before every start.
"""

import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_S = 0.5


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent_pid = int(sys.argv[1])
    command = sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        _start_watcher(parent_pid, os.getpid())
    if os.getppid() != parent_pid:
        sys.exit(1)  # the parent died before we asked
    os.execvp(command[0], command)  # noqa: S606  (becoming the command is the purpose)


def _start_watcher(supervisor_pid: int, command_pid: int) -> None:
    """Fork a process that kills the command when the supervisor is gone, and ends with either."""
    if os.fork() != 0:
        return
    # Nobody who reads the command's output may wait for the watcher too.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    while os.getppid() == command_pid:
        try:
            os.kill(supervisor_pid, 0)
        except ProcessLookupError:
            os.kill(command_pid, signal.SIGKILL)
            break
        except PermissionError:
            pass  # it is there, as another user's
        time.sleep(_LOOK_EVERY_S)
    os._exit(0)


if __name__ == "__main__":
    main()
