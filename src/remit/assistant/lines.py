"""The lines of a conversation's file: what each one says, as a value and as JSON. One line is written whole, or it does not count.

Knows neither files nor models. Secrets are struck out where a line is made (`core.secrets`), as they are of every record: under a telling
name in the arguments of a call, in a known format, or known from a delegation. `storing` writes and reads lines, `conversations` makes a
conversation of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from remit.core.secrets import Shape, redacted_json, redacted_parameters
from remit.flow.plain import clean
from remit.models.messages import Message, Reply, Result, Said, ToolCall

VERSION = 1
_OURS: Shape = dict.fromkeys(
    (
        "kind",
        "version",
        "at",
        "id",
        "created",
        "session",
        "root",
        "call_id",
        "model",
        "count",
        "bytes",
        "kept",
        "tokens",
        "cost",
        "is_error",
        "principal",
    )
)
"""What we say ourselves and must find again: never struck out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line."""

    conversation_id: str
    title: str
    created: float
    project: str = ""
    model: str = ""
    principal: str = ""
    """Who holds it, where that is somebody who came in by a door; empty: whoever owns the project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message was taken up: by this delegation, of this tree. All lines up to the next one are of it."""

    at: float
    session_id: str
    root_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A message between the person, the model and what it called."""

    at: float
    message: Message
    by: str = ""
    """`remit`, where we said it to the model and not the person."""
    stopped: str = ""
    """Of a reply that did not come to its end: why."""
    session_id: str = ""
    """Of a result: the delegation that gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A call has become a delegation."""

    at: float
    call_id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A turn ended before the model had answered. What became of its calls, and this as a reply, is added when the next one begins."""

    at: float
    text: str
    """What it had said so far."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The first so many messages stand before the model as this summary from now on; the file keeps them."""

    at: float
    count: int
    summary: str
    by: str
    """The model that wrote it, or `excerpt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Titled:
    at: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a turn cost."""

    at: float
    tokens: int
    cost: float | None
    """None: the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torn:
    """The last line had been cut off by a crash; what there was of it is kept in a file beside this one."""

    at: float
    size: int
    kept: str


Line = Header | Turn | Spoken | Started | Stopped | Compacted | Titled | Spent | Torn


# ---- to JSON


def encoded(line: Line) -> bytes:
    """With the newline that makes it whole."""
    fields = _fields(line)
    try:
        data = to_json(fields)
    except (PydanticSerializationError, ValueError, RecursionError):  # half a surrogate pair, or what JSON cannot hold
        fields = _speakable(fields, 60)
        data = to_json(fields, fallback=repr)
    return redacted_json(fields, data, ours=_OURS).replace(b"\n", b" ") + b"\n"


def _fields(line: Line) -> dict[str, Any]:
    match line:
        case Header():
            return {
                "kind": "conversation", "version": VERSION, "id": line.conversation_id, "created": line.created, "project": line.project,
                "model": line.model, "title": line.title, **({"principal": line.principal} if line.principal else {}),
            }  # fmt: skip
        case Turn():
            return {"kind": "turn", "at": line.at, "session": line.session_id, "root": line.root_id}
        case Spoken():
            return _fields_of_message(line)
        case Started():
            return {"kind": "started", "at": line.at, "call_id": line.call_id, "session": line.session_id}
        case Stopped():
            return {"kind": "stopped", "at": line.at, "why": line.why, "text": line.text}
        case Compacted():
            return {"kind": "compacted", "at": line.at, "count": line.count, "by": line.by, "summary": line.summary}
        case Titled():
            return {"kind": "title", "at": line.at, "title": line.title}
        case Spent():
            return {"kind": "spent", "at": line.at, "tokens": line.tokens, "cost": line.cost}
        case Torn():
            return {"kind": "torn", "at": line.at, "bytes": line.size, "kept": line.kept}


def _fields_of_message(line: Spoken) -> dict[str, Any]:
    message = line.message
    if isinstance(message, Said):
        return {"kind": "said", "at": line.at, **({"by": line.by} if line.by else {}), "text": message.text}
    if isinstance(message, Result):
        fields = {"kind": "result", "at": line.at, "call_id": message.call_id, "name": message.name, "is_error": message.is_error}
        return {**fields, **({"session": line.session_id} if line.session_id else {}), "text": message.text}
    calls = [{"call_id": call.call_id, "name": call.name, "arguments": _arguments(call.arguments)} for call in message.calls]
    stopped = {"stopped": line.stopped} if line.stopped else {}
    # Not `raw`: a provider wants it back only within the turn it was said in, and a turn is never gone on with from a file.
    return {"kind": "reply", "at": line.at, "model": message.model, "text": message.text, "calls": calls, **stopped}


def _arguments(given: Mapping[str, Any] | str) -> Any:
    return given if isinstance(given, str) else redacted_parameters(given)


def _speakable(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return clean(value)
    if levels == 0:
        return "…"
    if isinstance(value, Mapping):
        return {clean(str(name)): _speakable(one, levels - 1) for name, one in value.items()}
    return [_speakable(one, levels - 1) for one in value] if isinstance(value, list | tuple) else value


# ---- from JSON


def decoded(data: bytes) -> Line:
    """Raises `ValueError` for whatever is no line of ours."""
    try:
        fields = from_json(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    read = _Reader(fields)
    match fields.get("kind"):
        case "conversation":
            return Header(
                conversation_id=read.text("id"), title=read.text("title", ""), created=read.number("created"),
                project=read.text("project", ""), model=read.text("model", ""), principal=read.text("principal", ""),
            )  # fmt: skip
        case "turn":
            return Turn(at=read.number("at"), session_id=read.text("session"), root_id=read.text("root"))
        case "said" | "reply" | "result":
            return Spoken(
                at=read.number("at"), message=_message(read), by=read.text("by", ""), stopped=read.text("stopped", ""),
                session_id=read.text("session", ""),
            )  # fmt: skip
        case "started":
            return Started(at=read.number("at"), call_id=read.text("call_id"), session_id=read.text("session"))
        case "stopped":
            return Stopped(at=read.number("at"), text=read.text("text"), why=read.text("why", ""))
        case "compacted":
            return Compacted(at=read.number("at"), count=read.count("count"), summary=read.text("summary"), by=read.text("by", ""))
        case "title":
            return Titled(at=read.number("at"), title=read.text("title"))
        case "spent":
            cost = None if fields.get("cost") is None else read.number("cost")
            return Spent(at=read.number("at"), tokens=read.count("tokens"), cost=cost)
        case "torn":
            return Torn(at=read.number("at"), size=read.count("bytes"), kept=read.text("kept", ""))
    raise ValueError(f"there is no kind {fields.get('kind')!r:.40}")


class _Reader:
    """Fields of the kind they should be, or `ValueError`."""

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = fields

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        return value

    def number(self, name: str) -> float:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
            raise ValueError(f"{name} is no number")
        return float(value)

    def count(self, name: str) -> int:
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
            raise ValueError(f"{name} is no whole number")
        return value


def _message(read: _Reader) -> Message:
    if read.fields["kind"] == "said":
        return Said(text=read.text("text"))
    if read.fields["kind"] == "result":
        is_error = read.fields.get("is_error") is True
        return Result(call_id=read.text("call_id"), name=read.text("name"), text=read.text("text"), is_error=is_error)
    calls = read.fields.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise ValueError("calls is no list of calls")
    return Reply(
        text=read.text("text"),
        calls=tuple(_call(_Reader(call)) for call in calls),
        model=read.text("model", ""),
    )


def _call(read: _Reader) -> ToolCall:
    arguments = read.fields.get("arguments")
    if not isinstance(arguments, dict | str):
        raise ValueError("arguments are neither an object nor text")
    return ToolCall(call_id=read.text("call_id"), name=read.text("name"), arguments=arguments)
