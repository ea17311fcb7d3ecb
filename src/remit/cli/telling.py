"""Events in words: what an agent said, as a line for a person. Structured chunks of coding agents read like their progress.

Draws nothing and asks nobody. Used by `watch` for what each delegation does now, and by whoever lists events.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

from remit.cli.output import json_text
from remit.cli.words import spent
from remit.core.events import Event, EventKind

REMEMBERED = 50
"""So many lines of one delegation are looked back at for what was told already."""
TROUBLE = ("failed", "denied")


class Teller:
    """Tells events one after another, nothing twice: coding agents say a tool's call both as progress and as a chunk for programs."""

    def __init__(self) -> None:
        self._progress: dict[str, deque[str]] = {}
        self._chunks: dict[str, deque[str]] = {}

    def tell(self, event: Event) -> str:
        """Its words; empty when there is nothing new to tell."""
        text = told(event)
        if event.kind is EventKind.PROGRESS:
            self._remember(self._progress, event, text)
            if text in self._chunks.get(event.session_id, ()):
                self._chunks[event.session_id].remove(text)  # the same call may be made again
                return ""
        elif event.kind is EventKind.DATA and (call := _call_of(event.body.get("chunk"))) is not None:
            if self._is_told(event.session_id, *call):
                return ""
            self._remember(self._chunks, event, text)
        return text

    def _is_told(self, session_id: str, subject: str, status: str) -> bool:
        known = [line for line in self._progress.get(session_id, ()) if subject in line]
        return any(status in line for line in known) if status in TROUBLE else bool(known)

    @staticmethod
    def _remember(lines: dict[str, deque[str]], event: Event, text: str) -> None:
        lines.setdefault(event.session_id, deque(maxlen=REMEMBERED)).append(text)


def told(event: Event) -> str:
    """An event in words; empty when it has none."""
    body = event.body
    match event.kind:
        case EventKind.STEP:
            return str(body["step"])
        case EventKind.PROGRESS | EventKind.NOTICE:
            return str(body.get("message", ""))
        case EventKind.DATA:
            return _chunk(body.get("chunk"))
        case EventKind.ARTIFACT:
            return f"{body.get('type')}: {body.get('path')}"
        case EventKind.SPENT:
            words = spent(body.get("tokens") or 0, body.get("cost") or 0.0)
            return f"{words} spent so far" if words else ""
        case EventKind.CANCEL:
            return _cancel(body)
    return ""


def _cancel(body: Mapping[str, Any]) -> str:
    reason = str(body.get("reason") or "").rstrip(".")
    by = f"by {body.get('source')}{f': {reason}' if reason else ''}"
    state = body.get("state")
    if state == "requested":
        return f"Cancel requested {by}."
    return f"Cancelled {by}; {'it did not stop and was abandoned' if state == 'abandoned' else state}."


def _chunk(chunk: Any) -> str:
    """A chunk may be anything; those of coding agents have shapes of their own (`agents.coding.hearing`, `agents.acp.hearing`)."""
    if isinstance(chunk, str):
        return chunk
    if not isinstance(chunk, Mapping | list | tuple):
        return f"{chunk}"
    match chunk:
        case {"tool": {"status": str(status)} as tool} if len(chunk) == 1:
            return f"{_subject(tool)} ({status})"
        case {"permission": {"decision": str(decision)} as asked} if len(chunk) == 1:
            words = f"Permission {decision} for {_subject(asked)}"
            return f"{words} ({asked['because']})." if asked.get("because") else words
        case {"plan": list(steps)} if len(chunk) == 1 and steps and all(isinstance(step, Mapping) for step in steps):
            return _plan(steps)
        case {"stream": str(), "text": str(text)} if len(chunk) == 2:
            return text.rstrip()
    return json_text(chunk)


def _subject(call: Mapping[str, Any]) -> str:
    kind = call.get("kind") or "tool"
    return f"{kind}: {call['title']}" if call.get("title") else f"{kind}"


def _plan(steps: list[Mapping[str, Any]]) -> str:
    done = sum(step.get("status") == "completed" for step in steps)
    now = next((step.get("step") for step in steps if step.get("status") == "in_progress"), "")
    return f"Plan: {done} of {len(steps)} done{f', now: {now}' if now else ''}"


def _call_of(chunk: Any) -> tuple[str, str] | None:
    """What progress about the same thing says, and how it stands with it; None for a chunk that is nothing of the kind."""
    match chunk:
        case {"tool": {"status": str(status)} as tool}:
            return _subject(tool), status
        case {"permission": {"decision": str(decision)} as asked}:
            return f"Permission {decision} for {_subject(asked)}", decision
        case {"plan": list(steps)} if steps and all(isinstance(step, Mapping) for step in steps):
            return _plan(steps), ""
    return None
