"""Who calls a tool of the MCP door, and what came along. On stdin and stdout, and where nobody is asked who they are, it is the owner."""

from collections.abc import Callable, Mapping
from typing import Any

from remit.access.visitor import OWNER, Visitor
from remit.core.tracing import parse
from remit.serve.service import Call

LOCAL = Call(visitor=OWNER, door="mcp")
VISITOR = "remit.visitor"
"""Where the entrance of the HTTP doors (`serve.http.entering`) puts who came in."""
HOLD = "remit.hold"
"""And how a request takes its place among those that go on for long."""


def call_of(request: Any, meta: Mapping[str, Any] | None, *, asks_who: bool = False) -> Call | None:
    """`request`: the HTTP request it came with, if any; `meta`: what the client sent along, `traceparent` among it.

    None: nobody was found out, where `asks_who` says that somebody must have been."""
    scope = getattr(request, "scope", None) or {}
    traceparent = _traceparent(meta, getattr(request, "headers", None))
    visitor = scope.get(VISITOR, None if asks_who else OWNER)
    if not isinstance(visitor, Visitor):
        return None
    return LOCAL if visitor is OWNER and traceparent is None else Call(visitor=visitor, door="mcp", traceparent=traceparent)


def hold_of(request: Any) -> Callable[[], None]:
    """Takes a place among the streams that its caller has open, as `serve.http.exchange` counts them; where nobody counts, nothing."""
    held: Callable[[], None] | None = (getattr(request, "scope", None) or {}).get(HOLD)
    return held if held is not None else lambda: None


def _traceparent(meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None) -> str | None:
    for said in ((meta or {}).get("traceparent"), (headers or {}).get("traceparent")):
        if isinstance(said, str) and parse(said) is not None:
            return said
    return None
