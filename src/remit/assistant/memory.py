"""What the model is shown of one conversation while a message is answered: its history, compacted when it grows, bounded always.

One per message. Joins `history`, `bounding` and `compacting` with the file: whatever is compacted is written down there, so that the next
message, and the next process, begins from it.
"""

from collections.abc import Callable, Sequence

from remit.agents.model.bounding import bounded
from remit.assistant.compacting import (
    LEAST_TOKENS,
    Payer,
    Room,
    cut_of,
    first_said,
    fitted,
    is_too_large,
    preamble_of,
    summarised,
    tasks_in,
)
from remit.assistant.conversations import Conversation
from remit.assistant.history import history_of
from remit.assistant.lines import Compacted
from remit.models.client import Models
from remit.models.messages import Message, Said

_LEAST_SECONDS = 10.0
"""With less time for the whole message, no model is asked for a summary."""


class Memory:
    def __init__(self, conversation: Conversation, message: str, room: Room, now: Callable[[], float]) -> None:
        """Of a conversation to which `message` has just been added."""
        self._conversation = conversation
        self._message = message
        self.room = room
        self._now = now
        self._summary = "" if conversation.compacted is None else conversation.compacted.summary
        old = conversation.messages[: conversation.compacted.count] if conversation.compacted is not None else []
        self._first = first_said(old)
        self._tasks = tasks_in(old)
        self._began_with = self._preamble("") if self._summary else ""
        history = history_of(conversation, self._began_with)
        self.messages = history.messages
        """What the talk begins with; the message is the last of it."""
        self._asked_at = len(history.messages) - 1
        self._origins = history.origins
        self._dropped = 0
        """So many of what the talk holds stand in the preamble."""

    def grown(self) -> None:
        """Something more was said: written down before, and added to what the talk holds."""
        self._origins.append(len(self._conversation.spoken) - 1)

    async def shown(self, models: Models, payer: Payer, seconds: float, messages: list[Message]) -> list[Message]:
        """What is asked instead of `messages`, which is all that the talk holds."""
        messages = bounded(messages, self.room.characters)
        view = self._view(messages)
        if is_too_large(view, self.room) and (at := cut_of(messages[self._dropped :], self.room)):
            await self._compact(models, payer, seconds, messages, self._dropped + at)
            view = self._view(messages)
        return fitted(view, self.room)

    async def _compact(self, models: Models, payer: Payer, seconds: float, messages: list[Message], at: int) -> None:
        old = self._bare(messages[self._dropped : at])
        self._first = self._first or first_said(old)
        self._tasks = list(dict.fromkeys([*self._tasks, *tasks_in(old)]))[-40:]
        seconds = seconds / 3 if seconds >= _LEAST_SECONDS else 0.0
        summary = await summarised(models, payer, old, self._summary, self.room, seconds)
        self._summary, self._dropped = summary.text, at
        count = self._origins[at] if at < len(self._origins) else len(self._conversation.spoken)
        self._conversation.append(Compacted(at=self._now(), count=count, summary=summary.text, by=summary.by))

    def _view(self, messages: list[Message]) -> list[Message]:
        if not self._dropped:
            return messages
        kept = messages[self._dropped :]
        preamble = self._preamble(self._message if self._dropped > self._asked_at else "")
        if kept and isinstance(kept[0], Said):
            return [Said(text=f"{preamble}\n\n{kept[0].text}"), *kept[1:]]
        return [Said(text=preamble), *kept]

    def _bare(self, old: Sequence[Message]) -> list[Message]:
        """Without the preamble it begins with: what that says stands in the summary already."""
        first = old[0]
        if not self._began_with or not isinstance(first, Said) or not first.text.startswith(self._began_with):
            return list(old)
        rest = first.text.removeprefix(self._began_with).strip()
        return [*([Said(text=rest)] if rest else []), *old[1:]]

    def _preamble(self, message: str) -> str:
        return preamble_of(self._summary, self._first, message, self._tasks, self.room)


def room_for(setting: int, window: int | None, overhead: int, characters: int) -> Room:
    """`setting` tokens, or 70 % of what the model can read, less what the instructions and the tool take."""
    tokens = setting if window is None else min(setting, int(0.7 * window))
    return Room(tokens=max(LEAST_TOKENS, tokens - overhead), characters=characters)
