"""Answers of the MCP tools: the return of a delegation, or the handle of a running one, as structure and as the same JSON in text.

Artifacts are linked as files. A refused or failed delegation is an error of the tool, so that the model reacts to it; a partial one is not.
Large answers are shortened piece by piece: Claude Code cuts a tool's answer at 25,000 tokens, and an answer appears in it twice.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic_core import from_json

from remit.core.delegate_requests import DelegateError, encodable, json_bytes, json_text
from remit.core.delegate_results import continuation_of, result_of, result_of_error, result_of_record
from remit.core.errors import Refused, RemitError, Unavailable
from remit.core.jsonable import clean_text
from remit.core.record import Record
from remit.core.redaction import redact_known_keys
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.states import State
from remit.core.text import shorten

LARGEST_BYTES = 28_000
"""Maximum size of one document as JSON: both copies and the links stay below 60 KB, about 15,000 tokens."""
PAGE_CHARACTERS = 20_000
_SIZES = (4_000, 1_000, 300, 80)
"""Tried in order: maximum characters of a text; of a list or object a twentieth of that many members."""
_NEVER = frozenset({
    "success", "taskId", "taskState", "session_id", "state", "status", "summary", "ask_again", "continue_with", "message", "stop_reason",
    "evidence", "page", "shortened",
})  # fmt: skip


def fitting(document: dict[str, Any], whole: str, largest_bytes: int = LARGEST_BYTES) -> dict[str, Any]:
    """`document`, shortened if it is too large; then with `shortened`, which tells how to get the rest (`whole`)."""
    document = encodable(document)
    if len(json_bytes(document)) <= largest_bytes:
        return document
    for size in _SIZES:
        short = {name: value if name in _NEVER else _cut(value, size) for name, value in document.items()}
        if len(json_bytes(short)) <= largest_bytes - len(whole) - 20:
            return {**short, "shortened": whole}
    return {**{name: value for name, value in document.items() if name in _NEVER}, "shortened": whole}


def _cut(value: Any, size: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= size else f"{value[:size]}… ({len(value) - size} characters left out)"
    if not isinstance(value, list | tuple | dict):
        return value
    members, words = size // 20, f"({len(value) - size // 20} more left out)"
    if isinstance(value, dict):
        short = {name[:200]: _cut(one, size) for name, one in list(value.items())[:members]}
        return short if len(value) <= members else {**short, "…": words}
    kept = [_cut(one, size) for one in value[:members]]
    if len(value) > members:  # of the same shape as its neighbours, so that readers of the list are not confused
        kept.append({"…": words} if isinstance(value[0], dict) else words)
    return kept


def page_of(text: str, offset: int, limit: int) -> dict[str, Any]:
    """A page of a whole answer; `next_offset` is absent on the last one."""
    piece = text[offset : offset + limit]
    while len(piece) > 1 and len(json_text(piece).encode()) > LARGEST_BYTES - 1_000:  # quotes and escapes grow in JSON
        piece = piece[: len(piece) // 2]
    page: dict[str, Any] = {"offset": offset, "characters": len(text), "text": piece}
    return page if offset + len(piece) >= len(text) else {**page, "next_offset": offset + len(piece)}


Document = dict[str, Any]
Outcome = Return | RemitError | Document
LINKS = 20
"""Maximum linked artifacts; the return lists the rest."""
LONGEST_MESSAGE = 1_000
"""Maximum length of an error message, which may quote the request: code and advice must fit beside it."""

_STATES = {
    StopReason.CANCELLED: State.CANCELLED,
    StopReason.REFUSED: State.REFUSED,
    StopReason.DEADLINE: State.TIMEOUT,
    StopReason.IDLE: State.TIMEOUT,
}


def return_document(result: Return) -> Document:
    """A return, with the fields of the delegate tool's result: one shape for every way to delegate."""
    state = _STATES.get(result.stop_reason, State(result.status))
    call = continuation_of(result)
    continued = {} if call is None else {"continue_with": {"tool": "delegate", "arguments": call}}
    tool = result_of(result, _created_at(result)).to_dict()
    document = {**tool, "session_id": result.session_id, "state": str(state), **result.to_dict(), **continued}
    return {**document, "metadata": {**tool["metadata"], **document["metadata"]}}


def _created_at(result: Return) -> float:
    """Its session id begins with its creation time in seconds."""
    seconds = result.session_id.partition("_")[2].partition("_")[0]
    is_known = len(seconds) >= 10 and seconds.isdigit()  # shorter in the older form, which is a date
    return float(seconds) if is_known else time.time() - result.metadata.duration_seconds


def is_failure(result: Return) -> bool:
    return result.status is Status.FAILED or result.stop_reason is StopReason.REFUSED


def handle_document(record: Record, waited_seconds: float, now: float) -> Document:
    """The handle of a running delegation: how to ask again."""
    words = "is queued" if record.state is State.QUEUED else "is running"
    return {
        **result_of_record(record).to_dict(),
        "session_id": record.session_id,
        "state": str(record.state),
        "agent": record.agent,
        "message": f"{record.agent} {words}; it was waited for {waited_seconds:.0f} s and continues by itself. Ask for its return with "
        f'delegation_result {{"session_id": "{record.session_id}"}}; stop it with delegation_cancel. Do not delegate the same again.',
        "ask_again": {"tool": "delegation_result", "arguments": {"session_id": record.session_id}},
        "age_seconds": round(max(0.0, now - record.created_at), 1),
        "left_seconds": round(max(0.0, record.deadline_at - now), 1),
    }


def error_document(error: RemitError, agent: str = "") -> Document:
    """A remit error in the shape of a return: nothing ran, or its state is unknown."""
    message = shorten(error.message, LONGEST_MESSAGE)
    kind = "unavailable" if isinstance(error, Unavailable) else "refused" if isinstance(error, Refused) else "misused"
    details = {"details": dict(error.details)} if isinstance(error, DelegateError) and error.details else {}
    now = time.time()
    tool = result_of_error(error, agent, now, now).to_dict()
    return {
        **tool,
        "output": message,
        "error": {**tool["error"], "message": message},
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
    """`document` within the size that clients accept, as structure and as text."""
    return _answer(fitting(document, _whole(document)), is_error, links)


def many_answer(outcomes: Sequence[Outcome], root: Path) -> CallToolResult:
    """Several answers at once: each has its share of the size. An error only if all failed."""
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
    """Project files, by their path on this machine."""
    return [
        ResourceLink(
            name=clean_text(artifact.path),
            uri=(root / artifact.path).as_uri(),
            description=clean_text(artifact.summary or artifact.type),
            size=artifact.size,
        )
        for artifact in list(artifacts)[:LINKS]
    ]
