"""Errors on the wire: an exception as data, and back. Both sides use it.

An error of remit's own tree comes out as what it was; any other as `AgentRaised`, with its type and traceback as text.
"""

import traceback
from collections.abc import Mapping
from typing import Any

from remit.core.errors import Failed, InvalidReturn, Misused, Refused, RemitError, Stopped, Unavailable

_TRACEBACK_CHARACTERS = 20_000
_MESSAGE_CHARACTERS = 20_000
_BRANCHES: dict[str, type[RemitError]] = {kind.__name__: kind for kind in (Refused, Failed, Stopped, Unavailable, Misused, RemitError)}


class AgentRaised(Failed):
    """The agent's function raised, in its own process."""

    def __init__(self, message: str, *, type_name: str, traceback_text: str, code: str | None = None, advice: str = "") -> None:
        super().__init__(message, code=code, advice=advice)
        self.type_name = type_name
        self.traceback_text = traceback_text


def error_to_wire(error: BaseException, *, with_traceback: bool = False) -> dict[str, Any]:
    wire: dict[str, Any] = {"type": type(error).__name__, "message": _text(error)[:_MESSAGE_CHARACTERS]}
    if isinstance(error, RemitError):
        wire |= {"message": error.message, "code": error.code, "advice": error.advice, "branch": _branch(error)}
    if isinstance(error, InvalidReturn):
        wire["faults"] = list(error.faults)
    if with_traceback:
        wire["traceback"] = "".join(traceback.format_exception(error))[-_TRACEBACK_CHARACTERS:]
    return wire


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of an agent's exception is the agent's code and may raise anything
        return "(its message could not be read)"


def _branch(error: RemitError) -> str:
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _BRANCHES), "Failed")


def error_from_wire(wire: object) -> RemitError:
    """What `error_to_wire` made; anything else the other side may have sent is still an error, never an exception here."""
    fields: Mapping[str, Any] = wire if isinstance(wire, Mapping) else {}
    message = str(fields.get("message") or "")
    advice = str(fields.get("advice") or "")
    trace = str(fields.get("traceback") or "")
    code = fields.get("code")
    if isinstance(fields.get("faults"), list):
        return _noted(InvalidReturn([str(fault) for fault in fields["faults"]], advice=advice), trace)
    branch = _BRANCHES.get(str(fields.get("branch")))
    if branch is not None:
        return _noted(branch(message, code=str(code) if code else None, advice=advice), trace)
    type_name = str(fields.get("type") or "Exception")
    return AgentRaised(f"{type_name}: {message}" if message else type_name, type_name=type_name, traceback_text=trace)


def _noted(error: RemitError, trace: str) -> RemitError:
    if trace:
        error.add_note(f"In the agent's process:\n{trace}")
    return error
