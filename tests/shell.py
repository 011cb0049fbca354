"""A shell's job control: ``python -m tests.shell fg|bg COMMAND …`` runs a command as the job in the foreground.

Whenever that is stopped, it says ``(stopped)`` and has the job go on, with ``bg`` in the background for a while first.
Its own terminal is that of its session, which it leads.
"""

from __future__ import annotations

import os
import signal
import sys
import time

STOPPED = b"(stopped)"
_BACKGROUND_S = 0.5


def main(way: str, command: list[str]) -> int:
    """Run the command to its end; return its exit code, as `subprocess` has it."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a shell may take the terminal back from the background
    if (job := os.fork()) == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgrp())
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.write(1, STOPPED)
        if way == "bg":
            os.kill(-job, signal.SIGCONT)
            time.sleep(_BACKGROUND_S)
            os.write(1, b"(fg)")
        os.tcsetpgrp(0, job)
        os.kill(-job, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
