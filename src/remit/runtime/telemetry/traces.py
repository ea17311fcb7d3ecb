"""Spans of delegations, created when they have ended: one trace per tree, across processes and APIs.

Nothing is kept while a delegation runs: ids come from `core.ids`, times from the delegation itself. So a delegation that was resumed after
a crash, or settled by the next process, has its span under the right caller. Steps are events of the span. Parameters, results and
messages are not included. Requires the OpenTelemetry SDK. Names for generative AI are still "Development"; remit's own are `remit.*`."""

import os
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as api
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace.status import Status, StatusCode

from remit.core.delegation import ROOT_CALLER, CallerInfo, Delegation, Origin
from remit.core.events import STEPS
from remit.core.ids import Traceparent, parent_span_of, parse_traceparent, span_of
from remit.core.lifecycle import LifecycleEvent
from remit.core.model_messages import ModelCall
from remit.core.result import Return
from remit.core.states import State
from remit.runtime.engine import Perform
from remit.runtime.local_context import LocalRun
from remit.runtime.telemetry.metrics import Find

NAME_CHARACTERS = 300
LARGEST = 2**63 - 1
REMOTE_KINDS = ("a2a", "remote")
"""Remote agents: their spans have the kind client."""

Put = Callable[[ReadableSpan], None]


class Span(StrEnum):
    """Values of `gen_ai.operation.name`, and prefixes of span names."""

    AGENT = "invoke_agent"
    """A delegation."""
    TOOL = "execute_tool"
    """A delegation to an operation: `worker.read_file`."""
    CHAT = "chat"
    """A call of a language model."""


class Attribute(StrEnum):
    OPERATION = "gen_ai.operation.name"
    AGENT_ID = "gen_ai.agent.id"
    """The agent's name, which is unique in a project; the session is `remit.session_id`."""
    AGENT_NAME = "gen_ai.agent.name"
    TOOL_NAME = "gen_ai.tool.name"
    TOOL_CALL_ID = "gen_ai.tool.call.id"
    CONVERSATION = "gen_ai.conversation.id"
    """The caller's name of the conversation, else the tree."""
    PROVIDER = "gen_ai.provider.name"
    MODEL = "gen_ai.request.model"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    ERROR = "error.type"
    SESSION = "remit.session_id"
    ROOT = "remit.root_id"
    PARENT = "remit.parent_id"
    DEPTH = "remit.depth"
    PATH = "remit.path"
    STATE = "remit.state"
    KIND = "remit.kind"
    """Kind of the agent."""
    COMMAND = "remit.command"
    TASK = "remit.task_number"
    PRIORITY = "remit.priority"
    TOKENS = "remit.tokens"
    COST = "remit.cost"
    PRINCIPAL = "remit.principal"
    DOOR = "remit.door"

    __hash__ = str.__hash__  # the hash of an enumeration is slow, and dozens are needed for every span


