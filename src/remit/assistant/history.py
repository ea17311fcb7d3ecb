"""What a model is shown of a conversation: what was said since the last compaction, after the preamble that stands for the rest.

Whatever the file holds, `models.messages.repaired` makes it a history that every provider accepts when it is sent.
"""

from dataclasses import dataclass, field

from remit.assistant.conversations import Conversation
from remit.models.messages import Message, Said

NO_ANSWER = "[I was interrupted before I could answer.]"


@dataclass(slots=True)
class History:
    messages: list[Message] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """For each message its place among all that was said in the conversation."""


def history_of(conversation: Conversation, preamble: str = "") -> History:
    spoken = conversation.spoken
    first = 0 if conversation.compacted is None else min(conversation.compacted.count, len(spoken))
    history = History()
    for place in range(first, len(spoken)):
        if not spoken[place].by:  # what remit told the model in an earlier turn is left out
            history.messages.append(spoken[place].message)
            history.origins.append(place)
    if preamble:
        if history.messages and isinstance(history.messages[0], Said):
            history.messages[0] = Said(text=f"{preamble}\n\n{history.messages[0].text}")
        else:
            history.messages.insert(0, Said(text=preamble))
            history.origins.insert(0, first)
    return history
