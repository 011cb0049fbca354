"""The program of `tests.integration.program`, begun as the program itself is: Ctrl-C while it imports shows nothing."""

from __future__ import annotations

import signal

if __name__ == "__main__":
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from pipeline_bench.__main__ import main
    from pipeline_bench.run import launcher
    from tests.integration.program import scripted_launcher

    launcher.best_launcher = lambda log, *_: (scripted_launcher(log), None)
    launcher.fresh_launcher = scripted_launcher
    signal.signal(signal.SIGINT, before)
    main()
