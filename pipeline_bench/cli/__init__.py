"""The command line: one module per command, and the only place that prints errors and exits.

Nothing heavier than typer is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_bench import __version__
from pipeline_bench.cli import output
from pipeline_bench.cli.available import backends, doctor, scenarios
from pipeline_bench.cli.data import data
from pipeline_bench.cli.hosts import merge, plan
from pipeline_bench.cli.lesson import lesson
from pipeline_bench.cli.measuring import compare, diagnose, selftest
from pipeline_bench.cli.measuring import run as run_command
from pipeline_bench.cli.options import INTERRUPTED, UNREAD, show_help
from pipeline_bench.cli.saved import diff, report, sessions, top
from pipeline_bench.errors import PipelineBenchError, UsageError
from pipeline_bench.text import one_line, safe_message, sentence, with_stop

BUG = 70
_PLAIN = {
    "Value error, ": "",
    " is not a valid float.": ": a plain number is needed, such as 30.",
    " is not a valid integer.": ": a whole number is needed, such as 3.",
    "Input should be a valid number, unable to parse string as a number": "a plain number is needed, such as 30.",
    "Input should be a valid integer, unable to parse string as an integer": "a whole number is needed, such as 3.",
}
"""What pydantic or click says of a value, by one of which typer checks an option, in words of a command line."""
_OF_A_NAME = (
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EIO,
    errno.ENODEV,
    errno.ENOTCONN,
    errno.ESTALE,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
)
"""What may be wrong with a file's name, its folder, or the disk that it lies on, which may be gone or full."""
_NO_ROOM = ("failed to map segment", "Cannot allocate memory")
"""What the C library says of a file that it can load no more; the first also of one that may not be executed."""

app = typer.Typer(
    name="pipeline-bench",
    help="Measure how long training waits for its input, find the cause, and try fixes.",
    epilog="In a training job: pipeline_bench.keras.StarvationMonitor for model.fit, pipeline_bench.monitor for a loop "
    "of your own. From Python: pipeline_bench.compare, diagnose, load.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows the command's name is the command's own, options too.
app.command("run", context_settings={"allow_interspersed_args": False})(run_command)
for command in (
    diagnose,
    compare,
    top,
    report,
    diff,
    plan,
    sessions,
    lesson,
    scenarios,
    backends,
    doctor,
    selftest,
    merge,
):
    app.command()(command)
app.add_typer(data)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pipeline-bench {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Measure how long training waits for its input, find the cause, and try fixes."""
    show_help(context)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as we run
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows a ? for a ×, not a traceback
    sys.stdout, sys.stderr = output.named(sys.stdout), output.lenient(sys.stderr)
    for number in (signal.SIGTERM, signal.SIGHUP):  # no command leaves a part of a file behind
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        output.silence()
    except OSError as error:
        code = _unwritable(error)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; whatever went wrong has been said on stderr."""
    try:
        # Not standalone: typer would turn Ctrl-C into exit 1 in some of its versions, and hide our own codes.
        code = app(args=list(arguments), prog_name="pipeline-bench", standalone_mode=False)
    except PipelineBenchError as error:
        _say(f"Error: {with_stop(error.message)}", sentence(error.hint))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:  # rich and typer make the second of the first, with codes of theirs
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        output.silence()  # the reader, `head` perhaps, has seen enough
        return UNREAD
    except output.StdoutError as error:
        return _unwritable(error)
    except Exception as error:
        return _interrupt(error) or _usage_error(error) or _out_of_memory(error) or _refused(error) or _bug(error)
    return code if isinstance(code, int) else 0


def _interrupt(error: BaseException | None) -> int | None:
    """Return the code of an interrupt that a library put in other words, as pydantic does where a class is made."""
    while error is not None:
        if hasattr(error, "show"):  # of the command line, which may name it
            return None
        if isinstance(error, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(error):
            return INTERRUPTED
        error = error.__cause__
    return None


def _usage_error(error: Exception) -> int | None:
    """Show an error of the command line's grammar. Its class is typer's own or click's, whichever typer uses."""
    if not (hasattr(error, "show") and isinstance(code := getattr(error, "exit_code", None), int)):
        return None
    if isinstance(message := getattr(error, "message", None), str) and message.strip():  # a missing argument has none
        for words, plain in _PLAIN.items():
            message = message.replace(words, plain)
        # It quotes the command line.
        error.message = with_stop(safe_message(message)) + _of_a_script(error)  # type: ignore[attr-defined]
    error.show()
    return code


def _of_a_script(error: Exception) -> str:
    """Return where an unknown option of `diagnose` would go if it is the script's; "" of any other error."""
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    is_unknown = command == "diagnose" and isinstance(getattr(error, "option_name", None), str)
    return " If it is the script's own, it follows --: pipeline-bench diagnose SCRIPT -- OPTIONS" if is_unknown else ""


def _out_of_memory(error: Exception) -> int | None:
    """Print that memory ran out, where it did."""
    if not isinstance(error, MemoryError) and not (isinstance(error, ImportError) and _has_no_room(error)):
        return None
    _say("Error: there is not enough memory.", "Free some, or raise the limit that `ulimit -v` shows.")
    return 1


def _refused(error: Exception) -> int | None:
    """Say which file cannot even be asked for, where that is so: it lies in a folder of another user's, for one."""
    if not isinstance(error, OSError) or error.errno not in _OF_A_NAME or error.filename is None:
        return None
    name = one_line(os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "a file", 300)
    _say(f"Error: {name}: {error.strerror}.", "Make it accessible to this user, on a disk with room, or give another.")
    return UsageError.exit_code


def _has_no_room(error: BaseException | None) -> bool:
    """Return whether a library could not be loaded for want of memory (`ulimit -v`); NumPy wraps that error."""
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    while error is not None and limited:
        if any(words in str(error) for words in _NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unwritable(error: OSError) -> int:
    """Say once that stdout takes nothing more, and why."""
    output.silence()
    _say(f"Error: stdout cannot be written: {error.strerror}.", "")
    return 1


def _bug(error: Exception) -> int:
    traceback.print_exc()
    report = "with the lines above, the command, and the output of `pipeline-bench doctor --json`."
    plugins = sys.modules.get("pipeline_bench.plugins")  # where it is not there, no plug-in was
    if package := plugins and plugins.package_at_fault(error):
        _say(f"This is an error of a plug-in of the package {package}.", f"Please report it to its authors {report}")
    else:
        bug = f"This is a bug of pipeline-bench {__version__}, not of what you asked for."
        _say(bug, f"Please report it {report}")
    return BUG


def _say(message: str, hint: str) -> None:
    typer.echo("\n".join(line for line in (message, hint) if line), err=True)
