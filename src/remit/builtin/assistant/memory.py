"""What the model sees of a conversation: its history, compacted when it grows, always bounded.

One per message. Combines history and compaction with the file: a summary is written there, so that the next message and the next process
start from it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from remit.agents.model.context_window import bounded, squeezed, tokens_of, tokens_of_text
from remit.builtin.assistant.conversations import Conversation, SummaryLine
from remit.core.budget import Limits
from remit.core.model_messages import Message, SpendSink, ToolResult, UserMessage
from remit.core.text import UNTRUSTED, fence_untrusted, shorten_middle
from remit.models.client import Models
from remit.models.questions import ask_optional

# ---- compaction

KEPT_SHARE = 0.5
"""Share of the context for the latest messages, which stay unchanged."""
LEAST_TOKENS = 400
SUMMARY_SECONDS = 60.0
_SUMMARY_CHARACTERS = 6000
_PINNED_CHARACTERS = 1500
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
class Summary:
    text: str
    by: str
    """The model, or `excerpt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Limits of a request."""

    tokens: int
    characters: int
    """Maximum length of one result."""

    @property
    def summary_characters(self) -> int:
        return max(200, min(_SUMMARY_CHARACTERS, self.tokens))

    @property
    def pinned_characters(self) -> int:
        return max(100, min(_PINNED_CHARACTERS, self.tokens // 3))


def is_too_large(messages: Sequence[Message], room: Room) -> bool:
    return tokens_of(messages) > room.tokens


def cut_of(messages: Sequence[Message], room: Room) -> int:
    """Where the kept part begins: at a message of the person if one is near, else at a reply, never at a result. 0: nothing is old enough
    to omit."""
    allowed = [number for number, message in enumerate(messages) if number and not isinstance(message, ToolResult)]
    if not allowed:
        return 0
    kept = int(room.tokens * KEPT_SHARE)
    left, tails = 0, {}
    for number in reversed(range(len(messages))):
        left += tokens_of(messages[number : number + 1])
        tails[number] = left
    fitting = [number for number in allowed if tails[number] <= kept]
    said = [number for number in fitting if isinstance(messages[number], UserMessage)]
    return said[0] if said else fitting[0] if fitting else allowed[-1]


def preamble_of(summary: str, first: str, message: str, room: Room) -> str:
    """Replaces omitted messages: the first message, the summary, and the message being answered, if that is omitted."""
    parts = [
        "[The older part of this conversation is left out. It was summarised:]",
        f"The person began with: {shorten_middle(first, room.pinned_characters)}" if first else "",
        shorten_middle(summary, room.summary_characters),
        f"[The message to be answered now:]\n{message}" if message else "[End of the summary.]",
    ]
    return "\n\n".join(part for part in parts if part)


def fitted(messages: Sequence[Message], room: Room) -> list[Message]:
    """Within the limits, if possible without omitting a message. For bounded messages."""
    return list(messages) if tokens_of(messages) <= room.tokens else squeezed(messages, room.tokens, room.characters)


async def summarised(models: Models, payer: Payer, old: Sequence[Message], earlier: str, room: Room, seconds: float) -> Summary:
    """A summary of `old`, and of the earlier summary."""
    text = _written_out(old, earlier, room)
    budget = payer.budget.tokens
    if budget is None or budget > 2 * tokens_of_text(text):
        payer.progress("Summarising the older part of the conversation")
        prompt = f"Summarise this in at most {max(40, room.summary_characters // 8)} words.\n\n{fence_untrusted(text)}"
        heard = await ask_optional(models, payer, prompt, instructions=_INSTRUCTIONS, seconds=min(SUMMARY_SECONDS, seconds))
        if heard.text.strip():
            return Summary(text=shorten_middle(heard.text.strip(), room.summary_characters), by=heard.model or "model")
    return Summary(text=shorten_middle(excerpt(old, earlier), room.summary_characters), by="excerpt")


def excerpt(old: Sequence[Message], earlier: str) -> str:
    """The first line of each message: works without a model."""
    lines = [earlier] if earlier else []
    lines += [line for message in old for line in _lines_of(message, _EXCERPT_CHARACTERS)]
    return "\n".join(lines)


def _written_out(old: Sequence[Message], earlier: str, room: Room) -> str:
    lines = [f"Summary of what was before: {earlier}"] if earlier else []
    lines += [line for message in old for line in _lines_of(message, _LINE_CHARACTERS)]
    return shorten_middle("\n".join(lines), 2 * max(LEAST_TOKENS, room.tokens))


def _lines_of(message: Message, characters: int) -> list[str]:
    if isinstance(message, UserMessage):
        return [f"Person: {_line(message.text, characters)}"]
    if isinstance(message, ToolResult):
        return [f"Result{' (error)' if message.is_error else ''}: {_line(message.text, characters)}"]
    said = [f"Assistant: {_line(message.text, characters)}"] if message.text.strip() else []
    asked = [call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, default=repr) for call in message.calls]
    calls = [f"Assistant called: {_line(arguments, characters)}" for arguments in asked]
    return [*said, *calls]


def _line(text: str, characters: int) -> str:
    flat = " ".join(text[: characters * 4].split())
    return flat if len(flat) <= characters and len(text) <= characters * 4 else flat[:characters] + " …"


def first_said(messages: Sequence[Message]) -> str:
    return next((message.text for message in messages if isinstance(message, UserMessage)), "")


# ---- history

NO_ANSWER = "[I was interrupted before I could answer.]"


@dataclass(slots=True)
class History:
    messages: list[Message] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """For each message its position in the whole conversation."""


def history_of(conversation: Conversation, preamble: str = "") -> History:
    spoken = conversation.spoken
    first = 0 if conversation.compacted is None else min(conversation.compacted.count, len(spoken))
    history = History()
    for place in range(first, len(spoken)):
        if not spoken[place].by:  # remit's own messages of earlier turns are omitted
            history.messages.append(spoken[place].message)
            history.origins.append(place)
    if preamble:
        if history.messages and isinstance(history.messages[0], UserMessage):
            history.messages[0] = UserMessage(text=f"{preamble}\n\n{history.messages[0].text}")
        else:
            history.messages.insert(0, UserMessage(text=preamble))
            history.origins.insert(0, first)
    return history


# ---- memory

_LEAST_SECONDS = 10.0
"""With less time for the whole message, no model is used for a summary."""


class Memory:
    def __init__(self, conversation: Conversation, message: str, room: Room, now: Callable[[], float]) -> None:
        """For a conversation to which `message` was just added."""
        self._conversation = conversation
        self._message = message
        self.room = room
        self._now = now
        self._summary = "" if conversation.compacted is None else conversation.compacted.summary
        old = conversation.messages[: conversation.compacted.count] if conversation.compacted is not None else []
        self._first = first_said(old)
        self._began_with = self._preamble("") if self._summary else ""
        history = history_of(conversation, self._began_with)
        self.messages = history.messages
        """The start of the exchange; the message is its last entry."""
        self._asked_at = len(history.messages) - 1
        self._origins = history.origins
        self._dropped = 0
        """Number of messages that the preamble replaces."""

    def grown(self) -> None:
        """A message was added to the conversation and the exchange."""
        self._origins.append(len(self._conversation.spoken) - 1)

    async def shown(self, models: Models, payer: Payer, seconds: float, messages: list[Message]) -> list[Message]:
        """What the model sees of `messages`, the whole exchange."""
        messages = bounded(messages, self.room.characters)
        view = self._view(messages)
        if is_too_large(view, self.room) and (at := cut_of(messages[self._dropped :], self.room)):
            await self._compact(models, payer, seconds, messages, self._dropped + at)
            view = self._view(messages)
        return fitted(view, self.room)

    async def _compact(self, models: Models, payer: Payer, seconds: float, messages: list[Message], at: int) -> None:
        old = self._bare(messages[self._dropped : at])
        self._first = self._first or first_said(old)
        seconds = seconds / 3 if seconds >= _LEAST_SECONDS else 0.0
        summary = await summarised(models, payer, old, self._summary, self.room, seconds)
        self._summary, self._dropped = summary.text, at
        count = self._origins[at] if at < len(self._origins) else len(self._conversation.spoken)
        self._conversation.append(SummaryLine(at=self._now(), count=count, summary=summary.text, by=summary.by))

    def _view(self, messages: list[Message]) -> list[Message]:
        if not self._dropped:
            return messages
        kept = messages[self._dropped :]
        preamble = self._preamble(self._message if self._dropped > self._asked_at else "")
        if kept and isinstance(kept[0], UserMessage):
            return [UserMessage(text=f"{preamble}\n\n{kept[0].text}"), *kept[1:]]
        return [UserMessage(text=preamble), *kept]

    def _bare(self, old: Sequence[Message]) -> list[Message]:
        """Without the preamble, which the summary already contains."""
        first = old[0]
        if not self._began_with or not isinstance(first, UserMessage) or not first.text.startswith(self._began_with):
            return list(old)
        rest = first.text.removeprefix(self._began_with).strip()
        return [*([UserMessage(text=rest)] if rest else []), *old[1:]]

    def _preamble(self, message: str) -> str:
        return preamble_of(self._summary, self._first, message, self.room)


def room_for(setting: int, window: int | None, overhead: int, characters: int) -> Room:
    """`setting` tokens, or 70 % of the model's context, minus instructions and tool."""
    tokens = setting if window is None else min(setting, int(0.7 * window))
    return Room(tokens=max(LEAST_TOKENS, tokens - overhead), characters=characters)
