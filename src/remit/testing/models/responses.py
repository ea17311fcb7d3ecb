"""OpenAI Responses, as a scripted model speaks it: `POST /v1/responses`, streamed or whole.

Tools of an MCP server stand in a `namespace`, and a call of one names it beside the tool.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from remit.testing.models.dialect import Event, dumped, parsed, pieces, table, tables, text_of
from remit.testing.models.request import Api, Asked, Message, ModelRequest, Tool
from remit.testing.models.turns import Answer, NamedCall, Usage

_CODES = {400: "invalid_request_error", 401: "invalid_api_key", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}
_ROLES = {"developer": "system"}
_CREATED = 1_700_000_000
"""A scripted answer is the same each time, its date too."""


class Responses:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        messages = [Message(role="system", text=text_of(body["instructions"]))] if body.get("instructions") else []
        asked = body.get("input")
        messages += [Message(role="user", text=asked)] if isinstance(asked, str) else filter(None, map(_message, tables(asked)))
        return ModelRequest(
            api=Api.RESPONSES,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            messages=tuple(messages),
            tools=tuple(_tools(body)),
            body=body,
        )

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        numbers = itertools.count()
        begun = _response(request, "in_progress", [], None)
        for event in self._unnumbered(request, answer, begun):
            yield Event({**table(event.data), "sequence_number": next(numbers)}, event.name, event.is_piece)

    def _unnumbered(self, request: ModelRequest, answer: Answer, begun: dict[str, Any]) -> Iterator[Event]:
        yield _event("response.created", response=begun)
        yield _event("response.in_progress", response=begun)
        for index, item in enumerate(_items(request, answer)):
            yield from _words(index, item) if item["type"] == "message" else _call(index, item)
        last = "response.completed" if answer.ended == "finished" else "response.incomplete"
        yield _event(last, response=self.document(request, answer))

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        response = _response(request, "completed", _items(request, answer), answer.usage)
        if answer.ended == "finished":
            return response
        reason = answer.finish_as("", "max_output_tokens", "content_filter")
        return response | {"status": "incomplete", "incomplete_details": {"reason": reason}}

    def error(self, status: int, message: str) -> dict[str, Any]:
        code = _CODES.get(status, "server_error")
        return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _message(item: Mapping[str, Any]) -> Message | None:
    match item.get("type", "message"):
        case "message":
            role = str(item.get("role"))
            return Message(role=_ROLES.get(role, role), text=text_of(item.get("content")))
        case "function_call" | "custom_tool_call":
            asked = Asked(str(item.get("name")), parsed(item.get("arguments", item.get("input"))))
            return Message(role="assistant", text="", calls=(asked,))
        case "function_call_output" | "custom_tool_call_output":
            return Message(role="tool", text=text_of(item.get("output")))
    return None  # reasoning, and whatever else stands in a conversation


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for tool in tables(body.get("tools")):
        name = str(tool.get("name", tool.get("type")))
        if tool.get("type") != "namespace":
            yield Tool(name=name, schema=table(tool.get("parameters")))
            continue
        for inner in tables(tool.get("tools")):
            yield Tool(name=str(inner.get("name")), namespace=name, schema=table(inner.get("parameters")))


def _event(name: str, /, *, is_piece: bool = False, **fields: Any) -> Event:
    return Event({"type": name, **fields}, name, is_piece)


def _words(index: int, item: dict[str, Any]) -> Iterator[Event]:
    part = item["content"][0]
    where = {"item_id": item["id"], "output_index": index, "content_index": 0}
    yield _event("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "content": []})
    yield _event("response.content_part.added", **where, part=part | {"text": ""})
    for piece in pieces(part["text"]):
        yield _event("response.output_text.delta", is_piece=True, **where, delta=piece, logprobs=[])
    yield _event("response.output_text.done", **where, text=part["text"], logprobs=[])
    yield _event("response.content_part.done", **where, part=part)
    yield _event("response.output_item.done", output_index=index, item=item)


def _call(index: int, item: dict[str, Any]) -> Iterator[Event]:
    where = {"item_id": item["id"], "output_index": index}
    yield _event("response.output_item.added", output_index=index, item=item | {"status": "in_progress", "arguments": ""})
    for piece in pieces(item["arguments"]):
        yield _event("response.function_call_arguments.delta", is_piece=True, **where, delta=piece)
    yield _event("response.function_call_arguments.done", **where, name=item["name"], arguments=item["arguments"])
    yield _event("response.output_item.done", output_index=index, item=item)


def _items(request: ModelRequest, answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        items.append({"id": f"msg_{request.number:05d}", "type": "message", "status": "completed", "role": "assistant", "content": [part]})
    return items + [_function_call(call, f"fc_{request.number:05d}_{index}") for index, call in enumerate(answer.calls)]


def _function_call(call: NamedCall, item_id: str) -> dict[str, Any]:
    item = {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": dumped(call.arguments),
    }
    return item | {"namespace": call.namespace} if call.namespace else item


def _response(request: ModelRequest, status: str, output: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
    return {
        "id": f"resp_{request.number:05d}",
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": _usage(usage) if usage else None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
