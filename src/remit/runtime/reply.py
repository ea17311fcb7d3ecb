"""Builds the returns that remit creates itself: for a refusal, a failure, an exception or a stop. `perform` builds those of values."""

import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from remit.core.agents import AgentSpec
from remit.core.delegation import Delegation, Lineage
from remit.core.errors import AgentCrashed, ErrorInfo, Failed, InvalidReturn, Misused, Refused, RemitError, Unavailable
from remit.core.ids import new_session_id
from remit.core.jsonable import clean_text
from remit.core.result import NOTHING, Artifact, Metadata, Return, Status, StopReason
from remit.core.text import SUMMARY_LIMIT, list_some, shorten_with_count

A_PERSON_IS_NEEDED = "Manual intervention is needed."
_HANDLE_CHARACTERS = 500


class Stop(NamedTuple):
    """Why a delegation is stopped early: passed with the cancellation, recorded with its source."""

    reason: StopReason
    source: str
    """`deadline`, `idle limit`, a person, the end of the caller, a budget."""
    detail: str = ""
    traceback: str = ""
    """Traceback of the agent's exception, if that is the reason."""
    code: str = ""
    """Error code, if the reason alone does not determine it."""


class OperationAnswer(dict[str, Any]):
    """The answer of a built-in operation that completed: a summary, data and the next steps. Its form needs no check."""


def metadata_of(delegation: Delegation, duration_seconds: float, extra: Mapping[str, Any] | None = None) -> Metadata:
    lineage = delegation.lineage
    return Metadata(lineage.session_id, delegation.agent, lineage.depth, lineage.path, duration_seconds, extra or NOTHING)


