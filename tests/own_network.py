"""Runs a command in a network of its own, with loopback only: ``python own_network.py COMMAND…``.

TensorFlow's servers listen on every interface. What tests start of them is out of others' reach.
"""

from __future__ import annotations

import os
import sys

from pipeline_bench.system import private_network


def command(*words: str) -> list[str]:
    """The command, in a network of its own."""
    return [sys.executable, "-P", __file__, *words]


if __name__ == "__main__":
    private_network.enter()
    os.execvp(sys.argv[1], sys.argv[1:])
