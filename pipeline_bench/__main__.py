"""The program: ``pipeline-bench``, or ``python -m pipeline_bench``."""

import _signal  # type: ignore[import-not-found] # built in: Ctrl-C while `signal` is imported would be a traceback
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line, and exit with its code."""
    # While the command line is imported, Ctrl-C ends the process as it ends any other, without a traceback.
    interrupt = _signal.getsignal(_signal.SIGINT)
    if interrupt is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    import signal  # noqa: PLC0415

    from pipeline_bench import cli  # noqa: PLC0415

    try:
        signal.signal(signal.SIGINT, interrupt)
        cli.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:  # a further signal has nothing left to interrupt, and is not to change the exit code
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
