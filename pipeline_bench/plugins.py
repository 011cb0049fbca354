"""Finds sources, backends, models and loops by name: the files of this package, then installed entry points.

A built-in plug-in is the one subclass of `Plugin` that a file of ``sources/``, ``backends/``, ``models/`` or
``loops/`` defines, under the file's name; ``planted/delays.py`` and ``backends/ceiling.py`` have some more, which are
not listed. Another package adds one with an entry point in the group ``pipeline_bench.<group>``; see docs/plugins.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from traceback import walk_tb
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline_bench.errors import UsageError

Group = Literal["sources", "backends", "models", "loops"]
GROUPS: tuple[Group, ...] = get_args(Group)


class Options(BaseModel):
    """The options of a plug-in: typed, with defaults, immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Plugin:
    """What every plug-in has: a name, a line about itself, and options that can be checked without TensorFlow."""

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type[Options]] = Options
    listed: ClassVar[bool] = True
    """Whether it is among those that a user is offered."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """Take the options as a mapping.

        Raises:
            pydantic.ValidationError: an option is unknown or has a value that is not allowed.
        """
        self.options: Any = self.Options.model_validate(dict(options or {}))

    @classmethod
    def make(cls, options: Mapping[str, Any]) -> Any:
        """Return what the scenario gets for these options: an instance, of this class but where it says otherwise."""
        return cls(options)

    def unavailable(self) -> str | None:
        """Return why this machine cannot run it, and what to do about it; its variants are then left out. Else None."""
        return None


def names(group: Group) -> list[str]:
    """Return every name of the group that a user is offered, sorted."""
    return sorted(name for name, found in _classes(group).items() if getattr(found, "listed", True))


def has(group: Group, name: str) -> bool:
    """Return whether there is a plug-in of that name, listed or not."""
    return name in _classes(group)


def find(group: Group, name: str) -> type[Plugin]:
    """Return the plug-in class of that name.

    Raises:
        KeyError: no built-in file and no entry point has the name.
        UsageError: the entry point that has the name cannot be loaded, or a built-in plug-in has the name too.
    """
    found = _classes(group)[name]
    if not isinstance(found, type):
        return _load(group, found)
    if (point := _entry_points(group).get(name)) is not None:
        raise UsageError(
            f"Two plug-ins of the group pipeline_bench.{group} are called {name!r}: the built-in one, and "
            f"{point.value!r} of the package {point.dist.name if point.dist else 'that declares it'}.",
            "Give that entry point another name, or uninstall its package.",
        )
    return found


def loadable(group: Group) -> dict[str, type[Plugin]]:
    """Return what a user is offered of the group, by name; somebody's broken package hides none of the others."""
    found = {}
    for name in names(group):
        with suppress(UsageError):
            found[name] = find(group, name)
    return found


def make(group: Group, name: str, options: Mapping[str, Any]) -> Any:
    """Return the plug-in of that name with these options.

    Raises:
        KeyError: there is no such plug-in.
        UsageError: its entry point cannot be loaded.
        pydantic.ValidationError: an option is unknown or has a value that is not allowed.
    """
    return find(group, name).make(options)


def make_if_known(group: Group, name: str, options: Mapping[str, Any]) -> Any:
    """Return what `make` does; None where that fails, as of a plug-in that is gone or a session of another version."""
    with suppress(KeyError, UsageError, ValidationError):
        return make(group, name, options)
    return None


def find_if_known(group: Group, name: str) -> type[Any] | None:
    """Return what `find` does; None where that fails, as of a plug-in that is gone."""
    with suppress(KeyError, UsageError):
        return find(group, name)
    return None


def renderer(name: str, function: str = "render") -> Callable[[Any], str]:
    """Return the function that renders a session in a format of ``report/``, by name, for layers below the reports.

    Importing a session loads none of them: they are slow to import, and few sessions are shown.
    """
    render: Callable[[Any], str] = getattr(importlib.import_module(f"pipeline_bench.report.{name}"), function)
    return render


def origin(group: Group, name: str) -> str:
    """Return where the plug-in of that name comes from: ``built in``, or the package that declares its entry point.

    Raises:
        KeyError: there is no such plug-in.
    """
    found = _classes(group)[name]
    if isinstance(found, type):
        return "built in"
    return str(found.dist.name if found.dist else found.module)


@cache
def _classes(group: Group) -> dict[str, Any]:
    """Name to class for the built-in plug-ins, name to unloaded entry point for the others."""
    found: dict[str, Any] = dict(_entry_points(group))
    package = importlib.import_module(f"pipeline_bench.{group}")
    modules = {f"{package.__name__}.{info.name}": Plugin for info in pkgutil.iter_modules(package.__path__)}
    modules["pipeline_bench.planted.delays"] = _base(group)
    for name, base in modules.items():
        defined = [each for each in vars(importlib.import_module(name)).values() if isinstance(each, type)]
        for plugin in defined:
            # what has no name of its own is a base class of others
            if issubclass(plugin, base) and plugin.__module__ == name and "name" in vars(plugin):
                found[plugin.name] = plugin
    return found


@cache
def _entry_points(group: Group) -> dict[str, Any]:
    """Return the entry points of other packages by name, unloaded."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - it takes longer than Python's start

    return {point.name: point for point in entry_points(group=f"pipeline_bench.{group}")}


def package_at_fault(error: BaseException) -> str | None:
    """Return the package whose plug-in raised an error; None where it was raised by this package, or by neither."""
    points = [point for group in GROUPS for point in _entry_points(group).values()]
    packages = {point.module.partition(".")[0]: point.dist.name if point.dist else point.module for point in points}
    calls = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)]
    return packages.get(next((each for each in reversed(calls) if each == __package__ or each in packages), ""))


def _base(group: Group) -> type[Plugin]:
    """Return the base class of the group's plug-ins."""
    base: type[Plugin] = getattr(
        importlib.import_module(f"pipeline_bench.{group}"), group.removesuffix("s").capitalize()
    )
    return base


def _load(group: Group, point: Any) -> type[Plugin]:
    try:
        loaded = point.load()
    except Exception as error:
        raise UsageError(
            f"The entry point {point.name!r} = {point.value!r} in the group pipeline_bench.{group} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            f"Repair or uninstall the package {point.dist.name if point.dist else 'that declares it'}.",
        ) from error
    # One that only makes another one, as slow_storage does, is a plain Plugin.
    others = tuple(_base(each) for each in GROUPS if each != group)
    if (
        not (isinstance(loaded, type) and issubclass(loaded, Plugin))
        or issubclass(loaded, others)
        or not (hasattr(loaded, "name") and isinstance(loaded.Options, type) and issubclass(loaded.Options, BaseModel))
    ):
        raise UsageError(
            f"The entry point {point.name!r} = {point.value!r} in the group pipeline_bench.{group} "
            "is no plug-in class of this group.",
            "It must name a subclass of the group's base class, with a name and Options; see docs/plugins.md.",
        )
    return loaded
