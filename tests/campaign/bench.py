"""What a worker has at hand: a folder for each try, a warm interpreter, a server of TensorFlow trials."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from shutil import rmtree

import psutil

from pipeline_bench.run.launcher import TrialServer
from tests.campaign.processes import MARK, ROOT
from tests.campaign.warm import Warm

_STARTING = threading.Lock()
"""The environment of a server that is started is that of this process, which the workers share."""


class Bench:
    """One worker's; `folder` is that of the running try."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="campaign-"))
        self._tries = 0
        self._warm: Warm | None = None
        self._server: TrialServer | None = None
        self.folder = self._root
        self.mark = f"{os.getpid()}:{self._root}"
        """In the environment of the server and of its trials."""

    @property
    def temporary(self) -> Path:
        """The server's folder for temporary files."""
        return self._root / "tmp"

    def next_folder(self) -> None:
        """Give the next try a folder of its own; that of the last one goes."""
        if self.folder != self._root:
            rmtree(self.folder, ignore_errors=True)
        self._tries += 1
        self.folder = self._root / str(self._tries)
        self.folder.mkdir()

    @property
    def warm(self) -> Warm:
        """An interpreter that has imported the program."""
        self._warm = self._warm or Warm()
        return self._warm

    def server(self) -> TrialServer:
        """A server that has imported TensorFlow; another one where a try has ended it."""
        if self._server is not None and _answers(self._server):
            self.temporary.mkdir(exist_ok=True)  # a try may have removed it
            return self._server
        if self._server is not None:
            self._server.close()
            rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(exist_ok=True)
        changes = {MARK: self.mark, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        with _STARTING:
            before = {name: os.environ.get(name) for name in changes}
            os.environ.update(changes)
            try:
                self._server = TrialServer(self._root / "server.stderr")
            finally:
                for name, value in before.items():
                    os.environ.pop(name) if value is None else os.environ.update({name: value})
        if reason := self._server.wait_until_ready():
            raise RuntimeError(f"the server of the trials refuses: {reason}")
        return self._server

    def close(self) -> None:
        """End what it has started, and remove its folders."""
        for one in (self._warm, self._server):
            if one is not None:
                with suppress(OSError), closing(one):
                    pass
        rmtree(self._root, ignore_errors=True)


def _answers(server: TrialServer) -> bool:
    try:
        return psutil.Process(server.pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False
