"""A conversation as Markdown."""

import json
import re
from datetime import UTC, datetime

from remit.builtin.assistant.conversations import Conversation, MessageLine, StopLine, SummaryLine, reply_of
from remit.core.model_messages import Reply, ToolCall, UserMessage


def _as_message(line: StopLine) -> MessageLine:
    return MessageLine(at=line.at, message=reply_of(line), stopped=line.why)


def export_text(conversation: Conversation) -> str:
    model = f" · {conversation.header.model}" if conversation.header.model else ""
    parts = [f"# {conversation.title}", f"{conversation.conversation_id} · {_moment(conversation.header.created)}{model}"]
    for line in conversation.lines:
        if isinstance(line, SummaryLine):
            parts.append(f"> From here on, the model sees a summary of the messages above ({line.by}).")
        elif isinstance(line, MessageLine):
            parts.append(_in_markdown(line))
    if conversation.stopped is not None:
        parts.append(_in_markdown(_as_message(conversation.stopped)))
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
    return f"<details><summary>result{' (error)' if message.is_error else ''}</summary>\n\n{_fence(message.text)}\n\n</details>"


def _call(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return f"<details><summary>{call.name}</summary>\n\n{_fence(arguments)}\n\n</details>"


def _fence(text: str) -> str:
    """A fence that its content cannot close."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
