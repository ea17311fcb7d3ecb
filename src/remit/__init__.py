"""remit: hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done.

The names below are loaded when they are first used, so that a command that needs few of them starts quickly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remit.agents.function import agent
    from remit.app import Remit, run
    from remit.core.budget import Limits
    from remit.core.errors import AgentCrashed, ErrorInfo, Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable
    from remit.core.events import Event
    from remit.core.record import Record
    from remit.core.request import call
    from remit.core.result import Artifact, Evidence, Metadata, Return, Status, StopReason
    from remit.runtime.context import BlockingContext, Context
    from remit.runtime.tool.delegate_requests import DelegateError
    from remit.runtime.tool.delegate_results import DelegateResult
    from remit.runtime.tool.delegate_tool import DelegateTool
    from remit.runtime.validate import check_return

__all__ = [
    "AgentCrashed",
    "Artifact",
    "BlockingContext",
    "Context",
    "DelegateError",
    "DelegateResult",
    "DelegateTool",
    "ErrorInfo",
    "Event",
    "Evidence",
    "Failed",
    "InvalidReturn",
    "Limits",
    "Metadata",
    "Misused",
    "Record",
    "Refused",
    "Remit",
    "RemitError",
    "Return",
    "Status",
    "StopReason",
    "Stopped",
    "Unavailable",
    "agent",
    "call",
    "check_return",
    "run",
]

_HOMES = {
    "remit.agents.function": ("agent",),
    "remit.app": ("Remit", "run"),
    "remit.core.budget": ("Limits",),
    "remit.core.errors": (
        "AgentCrashed", "ErrorInfo", "Failed", "InvalidReturn", "Misused", "Refused", "RemitError", "Stopped", "Unavailable",
    ),
    "remit.core.events": ("Event",),
    "remit.core.record": ("Record",),
    "remit.core.result": ("Artifact", "Evidence", "Metadata", "Return", "Status", "StopReason"),
    "remit.runtime.context": ("BlockingContext", "Context"),
    "remit.core.request": ("call",),
    "remit.runtime.validate": ("check_return",),
    "remit.runtime.tool.delegate_requests": ("DelegateError",),
    "remit.runtime.tool.delegate_results": ("DelegateResult",),
    "remit.runtime.tool.delegate_tool": ("DelegateTool",),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'remit' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
