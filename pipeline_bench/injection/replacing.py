"""How a class' method, or a module's function, is replaced by one that calls what was there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Around = Callable[[Any, Callable[[], Any]], Any]
"""What is done in the place of a method: given the object, and what calls the method itself."""


def method_of(owner: Any, name: str) -> Callable[..., Any]:
    """Return a class' method as it is; where it inherits it, what a subclass with other bases has behind the class."""
    plain: Callable[..., Any] = getattr(owner, name)
    if name in vars(owner):
        return plain

    @functools.wraps(plain)
    def inherited(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(super(owner, self), name)(*arguments, **named)

    # A method is pickled by its name: that of the base would not be the patched one.
    inherited.__module__, inherited.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    return inherited


def put_around(owner: Any, name: str, around: Around) -> None:
    """Replace a class' method by one that calls `around`."""
    plain = method_of(owner, name)

    @functools.wraps(plain)
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return around(self, lambda: plain(self, *arguments, **named))

    setattr(owner, name, method)


def put_before(module: Any, name: str, event: Callable[[], None]) -> None:
    """Replace a module's function by one that calls `event` first."""
    plain = getattr(module, name)

    @functools.wraps(plain)
    def function(*arguments: Any, **named: Any) -> Any:
        event()
        return plain(*arguments, **named)

    setattr(module, name, function)
