"""Shared parts of agents in other processes or on other machines, independent of the protocol.

Deadline and record are kept here, whatever the remote does. When a delegation is stopped here, its remote task is cancelled; closing the
project waits for running cancellations."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition, checked_parameters
from remit.core.agents import AgentSpec
from remit.core.context import Context
from remit.core.errors import Misused, Unavailable
from remit.core.parameters import WrongParameters, declared_names
from remit.runtime.output_schema import parameter_faults
from remit.system.http import Target
from remit.system.ip_addresses import is_loopback

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps

CLOSE_SECONDS = 3.0
"""Time limit for running cancellations when the project is closed."""
_CANCEL_SECONDS = 0.15
"""Time limit to send a cancellation before a stopped delegation continues."""
_MARGIN_SECONDS, _MARGIN_SHARE = 0.5, 0.05
_MOST_ERRORS = 20


class RemoteExecutor:
    """Base of the executors of remote agents."""

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self._root = deps.root
        self._cancelling: set[asyncio.Task[Any]] = set()

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check required parameters, as far as they are known here."""
        return checked_parameters(self.spec, parameters)

    @property
    def ca_file(self) -> Path | None:
        return None if self.definition.ca_file is None else self._root / self.definition.ca_file

    def token(self) -> str | None:
        return token_for(self.definition)

    async def cancel_remote(self, cancelling: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(cancelling)
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((task,), timeout=_CANCEL_SECONDS)

    async def close(self) -> None:
        if self._cancelling:
            await asyncio.wait(set(self._cancelling), timeout=CLOSE_SECONDS)
            for task in set(self._cancelling):
                task.cancel()


def check_by_schema(spec: AgentSpec, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters under their declared names. Raises `WrongParameters`."""
    names = spec.parameters_schema.get("properties", {})
    given = declared_names(parameters, names, spec.name)
    if faults := parameter_faults(given, spec.parameters_schema):
        raise WrongParameters(spec.name, [("", fault) for fault in faults], tuple(names))
    return given


def must_be_private(target: Target) -> None:
    """Raises `Misused` for an address to which a token would be sent in the clear."""
    if target.scheme == "http" and not is_loopback(target.host):
        raise Misused(f"No token is sent to {target.shown} in the clear.", advice="Write https://…, with TLS on the other side.")


def token_for(definition: Definition) -> str | None:
    """The token from the current environment. Raises `Unavailable`."""
    variable = definition.token_variable
    token = os.environ.get(variable, "").strip() if variable else ""
    if variable and not token:
        raise Unavailable(
            f"{definition.name} needs a token, and the variable {variable} is not set.",
            code="TOOL_UNAVAILABLE",
            advice=f"export {variable}=…, with a token of the other side (`remit token new` there).",
        )
    return token or None


def seconds_for_remote(ctx: Context) -> float:
    """Slightly less than the remaining time, so that a final result of the remote still arrives."""
    return max(0.001, ctx.remaining - min(_MARGIN_SECONDS, _MARGIN_SHARE * ctx.remaining))


def errors_of(listed: object) -> list[dict[str, Any]]:
    """The readable errors of the remote's list."""
    given = listed[:_MOST_ERRORS] if isinstance(listed, list) else []
    return [
        error_entry(**one) for one in given if isinstance(one, Mapping) and isinstance(one.get("message"), str) and one["message"].strip()
    ]


def error_entry(message: str, **more: Any) -> dict[str, Any]:
    known = {"type": "execution", "code": "UNKNOWN_ERROR", "recommendation": "Check the remote agent."}
    texts = {name: more[name][:2000] for name in known if isinstance(more.get(name), str) and more[name]}
    return {**known, **texts, "message": message[:2000], "recoverable": more.get("recoverable") is not False}
