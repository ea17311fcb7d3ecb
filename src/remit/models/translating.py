"""Our messages made into pydantic-ai's, and its answers into ours.

A history is put in order first, so that no provider refuses it: every call has its result right after it, no text is empty, names and ids
hold only signs that all of them take. Imports pydantic-ai: only when a model is asked. Used by `streaming`.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from remit.models.messages import Message, Reply, Result, Said, ToolCall
from remit.models.question import Question

NO_RESULT = "No result was recorded for this call: it was interrupted."
_NOTHING = "(nothing)"
_GO_ON = "Go on."
_EARLIER = "(What was said before is left out.)"
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")
_INVALID = "INVALID_JSON"
"""Where arguments that are no JSON object stand when they are shown to the model again; pydantic-ai calls it so too."""


# ---- to the model


def request_of(question: Question, name: str, model: Model[Any], *, structured: bool) -> tuple[list[ModelMessage], ModelRequestParameters]:
    """What goes out to the model called `name`."""
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema), strict=False)
            for tool in question.tools
        ]
    )
    if structured and question.output_schema is not None:
        parameters = _structured(parameters, question.output_schema, model)
    history = [_translated(message, name) for message in _in_order(question.messages)]
    merged = _merged(history)
    last = merged[-1]
    if question.instructions.strip() and isinstance(last, ModelRequest):
        merged[-1] = replace(last, instructions=_text(question.instructions))
    return merged, parameters


def _structured(parameters: ModelRequestParameters, schema: Mapping[str, Any], model: Model[Any]) -> ModelRequestParameters:
    """By the provider's own means where it has them, else as JSON without a schema, else by what the prompt says alone."""
    profile = model.profile
    answer = OutputObjectDefinition(json_schema=dict(schema), name="answer")
    if profile.get("supports_json_schema_output", False) and not (parameters.function_tools and _either_or(profile)):
        return replace(parameters, output_mode="native", output_object=answer)
    if profile.get("supports_json_object_output", False) and not parameters.function_tools:
        return replace(parameters, output_mode="prompted", output_object=answer, prompted_output_template=False)
    return parameters


def _either_or(profile: Mapping[str, Any]) -> bool:
    """Older Gemini takes tools or a schema, not both."""
    return profile.get("google_supports_tool_combination") is False


def _in_order(messages: Sequence[Message]) -> list[Message]:
    """Every call with one result, right after it and in the order of the calls; results of no call as words; nothing empty."""
    ordered: list[Message] = []
    waiting = [replace(message, text=_text(message.text)) for message in messages]
    while waiting:
        message = waiting.pop(0)
        if isinstance(message, Result):
            ordered.append(Said(text=f"Result of {_text(message.name) or 'a call'}: {message.text}"))
        elif isinstance(message, Said):
            if message.text.strip():
                ordered.append(message)
        elif message.calls:
            message = _own_ids(message, ordered)
            ordered.append(message)
            ordered += _results(message, waiting)
        elif message.text.strip() or message.raw is not None:
            ordered.append(message)
    if not ordered or isinstance(ordered[0], Reply):
        ordered.insert(0, Said(text=_EARLIER if ordered else _GO_ON))
    if isinstance(ordered[-1], Reply):
        ordered.append(Said(text=_GO_ON))
    return ordered


def _results(reply: Reply, waiting: list[Message]) -> list[Message]:
    """Takes them out of what follows, up to the next reply."""
    end = next((index for index, message in enumerate(waiting) if isinstance(message, Reply)), len(waiting))
    found: list[Message] = []
    for call in reply.calls:
        place = next((i for i, one in enumerate(waiting[:end]) if isinstance(one, Result) and one.call_id == call.call_id), None)
        if place is None:
            found.append(Result(call_id=call.call_id, name=call.name, text=NO_RESULT, is_error=True))
        else:
            found.append(waiting.pop(place))
            end -= 1
    return found


def _own_ids(reply: Reply, before: Sequence[Message]) -> Reply:
    """Two calls of one id in a reply would share a result: the second of them never had one of its own."""
    seen: set[str] = set()
    calls = []
    for index, call in enumerate(reply.calls):
        fresh = call if call.call_id not in seen else replace(call, call_id=f"{call.call_id}_{len(before)}_{index}")
        seen.add(fresh.call_id)
        calls.append(fresh)
    return reply if tuple(calls) == reply.calls else replace(reply, calls=tuple(calls), raw=None)