def failed_return(
    delegation: Delegation,
    errors: Sequence[ErrorInfo],
    *,
    duration_seconds: float,
    stop_reason: StopReason,
    artifacts: tuple[Artifact, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Return:
    """Partial if there is work to keep, blocked if a tool must be installed, else failed."""
    is_blocked = errors[0].code == "TOOL_UNAVAILABLE"
    without = Status.BLOCKED if is_blocked else Status.FAILED
    tail = f" {_files(artifacts)}" if artifacts else ""
    said = shorten_with_count(f"{delegation.agent} did not finish: {errors[0].message}", max(100, SUMMARY_LIMIT - len(tail)))
    return Return(
        status=Status.PARTIAL if artifacts and stop_reason is not StopReason.INVALID_RETURN else without,
        summary=shorten_with_count(said + ("." if tail and not said.endswith((".", "!", "?", "…")) else "") + tail),
        artifacts=artifacts,
        metadata=metadata_of(delegation, duration_seconds),
        errors=tuple(errors),
        next_steps=advice(errors),
        stop_reason=stop_reason,
        warnings=warnings,
    )


def refused_return(delegation: Delegation, error: ErrorInfo) -> Return:
    """A guard refused: nothing ran, and a retry changes nothing."""
    return Return(
        status=Status.FAILED,
        summary=shorten_with_count(f"Refused before anything ran: {error.message}"),
        metadata=metadata_of(delegation, 0.0),
        errors=(error,),
        next_steps=error.recommendation,
        stop_reason=StopReason.REFUSED,
    )


def unstarted_return(above: Lineage, agent: str, error: RemitError) -> Return:
    """A return for a call that could not be recorded, among the other returns of its caller."""
    is_misuse = isinstance(error, Misused)
    kind = "invalid_parameters" if is_misuse else "store"
    info = ErrorInfo(type=kind, message=error.message, code=error.code, recoverable=not is_misuse, recommendation=error.advice)
    lineage = above.child(new_session_id(), agent)
    return Return(
        status=Status.FAILED,
        summary=shorten_with_count(f"{agent} was not run: {error.message}"),
        metadata=Metadata(lineage.session_id, agent, lineage.depth, lineage.path, 0.0, NOTHING),
        errors=(info,),
        next_steps=error.advice,
        stop_reason=StopReason.REFUSED if is_misuse else StopReason.UNAVAILABLE,
    )


def repeated_refusal(earlier: Return, times: int) -> Return:
    """An identical refused call, answered from memory; from the third repeat the message says so."""
    if times <= 3:
        return earlier
    note = f"This call was already refused {times - 1} times in this tree and will be refused every time. Do not repeat it."
    return replace(earlier, summary=shorten_with_count(f"{note} {earlier.summary}"), next_steps=note, warnings=(note,))


class PartialWork(NamedTuple):
    """The work of a stopped agent, with the reports of its children."""

    artifacts: tuple[Artifact, ...] = ()
    data: Any = None
    """Streamed chunks, the last checkpoint, or the late answer."""
    errors: tuple[ErrorInfo, ...] = ()
    warnings: tuple[str, ...] = ()
    workspace: Mapping[str, Any] | None = None
    """Location of its own folder, if it had one."""


NOTHING_LEFT = PartialWork()


def stopped_return(delegation: Delegation, stop: Stop, left: PartialWork, *, duration_seconds: float, resumable: bool = False) -> Return:
    """Stopped early: always partial, never failed, with the collected work."""
    has_checkpoint = isinstance(left.data, Mapping) and "checkpoint" in left.data
    where = "in its workspace" if left.workspace is not None else "from its last checkpoint" if resumable or has_checkpoint else None
    error = _error_of_stop(delegation, stop, where)
    return Return(
        status=Status.PARTIAL,
        summary=shorten_with_count(f"{error.message} {_files(left.artifacts)}"),
        artifacts=left.artifacts,
        metadata=metadata_of(delegation, duration_seconds),
        errors=(error, *left.errors),
        next_steps=advice((error, *left.errors)),
        data=left.data,
        stop_reason=stop.reason,
        warnings=left.warnings,
        extra={} if left.workspace is None else {"workspace": dict(left.workspace)},
        traceback=stop.traceback,
    )


def with_agent_session(result: Return, saved: Any) -> Return:
    """The return with the handle of the vendor's session, saved by the agent's adapter, so that a person can continue it."""
    handle = {name: saved.get(name) for name in ("vendor", "session")} if isinstance(saved, Mapping) else {}
    if not handle or not all(isinstance(one, str) and 0 < len(one) <= _HANDLE_CHARACTERS for one in handle.values()):
        return result
    return replace(result, extra={**result.extra, "agent_session": handle})


def _files(artifacts: tuple[Artifact, ...]) -> str:
    if not artifacts:
        return "Nothing had been written."
    return f"Kept: {list_some([one.path for one in artifacts], 3)}."


def advice(errors: Sequence[ErrorInfo]) -> str:
    """The first recommendation if all errors are recoverable; otherwise a person is needed."""
    if all(error.recoverable for error in errors):
        return errors[0].recommendation
    return f"{A_PERSON_IS_NEEDED} {errors[0].recommendation}".rstrip()


def _error_of_stop(delegation: Delegation, stop: Stop, goes_on: str | None) -> ErrorInfo:
    agent, seconds = delegation.agent, round(delegation.deadline.timeout_seconds, 2)
    again = (
        f"Delegate it again with resume={delegation.session_id} to continue {goes_on}"
        if goes_on is not None
        else "Delegate it again: it starts from the beginning"
    )
    match stop.reason:
        case StopReason.DEADLINE:
            kind, code, again = "timeout", "TIMEOUT", f"{again}, or give it a longer timeout"
            message = stop.detail or f"{agent} was stopped at its deadline after {seconds:g} s."
        case StopReason.IDLE:
            kind, code, again = "timeout", "TIMEOUT", f"{again}, or raise its idle limit"
            message = f"{agent} was stopped: nothing was heard from it for {delegation.idle_seconds or 0:g} s."
        case StopReason.BUDGET:
            kind, code, again = "budget", "BUDGET_EXCEEDED", f"{again} under a larger budget"
            message = f"{agent} was stopped: the budget of its tree is spent ({stop.detail})."
        case StopReason.UNAVAILABLE:
            code = stop.code or "STORE_UNAVAILABLE"
            kind, message = "store" if code == "STORE_UNAVAILABLE" else "unavailable", f"{agent} was not run: {stop.detail}"
        case StopReason.CRASHED:
            kind, code, message = "crash", "AGENT_CRASHED", stop.detail or f"{agent} was running when its orchestrator ended."
        case _:
            kind, code, again = "cancelled", "CANCELLED", f"{again}, if it is still wanted"
            why = f": {stop.detail.rstrip('.')}" if stop.detail else ""
            message = f"{agent} was cancelled by {stop.source}{why}."
    return ErrorInfo(type=kind, message=message, code=code, recoverable=True, recommendation=f"{again}.")


MAX_ERROR_CHARACTERS = 2000
TRACE_CHARACTERS = 8000
TOOL_UNAVAILABLE = "TOOL_UNAVAILABLE"
_OURS = str(Path(__file__).parents[1])
_FROZEN = "<frozen "
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")


def stop_reason_of(error: Exception) -> StopReason:
    if isinstance(error, AgentCrashed):
        return StopReason.CRASHED
    if isinstance(error, Unavailable):
        return StopReason.UNAVAILABLE
    return StopReason.FINISHED


def error_of(error: Exception, spec: AgentSpec) -> ErrorInfo:
    """Convert an exception to an error of a return. The only place that does."""
    if isinstance(error, AgentCrashed):
        tail = f" Its last output: {error.stderr_tail.strip()[-800:]}" if error.stderr_tail.strip() else ""
        advice = error.advice or f"Look at what {spec.name} printed, and delegate it again."
        return _error("crash", f"{error.message}{tail}", "AGENT_CRASHED", advice)
    if isinstance(error, Unavailable):
        kind = "tool_unavailable" if error.code == TOOL_UNAVAILABLE else "agent_unavailable"
        return _error(kind, error.message, error.code, error.advice or "Install what is missing, or try again later.")
    if isinstance(error, InvalidReturn):
        return _error("validation", error.message, error.code, f"Fix {spec.name} subagent return format")
    if isinstance(error, Refused) and error.code == "POLICY_DENIED":
        return replace(_error("permission", error.message, error.code, error.advice or "Ask for something else."), recoverable=False)
    if isinstance(error, RemitError):
        kind = "execution" if isinstance(error, Failed) else "invalid_parameters"
        return _error(kind, error.message, error.code, error.advice or f"Look into {spec.name}.")
    return _error("execution", describe_exception(error) + line_of(error), "AGENT_RAISED", f"Look into {spec.name}.")


def _error(type_: str, message: str, code: str, recommendation: str) -> ErrorInfo:
    message = clean_text(message)[:MAX_ERROR_CHARACTERS]
    return ErrorInfo(type=type_, message=message, code=code, recoverable=True, recommendation=recommendation)


def describe_exception(error: BaseException) -> str:
    """An exception on one line, even if its own `__str__` fails."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - an agent's exception may raise anything from __str__
        text = "it has no printable message"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def line_of(error: BaseException) -> str:
    """` (file:line)` of the innermost frame in the agent's own code, which is more useful than one in a library."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _is_theirs(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith((_OURS, _FROZEN))


def format_traceback(error: BaseException) -> str:
    """The traceback without remit's own frames; from another process, as formatted there.

    Empty for a remit error without code of the agent: its message is sufficient."""
    try:
        if told := getattr(error, "traceback_text", ""):
            return clean_text(told)[-TRACE_CHARACTERS:]
        whole = traceback.TracebackException.from_exception(error)
        parts, is_theirs = [whole], False
        for part in parts:
            kept = [frame for frame in part.stack if _is_theirs(frame)]
            is_theirs = is_theirs or bool(kept)
            parts += [one for one in (part.__cause__, part.__context__, *(part.exceptions or ())) if one is not None]
            part.stack = traceback.StackSummary.from_list(kept or part.stack)
        return clean_text("".join(whole.format()))[-TRACE_CHARACTERS:] if is_theirs or not isinstance(error, RemitError) else ""
    except Exception:  # noqa: BLE001 - as in `describe_exception`
        return "".join(traceback.format_tb(error.__traceback__))[-TRACE_CHARACTERS:]
