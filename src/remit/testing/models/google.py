"""Google's Gemini API, as a scripted model speaks it: `POST …/models/MODEL:generateContent`, or `:streamGenerateContent?alt=sse`."""

from collections.abc import Iterator, Mapping
from typing import Any

from remit.testing.models.dialect import Event, parsed, pieces, table, tables, text_of
from remit.testing.models.request import Api, Asked, Message, ModelRequest, Tool
from remit.testing.models.turns import Answer, NamedCall, Usage

VERBS = {"generateContent": False, "streamGenerateContent": True}
"""What stands behind the model in the path, and whether it streams."""
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_ROLES = {"model": "assistant"}
_BROKEN = "MALFORMED_FUNCTION_CALL"
"""How Gemini tells of arguments that were no JSON: the call itself it keeps back."""


def asked_by(path: str) -> Mapping[str, Any]:
    """What the path says of a request and the body does not; empty when it is none of Google's."""
    model, sign, verb = path.rpartition("/")[2].partition(":")
    return {"model": model, "stream": VERBS[verb]} if sign and verb in VERBS else {}


class Google:
    def read(self, body: Mapping[str, Any]) -> ModelRequest:
        """`body` with what `asked_by` found in the path."""
        system = table(body.get("systemInstruction") or body.get("system_instruction"))
        messages = [Message(role="system", text=text_of(tables(system.get("parts"))))] if system else []
        for content in tables(body.get("contents")):
            messages += _messages(content)
        declared = [one for tool in tables(body.get("tools")) for one in tables(tool.get("functionDeclarations"))]
        return ModelRequest(
            api=Api.GOOGLE,
            model=str(body.get("model", "")),
            stream=body.get("stream") is True,
            messages=tuple(messages),
            tools=tuple(
                Tool(name=str(one.get("name")), schema=table(one.get("parametersJsonSchema") or one.get("parameters"))) for one in declared
            ),
            body=body,
        )

    def events(self, request: ModelRequest, answer: Answer) -> Iterator[Event]:
        if answer.thought:
            yield self._chunk(request, answer, [_thought(answer)])
        for piece in pieces(answer.text):
            yield self._chunk(request, answer, [{"text": piece}], is_piece=True)
        for call in answer.calls:
            if isinstance(call.arguments, Mapping):
                yield self._chunk(request, answer, [_call(call, answer)], is_piece=True)
        yield self._chunk(request, answer, [{"text": ""}], finish=_finish(answer))

    def document(self, request: ModelRequest, answer: Answer) -> dict[str, Any]:
        parts = [_thought(answer)] if answer.thought else []
        parts += [{"text": answer.text}] if answer.text else []
        parts += [_call(call, answer) for call in answer.calls if isinstance(call.arguments, Mapping)]
        return _response(request, answer, parts, _finish(answer))

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}}

    @staticmethod
    def _chunk(
        request: ModelRequest, answer: Answer, parts: list[dict[str, Any]], *, finish: str | None = None, is_piece: bool = False
    ) -> Event:
        return Event(_response(request, answer, parts, finish), is_piece=is_piece)


def _messages(content: Mapping[str, Any]) -> Iterator[Message]:
    parts = tables(content.get("parts"))
    role = str(content.get("role", "user"))
    for part in parts:
        if "functionResponse" in part:
            given = table(table(part["functionResponse"]).get("response"))
            yield Message(role="tool", text=str(next(iter(given.values()), "")))
    calls = tuple(
        Asked(str(call.get("name")), parsed(call.get("args"))) for part in parts if (call := table(part.get("functionCall"))).get("name")
    )
    words = text_of([part for part in parts if "text" in part and not part.get("thought")])
    if words or calls:
        yield Message(role=_ROLES.get(role, role), text=words, calls=calls)


def _response(request: ModelRequest, answer: Answer, parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate | {"finishReason": finish} if finish else candidate],
        "usageMetadata": _usage(answer.usage),
        "modelVersion": request.model,
        "responseId": f"resp_{request.number:05d}",
    }


def _thought(answer: Answer) -> dict[str, Any]:
    return {"text": answer.thought, "thought": True}


def _call(call: NamedCall, answer: Answer) -> dict[str, Any]:
    assert isinstance(call.arguments, Mapping)
    part: dict[str, Any] = {"functionCall": {"id": call.call_id, "name": call.name, "args": dict(call.arguments)}}
    return part | {"thoughtSignature": answer.signature} if answer.signature and call is answer.calls[0] else part


def _finish(answer: Answer) -> str:
    return _BROKEN if any(isinstance(call.arguments, str) for call in answer.calls) else answer.finish_as("STOP", "MAX_TOKENS", "SAFETY")


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
    }
