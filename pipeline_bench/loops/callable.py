"""callable: one call a step of what `Session.make_callable` made: `Session.run`, its questions asked once."""

from __future__ import annotations

from typing import Any

from pipeline_bench.loops.session import Call, SessionLoop


class CallableLoop(SessionLoop):
    """The fetches of `session`, resolved once and not at every step."""

    name = "callable"
    summary = "one call of session.make_callable([train, loss]) a step, from Python"

    def calling(self, session: Any, fetches: list[Any], feed: dict[Any, Any] | None = None) -> Call:
        if feed is None:
            call = session.make_callable(fetches)
            return lambda _: call()
        fed = session.make_callable(fetches, feed_list=list(feed))
        return lambda values: fed(*(values or {}).values())
