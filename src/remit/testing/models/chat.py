"""OpenAI Chat Completions, as a scripted model speaks it: `POST /v1/chat/completions`, streamed or whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from remit.testing.models.dialect import Event, dumped, parsed, pieces, table, tables, text_of
from remit.testing.models.request import Api, Asked, Message, ModelRequest, Tool
from remit.testing.models.turns import Answer, NamedCall, Usage

_KINDS = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error", 429: "rate_limit_exceeded"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_ROLES = {"developer": "system"}
_CREATED = 1_700_000_000
"""A scripted answer is the same each time, its date too."""


class ChatCompletions:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        tools = [table(tool.get("function")) for tool in tables(body.get("tools"))]
        return ModelRequest(
            api=Api.CHAT,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            messages=tuple(_message(message) for message in tables(body.get("messages"))),
            tools=tuple(Tool(name=str(tool.get("name")), schema=table(tool.get("parameters"))) for tool in tools),
            body=body,
        )

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        yield _chunk(request, {"role": "assistant", "content": ""})
        for piece in pieces(answer.text):
            yield _chunk(request, {"content": piece}, is_piece=True)
        for index, call in enumerate(answer.calls):
            yield _chunk(request, {"tool_calls": [{"index": index, **_call(call), "function": {"name": call.name, "arguments": ""}}]})
            for piece in pieces(dumped(call.arguments)):
                yield _chunk(request, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, is_piece=True)
        yield _chunk(request, {}, finish=_finish(answer))
        if table(request.body.get("stream_options")).get("include_usage"):
            yield Event({**_head(request, "chat.completion.chunk"), "choices": [], "usage": _usage(answer.usage)})
        yield Event("[DONE]")

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        return {**_head(request, "chat.completion"), "choices": [choice], "usage": _usage(answer.usage)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": _KINDS.get(status, "server_error"), "param": None, "code": _CODES.get(status)}}


def _message(message: Mapping[str, Any]) -> Message:
    role = str(message.get("role"))
    functions = [table(call.get("function")) for call in tables(message.get("tool_calls"))]
    calls = tuple(Asked(str(function.get("name")), parsed(function.get("arguments"))) for function in functions)
    return Message(role=_ROLES.get(role, role), text=text_of(message.get("content")), calls=calls)


def _chunk(request: ModelRequest, delta: dict[str, Any], *, finish: str | None = None, is_piece: bool = False) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return Event({**_head(request, "chat.completion.chunk"), "choices": [choice]}, is_piece=is_piece)


def _head(request: ModelRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.number:05d}", "object": kind, "created": _CREATED, "model": request.model}


def _call(call: NamedCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": dumped(call.arguments)}}


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else answer.finish_as("stop", "length", "content_filter")


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