def _translated(message: Message, name: str) -> ModelMessage:
    if isinstance(message, Said):
        return ModelRequest(parts=[UserPromptPart(content=message.text)])
    if isinstance(message, Result):
        outcome: Any = "failed" if message.is_error else "success"
        text = message.text if message.text.strip() else _NOTHING
        result = ToolReturnPart(tool_name=_name(message.name), content=text, tool_call_id=_id(message.call_id), outcome=outcome)
        return ModelRequest(parts=[result])
    if message.raw is not None and message.model == name:
        own = _from_raw(message)
        if own is not None:
            return own
    parts: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text.strip() else []
    parts += [ToolCallPart(tool_name=_name(call.name), args=_arguments(call), tool_call_id=_id(call.call_id)) for call in message.calls]
    return ModelResponse(parts=parts or [TextPart(content=_NOTHING)])


def _from_raw(message: Reply) -> ModelResponse | None:
    """As the library kept it; None when what was stored is not of its making, or says other calls than ours."""
    try:
        (loaded,) = ModelMessagesTypeAdapter.validate_python([message.raw])
    except (ValidationError, ValueError, TypeError):
        return None
    if not isinstance(loaded, ModelResponse):
        return None
    kept = [part.tool_call_id for part in loaded.parts if isinstance(part, ToolCallPart)]
    return loaded if kept == [call.call_id for call in message.calls] else None


def _merged(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Requests that follow one another as one, as a provider sees a turn."""
    merged: list[ModelMessage] = []
    for message in history:
        before = merged[-1] if merged else None
        if isinstance(message, ModelRequest) and isinstance(before, ModelRequest):
            merged[-1] = replace(before, parts=[*before.parts, *message.parts])
        elif isinstance(message, ModelResponse) and isinstance(before, ModelResponse):
            merged += [ModelRequest(parts=[UserPromptPart(content=_GO_ON)]), message]
        else:
            merged.append(message)
    return merged


def _text(text: str) -> str:
    """Without what no JSON can carry: half characters, and NUL, which some servers refuse."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _name(name: str) -> str:
    return _NAME.sub("_", name)[:64] or "unnamed"


def _id(call_id: str) -> str:
    return call_id if _ID.match(call_id) else f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def _arguments(call: ToolCall) -> dict[str, Any]:
    given = {_INVALID: call.arguments} if isinstance(call.arguments, str) else dict(call.arguments)
    cleaned: dict[str, Any] = json.loads(_text(json.dumps(given, ensure_ascii=False, default=str)))
    return cleaned


# ---- from the model


def reply_of(response: ModelResponse, name: str, *, most: int, is_whole: bool) -> Reply:
    """What it said, at most `most` characters of it. Kept as the library has it only where there is more to it than words and calls."""
    response = replace(response, parts=_with_own_ids(response.parts))
    words = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    notes = [_note(part) for part in response.parts if not isinstance(part, TextPart | ToolCallPart | ThinkingPart)]
    text = "\n\n".join(filter(None, [words[:most], *filter(None, notes)]))
    calls = tuple(
        ToolCall(call_id=part.tool_call_id, name=part.tool_name, arguments=_given(part, most))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    return Reply(text=_text(text), calls=calls, model=name, raw=_raw(response) if is_whole else None)


def _with_own_ids(parts: Sequence[ModelResponsePart]) -> list[ModelResponsePart]:
    """A call without an id, with one that is no id, or with that of another gets one of ours."""
    seen: set[str] = set()
    fresh: list[ModelResponsePart] = []
    for part in parts:
        if isinstance(part, ToolCallPart) and (part.tool_call_id in seen or not _ID.match(part.tool_call_id or "")):
            made = hashlib.sha256(f"{part.tool_call_id}{len(fresh)}{id(parts)}".encode("utf-8", "replace")).hexdigest()[:24]
            part = replace(part, tool_call_id=f"call_{made}")
        if isinstance(part, ToolCallPart):
            seen.add(part.tool_call_id)
        fresh.append(part)
    return fresh


def _given(part: ToolCallPart, most: int) -> Mapping[str, Any] | str:
    if isinstance(part.args, dict):
        return part.args
    text = part.args or ""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _text(text[:most])
    return found if isinstance(found, dict) else _text(text[:most])


def _note(part: ModelResponsePart) -> str:
    if isinstance(part, FilePart):
        return f"[The model gave a file, {part.content.media_type}, {len(part.content.data)} bytes; files of models are not kept.]"
    return f"[The model gave a part of the kind {part.part_kind}, which is not shown.]"


def _raw(response: ModelResponse) -> Mapping[str, Any] | None:
    plain = all(isinstance(part, TextPart | ToolCallPart) and not part.provider_details for part in response.parts)
    if plain or any(isinstance(part, FilePart) for part in response.parts):
        return None
    if any(isinstance(part, ToolCallPart) and part.tool_name != _name(part.tool_name) for part in response.parts):
        return None  # a call by a name that providers do not take: it is shown again under one that they do
    dumped: Mapping[str, Any] = ModelMessagesTypeAdapter.dump_python([response], mode="json")[0]
    return dumped
