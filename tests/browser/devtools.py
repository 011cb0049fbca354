"""A headless Chromium over the DevTools protocol on a pipe: JSON between NUL bytes, no port and no web socket."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BINARIES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_READS, _WRITES = 3, 4
"""The descriptors on which the browser expects its commands and sends its answers."""
_CHUNK_BYTES = 1 << 20

Json = dict[str, Any]


def binary() -> str | None:
    """The first browser on PATH; None where there is none."""
    return next((found for name in BINARIES if (found := shutil.which(name))), None)


class Browser:
    """A browser with one page; `events` holds everything it told unasked."""

    def __init__(self, executable: str, profile: Path, patience_s: float = 60.0) -> None:
        self.events: list[Json] = []
        self._patience_s = patience_s
        self._unread = b""
        self._answers: dict[int, Json] = {}
        self._sent = 0
        self._session: str | None = None
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        # Moved up first, so that putting one at its place cannot close the other.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64) for descriptor in (theirs_in, theirs_out)]
        actions = [(os.POSIX_SPAWN_DUP2, high[0], _READS), (os.POSIX_SPAWN_DUP2, high[1], _WRITES)]
        log = os.open(profile.parent / "browser.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        actions += [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        command = [executable, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._pid = os.posix_spawn(executable, command, os.environ, file_actions=actions, setpgroup=0)
        for descriptor in (theirs_in, theirs_out, *high, log):
            os.close(descriptor)

    def __enter__(self) -> Self:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> Json:
        """The result of a command; `AssertionError` with the browser's words where it refused."""
        self._sent += 1
        number = self._sent
        message: Json = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._patience_s
        while number not in self._answers:
            self._read(deadline)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: Json = answer["result"]
        return result

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, a promise's when it is kept."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, path: Path, until: str) -> None:
        """Load a file and wait until the expression is true in it."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + self._patience_s
        while not self.evaluate(f"document.readyState === 'complete' && Boolean({until})"):
            assert time.monotonic() < deadline, f"{path.name}: never {until}"
            time.sleep(0.05)

    def view(self, width: int, height: int = 900, *, mobile: bool = False, dark: bool = False, media: str = "") -> None:
        """Show the page at that size and in that colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def _read(self, deadline: float) -> None:
        ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(self._from, _CHUNK_BYTES) if ready else b""
        assert chunk, "the browser has ended" if ready else "the browser did not answer in time"
        *messages, self._unread = (self._unread + chunk).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)
