"""What a process of this program executes first: ``python -P begin.py PARENT THREAD MODULE …``.

It ends with its parent from here on, before the module's own imports, which can take many seconds.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

try:
    import pipeline_bench  # noqa: F401 - is it to be found?
except ImportError:  # the parent runs from a checkout in its working folder, which -P keeps out of the path
    sys.path.append(str(Path(__file__).parents[2]))

from pipeline_bench.system.processes import end_with_parent


def main() -> None:
    """Run the module that is named in the arguments, with those behind its name as its own."""
    end_with_parent(int(sys.argv[1]), thread=int(sys.argv[2]))
    sys.argv = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
