"""An exception of an agent's code made into an error of its return: its words, its place, its code. Used by `perform` and by carriers."""

import sysconfig
import traceback
from dataclasses import replace
from pathlib import Path

from remit.core.agents import AgentSpec
from remit.core.errors import AgentCrashed, ErrorInfo, Failed, InvalidReturn, Refused, RemitError, Unavailable
from remit.core.result import StopReason
from remit.flow.plain import clean

MAX_ERROR_CHARACTERS = 2000
TRACE_CHARACTERS = 8000
TOOL_UNAVAILABLE = "TOOL_UNAVAILABLE"
_OURS = str(Path(__file__).parent.parent)
_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "<")


def stop_reason_of(error: Exception) -> StopReason:
    if isinstance(error, AgentCrashed):
        return StopReason.CRASHED
    if isinstance(error, Unavailable):
        return StopReason.UNAVAILABLE
    return StopReason.FINISHED


def error_of(error: Exception, spec: AgentSpec) -> ErrorInfo:
    """The one place where an exception becomes an error of a return."""
    if isinstance(error, AgentCrashed):
        tail = f" Its last words: {error.stderr_tail.strip()[-800:]}" if error.stderr_tail.strip() else ""
        return _error(
            "crash",
            f"{error.message}{tail}",
            "AGENT_CRASHED",
            error.advice or f"Look at what {spec.name} printed, and delegate it again.",
        )
    if isinstance(error, Unavailable) and error.code == TOOL_UNAVAILABLE:
        return _error("tool_unavailable", error.message, error.code, error.advice or "Install what is missing.")
    if isinstance(error, Unavailable):
        return _error("agent_unavailable", error.message, error.code, error.advice or "Try again later.")
    if isinstance(error, InvalidReturn):
        return _error("validation", error.message, error.code, f"Fix {spec.name} subagent return format")
    if isinstance(error, Refused) and error.code == "POLICY_DENIED":
        return replace(_error("permission", error.message, error.code, error.advice or "Ask for something else."), recoverable=False)
    if isinstance(error, RemitError):
        kind = "execution" if isinstance(error, Failed) else "invalid_parameters"
        return _error(kind, error.message, error.code, error.advice or f"Look into {spec.name}.")
    return _error("execution", words_of(error) + _where(error), "UNKNOWN_ERROR", f"Look into {spec.name}; its code raised this.")


def _error(type_: str, message: str, code: str, recommendation: str) -> ErrorInfo:
    message = clean(message)[:MAX_ERROR_CHARACTERS]
    return ErrorInfo(type=type_, message=message, code=code, recoverable=True, recommendation=recommendation)


def words_of(error: BaseException) -> str:
    """An exception in one line, whatever its own code does when it is asked for words."""
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - an agent's exception may raise anything from __str__
        text = "it cannot be put into words"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _where(error: BaseException) -> str:
    """The innermost line of the agent's own: what it called in a library is rarely where to look."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def trace_of(error: BaseException) -> str:
    """Where it came from, for the ledger; of another process, as that one told it."""
    told = getattr(error, "traceback_text", "")
    try:
        return clean(told or "".join(traceback.format_exception(error)))[-TRACE_CHARACTERS:]
    except Exception:  # noqa: BLE001 - as in `words_of`
        return "".join(traceback.format_tb(error.__traceback__))[-TRACE_CHARACTERS:]
