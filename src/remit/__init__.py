"""remit: hand work to any agent and always get an answer back: in time, in one checked shape, with whatever was done."""

from remit.agents.blocking import BlockingContext
from remit.agents.function import agent
from remit.app import Remit, run
from remit.core.budget import Limits
from remit.core.errors import AgentCrashed, ErrorInfo, Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable
from remit.core.result import Artifact, Evidence, Metadata, Return, Status, StopReason
from remit.flow.context import Context
from remit.flow.request import call
from remit.flow.validate import check_return

__all__ = [
    "AgentCrashed",
    "Artifact",
    "BlockingContext",
    "Context",
    "ErrorInfo",
    "Evidence",
    "Failed",
    "InvalidReturn",
    "Limits",
    "Metadata",
    "Misused",
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