class Traces:
    def __init__(self, put: Put, resource: Resource, find: Find) -> None:
        self._put = put
        self._resource = resource
        self._find = find
        self._scope = InstrumentationScope("remit")

    # ---- delegations

    def ended(self, event: LifecycleEvent) -> None:
        delegation = event.delegation
        if delegation is None or event.success is None:
            return
        here = span_of(delegation)
        if not here.is_sampled:  # the caller's trace is not sampled
            return
        attributes = self._attributes(delegation, event)
        agent = self._find(delegation.agent)
        spec = None if agent is None else agent.spec
        if spec is not None:
            attributes[Attribute.KIND] = spec.kind
        is_remote = spec is not None and spec.kind in REMOTE_KINDS
        if is_remote and spec is not None:
            attributes[Attribute.PROVIDER] = "a2a" if spec.kind == "a2a" else "remit"
        is_served = delegation.lineage.parent_id is None and bool(event.door)
        span = Span.TOOL if event.operation else Span.AGENT
        self._export(
            f"{span} {delegation.agent}",
            here,
            parent_span_of(delegation),
            {Attribute.OPERATION: str(span), **_named(span, delegation), **attributes},
            begin=delegation.created_at,
            end=event.at,
            status=self._status(event),
            step_times=event.step_times,
            kind=api.SpanKind.CLIENT if is_remote else api.SpanKind.SERVER if is_served else api.SpanKind.INTERNAL,
        )

    def _attributes(self, delegation: Delegation, event: LifecycleEvent) -> dict[str, Any]:
        lineage, task, caller_info = delegation.lineage, delegation.task, delegation.caller_info
        found: dict[str, Any] = {
            Attribute.CONVERSATION: caller_info.session if caller_info is not None and caller_info.session else lineage.root_id,
            Attribute.SESSION: lineage.session_id,
            Attribute.ROOT: lineage.root_id,
            Attribute.PARENT: lineage.parent_id,
            Attribute.DEPTH: lineage.depth,
            Attribute.PATH: list(lineage.path),
            Attribute.STATE: event.state,
            Attribute.PRIORITY: delegation.priority.name.lower(),
            Attribute.COMMAND: delegation.command,
            Attribute.TASK: None if task is None else task.task_number,
            Attribute.TOKENS: event.tokens or None,
            Attribute.COST: event.cost or None,
            Attribute.PRINCIPAL: event.principal,
            Attribute.DOOR: event.door,
            Attribute.ERROR: None if event.error is None or event.success else event.error.code,
        }
        return {str(name): value for name, value in found.items() if value is not None}

    def _status(self, event: LifecycleEvent) -> Status:
        """A cancellation is neither success nor error, as in the metrics."""
        if event.success:
            return Status(StatusCode.OK)
        if event.state == State.CANCELLED:
            return Status(StatusCode.UNSET)
        return Status(StatusCode.ERROR, _sound(event.state if event.error is None else event.error.code))

    async def perform(self, work: LocalRun, inner: Perform) -> Return:
        """Middleware: spans of the agent's own libraries become children of the delegation's. The context ends with the agent's task."""
        span = api.NonRecordingSpan(span_context(span_of(work.delegation)))
        otel_context.attach(api.set_span_in_context(span, otel_context.Context()))
        return await inner(work)

    def origin(self) -> Origin | None:
        """The open span of the calling program, parent of the tree; None without one."""
        span = api.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        given = Traceparent(f"{span.trace_id:032x}", f"{span.span_id:016x}", int(span.trace_flags))
        return None if parse_traceparent(str(given)) is None else Origin(caller_info=CallerInfo(ROOT_CALLER, traceparent=str(given)))

    # ---- questions to models

    def model_called(self, delegation: Delegation, call: ModelCall) -> None:
        """A child span of the delegation that asked."""
        above = span_of(delegation)
        if not above.is_sampled:
            return
        now = time.time()
        attributes: dict[str, Any] = {
            Attribute.OPERATION: str(Span.CHAT),
            Attribute.PROVIDER: call.provider,
            Attribute.MODEL: call.model,
            Attribute.CONVERSATION: delegation.lineage.root_id,
            Attribute.SESSION: delegation.session_id,
        }
        if call.used is not None:
            attributes |= {Attribute.INPUT_TOKENS: call.used[0], Attribute.OUTPUT_TOKENS: call.used[1]}
        if call.error:
            attributes[Attribute.ERROR] = call.error
        status = Status(StatusCode.ERROR, call.error) if call.error else Status(StatusCode.OK)
        here = above._replace(span_id=os.urandom(8).hex())
        named = {str(name): value for name, value in attributes.items()}
        kind = api.SpanKind.CLIENT
        self._export(f"{Span.CHAT} {call.model}", here, above, named, begin=now - call.seconds, end=now, status=status, kind=kind)

    def _export(
        self,
        name: str,
        here: Traceparent,
        above: Traceparent | None,
        attributes: Mapping[str, Any],
        *,
        begin: float,
        end: float,
        status: Status,
        step_times: tuple[float, ...] = (),
        kind: api.SpanKind = api.SpanKind.INTERNAL,
    ) -> None:
        span = ReadableSpan(
            name=_sound(name)[:NAME_CHARACTERS],
            context=span_context(here),
            parent=None if above is None else span_context(above, is_remote=True),
            resource=self._resource,
            attributes={key: _sound(value) for key, value in attributes.items()},
            events=_steps(step_times),
            kind=kind,
            status=status,
            start_time=_nanoseconds(begin),
            end_time=_nanoseconds(max(begin, end)),  # the clock was set back
            instrumentation_scope=self._scope,
        )
        self._put(span)


def span_context(of: Traceparent, *, is_remote: bool = False) -> api.SpanContext:
    return api.SpanContext(int(of.trace_id, 16), int(of.span_id, 16), is_remote, api.TraceFlags(of.flags))


def _named(span: Span, delegation: Delegation) -> dict[str, str]:
    if span is Span.TOOL:
        return {Attribute.TOOL_NAME: delegation.agent, Attribute.TOOL_CALL_ID: delegation.session_id}
    return {Attribute.AGENT_NAME: delegation.agent, Attribute.AGENT_ID: delegation.agent}


def _steps(times: tuple[float, ...]) -> tuple[Event, ...]:
    return tuple(Event(str(step), {}, _nanoseconds(at)) for step, at in zip(STEPS, times, strict=False) if at == at)


def _sound(value: Any) -> Any:
    """A value that can be exported: one invalid name must not block a whole batch."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if isinstance(value, bool) else max(-LARGEST, min(LARGEST, value))
    return [_sound(one) for one in value] if isinstance(value, list) else value


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))
