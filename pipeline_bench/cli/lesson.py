"""``pipeline-bench lesson``: short guided runs for a reader who meets these ideas for the first time."""

from __future__ import annotations

import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_bench.cli.options import UNREAD, lesson_names
from pipeline_bench.cli.output import silence, wrapped
from pipeline_bench.errors import PipelineBenchError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline_bench.lessons.play import Player
    from pipeline_bench.lessons.reading import Lesson


def lesson(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="The lesson; without a name, the list and the first one.",
            autocompletion=lesson_names,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Print only a name and a line for each lesson.")] = False,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Do not wait for answers, as without a terminal.")
    ] = False,
) -> None:
    """Learn by measuring: predict what a queue, a thread or a device does, then see it here. 2 minutes each."""
    from pipeline_bench.cli.running import interruptible
    from pipeline_bench.lessons.reading import find, lessons
    from pipeline_bench.ui.console import nobody_reads

    if listed and name is not None:
        raise UsageError(f"--list shows every lesson: it goes without {name!r}.", "Give the one or the other.")
    if listed:
        for each in lessons():
            typer.echo(wrapped(f"{each.name}: {each.summary}", sys.stdout))
        return
    chosen = find(name) if name is not None else None
    waits = not no_input and sys.stdin is not None and sys.stdin.isatty()
    try:
        with interruptible():
            _play(chosen, waits=waits)
    except KeyboardInterrupt:
        if not nobody_reads(sys.stdout):
            raise
        silence()
        raise typer.Exit(UNREAD) from None


def _play(chosen: Lesson | None, *, waits: bool) -> None:
    """Play the lesson that was named, and with a reader those after it; without one named, show what there is."""
    from pipeline_bench.lessons import play
    from pipeline_bench.lessons.play import LeftError, Player, console
    from pipeline_bench.lessons.reading import lessons

    screen = console()
    player = Player(screen, play.measure, (lambda prompt: asked(screen, prompt)) if waits else None)
    try:
        if chosen is None:
            player.show_list(lessons())
            if not waits:
                return
        following = chosen or _chosen(player)
        while True:
            try:
                player.play(following)
            except PipelineBenchError as error:
                if not waits:
                    raise
                player.say(f"The lesson ends here. {error.in_full}")
            played = following.order, following.name
            after = next((each for each in lessons() if (each.order, each.name) > played), None)
            if not waits or after is None:
                return
            player.pause(f"Enter goes on with {after.name}, q leaves: ")
            following = after
    except LeftError:
        return


def asked(screen: Console, prompt: str) -> str:
    """Return the reader's line; what was typed before the question was there answers nothing, and is thrown away."""
    with suppress(OSError, termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    return screen.input(prompt)


def _chosen(player: Player) -> Lesson:
    """Return the lesson that the reader names; the first one where they only press Enter.

    Raises:
        LeftError: the reader left.
    """
    from pipeline_bench.lessons.reading import find, lessons

    first = lessons()[0]
    while True:
        line = player.offer(f"Enter begins with {first.name}; a name with another; q leaves: ")
        try:
            return find(line) if line else first
        except UsageError as error:
            player.say(error.in_full)
