"""Tools for models without tool support: the tools are described in the prompt, and the reply must match a schema, `{"TOOL": {…}}` or
`{"answer": "…"}`.

Pure: converts a question into one without tools, and its reply into one with calls. `client` uses it for `tools = "prompted"`, and for
local models whose template has no tools. One call per reply is requested; several are accepted."""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.core.model_messages import RESTART, Message, Question, Reply, ToolCall, ToolOffer, ToolResult, UserMessage
from remit.models.questions import object_in

ANSWER = "answer"
_ANSWER_BEGINS = re.compile(r'\s*(?:```(?:json)?\s*)?\{\s*"answer"\s*:\s*"')
_WHOLE_LETTERS = re.compile(r'(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*')
_HALF_A_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")
_LEFT_OUT = frozenset({"timeout", "priority"})
"""Omitted arguments of a call: a model that needs this help does better without them."""


def is_needed(question: Question) -> bool:
    return bool(question.tools) or any(isinstance(one, ToolResult) or (isinstance(one, Reply) and one.calls) for one in question.messages)


def as_prompt(question: Question) -> Question:
    """The question for a model without tools; `parse_reply` parses its reply."""
    hear = question.hear
    return replace(
        question,
        instructions=f"{question.instructions}\n\n{_manual(question.tools)}".strip() if question.tools else question.instructions,
        messages=_merged([_told(one) for one in question.messages]),
        tools=(),
        output_schema=reply_schema(question.tools, question.output_schema) if question.tools else question.output_schema,
        hear=AnswerStream(hear) if hear is not None and question.tools else hear,
    )


def parse_reply(reply: Reply, question: Question) -> Reply:
    """The reply to `as_prompt(question)`, as one to `question`. Other text is the answer."""
    if not question.tools:
        return reply
    said = object_in(reply.text)
    if said is None:
        return _cut_off(reply, question.tools)
    names = [tool.name for tool in question.tools if tool.name in said]
    calls = tuple(_call(name, one) for name in names for one in _several(said[name]))
    if not calls and ANSWER not in said:
        return reply
    answer = said.get(ANSWER, "")
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return replace(reply, text=text, calls=calls, raw=None)


def reply_schema(tools: Sequence[ToolOffer], answer: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Schema of a reply: a call, or an answer."""
    shared: dict[str, Any] = {}
    forms = [_form(tool.name, one) for tool in tools for one in _ways(tool.schema if tool.strict is None else tool.strict(), shared)]
    forms.append(_form(ANSWER, _hoisted(answer, shared) if answer is not None else {"type": "string"}))
    schema: dict[str, Any] = {"anyOf": forms}
    return {**schema, "$defs": shared} if shared else schema


class AnswerStream:
    """Forwards the answer's text while its JSON arrives; calls are not forwarded."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._pending = ""
        self._is_inside = self._is_over = False

    def __call__(self, words: str) -> None:
        if words == RESTART:
            self._pending, self._is_inside, self._is_over = "", False, False
            self._hear(RESTART)
            return
        if self._is_over:
            return
        self._pending += words
        if not self._is_inside and not self._entered():
            return
        letters, self._pending, self._is_over = _decoded(self._pending)
        if letters:
            self._hear(letters)

    def _entered(self) -> bool:
        begun = _ANSWER_BEGINS.match(self._pending)
        if begun is None:
            self._is_over = len(self._pending) > 200  # it is something else, and must not be kept
            return False
        self._pending = self._pending[begun.end() :]
        self._is_inside = True
        return True


def _decoded(pending: str) -> tuple[str, str, bool]:
    """The complete characters of a JSON string, the rest, and whether it has ended."""
    found = _WHOLE_LETTERS.match(pending)
    end = found.end() if found else 0
    if half := _HALF_A_PAIR.search(pending, 0, end):
        end = half.start()
    rest = pending[end:]
    return json.loads(f'"{pending[:end]}"', strict=False), rest, rest.startswith('"')


# ---- the words


def _manual(tools: Sequence[ToolOffer]) -> str:
    lines = ["Reply with one JSON object and nothing else, in one of these forms."]
    lines += [f"To call {tool.name}: {json.dumps({tool.name: _example(tool)}, ensure_ascii=False)}" for tool in tools]
    lines.append('To answer: {"answer": "your words"}')
    lines += [f"{tool.name}: {tool.description}" for tool in tools]
    lines.append("When a result has what was asked for, answer.")
    return "\n".join(lines)


def _example(tool: ToolOffer) -> dict[str, Any]:
    properties: Mapping[str, Any] = tool.schema.get("properties", {})
    return {name: {} if _is_object(one) else "…" for name, one in properties.items() if name not in _LEFT_OUT}


def _is_object(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _told(message: Message) -> Message:
    """As seen by a model without tools. Its own messages are shown in the required form."""
    if isinstance(message, ToolResult):
        kind = "Error" if message.is_error else "Result"
        return UserMessage(text=f"{kind} of {message.name}:\n{message.text}")
    if not isinstance(message, Reply):
        return message
    said: dict[str, Any] = {ANSWER: message.text} if message.text else {}
    for call in message.calls:
        said[call.name] = call.arguments if call.name not in said else [*_several(said[call.name]), call.arguments]
    return Reply(text=json.dumps(said, ensure_ascii=False), model=message.model)


def _merged(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Templates require alternating roles."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if isinstance(last, UserMessage) and isinstance(message, UserMessage):
            merged[-1] = UserMessage(text=f"{last.text}\n\n{message.text}")
        else:
            merged.append(message)
    return tuple(merged)


# ---- the schema


def _form(name: str, inner: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}


def _ways(schema: Mapping[str, Any], shared: dict[str, Any]) -> list[dict[str, Any]]:
    """A schema with conditions (`if` these values, `then` such parameters) as one schema for each: grammars have no conditions."""
    shared.update(schema.get("$defs", {}))
    ways = [way for one in schema.get("allOf", ()) if (way := _way(one)) is not None]
    if ways:
        return ways
    kept = {name: one for name, one in schema.get("properties", {}).items() if name not in _LEFT_OUT}
    plain = {name: one for name, one in schema.items() if name not in ("$defs", "allOf", "properties")}
    return [{**plain, "properties": kept} if kept else plain]


def _way(condition: Any) -> dict[str, Any] | None:
    """For a condition on the parameters."""
    if not isinstance(condition, Mapping) or "parameters" not in condition.get("then", {}).get("properties", {}):
        return None
    given, then = condition["if"].get("properties", {}), condition["then"]["properties"]
    properties = {**given, **{name: one for name, one in then.items() if name not in _LEFT_OUT}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _hoisted(schema: Mapping[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    shared.update(schema.get("$defs", {}))
    return {name: one for name, one in schema.items() if name != "$defs"}


# ---- the reply


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value else [value]


def _call(name: str, arguments: Any) -> ToolCall:
    kept = arguments if isinstance(arguments, dict | str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call_id=f"call_{secrets.token_hex(6)}", name=name, arguments=kept)


def _cut_off(reply: Reply, tools: Sequence[ToolOffer]) -> Reply:
    """Truncated JSON: the answer so far; a call as its text, so that the model is informed."""
    begun = _ANSWER_BEGINS.match(reply.text)
    if begun is not None:
        return replace(reply, text=_decoded(reply.text[begun.end() :])[0], raw=None)
    for tool in tools:
        if re.match(rf'\s*\{{\s*"{re.escape(tool.name)}"\s*:', reply.text):
            return replace(reply, text="", calls=(_call(tool.name, reply.text.partition(":")[2].strip()),), raw=None)
    return reply
