"""For users' own workflows: an activity that delegates to the agents of a project, and the plugin that registers it with a worker."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from temporalio import activity, workflow
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from remit.core.context import Handle
from remit.core.result import Return

DELEGATE = "remit.delegate"
HEARTBEAT_SECONDS = 30.0
GRACE_SECONDS = 30.0
"""How long to wait for a return after its deadline."""


class Delegator(Protocol):
    """The part of `Remit` that the activity uses."""

    async def start(self, agent: str, /, **asked: Any) -> Handle: ...
    async def cancel(self, session_id: str, reason: str = "", *, source: str = ...) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class WorkflowRequest:
    agent: str
    timeout: float
    parameters: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


class RemitPlugin(SimplePlugin):
    """`Worker(…, plugins=[RemitPlugin(remit)])`: its workflows may call `workflow_delegate`. `remit` is an open `Remit`."""

    def __init__(self, remit: Delegator) -> None:
        super().__init__("remit.RemitPlugin", activities=[_DelegateActivity(remit).delegate], workflow_runner=_with_remit)


def _with_remit(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Modules of remit are deterministic values here: the sandbox need not reload them for each workflow."""
    if isinstance(runner, SandboxedWorkflowRunner):
        return replace(runner, restrictions=runner.restrictions.with_passthrough_modules("remit", "pydantic_core"))
    assert runner is not None
    return runner


class _DelegateActivity:
    def __init__(self, remit: Delegator) -> None:
        self._remit = remit

    @activity.defn(name=DELEGATE)
    async def delegate(self, asked: WorkflowRequest) -> dict[str, Any]:
        """Retries of the same activity of the same workflow are one delegation."""
        info = activity.info()
        key = f"temporal:{info.workflow_id}:{info.workflow_run_id}:{info.activity_id}"
        handle = await self._remit.start(asked.agent, parameters=asked.parameters, timeout=asked.timeout, key=key, **asked.options)
        waiting = asyncio.ensure_future(handle.result())
        try:
            while not waiting.done():
                activity.heartbeat()
                await asyncio.wait([waiting], timeout=HEARTBEAT_SECONDS / 5)
            return waiting.result().to_dict()
        except asyncio.CancelledError:
            if activity.is_worker_shutdown():
                raise
            await self._remit.cancel(handle.session_id, "its workflow was cancelled", source="Temporal")
            raise
        finally:
            waiting.cancel()


async def workflow_delegate(
    agent: str, /, *, timeout: float = 300.0, options: Mapping[str, Any] | None = None, **parameters: Any
) -> Return:
    """Inside a workflow: hand work to `agent` and wait for its return. `options`: as in `Remit.delegate` (`priority`, `budget`, …)."""
    found = await workflow.execute_activity(
        DELEGATE,
        WorkflowRequest(agent, timeout, dict(parameters), dict(options or {})),
        result_type=dict,
        start_to_close_timeout=timedelta(seconds=timeout + GRACE_SECONDS),
        heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )
    return Return.from_dict(found)
