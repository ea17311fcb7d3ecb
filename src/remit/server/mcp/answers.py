"""Answers of the MCP tools: the return of a delegation, or the handle of a running one, as structure and as the same JSON in text.

Artifacts are linked as files. A refused or failed delegation is an error of the tool, so that the model reacts to it; a partial one is not.
Large answers are shortened piece by piece: Claude Code cuts a tool's answer at 25,000 tokens, and an answer appears in it twice.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic_core import from_json

from remit.core.delegate_requests import DelegateError, encodable, json_bytes, json_text
from remit.core.errors import Refused, RemitError, Unavailable
from remit.core.jsonable import clean_text
from remit.core.record import Record
from remit.core.redaction import redact_known_keys
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.states import State
from remit.core.text import shorten

LARGEST_BYTES = 28_000
"""Of one document as JSON: both copies and the links stay below 60 KB, about 15,000 tokens."""
PAGE_CHARACTERS = 20_000
_STEPS = ((4_000, 200), (1_000, 60), (300, 20), (80, 5))
"""Tried in turn: at most so many characters of a text, so many members of a list or object."""
_NEVER = frozenset({"session_id", "state", "status", "summary", "ask_again", "message", "stop_reason", "evidence", "page", "shortened"})


def fitting(document: dict[str, Any], whole: str, largest_bytes: int = LARGEST_BYTES) -> dict[str, Any]:
    """`document`, shortened where it is too large; then with `shortened`, which says how to get the rest (`whole`)."""
    document = encodable(document)
    if len(json_bytes(document)) <= largest_bytes:
        return document
    for characters, members in _STEPS:
        short = {name: value if name in _NEVER else _cut(value, characters, members) for name, value in document.items()}
        if len(json_bytes(short)) <= largest_bytes - len(whole) - 20:
            return {**short, "shortened": whole}
    return {**{name: value for name, value in document.items() if name in _NEVER}, "shortened": whole}


def _cut(value: Any, characters: int, members: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[:characters]}… ({len(value) - characters} characters left out)"
    if isinstance(value, list | tuple):
        kept = [_cut(one, characters, members) for one in value[:members]]
        if len(value) > members:  # of the same shape as its neighbours, so that a reader of the list does not stumble over it
            words = f"({len(value) - members} more left out)"
            kept.append({"…": words} if isinstance(value[0], dict) else words)
        return kept
    if isinstance(value, dict):
        short = {_cut(name, 200, 0): _cut(one, characters, members) for name, one in list(value.items())[:members]}
        if len(value) > members:
            short["…"] = f"({len(value) - members} more left out)"
        return short
    return value


def page_of(text: str, offset: int, limit: int) -> dict[str, Any]:
    """A piece of a whole answer; `next_offset` is absent with the last one."""
    piece = text[offset : offset + limit]
    while len(piece) > 1 and len(json_text(piece).encode()) > LARGEST_BYTES - 1_000:  # quotes and escapes grow as JSON
        piece = piece[: len(piece) // 2]
    page: dict[str, Any] = {"offset": offset, "characters": len(text), "text": piece}
    return page if offset + len(piece) >= len(text) else {**page, "next_offset": offset + len(piece)}


Document = dict[str, Any]
Outcome = Return | RemitError | Document
LINKS = 20
"""So many artifacts are linked; the rest stand in the return."""
LONGEST_MESSAGE = 1_000
"""Of an error, which may quote what was asked: its code and its advice must have room beside it."""

_STATES = {
    StopReason.CANCELLED: State.CANCELLED,
    StopReason.REFUSED: State.REFUSED,
    StopReason.DEADLINE: State.TIMEOUT,
    StopReason.IDLE: State.TIMEOUT,
}


def return_document(result: Return) -> Document:
    state = _STATES.get(result.stop_reason, State(result.status))
    return {"session_id": result.session_id, "state": str(state), **result.to_dict()}


def is_failure(result: Return) -> bool:
    return result.status is Status.FAILED or result.stop_reason is StopReason.REFUSED


def handle_document(record: Record, waited_seconds: float, now: float) -> Document:
    """Of a delegation that is not done: how to ask again."""
    words = "is queued" if record.state is State.QUEUED else "is running"
    return {
        "session_id": record.session_id,
        "state": str(record.state),
        "agent": record.agent,
        "message": f"{record.agent} {words}; it was waited for {waited_seconds:.0f} s and goes on by itself. Ask for its return with "
        f'delegation_result {{"session_id": "{record.session_id}"}}; stop it with delegation_cancel. Do not delegate the same again.',
        "ask_again": {"tool": "delegation_result", "arguments": {"session_id": record.session_id}},
        "age_seconds": round(max(0.0, now - record.created_at), 1),
        "left_seconds": round(max(0.0, record.deadline_at - now), 1),
    }


def error_document(error: RemitError) -> Document:
    """An error of ours in the shape of a return: nothing ran, or nothing can be said about it now."""
    message = shorten(error.message, LONGEST_MESSAGE)
    kind = "unavailable" if isinstance(error, Unavailable) else "refused" if isinstance(error, Refused) else "misused"
    details = {"details": dict(error.details)} if isinstance(error, DelegateError) and error.details else {}
    return {
        "state": str(State.FAILED if isinstance(error, Unavailable) else State.REFUSED),
        "status": str(Status.FAILED),
        "summary": message,
        "errors": [
            {
                "type": kind,
                "code": error.code,
                "message": message,
                "recoverable": isinstance(error, Unavailable),
                "recommendation": error.advice,
                **details,
            }
        ],
    }


def answer(document: Document, *, is_error: bool = False, links: Iterable[ContentBlock] = ()) -> CallToolResult:
    """`document` within the size that clients take, as structure and as text."""
    return _answer(fitting(document, _whole(document)), is_error, links)


def many_answer(outcomes: Sequence[Outcome], root: Path) -> CallToolResult:
    """Several at once: each has its share of the room. An error only if all failed."""
    documents, links, failures, running = [], [], 0, 0
    for one in outcomes:
        if isinstance(one, Return):
            documents.append(return_document(one))
            links += links_of(one.artifacts, root)
            failures += is_failure(one)
        elif isinstance(one, RemitError):
            documents.append(error_document(one))
            failures += 1
        else:
            documents.append(one)
            running += 1
    share = LARGEST_BYTES // len(documents)
    short = [fitting(one, "Shortened: ask for it by its session_id with delegation_result.", share) for one in documents]
    document = {"results": short, "finished": len(short) - running, "running": running}
    return _answer(document, failures == len(documents), links[:LINKS])


def _answer(document: Document, is_error: bool, links: Iterable[ContentBlock]) -> CallToolResult:
    """Its reader is a model: keys in a known format are redacted."""
    text = redact_known_keys(json_text(document))
    return CallToolResult(content=[TextContent(text=text), *links], structured_content=from_json(text), is_error=is_error)


def _whole(document: Document) -> str:
    if "session_id" in document:
        asked = f'{{"session_id": "{document["session_id"]}", "offset": 0, "limit": {PAGE_CHARACTERS}}}'
        return f"This answer was shortened. The whole, page by page: delegation_result {asked}."
    return "This answer was shortened. Name one target to see it whole." if "agents" in document else "This answer was shortened."


def return_answer(result: Return, root: Path) -> CallToolResult:
    return answer(return_document(result), is_error=is_failure(result), links=links_of(result.artifacts, root))


def links_of(artifacts: Iterable[Artifact], root: Path) -> list[ContentBlock]:
    """Files of the project, by their place on this machine."""
    return [
        ResourceLink(
            name=clean_text(artifact.path),
            uri=(root / artifact.path).as_uri(),
            description=clean_text(artifact.summary or artifact.type),
            size=artifact.size,
        )
        for artifact in list(artifacts)[:LINKS]
    ]
