"""Logs of `remit serve`: standard logging, each line with its delegation, tree, trace and caller, as text or JSON.

The context determines these fields: inside an agent its delegation, inside an API call its caller. Starts, ends and refused callers are
logged too. Secrets are removed from every line and control characters are escaped, so that a request cannot forge a line."""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from remit.core.delegation import ORIGIN, CallerInfo, Delegation
from remit.core.ids import span_of
from remit.core.lifecycle import LifecycleEvent, LifecycleKind
from remit.core.redaction import redact_text
from remit.runtime.deps import CURRENT
from remit.runtime.engine import Engine

LOGGERS = ("remit", "opentelemetry")
MAX_CHARACTERS = 20_000
_HEARD = (LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED, LifecycleKind.TURNED_AWAY)
_OWN_FIELDS = frozenset({"session_id", "root_id", "trace_id", "span_id", "state"})
"""Created by remit from letters and digits, so nothing needs redaction."""
_LOG = logging.getLogger("remit.delegations")


def current_fields() -> dict[str, Any]:
    """Fields of the current context."""
    running = CURRENT.get()
    if running is not None:
        return _delegation_fields(running.delegation)
    origin = ORIGIN.get()
    return {} if origin is None else _caller_fields(origin.caller_info)


def _caller_fields(caller: CallerInfo | None) -> dict[str, Any]:
    named = {} if caller is None else {"principal": caller.principal, "door": caller.door}
    return {name: value for name, value in named.items() if value}


def _delegation_fields(delegation: Delegation) -> dict[str, Any]:
    lineage, here = delegation.lineage, span_of(delegation)
    return {
        "session_id": lineage.session_id,
        "root_id": lineage.root_id,
        "trace_id": here.trace_id,
        "span_id": here.span_id,
        "agent": delegation.agent,
        **_caller_fields(delegation.caller_info),
    }


class _ContextFilter(logging.Filter):
    """Runs when a line is logged, in its context."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "remit_fields"):
            record.remit_fields = current_fields()
        return True


class _Formatter(logging.Formatter):
    """Lines as JSON or text, without secrets."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, *, is_json: bool) -> None:
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = getattr(record, "remit_fields", {})
        fields = {
            name: redact_text(value) if isinstance(value, str) and name not in _OWN_FIELDS else value for name, value in found.items()
        }
        message, trace = redact_text(record.getMessage())[:MAX_CHARACTERS], ""
        if record.exc_info:
            trace = redact_text(self.formatException(record.exc_info))[-MAX_CHARACTERS:]
        if self._is_json:
            line = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name, "message": message, **fields}
            return json.dumps({**line, "exception": trace} if trace else line, default=str)
        shown = " ".join(f"{name}={_escape_text(str(value))}" for name, value in fields.items())
        text = f"{self.formatTime(record)} {record.levelname:<7} {_escape_text(message)}" + (f"  [{shown}]" if shown else "")
        return text + "".join(f"\n    {_escape_text(part)}" for part in trace.splitlines())


def set_up_logs(style: str = "text", *, level: int = logging.INFO, stream: TextIO | None = None) -> Callable[[], None]:
    """Log to `stream` (default stderr) until the returned function is called."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Formatter(is_json=style == "json"))
    handler.addFilter(_ContextFilter())
    before = []
    for name in LOGGERS:
        logger = logging.getLogger(name)
        before.append((logger, logger.level, logger.propagate))
        logger.addHandler(handler)
        logger.setLevel(level if name == "remit" else logging.WARNING)
        logger.propagate = False

    def undo() -> None:
        for logger, old_level, old_propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = old_propagate

    return undo


def log_lifecycle(engine: Engine) -> Callable[[], None]:
    """Log each delegation that starts or ends and each refused caller, until the returned function is called."""
    return engine.bus.listen(_write, _HEARD)


def _write(event: LifecycleEvent) -> None:
    error = event.error
    code, why = (None, "") if error is None else (error.code, f": {error.message}")
    if event.kind is LifecycleKind.TURNED_AWAY:
        _log(logging.WARNING, f"turned away{why}", {"principal": event.principal, "door": event.door, "code": code})
        return
    is_news = event.kind is LifecycleKind.STARTED or event.success or event.state == "cancelled"
    named = {} if event.delegation is None else _delegation_fields(event.delegation)
    more = {"state": event.state, "duration": event.duration_seconds, "tokens": event.tokens or None, "code": code}
    words = "started" if event.kind is LifecycleKind.STARTED else f"{event.state}{why}"
    _log(logging.INFO if is_news else logging.WARNING, f"{event.agent} {words}", {**named, **more})


def _log(level: int, message: str, fields: Mapping[str, Any]) -> None:
    _LOG.log(level, "%s", message, extra={"remit_fields": {name: value for name, value in fields.items() if value is not None}})


def _escape_text(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
