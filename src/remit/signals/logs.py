"""Structured logs: each line says which delegation, tree, trace and caller it belongs to, as text or as JSON. Used by `remit serve`.

Where a line is written decides: inside an agent, that delegation's; inside a door's call, that caller's. Starts, ends and visitors that
were turned away are written too (`write_happenings`). Secrets are struck out of every line. What a request brought can forge no line:
control characters are written as escapes. Only our own handler is set up; other programs' logging is left alone.
"""

import datetime
import functools
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from remit.core.happening import Happening, HappeningKind
from remit.core.origin import ORIGIN
from remit.core.secrets import redacted_text
from remit.core.tracing import context_of
from remit.engine.embedded import CURRENT

if TYPE_CHECKING:
    from remit.engine.embedded import EmbeddedEngine

LOGGER = "remit"
_HEARD = (HappeningKind.STARTED, HappeningKind.COMPLETED, HappeningKind.FAILED, HappeningKind.TURNED_AWAY)
_LONGEST = 20_000
_OUR_FIELDS = "remit_fields"
_OURS = frozenset({"session_id", "root_id", "trace_id", "span_id", "state", "duration", "tokens"})
"""Made here, of digits and letters: nothing in them is to be struck out, escaped or quoted."""
_NONE: Mapping[str, Any] = MappingProxyType({})
_APART = re.compile(r'[ "=\[\]]')
"""What a value must not hold as it is, where fields are told apart by it."""
_LOG = logging.getLogger("remit.delegations")


def belongs_to() -> dict[str, str]:
    """What is being done here, in this context."""
    running = CURRENT.get()
    if running is not None:
        return _of_delegation(running.delegation)
    origin = ORIGIN.get()
    if origin is None:
        return {}
    return {name: value for name, value in (("principal", origin.came.principal), ("door", origin.came.door)) if value}


def _of_delegation(delegation: Any) -> dict[str, str]:
    lineage, came, here = delegation.lineage, delegation.came, context_of(delegation)
    found = {
        "session_id": lineage.session_id,
        "root_id": lineage.root_id,
        "trace_id": here.trace_id,
        "span_id": here.span_id,
        "agent": delegation.agent,
    }
    return found if came is None else {**found, "principal": came.principal, **({"door": came.door} if came.door else {})}


class _Belonging(logging.Filter):
    """Asked where the line is written, hence in its context."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, _OUR_FIELDS):
            setattr(record, _OUR_FIELDS, belongs_to())
        return True


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted_text(record.getMessage())[:_LONGEST],
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = redacted_text(self.formatException(record.exc_info))[-_LONGEST:]
        return json.dumps(line, default=str)  # in ASCII: whatever somebody called itself, the line is written


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        found: Mapping[str, Any] = getattr(record, _OUR_FIELDS, _NONE)
        fields = " ".join(
            [f"{name}={value if name in _OURS and value.__class__ is str else _one_word(name, value)}" for name, value in found.items()]
        )
        words = _on_one_line(redacted_text(record.getMessage())[:_LONGEST])
        line = f"{_iso(record.created)} {record.levelname:<7} {words}" + (f"  [{fields}]" if fields else "")
        if record.exc_info:
            trace = redacted_text(self.formatException(record.exc_info))[-_LONGEST:]
            line += "".join(f"\n    {_on_one_line(part)}" for part in trace.splitlines())
        return line


def set_up_logs(style: str = "text", *, level: int = logging.INFO, stream: TextIO | None = None) -> Callable[[], None]:
    """From now on, remit's log goes to `stream` (stderr), until what is given back is called."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.addFilter(_Belonging())
    logger = logging.getLogger(LOGGER)
    before, logger.propagate = (logger.level, logger.propagate), False
    logger.addHandler(handler)
    logger.setLevel(level)

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

    return undo


def write_happenings(engine: "EmbeddedEngine") -> Callable[[], None]:
    """A line for each delegation that starts or ends, and for each visitor turned away, until what is given back is called."""
    return engine.listeners.hear(_write, _HEARD)


def _write(happening: Happening) -> None:
    error = happening.error
    if happening.kind is HappeningKind.TURNED_AWAY:
        shown = (("principal", happening.principal), ("door", happening.door), ("code", None if error is None else error.code))
        fields: dict[str, Any] = {name: value for name, value in shown if value is not None}
        if _LOG.isEnabledFor(logging.WARNING):
            _log(logging.WARNING, f"turned away: {'' if error is None else error.message}", fields)
        return
    is_news = happening.kind is HappeningKind.STARTED or happening.success or happening.state == "cancelled"
    level = logging.INFO if is_news else logging.WARNING
    if not _LOG.isEnabledFor(level):
        return
    fields = {} if happening.delegation is None else dict(_of_delegation(happening.delegation))
    fields["state"] = happening.state
    if happening.kind is HappeningKind.STARTED:
        _log(level, f"{happening.agent} started", fields)
        return
    if happening.duration_seconds is not None:
        fields["duration"] = happening.duration_seconds
    if happening.tokens:
        fields["tokens"] = happening.tokens
    if error is not None:
        fields["code"] = error.code
    _log(level, f"{happening.agent} {happening.state}{'' if error is None else f': {error.message}'}", fields)


def _log(level: int, words: str, fields: dict[str, Any]) -> None:
    """Two for each delegation: without searching the stack for where they were written, which is here."""
    _LOG.handle(_Line(level, words, fields))


class _Line(logging.LogRecord):
    """Like any other; what is the same of all that are written here is found out once."""

    def __init__(self, level: int, words: str, fields: Mapping[str, Any]) -> None:
        now, first = time.time(), _FIRST
        thread = threading.current_thread()
        vars(self).update(first)
        self.msg, self.levelno, self.levelname = words, level, logging.getLevelName(level)
        self.created, self.msecs = now, int((now - int(now)) * 1000) + 0.0
        self.relativeCreated = first["relativeCreated"] + (now - first["created"]) * 1000
        self.thread, self.threadName, self.process = thread.ident, thread.name, os.getpid()
        setattr(self, _OUR_FIELDS, fields)


_FIRST: Mapping[str, Any] = vars(logging.LogRecord(_LOG.name, logging.INFO, __file__, 0, "", None, None))


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(record, _OUR_FIELDS, _NONE)
    return {name: _struck(name, value) for name, value in found.items()}


def _struck(name: str, value: Any) -> Any:
    return redacted_text(value) if name not in _OURS and isinstance(value, str) else value


def _iso(at: float) -> str:
    whole, micro = divmod(round(at * 1e6), 1_000_000)
    return f"{_second(whole)}.{micro // 1000:03d}Z"


@functools.lru_cache(maxsize=4)
def _second(at: int) -> str:
    """Hundreds of lines have the same."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def _one_word(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if name in _OURS:
        return str(value)
    text = _on_one_line(str(_struck(name, value)))
    return json.dumps(text) if not text or _APART.search(text) else text


def _on_one_line(text: str) -> str:
    """Whoever can put a line break, or a sign that moves the cursor, into a message must not write lines of its own."""
    if text.isprintable():  # nearly always; asked of the whole, it costs next to nothing
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
