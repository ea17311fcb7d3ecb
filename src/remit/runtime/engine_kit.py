"""What an engine of your own is built from, beside the port (`remit.Engine`): the steps of a delegation, one run, and the events.

The engines of remit use the same parts, and change with them: unlike the rest of the public API they may differ in the next version.
`tests/support/memory_engine.py` is a complete engine made of them."""

from remit.core.cache import CACHE_KEYS
from remit.core.context import SettledHandle, final_event
from remit.core.errors import OutOfTime
from remit.core.events import LAST
from remit.core.lifecycle import OUTCOMES
from remit.core.result import state_of
from remit.runtime.accept import accept, normalised_call
from remit.runtime.deps import CURRENT, RuntimeDeps, Submission
from remit.runtime.engine import LiveHandle, Middleware, Perform, Recovered, WorkerInfo
from remit.runtime.lifecycle import LifecycleBus, Listener
from remit.runtime.local_context import LocalRun, Output
from remit.runtime.partial_work import collect_partial_work
from remit.runtime.perform import perform
from remit.runtime.reply import (
    NOTHING_LEFT,
    PartialWork,
    Stop,
    describe_exception,
    refused_return,
    stopped_return,
    with_agent_session,
)
from remit.runtime.result_cache import ResultCache

__all__ = [
    "CACHE_KEYS", "CURRENT", "LAST", "NOTHING_LEFT", "OUTCOMES", "LifecycleBus", "Listener", "LiveHandle", "LocalRun",
    "Middleware", "OutOfTime", "Output", "PartialWork", "Perform", "Recovered", "ResultCache", "RuntimeDeps", "SettledHandle", "Stop",
    "Submission", "WorkerInfo", "accept", "collect_partial_work", "describe_exception", "final_event", "normalised_call", "perform",
    "refused_return", "state_of", "stopped_return", "with_agent_session",
]  # fmt: skip
