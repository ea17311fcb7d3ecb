"""A conversation as a document for programs, and as Markdown for people. Writes nothing."""

import json
from datetime import UTC, datetime
from typing import Any

from remit.builtin.assistant.conversations import CallLine, Conversation, Line, MessageLine, StopLine, SummaryLine, Turn, reply_of
from remit.core.model_messages import Reply, ToolCall, ToolResult, UserMessage


def export_document(conversation: Conversation) -> dict[str, Any]:
    """Messages in order, each with its time and delegations."""
    seen = conversation.overview(conversation.lines[-1].at if conversation.lines else conversation.header.created)  # type: ignore[union-attr]
    return {
        "id": conversation.conversation_id,
        "title": conversation.title,
        "created": _moment(conversation.header.created),
        "project": conversation.header.project,
        "model": conversation.header.model,
        "tokens": seen.tokens,
        "cost": seen.cost,
        "messages": list(_messages(conversation.lines)),
        "notices": conversation.notices,
    }


def _messages(lines: list[Line]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    children = {line.call_id: line.session_id for line in lines if isinstance(line, CallLine)}
    session = ""
    for number, line in enumerate(lines):
        if isinstance(line, Turn):
            session = line.session_id
        elif isinstance(line, MessageLine):
            found.append({"at": _moment(line.at), "session": session, **_message(line, children)})
        elif isinstance(line, StopLine) and not any(isinstance(later, MessageLine | Turn) for later in lines[number + 1 :]):
            found.append({"at": _moment(line.at), "session": session, **_message(_spoken(line), children)})
    return found


def _spoken(line: StopLine) -> MessageLine:
    return MessageLine(at=line.at, message=reply_of(line), stopped=line.why)


def _message(line: MessageLine, children: dict[str, str]) -> dict[str, Any]:
    message = line.message
    if isinstance(message, UserMessage):
        return {"role": line.by or "user", "text": message.text}
    if isinstance(message, ToolResult):
        found = {"role": "result", "call_id": message.call_id, "is_error": message.is_error, "text": message.text}
        return {**found, "task_id": line.session_id or children.get(message.call_id)}
    calls = [
        {"call_id": call.call_id, "name": call.name, "arguments": call.arguments, "task_id": children.get(call.call_id)}
        for call in message.calls
    ]
    return {
        "role": "assistant",
        "model": message.model,
        "text": message.text,
        "calls": calls,
        **({"stopped": line.stopped} if line.stopped else {}),
    }


def export_text(conversation: Conversation) -> str:
    model = f" · {conversation.header.model}" if conversation.header.model else ""
    parts = [f"# {conversation.title}", f"{conversation.conversation_id} · {_moment(conversation.header.created)}{model}"]
    for line in conversation.lines:
        if isinstance(line, SummaryLine):
            parts.append(f"> From here on, the model sees a summary of the messages above ({line.by}).")
        elif isinstance(line, MessageLine):
            parts.append(_in_markdown(line))
    if conversation.stopped is not None:
        parts.append(_in_markdown(_spoken(conversation.stopped)))
    parts += [f"> {notice}" for notice in conversation.notices]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_markdown(line: MessageLine) -> str:
    message = line.message
    when = datetime.fromtimestamp(line.at, UTC).strftime("%H:%M")
    if isinstance(message, UserMessage):
        if line.by:
            return f"> {message.text}"
        return f"## You, {when}\n\n{message.text}"
    if isinstance(message, Reply):
        words = f"## Assistant, {when}\n\n{message.text}" if message.text else ""
        return "\n\n".join(part for part in (words, *map(_call, message.calls)) if part)
    return f"<details><summary>result{' (error)' if message.is_error else ''}</summary>\n\n{_fenced(message.text)}\n\n</details>"


def _call(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return f"<details><summary>{call.name}</summary>\n\n{_fenced(arguments)}\n\n</details>"


def _fenced(text: str) -> str:
    """A fence that its content cannot close."""
    longest, run = 2, 0
    for sign in text:
        run = run + 1 if sign == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
