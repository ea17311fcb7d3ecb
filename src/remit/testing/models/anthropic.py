"""Anthropic Messages, as a scripted model speaks it: `POST /v1/messages`, streamed or whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from remit.testing.models.dialect import Event, dumped, pieces, table, tables, text_of
from remit.testing.models.request import Api, Asked, Message, ModelRequest, Tool
from remit.testing.models.turns import Answer, NamedCall, Usage

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        messages = [Message(role="system", text=text_of(body["system"]))] if body.get("system") else []
        for message in tables(body.get("messages")):
            messages += _messages(message)
        tools = [Tool(name=str(tool.get("name")), schema=table(tool.get("input_schema"))) for tool in tables(body.get("tools"))]
        return ModelRequest(
            api=Api.ANTHROPIC,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            messages=tuple(messages),
            tools=tuple(tools),
            body=body,
        )

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        start = self._message(request, answer) | {"content": [], "stop_reason": None, "usage": _usage(answer.usage, output_tokens=1)}
        yield _event("message_start", message=start)
        yield _event("ping")
        for index, block in enumerate(_blocks(answer)):
            yield from _block(index, block)
        yield _event("message_delta", delta={"stop_reason": _stop(answer), "stop_sequence": None}, usage=_usage(answer.usage))
        yield _event("message_stop")

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        return self._message(request, answer)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}, "request_id": "req_scripted"}

    def _message(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        return {
            "id": f"msg_{request.number:05d}",
            "type": "message",
            "role": "assistant",
            "model": request.model,
            "content": _blocks(answer),
            "stop_reason": _stop(answer),
            "stop_sequence": None,
            "usage": _usage(answer.usage),
        }


def _messages(message: Mapping[str, Any]) -> Iterator[Message]:
    """One message of theirs may be several of ours: results of tools stand inside what the user says."""
    role, content = str(message.get("role")), message.get("content")
    if isinstance(content, str):
        yield Message(role=role, text=content)
        return
    blocks = tables(content)
    for result in (block for block in blocks if block.get("type") == "tool_result"):
        yield Message(role="tool", text=text_of(result.get("content")))
    calls = tuple(Asked(str(block.get("name")), block.get("input")) for block in blocks if block.get("type") == "tool_use")
    words = text_of([block for block in blocks if block.get("type") == "text"])
    if words or calls:
        yield Message(role=role, text=words, calls=calls)


def _event(name: str, *, is_piece: bool = False, **fields: Any) -> Event:
    return Event({"type": name, **fields}, name, is_piece)


def _block(index: int, block: dict[str, Any]) -> Iterator[Event]:
    if block["type"] == "thinking":
        yield from _thinking(index, block)
        return
    is_text = block["type"] == "text"
    empty = {"type": "text", "text": ""} if is_text else block | {"input": {}}
    yield _event("content_block_start", index=index, content_block=empty)
    for piece in pieces(block["text"] if is_text else dumped(block["input"])):
        delta = {"type": "text_delta", "text": piece} if is_text else {"type": "input_json_delta", "partial_json": piece}
        yield _event("content_block_delta", is_piece=True, index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _thinking(index: int, block: dict[str, Any]) -> Iterator[Event]:
    yield _event("content_block_start", index=index, content_block={"type": "thinking", "thinking": "", "signature": ""})
    yield _event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": block["thinking"]})
    yield _event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": block["signature"]})
    yield _event("content_block_stop", index=index)


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    thoughts = [{"type": "thinking", "thinking": answer.thought, "signature": answer.signature}] if answer.thought else []
    words = [{"type": "text", "text": answer.text}] if answer.text else []
    return thoughts + words + [_tool_use(call) for call in answer.calls]


def _tool_use(call: NamedCall) -> dict[str, Any]:
    given = call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
    return {"type": "tool_use", "id": f"toolu_{call.call_id}" if call.call_id else "", "name": call.name, "input": given}


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.calls else answer.finish_as("end_turn", "max_tokens", "refusal")


def _usage(usage: Usage, *, output_tokens: int | None = None) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens if output_tokens is None else output_tokens,
    }
