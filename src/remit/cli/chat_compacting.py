"""`/compact`: what is old of a conversation summarised now, and not only when it has grown too large for its model.

The last exchange stays as it is, and the file keeps everything. Not a delegation: a person waits for it, at the prompt. What it costs is
written down with the conversation.
"""

import time
from typing import TYPE_CHECKING, Any

from remit.cli.chat_status import Spent
from remit.core.budget import Limits

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.assistant.conversations import Conversation

SECONDS = 60.0


class _Purse:
    """What a summary draws on: as much of a `ctx` as it takes."""

    def __init__(self) -> None:
        self._ends_at = time.monotonic() + SECONDS
        self.tokens = 0
        self.cost = 0.0
        self.budget = Limits()

    @property
    def remaining(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def spend(self, *, tokens: int = 0, cost: float = 0.0) -> None:
        self.tokens += tokens
        self.cost += cost

    def progress(self, message: str, fraction: float | None = None) -> None:
        return None


async def compact_now(remit: "Remit", conversation: "Conversation") -> tuple[str, Spent]:
    """In words, what was done, and what it cost. Raises `Unavailable` where there is no model, `Refused` while it is being answered."""
    from remit.assistant.compacting import summarised
    from remit.assistant.lines import Compacted
    from remit.assistant.lines import Spent as Noted
    from remit.assistant.memory import room_for
    from remit.cli.words import count

    remit.models.choice()  # raises
    settings = remit.settings.assistant
    room = room_for(settings.compact_tokens, None, 0, settings.result_characters)
    with conversation.writing():
        before = conversation.compacted
        first, last = 0 if before is None else before.count, _last_said(conversation)
        if last <= first:
            return "There is nothing old in it: the last exchange stays as it is.", Spent()
        purse = _Purse()
        old = conversation.messages[first:last]
        summary = await summarised(remit.models, purse, old, "" if before is None else before.summary, room, SECONDS)
        conversation.append(Compacted(at=time.time(), count=last, summary=summary.text, by=summary.by))
        spent = _spent(remit, purse)
        if purse.tokens:
            conversation.append(Noted(at=time.time(), tokens=spent.tokens, cost=None if spent.has_unknown else spent.cost))
    how = "by their first lines, as no model answered" if summary.by == "excerpt" else f"by {summary.by}"
    return f"{count(len(old), 'message')} summarised {how}. The file keeps them.", spent


def _spent(remit: "Remit", purse: _Purse) -> Spent:
    from remit.cli.chat_status import is_priced

    return Spent(tokens=purse.tokens, cost=purse.cost, has_unknown=bool(purse.tokens) and not purse.cost and not is_priced(remit.settings))


def _last_said(conversation: "Conversation") -> int:
    """Where the last exchange begins."""
    from remit.models.messages import Said

    said: list[Any] = [place for place, one in enumerate(conversation.spoken) if isinstance(one.message, Said) and not one.by]
    return said[-1] if said else 0
