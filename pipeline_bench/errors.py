"""The exceptions a user can meet: a message, what to do about it, and the exit code it ends with.

PipelineBenchError        exit 1
├── UsageError            exit 2   the command line, the working folder, the machine's set-up
│   ├── ScenarioError     exit 2   a scenario file or an override of one
│   └── SessionError      exit 2   a session file that cannot be read or written
├── ProtocolError         exit 1   a child said something that is not an event
└── UserCodeError         exit 1   the user's own function or script, with its traceback
"""

from __future__ import annotations

from typing import Any

from pipeline_bench.text import FIELD_CHARACTERS, safe_message, sentence, with_stop


class PipelineBenchError(Exception):
    """Something went wrong that one message explains; `hint` says what to do next.

    Both are made safe here: they quote what a file, a command line or a user's code says.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = safe_message(message)
        self.hint = safe_message(hint)
        super().__init__(self.message)

    @property
    def in_full(self) -> str:
        """The message and the hint, as sentences in one text."""
        return f"{with_stop(self.message)} {sentence(self.hint)}" if self.hint else self.message


class UsageError(PipelineBenchError):
    """What the user asked for cannot be done as asked; nothing was measured."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario is not valid; the message names the file and the key."""


class SessionError(UsageError):
    """A session file cannot be read or written; the message names the file.

    Attributes:
        session: the `model.session.Session` that was measured and could not be written; None where nothing was.
    """

    session: Any = None


class ProtocolError(PipelineBenchError):
    """A child sent something that is not an event of the version spoken here."""


class UserCodeError(PipelineBenchError):
    """The user's own function did not do what it should; `traceback` is theirs, from their first frame down."""

    def __init__(self, message: str, hint: str = "", traceback: str = "") -> None:
        super().__init__(message, hint)
        self.traceback = safe_message(traceback, FIELD_CHARACTERS)
