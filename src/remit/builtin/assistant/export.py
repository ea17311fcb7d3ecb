"""A conversation as Markdown."""

import html
import json
from datetime import UTC, datetime

from remit.builtin.assistant.conversations import Conversation, MessageLine, SummaryLine, reply_of
from remit.core.deadline import iso
from remit.core.model_messages import Reply, ToolCall, UserMessage
from remit.core.text import code_block, one_line


def export_text(conversation: Conversation) -> str:
    model = f" · {conversation.header.model}" if conversation.header.model else ""
    parts = [f"# {conversation.title}", f"{conversation.conversation_id} · {iso(conversation.header.created)}{model}"]
    for line in conversation.lines:
        if isinstance(line, SummaryLine):
            parts.append(f"> From here on, the model sees a summary of the messages above ({line.by}).")
        elif isinstance(line, MessageLine):
            parts.append(_in_markdown(line))
    if conversation.stopped is not None:
        parts.append(_in_markdown(MessageLine(at=conversation.stopped.at, message=reply_of(conversation.stopped))))
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
    return f"<details><summary>result{' (error)' if message.is_error else ''}</summary>\n\n{code_block(message.text)}\n\n</details>"


def _call(call: ToolCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return f"<details><summary>{html.escape(one_line(call.name))}</summary>\n\n{code_block(arguments)}\n\n</details>"
