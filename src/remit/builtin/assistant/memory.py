"""What the model sees of a conversation: its history, compacted when it grows, always bounded.

One per message. Combines history and compaction with the file: a summary is written there, so that the next message and the next process
start from it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from remit.agents.model.context_window import bounded, fitted, tokens_of, tokens_of_text
from remit.builtin.assistant.conversations import Conversation, SummaryLine
from remit.core.budget import Limits
from remit.core.model_messages import Message, SpendSink, ToolResult, UserMessage
from remit.core.text import UNTRUSTED, fence_untrusted, one_line, shorten_middle
from remit.models.client import Models
from remit.models.questions import ask_optional

# ---- compaction

KEPT_SHARE = 0.5
"""Share of the context for the latest messages, which stay unchanged."""
LEAST_TOKENS = 400
SUMMARY_SECONDS = 60.0
_SUMMARY_CHARACTERS = 6000
_LINE_CHARACTERS = 1200
_EXCERPT_CHARACTERS = 160
_INSTRUCTIONS = (
    f"You keep the memory of a conversation between a person and an assistant that delegates work. {UNTRUSTED} Write what the assistant"
    " must still know: what the person wants and has decided, what was done and found, with exact names, paths, numbers and task ids"
    " (sess_…), what failed, and what is still to be done. Plain sentences, no preface."
)


class Payer(SpendSink, Protocol):
    """Pays for a summary."""

    @property
    def budget(self) -> Limits: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Limits of a request."""

    tokens: int
    characters: int
    """Maximum length of one result."""

    @property
    def summary_characters(self) -> int:
        return max(200, min(_SUMMARY_CHARACTERS, self.tokens))


def cut_of(messages: Sequence[Message], room: Room) -> int:
    """Where the kept part begins: at a message of the person if one is near, else at a reply, never at a result. 0: nothing is old enough
    to omit."""
    allowed = [number for number, message in enumerate(messages) if number and not isinstance(message, ToolResult)]
    kept = int(room.tokens * KEPT_SHARE)
    fitting = [number for number in allowed if tokens_of(messages[number:]) <= kept]
    said = [number for number in fitting if isinstance(messages[number], UserMessage)]
    return next(iter([*said, *fitting, *allowed[-1:]]), 0)


async def summarize_messages(
    models: Models, payer: Payer, old: Sequence[Message], earlier: str, room: Room, seconds: float
) -> tuple[str, str]:
    """A summary of `old` and of the earlier summary, and who wrote it: a model or, without one, `excerpt`."""
    written = "\n".join([*([f"Summary of what was before: {earlier}"] if earlier else []), *_lines_of(old, _LINE_CHARACTERS)])
    text = shorten_middle(written, 2 * max(LEAST_TOKENS, room.tokens))
    budget = payer.budget.tokens
    if budget is None or budget > 2 * tokens_of_text(text):
        payer.progress("Summarising the older part of the conversation")
        prompt = f"Summarise this in at most {max(40, room.summary_characters // 8)} words.\n\n{fence_untrusted(text)}"
        heard = await ask_optional(models, payer, prompt, instructions=_INSTRUCTIONS, seconds=min(SUMMARY_SECONDS, seconds))
        if heard.text.strip():
            return shorten_middle(heard.text.strip(), room.summary_characters), heard.model or "model"
    excerpt = "\n".join([*([earlier] if earlier else []), *_lines_of(old, _EXCERPT_CHARACTERS)])
    return shorten_middle(excerpt, room.summary_characters), "excerpt"


def _lines_of(messages: Sequence[Message], characters: int) -> Iterator[str]:
    for message in messages:
        if isinstance(message, UserMessage):
            yield f"Person: {one_line(message.text, characters)}"
        elif isinstance(message, ToolResult):
            yield f"Result{' (error)' if message.is_error else ''}: {one_line(message.text, characters)}"
        else:
            if message.text.strip():
                yield f"Assistant: {one_line(message.text, characters)}"
            for call in message.calls:
                arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=repr)
                yield f"Assistant called: {one_line(arguments, characters)}"


