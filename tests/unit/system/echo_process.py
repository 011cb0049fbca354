"""A process of `system.children` without TensorFlow: does what the first message says."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

from pipeline_bench.system.children import Broke


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    match connection.recv():
        case "say":
            connection.send(f"a child of {os.getppid()}")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(3)
        case "break":
            connection.send(Broke("the file is gone"))
    connection.recv()


if __name__ == "__main__":
    main()
