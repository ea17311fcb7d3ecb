"""The workflow of one delegation: assigns it to a worker, and handles the loss of that worker.

Everything else (parameters, results, events) is in the store. Runs inside Temporal's workflow sandbox and is replayed from histories that
older releases wrote: it imports plain dataclasses and `temporalio` only, and a change of what it schedules needs `workflow.patched`.
`tests/integration/temporal_histories` has the histories that must replay."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError, TimeoutType

VERSION = 1
"""Version of the payloads below."""
WORKFLOW = "remit.delegation"
PERFORM = "remit.perform"
SETTLE = "remit.settle"
STOP_SIGNAL = "stop"
HANDED_OVER = "handed over"
"""Failure type of an attempt that its worker gave back: another worker continues at once."""
REFUSED = "refused"
"""Failure type of an attempt that this worker cannot execute; another one may."""
CLOSE_SECONDS = 5.0
"""Time after its deadline at which Temporal gives up a delegation. Its worker or its caller has ended it before."""
REFUSED_SECONDS = 1.0
"""Counted for each refusal; the next attempt comes after one to two seconds."""
URGENT = 1
"""The highest priority of Temporal."""


@dataclass(frozen=True)
class Order:
    """A delegation handed to a worker."""

    session_id: str
    agent: str
    queue: str
    definition: str
    policy: str
    seconds: float
    """Total seconds."""
    priority: int
    """Temporal's: 1 is the most urgent."""
    resumable: bool
    heartbeat_seconds: float
    wait_seconds: float
    ageing_seconds: float
    version: int = VERSION


@dataclass(frozen=True)
class Attempt:
    """One attempt to execute a delegation."""

    session_id: str
    agent: str
    definition: str
    policy: str
    ticket: int
    """Number of the attempt: each is claimed in the store once."""
    seconds: float
    """Remaining seconds when it is scheduled, by the server's clock."""
    heartbeat_seconds: float
    version: int = VERSION


@dataclass(frozen=True)
class Settlement:
    """A delegation that no worker can settle itself."""

    session_id: str
    queue: str
    reason: str
    """crashed, deadline, cancelled or unavailable."""
    source: str = ""
    detail: str = ""
    version: int = VERSION


@workflow.defn(name=WORKFLOW, sandboxed=False)
class DelegationWorkflow:
    def __init__(self) -> None:
        self._attempt: workflow.ActivityHandle[str] | None = None
        self._stopped: tuple[str, str] | None = None
        self._waiting_seconds = 0.0
        self._refusal = ""

    @workflow.signal(name=STOP_SIGNAL)
    def stop(self, reason: str, source: str) -> None:
        self._stopped = self._stopped or (reason, source)
        if self._attempt is not None:
            self._attempt.cancel()

    @workflow.run
    async def run(self, order: Order) -> str:
        """`settled` when the outcome is in the store."""
        if order.version > VERSION:
            newer = f"it was submitted by a newer remit (payload version {order.version}, this one knows {VERSION}). Upgrade the workers."
            return await self._settle(order, "unavailable", detail=newer)
        began, ticket = workflow.now(), 0
        while True:
            left = order.seconds - (workflow.now() - began).total_seconds()
            if self._stopped is not None:
                return await self._settle(order, "cancelled", *reversed(self._stopped))
            if left <= 0:
                return await self._settle(order, "deadline")
            ticket += 1
            try:
                return await self._perform(order, ticket, left)
            except ActivityError as error:
                cause = error.cause
            except asyncio.CancelledError as error:
                cause = error
            if isinstance(cause, CancelledError | asyncio.CancelledError):
                reason, source = self._stopped or ("its workflow was cancelled in Temporal", "Temporal")
                return await self._settle(order, "cancelled", source, reason)
            if isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_START:
                order = replace(order, priority=max(URGENT, order.priority - 1))
                is_over = await self._waited(order, self._wait_seconds(order))
            elif isinstance(cause, ApplicationError) and cause.type == REFUSED:
                self._refusal = cause.message
                # Several that are refused together would meet the same workers in the same order again.
                await asyncio.sleep(REFUSED_SECONDS * (1 + workflow.random().random()))
                is_over = await self._waited(order, REFUSED_SECONDS)
            elif order.resumable or (isinstance(cause, ApplicationError) and cause.type == HANDED_OVER):
                is_over = False
            else:
                is_over = bool(await self._settle(order, "crashed", detail=str(cause)))
            if is_over:
                return "settled"

    def _wait_seconds(self, order: Order) -> float:
        """Until its priority rises, or until the check whether a worker exists."""
        return max(1.0, min(order.ageing_seconds, order.wait_seconds - self._waiting_seconds))

    async def _waited(self, order: Order, seconds: float) -> bool:
        """It waited this much longer in vain; True: too long, and it was settled. Waiting for a slot is never too long."""
        self._waiting_seconds += seconds
        if self._waiting_seconds < order.wait_seconds:
            return False
        self._waiting_seconds = 0.0
        return bool(await self._settle(order, "unavailable", detail=self._refusal))

    async def _perform(self, order: Order, ticket: int, left: float) -> str:
        attempt = Attempt(
            order.session_id, order.agent, order.definition, order.policy, ticket, left, order.heartbeat_seconds, order.version
        )
        self._attempt = workflow.start_activity(
            PERFORM,
            attempt,
            result_type=str,
            task_queue=order.queue,
            schedule_to_start_timeout=timedelta(seconds=min(self._wait_seconds(order), left)),
            start_to_close_timeout=timedelta(seconds=left + CLOSE_SECONDS),
            heartbeat_timeout=timedelta(seconds=order.heartbeat_seconds),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(priority_key=order.priority),
        )
        if self._stopped is not None:
            self._attempt.cancel()
        try:
            return await self._attempt
        finally:
            self._attempt = None

    async def _settle(self, order: Order, reason: str, source: str = "", detail: str = "") -> str:
        """`settled`, or empty: it can be retried."""
        settled: str = await workflow.execute_activity(
            SETTLE,
            Settlement(order.session_id, order.queue, reason, source, detail),
            result_type=str,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)),
        )
        return settled
