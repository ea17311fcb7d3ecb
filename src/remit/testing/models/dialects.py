"""The four APIs that scripted models speak: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Gemini."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remit.testing.models.request import Api, EarlierCall, Message, ModelRequest, Tool
from remit.testing.models.turns import Answer, NamedCall, Usage

_MOST_PIECES = 24
"""Of one text: enough to see that it streams, and few enough for a long one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    data: Mapping[str, Any] | str
    name: str | None = None
    is_piece: bool = False
    """Whether it carries a piece of the answer: a drip waits between them, and a cut cuts after one."""

    def encode(self) -> bytes:
        data = self.data if isinstance(self.data, str) else json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))
        head = f"event: {self.name}\n" if self.name else ""
        return f"{head}data: {data}\n\n".encode()


class Dialect(Protocol):
    """One API: parses its requests and writes its answers."""

    def read(self, body: Mapping[str, Any]) -> ModelRequest: ...
    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]: ...
    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]: ...
    def error(self, status: int, message: str) -> dict[str, Any]: ...


def pieces(text: str) -> list[str]:
    """The text, cut as a model streams it."""
    size = max(8, -(-len(text) // _MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def text_of(content: Any) -> str:
    """The text of a content that is a string or a list of parts, whatever their names."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of(content.get("text") or content.get("content") or content.get("output") or "")
    if isinstance(content, Sequence):
        return "\n".join(filter(None, (text_of(part) for part in content)))
    return ""


def tables(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; a request may contain anything."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, Sequence) and not isinstance(value, str) else []


def table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def parsed(arguments: Any) -> Any:
    """Arguments that came as JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def dumped(arguments: Mapping[str, Any] | str) -> str:
    """As JSON text; deliberately invalid text is unchanged."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(dict(arguments), ensure_ascii=False)


def _request(api: Api, body: Mapping[str, Any], messages: Iterable[Message], tools: Iterable[Tool]) -> ModelRequest:
    model, stream = str(body.get("model", "")), body.get("stream") is True
    return ModelRequest(api=api, model=model, stream=stream, messages=tuple(messages), tools=tuple(tools), body=body)


def _tool(tool: Mapping[str, Any], schema: str, namespace: str | None = None) -> Tool:
    return Tool(name=str(tool.get("name", tool.get("type"))), schema=table(tool.get(schema)), namespace=namespace)


def _role(role: Any) -> str:
    return {"developer": "system", "model": "assistant"}.get(str(role), str(role))


def _event(name: str, /, *, is_piece: bool = False, **fields: Any) -> Event:
    return Event({"type": name, **fields}, name, is_piece)


_CREATED = 1_700_000_000
"""A scripted answer is always the same, including its date."""

# ---- Anthropic Messages

_KINDS = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


class Anthropic:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        messages = [Message(role="system", text=text_of(body["system"]))] if body.get("system") else []
        for message in tables(body.get("messages")):
            messages += _messages(message)
        return _request(Api.ANTHROPIC, body, messages, [_tool(tool, "input_schema") for tool in tables(body.get("tools"))])

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
        return {
            "type": "error",
            "error": {"type": _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error"), "message": message},
            "request_id": "req_scripted",
        }

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
    """One API message may be several messages here: results of tools are inside the user's message."""
    role, content = str(message.get("role")), message.get("content")
    if isinstance(content, str):
        yield Message(role=role, text=content)
        return
    blocks = tables(content)
    for result in (block for block in blocks if block.get("type") == "tool_result"):
        yield Message(role="tool", text=text_of(result.get("content")))
    calls = tuple(EarlierCall(str(block.get("name")), block.get("input")) for block in blocks if block.get("type") == "tool_use")
    words = text_of([block for block in blocks if block.get("type") == "text"])
    if words or calls:
        yield Message(role=role, text=words, calls=calls)


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


# ---- OpenAI Chat Completions

_CODES = {400: "invalid_request_error", 401: "invalid_api_key", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}


def _openai_error(status: int, message: str) -> dict[str, Any]:
    code = _CODES.get(status, "server_error")
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


class ChatCompletions:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        tools = [_tool(table(tool.get("function")), "parameters") for tool in tables(body.get("tools"))]
        return _request(Api.CHAT, body, map(_message, tables(body.get("messages"))), tools)

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
            yield Event({**_head(request, "chat.completion.chunk"), "choices": [], "usage": _chat_usage(answer.usage)})
        yield Event("[DONE]")

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        return {**_head(request, "chat.completion"), "choices": [choice], "usage": _chat_usage(answer.usage)}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _openai_error(status, message)


def _message(message: Mapping[str, Any]) -> Message:
    role = str(message.get("role"))
    functions = [table(call.get("function")) for call in tables(message.get("tool_calls"))]
    calls = tuple(EarlierCall(str(function.get("name")), parsed(function.get("arguments"))) for function in functions)
    return Message(role=_role(role), text=text_of(message.get("content")), calls=calls)


def _chunk(request: ModelRequest, delta: dict[str, Any], *, finish: str | None = None, is_piece: bool = False) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return Event({**_head(request, "chat.completion.chunk"), "choices": [choice]}, is_piece=is_piece)


def _head(request: ModelRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{request.number:05d}", "object": kind, "created": _CREATED, "model": request.model}


def _call(call: NamedCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": dumped(call.arguments)}}


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else answer.finish_as("stop", "length", "content_filter")


def _chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


# ---- OpenAI Responses


class Responses:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        messages = [Message(role="system", text=text_of(body["instructions"]))] if body.get("instructions") else []
        asked = body.get("input")
        messages += [Message(role="user", text=asked)] if isinstance(asked, str) else filter(None, map(_responses_message, tables(asked)))
        return _request(Api.RESPONSES, body, messages, _tools(body))

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        numbers = itertools.count()
        begun = _response(request, "in_progress", [], None)
        for event in self._unnumbered(request, answer, begun):
            yield Event({**table(event.data), "sequence_number": next(numbers)}, event.name, event.is_piece)

    def _unnumbered(self, request: ModelRequest, answer: Answer, begun: dict[str, Any]) -> Iterator[Event]:
        yield _event("response.created", response=begun)
        yield _event("response.in_progress", response=begun)
        for index, item in enumerate(_items(request, answer)):
            yield from _words(index, item) if item["type"] == "message" else _responses_call(index, item)
        last = "response.completed" if answer.ended == "finished" else "response.incomplete"
        yield _event(last, response=self.document(request, answer))

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        response = _response(request, "completed", _items(request, answer), answer.usage)
        if answer.ended == "finished":
            return response
        reason = answer.finish_as("", "max_output_tokens", "content_filter")
        return response | {"status": "incomplete", "incomplete_details": {"reason": reason}}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return _openai_error(status, message)


def _responses_message(item: Mapping[str, Any]) -> Message | None:
    match item.get("type", "message"):
        case "message":
            role = str(item.get("role"))
            return Message(role=_role(role), text=text_of(item.get("content")))
        case "function_call" | "custom_tool_call":
            asked = EarlierCall(str(item.get("name")), parsed(item.get("arguments", item.get("input"))))
            return Message(role="assistant", text="", calls=(asked,))
        case "function_call_output" | "custom_tool_call_output":
            return Message(role="tool", text=text_of(item.get("output")))
    return None  # reasoning, and other items of a conversation


def _tools(body: Mapping[str, Any]) -> Iterator[Tool]:
    for tool in tables(body.get("tools")):
        if tool.get("type") != "namespace":
            yield _tool(tool, "parameters")
        else:
            yield from (_tool(inner, "parameters", str(tool.get("name"))) for inner in tables(tool.get("tools")))


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


def _responses_call(index: int, item: dict[str, Any]) -> Iterator[Event]:
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
        "usage": _responses_usage(usage) if usage else None,
    }


def _responses_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


# ---- Google's Gemini API

VERBS = {"generateContent": False, "streamGenerateContent": True}
"""The verb after the model in the path, and whether it streams."""
_STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_BROKEN = "MALFORMED_FUNCTION_CALL"
"""How Gemini reports arguments that were not JSON; it omits the call itself."""


def asked_by(path: str) -> Mapping[str, Any]:
    """Facts of a request in the path; empty if it is not Google's."""
    model, sign, verb = path.rpartition("/")[2].partition(":")
    return {"model": model, "stream": VERBS[verb]} if sign and verb in VERBS else {}


class Google:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """`body` with what `asked_by` found in the path."""
        system = table(body.get("systemInstruction") or body.get("system_instruction"))
        messages = [Message(role="system", text=text_of(tables(system.get("parts"))))] if system else []
        for content in tables(body.get("contents")):
            messages += _google_messages(content)
        declared = [one for tool in tables(body.get("tools")) for one in tables(tool.get("functionDeclarations"))]
        tools = [_tool(one, "parametersJsonSchema" if one.get("parametersJsonSchema") else "parameters") for one in declared]
        return _request(Api.GOOGLE, body, messages, tools)

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        if answer.thought:
            yield self._chunk(request, answer, [_thought(answer)])
        for piece in pieces(answer.text):
            yield self._chunk(request, answer, [{"text": piece}], is_piece=True)
        for call in answer.calls:
            if isinstance(call.arguments, Mapping):
                yield self._chunk(request, answer, [_google_call(call, answer)], is_piece=True)
        yield self._chunk(request, answer, [{"text": ""}], finish=_google_finish(answer))

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        parts = [_thought(answer)] if answer.thought else []
        parts += [{"text": answer.text}] if answer.text else []
        parts += [_google_call(call, answer) for call in answer.calls if isinstance(call.arguments, Mapping)]
        return _google_response(request, answer, parts, _google_finish(answer))

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}}

    @staticmethod
    def _chunk(
        request: ModelRequest, answer: Answer, parts: list[dict[str, Any]], *, finish: str | None = None, is_piece: bool = False
    ) -> Event:
        return Event(_google_response(request, answer, parts, finish), is_piece=is_piece)


def _google_messages(content: Mapping[str, Any]) -> Iterator[Message]:
    parts = tables(content.get("parts"))
    role = str(content.get("role", "user"))
    for part in parts:
        if "functionResponse" in part:
            given = table(table(part["functionResponse"]).get("response"))
            yield Message(role="tool", text=str(next(iter(given.values()), "")))
    calls = tuple(
        EarlierCall(str(call.get("name")), parsed(call.get("args")))
        for part in parts
        if (call := table(part.get("functionCall"))).get("name")
    )
    words = text_of([part for part in parts if "text" in part and not part.get("thought")])
    if words or calls:
        yield Message(role=_role(role), text=words, calls=calls)


def _google_response(request: ModelRequest, answer: Answer, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate | {"finishReason": finish} if finish else candidate],
        "usageMetadata": _google_usage(answer.usage),
        "modelVersion": request.model,
        "responseId": f"resp_{request.number:05d}",
    }


def _thought(answer: Answer) -> dict[str, Any]:
    return {"text": answer.thought, "thought": True}


def _google_call(call: NamedCall, answer: Answer) -> dict[str, Any]:
    assert isinstance(call.arguments, Mapping)
    part: dict[str, Any] = {"functionCall": {"id": call.call_id, "name": call.name, "args": dict(call.arguments)}}
    return part | {"thoughtSignature": answer.signature} if answer.signature and call is answer.calls[0] else part


def _google_finish(answer: Answer) -> str:
    return _BROKEN if any(isinstance(call.arguments, str) for call in answer.calls) else answer.finish_as("STOP", "MAX_TOKENS", "SAFETY")


def _google_usage(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
    }
