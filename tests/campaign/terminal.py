"""A terminal of a try's own: what is drawn there, and whether it is left as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.shell import STOPPED

_OURS = re.compile(rb'File "[^"]*pipeline_bench/[^"]*", line \d+')
_LOOKS_EVERY_S = 0.05
_PAIRS = {
    "the cursor is hidden": (b"\x1b[?25l", b"\x1b[?25h"),
    "its own screen is left": (b"\x1b[?1049h", b"\x1b[?1049l"),
}
"""What is wrong where the first of two sequences came last (DECTCEM, and xterm's private mode 1049)."""


class Terminal:
    """Both ends of one; whatever is drawn there is kept."""

    def __init__(self) -> None:
        self._master, self._own = pty.openpty()
        self._modes = termios.tcgetattr(self._own)
        self._drawn = b""
        self._open = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def options(self) -> dict[str, Any]:
        """Those of `subprocess.Popen` for a program that leads this terminal's session."""
        own = self._own
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), own)
        return {**streams, "start_new_session": False, "preexec_fn": lambda: os.login_tty(own)}

    def wait_for(self, words: bytes, ended: Callable[[], object], limit_s: float = 40.0) -> None:
        """Wait until these words were drawn, or the program has ended."""
        ends_s = time.monotonic() + limit_s
        while words not in self._drawn and not ended() and time.monotonic() < ends_s:
            time.sleep(0.005)

    def type(self, keys: bytes) -> None:
        """Press keys, as a user does."""
        os.write(self._master, keys)

    def hang_up(self) -> None:
        """Close it, as a user closes the window: whoever leads its session gets a SIGHUP."""
        if self._open:
            self._open = False
            os.close(self._own)
            master, self._master = self._master, -1
            os.close(master)

    def close(self) -> list[str]:
        """Close it when the program has ended; return what is wrong with what that has left."""
        if not self._open:
            return []
        same = termios.tcgetattr(self._own) == self._modes
        self._open = False
        os.close(self._own)
        self._reader.join(5)  # what is drawn by now is read, and then the other end is gone
        os.close(self._master)
        wrong = [] if same else ["the terminal's modes are others than before"]
        ends = [end.start() for end in re.finditer(re.escape(STOPPED), self._drawn)]
        for end, when in ((None, ""), *((end, " while it was stopped") for end in ends)):
            drawn = self._drawn[:end]
            wrong += [f"the terminal{when}: {what}" for what, (on, off) in _PAIRS.items() if _is_last(drawn, on, off)]
        wrong += [f"the terminal: a traceback of ours: {found[0]!r}" for found in [_OURS.search(self._drawn)] if found]
        return wrong

    def _read(self) -> None:
        while True:
            try:
                # A read that waits would keep the terminal open after `hang_up`, for as long as nothing is drawn.
                if not select.select([self._master], [], [], _LOOKS_EVERY_S)[0]:
                    continue
                piece = os.read(self._master, 1 << 16)
            except (OSError, ValueError):  # EIO: nobody has the other end any more; or it was closed here
                return
            if not piece:
                return
            self._drawn += piece


def _is_last(drawn: bytes, on: bytes, off: bytes) -> bool:
    return drawn.rfind(on) > drawn.rfind(off)