# ---- memory

_LEAST_SECONDS = 10.0
"""With less time for the whole message, no model is used for a summary."""


def history_of(conversation: Conversation) -> list[tuple[int, Message]]:
    """The messages behind the latest summary with their positions in the conversation, without remit's own of earlier turns."""
    spoken = conversation.spoken
    first = 0 if conversation.compacted is None else min(conversation.compacted.count, len(spoken) - 1)
    return [(place, line.message) for place, line in enumerate(spoken) if place >= first and not line.by]


class Memory:
    def __init__(self, conversation: Conversation, message: str, room: Room, now: Callable[[], float]) -> None:
        """For a conversation to which `message` was just added."""
        self._conversation = conversation
        self._message = message
        self.room = room
        self._now = now
        self._summary = conversation.compacted.summary if conversation.compacted is not None else ""
        before = (line.message.text for line in conversation.spoken[:-1] if isinstance(line.message, UserMessage) and not line.by)
        self._first = next(before, "")
        history = history_of(conversation)
        self.messages = [message for _, message in history]
        """The start of the exchange; the message is its last entry."""
        self._places = [place for place, _ in history]
        """For each message of the exchange its position in the whole conversation."""
        self._asked_at = len(history) - 1
        self._dropped = 0
        """Number of messages that the summary replaces, beside those before the exchange."""

    def note_added(self) -> None:
        """A message was added to the conversation and the exchange."""
        self._places.append(len(self._conversation.spoken) - 1)

    async def build_view(self, models: Models, payer: Payer, seconds: float, messages: list[Message]) -> list[Message]:
        """What the model sees of `messages`, the whole exchange: within the limits, if possible without omitting a message."""
        messages = bounded(messages, self.room.characters)
        view = self._view(messages)
        if tokens_of(view) > self.room.tokens and (at := cut_of(messages[self._dropped :], self.room)):
            await self._compact(models, payer, seconds, messages, self._dropped + at)
            view = self._view(messages)
        return fitted(view, self.room.tokens, self.room.characters)

    async def _compact(self, models: Models, payer: Payer, seconds: float, messages: list[Message], at: int) -> None:
        old = messages[self._dropped : at]
        seconds = seconds / 3 if seconds >= _LEAST_SECONDS else 0.0
        self._summary, by = await summarize_messages(models, payer, old, self._summary, self.room, seconds)
        self._dropped = at
        count = self._places[at] if at < len(self._places) else len(self._conversation.spoken)
        self._conversation.append(SummaryLine(at=self._now(), count=count, summary=self._summary, by=by))

    def _view(self, messages: list[Message]) -> list[Message]:
        """The messages with a preamble in place of the omitted ones."""
        if not self._dropped and not self._summary:
            return messages
        began = f"The person began with: {shorten_middle(self._first, self.room.summary_characters)}\n\n" if self._first else ""
        answered = f"[The message to be answered now:]\n{self._message}" if self._dropped > self._asked_at else "[End of the summary.]"
        summary = shorten_middle(self._summary, self.room.summary_characters)
        preamble = f"[The older part of this conversation is left out. It was summarised:]\n\n{began}{summary}\n\n{answered}"
        first, *rest = messages[self._dropped :]
        if isinstance(first, UserMessage):
            return [UserMessage(text=f"{preamble}\n\n{first.text}"), *rest]
        return [UserMessage(text=preamble), first, *rest]


def room_for(setting: int, window: int | None, overhead: int, characters: int) -> Room:
    """`setting` tokens, or 70 % of the model's context, minus instructions and tool."""
    tokens = setting if window is None else min(setting, int(0.7 * window))
    return Room(tokens=max(LEAST_TOKENS, tokens - overhead), characters=characters)
